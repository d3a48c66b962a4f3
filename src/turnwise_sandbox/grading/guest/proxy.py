"""Stand-ins for objects of the other half: for any object, exceptions and their classes, coroutines, modules.

In the grader (a guarded peer) a proxy does not trust the object behind it:

- A proxy equals another value only if its *plain content* does: the content of an instance of a subclass of a copied
  type (a named tuple, an IntEnum), sent as a value and compared here. The worker compares two proxies.
- A proxy is not ordered against another value. It contains one only if one of its items, sent before the worker knows
  the value, equals it.
- Arithmetic with another value gives a *derived* proxy. It can be compared with proxies and has attributes, but gives
no
  number, truth value, length or item. So the worker cannot answer `abs(f(x) - expected) < 1e-6` knowing `expected`.
- `startswith` and similar methods are refused: they would tell the worker the expected value and ask for the answer.

`allow_operators=True` lifts the last three rules, for tasks that ask for a container or number class. An object that
agrees with everything can then pass a test that only asks it whether it agrees."""

import itertools
import types
from collections.abc import Callable
from typing import Any

from turnwise_sandbox.grading.guest.rpc import BINARY, REFLECTED, Peer
from turnwise_sandbox.grading.guest.wire import WireError, is_copied

TELLING = {"startswith", "endswith", "issubset", "issuperset", "isdisjoint"}
PLAIN = (
    "str repr format bytes neg pos invert abs round int float complex index bool len iter next reversed getitem "
    "setitem delitem"
)
MAX_SEARCHED = 100_000
"""Most items of a proxy that `in` compares."""


