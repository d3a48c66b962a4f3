"""Requests and answers between the two halves of a graded test run; a half also answers requests while it waits.

Both halves use the class `Peer`. An object that is not copied stays in its half; the other half gets its number and a
`Proxy` for it (guest/proxy.py). Arguments are copied. Lists, dicts, sets, byte arrays and numpy arrays that the callee
changed are copied back into the caller's. The worker's standard output travels with its messages.

The grader's peer is `guarded`: it trusts nothing that arrives. After a malformed message, a silence past the deadline
or a closed channel the peer is lost: the request and all later ones raise `PeerLost`, and `lost` says why. `PeerLost`
is no `Exception`, so that no test expects it by accident. guest/policy.py decides what the worker may do with the
grader's objects."""

import contextlib
import operator
import signal
import socket
import struct
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from turnwise_sandbox.grading.guest.wire import MAX_FRAME_BYTES, Decoder, Encoder, WireError, from_frame, to_frame

MAX_REQUEST_DEPTH = 100
"""Maximum nesting of calls, both directions together."""
MAX_PRINTED_CHARS = 200_000
"""Maximum number of characters that the other half can print here, so that it cannot exhaust this half's output
limit."""
MAX_OBJECTS = 1 << 20
"""Maximum number of objects that one half keeps for the other."""


class PeerLost(BaseException):
    """The other half ended, is silent or breaks the protocol."""


PLAIN_TYPES: tuple[Any, ...] = (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset)


def get_plain(value: Any) -> Any:
    """The content of an instance of a subclass of a copied type, as that type. Raises TypeError for other objects.

    Uses the methods of the built-in type, so that methods of the subclass have no effect.
    """
    for kind in PLAIN_TYPES:
        if isinstance(value, kind) and type(value) is not kind:
            if kind is dict:
                return {key: dict.__getitem__(value, key) for key in dict.__iter__(value)}
            if kind in (int, float, complex):
                return kind.__add__(value, kind(0))
            if kind is str:
                return "".join(str.__iter__(value))
            return kind(kind.__iter__(value))
    raise TypeError(f"{type(value).__name__} has no plain content")


def enter(value: Any) -> Any:
    """Enter `with value`."""
    return type(value).__enter__(value)


def leave(value: Any, kind: Any, error: Any) -> Any:
    """Leave `with value`; tracebacks are not sent."""
    return type(value).__exit__(value, kind, error, None)


def run_coroutine(value: Any) -> Any:
    """Run a coroutine to its end."""
    import asyncio

    async def finish() -> Any:
        return await value

    return asyncio.run(finish())


def copy_object(value: Any, deep: bool) -> Any:
    """A copy of the object, made in its own half."""
    import copy

    return copy.deepcopy(value) if deep else copy.copy(value)


ARITHMETIC = "add sub mul matmul truediv floordiv mod pow lshift rshift and_ or_ xor"
IN_PLACE = "iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor"
ORDERING = "lt le gt ge"
ITEMS = "neg pos invert getitem setitem delitem contains index eq ne"
BINARY = f"{ARITHMETIC} {IN_PLACE} {ORDERING} divmod".split()
REFLECTED = f"{ARITHMETIC} divmod".split()


def reflect(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operation with exchanged operands."""
    return lambda a, b: operation(b, a)


FORWARD: dict[str, Callable[..., Any]] = {
    "divmod": divmod,
    **{name: getattr(operator, name) for name in f"{ARITHMETIC} {IN_PLACE} {ORDERING} {ITEMS}".split()},
}


def lookup(target: Any, owner: type, name: str) -> Any:
    """The attribute `name` of `target` as class `owner` has it; its own if no class before `owner` has it."""
    first = next((base for base in type(target).__mro__ if name in vars(base)), None)
    if first is owner or first is None:
        return getattr(target, name)
    member = vars(owner)[name]
    get = getattr(type(member), "__get__", None)
    return member if get is None else get(member, target, type(target))


OPERATIONS: dict[str, Callable[..., Any]] = {
    **FORWARD,
    "lookup": lookup,
    **{"r" + name: reflect(FORWARD[name]) for name in REFLECTED},
    **{
        f.__name__: f
        for f in (
            getattr,
            setattr,
            delattr,
            iter,
            next,
            len,
            str,
            repr,
            format,
            bytes,
            hash,
            bool,
            dir,
            abs,
            int,
            float,
        )
    },
    **{f.__name__: f for f in (complex, round, reversed)},
    "is_instance_of": lambda target, value: isinstance(value, target),
    "is_subclass_of": lambda target, value: issubclass(value, target),
    "call": lambda target, args, kwargs: target(*args, **kwargs),
    "plain": get_plain,
    "enter": enter,
    "leave": leave,
    "await": run_coroutine,
    "copy": copy_object,
    "vars": lambda target: dict(vars(target)),
}
"""The operations that one half can ask for on objects of the other, which are the first argument."""


class Peer:
    """This half's end of the channel.

    `policy(peer, operation, arguments)` raises for a request that is refused; None refuses nothing. `drain` returns
    printed text to send with the next message; None sends none. `deadline` is the time on the `time.monotonic()` clock
    after which the other half counts as lost; None means never."""

    def __init__(
        self,
        channel: socket.socket,
        *,
        guarded: bool,
        deadline: float | None = None,
        policy: Callable[["Peer", str, list[Any]], None] | None = None,
        drain: Callable[[], list[str]] | None = None,
        allow_operators: bool = False,
        request_limit_s: float = 0.0,
    ) -> None:
        self.channel, self.guarded, self.deadline, self.policy, self.drain = channel, guarded, deadline, policy, drain
        self.allow_operators, self.request_limit_s = allow_operators, request_limit_s
        self.operations = dict(OPERATIONS)
        self.lost: str | None = None
        self.escaped: list[str] = []
        """Failed assertions of callbacks, as text; the recorder of the tests empties it."""
        self.kept: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.stand_ins: dict[int, Any] = {}
        self.sent: set[int] = set()
        """Numbers of the objects that the other half has a description of."""
        self.implied: set[int] = set()
        """The subset of those that it knows only as the class of another object; it may do nothing with these."""
        self.functions: dict[int, int] = {}
        """The other half's number of each function here that calls one of its own, by `id`."""
        self.words = 0
        """How often the candidate was asked to compare two of its own objects."""
        self.depth = 0
        self.print_chars_left = MAX_PRINTED_CHARS
        self.lock = threading.RLock()

    # -------------------------------------------------------------------------------------------- asking

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Ask the other half for an operation; returns its result or raises its exception. Raises PeerLost."""
        with self.lock:
            if self.lost is not None:
                raise PeerLost(self.lost)
            if self.depth >= MAX_REQUEST_DEPTH:
                raise RecursionError(f"test and candidate call each other more than {MAX_REQUEST_DEPTH} levels deep")
            encoder = self.encoder()
            frame = to_frame(
                self.with_output({"q": operation, "a": [encoder.encode(argument) for argument in arguments]})
            )
            self.commit(encoder)
            self.depth += 1
            try:
                message = self.exchange(frame)
                return self.unpack(message, encoder.kept)
            finally:
                self.depth -= 1

    def exchange(self, frame: bytes) -> dict[str, Any]:
        """Send a request and answer requests until its answer is here. Raises PeerLost, also later if a signal's
        handler raised in between, because the rest of the answer would be taken for that of the next request."""
        try:
            self.send(frame)
            message = self.receive()
            while "q" in message:
                self.answer(message)
                message = self.receive()
        except BaseException as problem:
            self.lost = self.lost or f"the worker was interrupted: {problem}"
            raise
        return message

    def unpack(self, message: dict[str, Any], kept: list[Any]) -> Any:
        """Read an answer: copy changed arguments back, then return the result or raise the exception."""
        try:
            decoder = self.decoder(kept)
            for number, content in message.get("w", ()):
                decoder.fill(kept[number], content)
            failed = "e" in message
            value = decoder.decode(message["e" if failed else "r"])
        except (WireError, KeyError, TypeError, ValueError, IndexError) as problem:
            self.lose(f"the worker sent a malformed answer: {str(problem)[:200]}")
        if not failed:
            return value
        if isinstance(value, KeyboardInterrupt | GeneratorExit) and self.guarded:
            # The original exception would end the whole test run.
            raise RuntimeError(f"the candidate raised {type(value).__name__}")
        if isinstance(value, BaseException):
            raise value
        self.lose("the worker sent an error that is no exception")

    # -------------------------------------------------------------------------------------------- answering

    def serve(self) -> None:
        """Answer requests until the channel closes."""
        while True:
            try:
                message = self.receive()
            except PeerLost:
                return
            signal.setitimer(signal.ITIMER_PROF, self.request_limit_s)
            self.answer(message)
            signal.setitimer(signal.ITIMER_PROF, 0)

    def answer(self, message: dict[str, Any]) -> None:
        """Perform a request and send its result or its exception."""
        decoder = self.decoder(())
        try:
            arguments = [decoder.decode(item) for item in message["a"]]
            run = self.operations[message["q"]]
        except (WireError, KeyError, TypeError) as problem:
            if not self.guarded:  # the tests asked for something that cannot be made here; the worker continues
                self.send(self.pack("e", TypeError(str(problem)), [], []))
                return
            self.lose(f"a malformed request: {type(problem).__name__}: {str(problem)[:200]}")
        before = [snapshot(value) for value in decoder.kept]
        self.depth += 1
        try:
            if self.depth > MAX_REQUEST_DEPTH:
                raise RecursionError(f"test and candidate call each other more than {MAX_REQUEST_DEPTH} levels deep")
            if self.policy is not None:
                self.policy(self, message["q"], arguments)
            name, value = "r", run(*arguments)
        except PeerLost:
            raise
        except BaseException as error:
            # The exception of `pytest.fail` gives "builtins" as its module.
            if isinstance(error, AssertionError) or (type(error).__module__, type(error).__name__) == (
                "builtins",
                "Failed",
            ):
                self.escaped.append(f"{type(error).__name__} in a callback: {str(error)[:200]}")
            name, value = "e", error
        finally:
            self.depth -= 1
        try:
            frame = self.pack(name, value, decoder.kept, before)
        except Exception as problem:
            refusal = AttributeError if message["q"] in ("getattr", "lookup") else ValueError
            frame = self.pack("e", refusal(str(problem)), [], [])
        self.send(frame)

    def pack(self, name: str, value: Any, kept: list[Any], before: list[Any]) -> bytes:
        """The frame of an answer, with the arguments that the call changed."""
        encoder = self.encoder(kept)
        changed = [[i, encoder.content(kept[i])] for i in range(len(before)) if is_changed(kept[i], before[i])]
        frame = to_frame(self.with_output({"w": changed, name: encoder.encode(value)}))
        self.commit(encoder)
        return frame

    # -------------------------------------------------------------------------------------------- references

    def encoder(self, kept: Any = ()) -> Encoder:
        """An encoder for one message."""
        return Encoder(self.export, kept, functions=self.guarded)

    def decoder(self, kept: Any = ()) -> Decoder:
        """A decoder for one message."""
        return Decoder(self.resolve, kept, functions=not self.guarded)

    def export(self, value: Any, encoder: Encoder) -> list[Any]:
        """A reference to `value`, by the other half's number if the object is the other half's, else by this half's.
        The first reference to an object describes it."""
        from turnwise_sandbox.grading.guest import shared, stand_ins

        remote = getattr(type(value), "_turnwise_reference", None)
        if remote is not None and (reference := remote(value)) is not None and reference[0] is self:
            return ["m", reference[1]]
        if (number := self.functions.get(id(value))) is not None:
            return ["m", number]
        if isinstance(value, types.ModuleType) and not self.guarded:
            return ["M", value.__name__]
        if isinstance(value, BaseException):
            return ["x", *map(encoder.encode, (self.number(value), type(value), value.args, message_of(value)))]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["X", self.number(value), value.__name__, *map(encoder.encode, value.__bases__)]
        if self.guarded:
            if (named := shared.name_of(value)) is not None:
                return named
            if (reduced := shared.reduce_immutable(value)) is not None:
                return ["RD", *map(encoder.encode, (reduced[0], *reduced[1]))]
        number = self.number(value)
        if not encoder.is_implied:
            self.implied.discard(number)
        if number in self.sent or number in encoder.fresh:
            return ["h", number]
        encoder.fresh[number] = encoder.is_implied
        return stand_ins.describe(self, value, number, encoder)

    def number(self, value: Any) -> int:
        """The number of `value` for the other half. The object is kept from then on."""
        number = self.numbers.get(id(value))
        if number is None:
            if isinstance(value, REFUSED) or (self.guarded and is_machinery(value)):
                raise TypeError(f"a {type(value).__name__} cannot be passed between test and candidate")
            if len(self.kept) >= MAX_OBJECTS:
                raise TypeError(f"more than {MAX_OBJECTS} objects passed between test and candidate")
            number = self.numbers[id(value)] = len(self.kept)
            self.kept[number] = value
        return number

    def resolve(self, data: list[Any], decoder: Decoder) -> Any:
        """The object behind a reference. Raises WireError."""
        from turnwise_sandbox.grading.guest import shared, stand_ins
        from turnwise_sandbox.grading.guest.modules import build_module

        tag, number = data[0], data[1]
        if tag == "IM" and not self.guarded:
            return shared.build_named(data[1], data[2])
        if tag == "RD" and not self.guarded:
            make, *arguments = (decoder.decode(item) for item in data[1:])
            return make(*arguments)
        if tag == "M" and self.guarded:
            return shared.find_module(number) or build_module(self, number)
        if type(number) is not int:
            raise WireError("a reference without a number")
        if tag == "m":
            if number not in self.kept:
                raise WireError(f"a reference to object {number}, which was never passed")
            return self.kept[number]
        if number not in self.stand_ins:
            if len(self.stand_ins) >= MAX_OBJECTS:
                raise WireError(f"more than {MAX_OBJECTS} references")
            parts = [decoder.decode(item) for item in data[2:]]
            if number not in self.stand_ins:  # its description may hold the object itself
                self.stand_ins[number] = stand_ins.build(self, tag, number, parts)
        return self.stand_ins[number]

    def commit(self, encoder: Encoder) -> None:
        """Note what the other half knows after this encoder's message."""
        self.sent.update(encoder.fresh)
        self.implied.update(number for number, is_implied in encoder.fresh.items() if is_implied)

    # -------------------------------------------------------------------------------------------- bytes

    def with_output(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message with the text that was printed since the last one."""
        if self.drain is not None and any(text := self.drain()):
            message["o"] = text
        return message

    def send(self, frame: bytes) -> None:
        """Send a whole frame. Raises PeerLost."""
        try:
            self.channel.settimeout(self.time_left())
            self.channel.sendall(frame)
        except TimeoutError:
            self.lose("the worker did not answer in time")
        except OSError as problem:
            self.lose(f"the worker died: {problem}")

    def receive(self) -> dict[str, Any]:
        """The next message. Prints the text that the other half printed. Raises PeerLost."""
        length = struct.unpack(">I", self.read(4))[0]
        if length > MAX_FRAME_BYTES:
            self.lose(f"the worker sent a message of {length} bytes")
        try:
            message = from_frame(self.read(length))
            for stream, text in zip((sys.stdout, sys.stderr), message.get("o", ()), strict=False):
                shown = text[: self.print_chars_left] if isinstance(text, str) else ""
                self.print_chars_left -= len(shown)
                with contextlib.suppress(UnicodeError, OSError):
                    stream.write(shown)
        except (WireError, TypeError) as problem:
            self.lose(f"the worker sent garbage: {str(problem)[:200]}")
        return message

    def read(self, count: int) -> bytes:
        """Exactly `count` bytes of the channel. Raises PeerLost."""
        parts = bytearray()
        while len(parts) < count:
            try:
                self.channel.settimeout(self.time_left())
                piece = self.channel.recv(min(count - len(parts), 1 << 20))
            except TimeoutError:
                self.lose("the worker did not answer in time")
            except OSError as problem:
                self.lose(f"the worker died: {problem}")
            if not piece:
                self.lose("the worker died")
            parts += piece
        return bytes(parts)

    def time_left(self) -> float | None:
        """Seconds until the deadline, at least a millisecond; None without a deadline."""
        return None if self.deadline is None else max(0.001, self.deadline - time.monotonic())

    def lose(self, reason: str) -> Any:
        """Close the channel. Always raises PeerLost."""
        self.lost = self.lost or reason
        with contextlib.suppress(OSError):
            self.channel.close()
        raise PeerLost(self.lost)


REFUSED = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
HARMLESS_FUNCTIONS = {"print", "isinstance", "issubclass", "hasattr", "callable"}
HARMLESS_MODULES = {"math", "cmath", "_operator", "time"}


def is_machinery(value: Any) -> bool:
    """Whether the object belongs to a test framework, or is a built-in that can run code or reach other objects. Such
    an object is never given to the candidate."""
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType):
        return value.__name__ not in HARMLESS_FUNCTIONS and value.__self__.__name__ not in HARMLESS_MODULES
    modules = {base.__module__ for base in type(value).__mro__}
    return "unittest.case" in modules or any(name.split(".")[0] in ("_pytest", "pytest", "pluggy") for name in modules)


def message_of(error: BaseException) -> str:
    """`str(error)`, or "<no message>" if that raises."""
    try:
        return str(error)
    except Exception:
        return "<no message>"


def snapshot(value: Any) -> Any:
    """The content of a mutable container, for `is_changed`."""
    if type(value) is dict:
        return [item for pair in value.items() for item in pair]
    return list(value) if type(value) in (list, set) else bytes(value) if type(value) is bytearray else value.tobytes()


def is_changed(value: Any, before: Any) -> bool:
    """Whether a container's content, not counting changes inside its items, differs from its earlier snapshot."""
    now = snapshot(value)
    return len(now) != len(before) or (
        now != before if type(now) is bytes else any(a is not b for a, b in zip(now, before, strict=True))
    )