class Proxy:
    """An object of the other half."""

    __slots__ = ("__derived", "__number", "__peer", "__weakref__")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_Proxy__peer", peer)
        object.__setattr__(self, "_Proxy__number", number)
        object.__setattr__(self, "_Proxy__derived", False)

    def _turnwise_reference(self) -> tuple[Peer, int]:
        return object.__getattribute__(self, "_Proxy__peer"), object.__getattribute__(self, "_Proxy__number")

    def __getattr__(self, name: str) -> Any:
        if name in TELLING and is_guarded(self):
            raise AttributeError(
                f"{name!r} of a candidate's object is not trusted; the function should return a value of a built-in "
                "type"
            )
        if name.startswith(("__array", "__cuda_array")) and is_guarded(self, always=True):
            raise AttributeError(name)  # numpy would read memory at an address that the candidate chooses
        return ask(self, "vars") if name == "__dict__" else ask(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delattr", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return ask(self, "call", args, kwargs)

    def __enter__(self) -> Any:
        return ask(self, "enter")

    def __exit__(self, kind: Any, error: Any, _: Any) -> Any:
        return ask(self, "leave", kind, error)

    def __copy__(self) -> Any:
        return ask(self, "copy", False)

    def __deepcopy__(self, _: Any) -> Any:
        return ask(self, "copy", True)

    def __instancecheck__(self, value: Any) -> bool:
        return ask(self, "is_instance_of", value) is True

    def __subclasscheck__(self, value: Any) -> bool:
        return ask(self, "is_subclass_of", value) is True

    def __mro_entries__(self, _: Any) -> Any:
        raise TypeError(
            "a test cannot subclass a class of the candidate here; grade this suite with isolation='shared'"
        )

    def __hash__(self) -> int:
        return int(ask(self, "hash"))

    def __dir__(self) -> Any:
        return list(ask(self, "dir"))

    def __eq__(self, other: Any) -> Any:
        return agrees(self, other)

    def __ne__(self, other: Any) -> Any:
        return (
            ask(self, "ne", other)
            if type(other) is Proxy or not is_guarded(self, always=True)
            else not agrees(self, other)
        )

    def __contains__(self, value: Any) -> bool:
        if type(value) is Proxy or not is_guarded(self):
            return ask(self, "contains", value) is True
        refuse_derived(self, "contains")
        is_plain, plain = get_plain(self)
        if is_plain:
            return value in plain
        return any(item is value or item == value for item in itertools.islice(self, MAX_SEARCHED))


def ask(proxy: Proxy, operation: str, *arguments: Any) -> Any:
    """Ask the object's half for an operation on it."""
    peer = proxy._turnwise_reference()[0]
    return peer.ask(operation, proxy, *arguments)


def is_guarded(proxy: Proxy, *, always: bool = False) -> bool:
    """Whether the object is untrusted. Without `always`, an object whose operators the task trusts is not."""
    peer = proxy._turnwise_reference()[0]
    return peer.guarded and (always or not peer.allow_operators)


def is_derived(proxy: Proxy) -> bool:
    """Whether the object is a result of arithmetic with a value of the tests."""
    return bool(object.__getattribute__(proxy, "_Proxy__derived"))


def refuse_derived(proxy: Proxy, operation: str) -> None:
    """Raise TypeError if the proxy is derived and untrusted."""
    if is_derived(proxy) and is_guarded(proxy):
        raise TypeError(
            f"{operation} of the result of arithmetic between a candidate's object and a test's value is not trusted; "
            "the function should return a value of a built-in type"
        )


def get_plain(proxy: Proxy) -> tuple[bool, Any]:
    """Whether the object has plain content, and the content or None."""
    try:
        plain = ask(proxy, "plain")
    except TypeError:
        return False, None
    return is_copied(plain), plain


def agrees(proxy: Proxy, other: Any) -> Any:
    """The result of `proxy == other`, without trusting the object about a value."""
    if proxy is other:
        return True
    if type(other) is Proxy or not is_guarded(proxy, always=True):
        return ask(proxy, "eq", other)
    is_plain, plain = get_plain(proxy)
    return bool(plain == other) if is_plain else False


def build_binary(operation: str) -> Callable[[Proxy, Any], Any]:
    """A binary operator. With a value that is no proxy, ordering is refused and the result of arithmetic is marked as
    derived."""
    ordering = operation in ("lt", "le", "gt", "ge")

    def run(self: Proxy, other: Any) -> Any:
        mixed = type(other) is not Proxy and is_guarded(self)
        if mixed and ordering:
            is_plain, plain = get_plain(self)
            if is_plain:
                return OPERATORS[operation](plain, other)
            raise TypeError(f"{operation}: a candidate's object is not ordered against a value of the tests")
        result = ask(self, operation, other)
        if not ordering and (
            mixed or (is_guarded(self) and (is_derived(self) or (type(other) is Proxy and is_derived(other))))
        ):
            if type(result) is not Proxy:
                raise TypeError(
                    f"{operation}: arithmetic between a candidate's object and a test's value must not give a bare "
                    "value"
                )
            object.__setattr__(result, "_Proxy__derived", True)
        return result

    return run


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def build_plain(operation: str) -> Callable[..., Any]:
    """A method that asks the other half for the operation; a derived object refuses all that reveal its value."""

    def run(self: Proxy, *arguments: Any) -> Any:
        if operation not in ("str", "repr", "format", "setitem", "delitem"):
            refuse_derived(self, operation)
        return ask(self, operation, *arguments)

    return run


for _name in BINARY:
    setattr(Proxy, f"__{_name.rstrip('_')}__", build_binary(_name))
for _name in REFLECTED:
    setattr(Proxy, f"__r{_name.rstrip('_')}__", build_binary("r" + _name))
for _name in PLAIN.split():
    setattr(Proxy, f"__{_name}__", build_plain(_name))
Proxy.__doc__ = property(lambda self: ask(self, "getattr", "__doc__"))  # type: ignore[assignment]


class RemoteErrorType(type):
    """The metaclass of stand-ins for exception classes of the other half, which provides attributes and instances."""

    def _turnwise_reference(cls) -> tuple[Peer, int] | None:
        return cls.__dict__.get("_turnwise_class")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        reference = RemoteErrorType._turnwise_reference(cls)
        if reference is None:  # a class of the tests, derived from one of the candidate
            return super().__call__(*args, **kwargs)
        return reference[0].ask("call", cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        for base in cls.__mro__:
            if (reference := base.__dict__.get("_turnwise_class")) is not None and not name.startswith("_"):
                return reference[0].ask("getattr", base, name)
        raise AttributeError(name)


class RemoteError:
    """The base of stand-ins for exceptions of the other half, which provides their messages and attributes."""

    _turnwise_origin: tuple[Peer, int, str] | None = None

    def _turnwise_reference(self) -> tuple[Peer, int] | None:
        return self._turnwise_origin[:2] if self._turnwise_origin else None

    def __str__(self) -> str:
        return self._turnwise_origin[2] if self._turnwise_origin else BaseException.__str__(self)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if self._turnwise_origin is None or name.startswith("__"):
            raise AttributeError(name)
        return self._turnwise_origin[0].ask("getattr", self, name)


def build(peer: Peer, tag: str, number: int, parts: list[Any]) -> Any:
    """The stand-in for object `number`. Raises WireError for an unknown tag."""
    if tag == "h":
        return Proxy(peer, number)
    if tag == "k":
        return build_coroutine(peer, Proxy(peer, number))
    if tag == "X":
        return build_error_class(peer, number, str(parts[0]), tuple(parts[1:]))
    if tag == "x" and len(parts) == 3:
        return build_error(peer, number, *parts)
    raise WireError(f"tag {tag!r} does not exist")


async def build_coroutine(peer: Peer, proxy: Proxy) -> Any:
    """A coroutine that lets the other half run its coroutine to its end, in one step."""
    return peer.ask("await", proxy)


def build_error_class(peer: Peer, number: int, name: str, bases: tuple[Any, ...]) -> type:
    """A stand-in that is a real exception class, so that `except` and `pytest.raises` accept it."""
    real = tuple(base for base in bases if isinstance(base, type) and issubclass(base, BaseException)) or (Exception,)
    body = {"_turnwise_class": (peer, number), "__module__": "candidate"}
    for attempt in (real, real[:1]):
        try:
            return RemoteErrorType(
                name, attempt if issubclass(attempt[0], RemoteError) else (RemoteError, *attempt), dict(body)
            )
        except TypeError:
            continue
    return RemoteErrorType(name, (RemoteError, Exception), dict(body))


def build_error(peer: Peer, number: int, kind: Any, args: Any, message: Any) -> BaseException:
    """A stand-in for an exception, with the same class, arguments and message. Raises WireError."""
    if (
        not (isinstance(kind, type) and issubclass(kind, BaseException))
        or type(args) is not tuple
        or type(message) is not str
    ):
        raise WireError("a malformed exception")
    remote = type(kind) is RemoteErrorType
    try:
        error: Any = kind.__new__(kind, *args) if remote else kind(*args)
    except (TypeError, ValueError):
        error = kind.__new__(kind)
    error.args = args
    if remote:
        error._turnwise_origin = (peer, number, message)
    assert isinstance(error, BaseException)
    return error


class RemoteModule(types.ModuleType):
    """A stand-in for a module of the candidate. Its attributes are those of the worker's module.

    Deleting an attribute that was set here restores the original, which is how monkeypatch and mock undo a change."""

    def __getattr__(self, name: str) -> Any:
        peer = self.__dict__["_turnwise_peer"]
        if name.startswith("__") and name not in ("__version__", "__author__"):
            raise AttributeError(name)
        is_module, value = peer.ask("get_from_module", self.__name__, name)
        return build_module(peer, value) if is_module is True else value

    def __setattr__(self, name: str, value: Any) -> None:
        if (name.startswith("__") and name.endswith("__")) or isinstance(value, types.ModuleType):
            super().__setattr__(name, value)
        else:
            if name not in self.__dict__["_turnwise_originals"] and hasattr(self, name):
                self.__dict__["_turnwise_originals"][name] = getattr(self, name)
            self.__dict__["_turnwise_peer"].ask("set_in_module", self.__name__, name, value)

    def __delattr__(self, name: str) -> None:
        originals = self.__dict__["_turnwise_originals"]
        if name in originals:
            self.__dict__["_turnwise_peer"].ask("set_in_module", self.__name__, name, originals.pop(name))
        else:
            self.__dict__["_turnwise_peer"].ask("delete_from_module", self.__name__, name)


def build_module(peer: Peer, name: Any) -> types.ModuleType:
    """The stand-in for a module that the candidate imported. Raises WireError if `name` is not a string."""
    if type(name) is not str:
        raise WireError("a module without a name")
    module = RemoteModule(name)
    module.__dict__.update(_turnwise_peer=peer, _turnwise_originals={})
    return module


def is_stand_in(value: Any) -> bool:
    """Whether the value stands for an object, class or module of the other half. Asks nothing of it."""
    return type(value) in (Proxy, RemoteErrorType, RemoteModule)
