"""Stand-ins for objects of the other half: the operations of every stand-in. classes.py makes their classes.

In the grader (a guarded peer) a stand-in does not trust the object behind it:

- It equals another value only if its *plain content* does: the content of an instance of a subclass of a copied type (a
  dict of the candidate's own class), sent as a value and compared here.
- What two objects of the candidate say of each other (equality, order, membership) is the candidate's word. The peer
  notes it in `words`, so that a caller can refuse to count the test. Objects whose class does not define equality are
  compared here, by identity.
- It is not ordered against another value. It contains a value only if one of its items, sent before the worker knows
  the value, equals it.
- Arithmetic with another value gives a *derived* stand-in. It can be compared with stand-ins and has attributes, but
  gives no number, truth value, length or item. So the worker cannot answer `abs(f(x) - expected) < 1e-6` knowing
  `expected`.
- `startswith` and similar methods are refused: they would tell the worker the expected value and ask for the answer.

Instances of subclasses of immutable types (a named tuple, an IntEnum, a subclass of str) are real values of that type
here, copied when they arrive; only attributes that their class adds are requested.

`allow_operators=True` lifts the last rules, for tasks that ask for a container or number class. An object that agrees
with everything can then pass a test that only asks it whether it agrees."""

import itertools
from collections.abc import Callable
from typing import Any

from turnwise_sandbox.grading.guest.rpc import BINARY, REFLECTED, Peer
from turnwise_sandbox.grading.guest.wire import is_copied

TELLING = {"startswith", "endswith", "issubset", "issuperset", "isdisjoint"}
PLAIN = "bytes round int float complex index bool len iter next reversed getitem setitem delitem"
VALUE_BASES = (str, int, float, complex, tuple, bytes, frozenset)
"""Types whose subclasses' instances are values here."""
MAX_SEARCHED = 100_000
"""Maximum number of a stand-in's items that `in` compares."""


class Proxy:
    """An object of the other half. Its class adds the operators that the object's class has."""

    def _turnwise_reference(self) -> tuple[Peer, int]:
        reference: tuple[Peer, int] = object.__getattribute__(self, "_turnwise_at")
        return reference

    def __getattr__(self, name: str) -> Any:
        check_name(self, name)
        return ask(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delattr", name)

    def __copy__(self) -> Any:
        return ask(self, "copy", False)

    def __deepcopy__(self, _: Any) -> Any:
        return ask(self, "copy", True)

    def __dir__(self) -> Any:
        return list(ask(self, "dir"))

    def __str__(self) -> str:
        return str(ask(self, "str"))

    def __repr__(self) -> str:
        return str(ask(self, "repr"))

    def __format__(self, spec: str) -> str:
        return str(ask(self, "format", spec))

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("an object from the other side (test or candidate) cannot be pickled")

    __dict__ = property(lambda self: ask(self, "vars"))  # type: ignore[assignment]


def peer_of(proxy: Any) -> Any:
    """The peer of a stand-in for an object or a class."""
    return type(proxy)._turnwise_reference(proxy)[0]


def ask(proxy: Any, operation: str, *arguments: Any) -> Any:
    """Ask the object's half for an operation on it."""
    return peer_of(proxy).ask(operation, proxy, *arguments)


def is_proxy(value: Any) -> bool:
    """Whether the value is an object, not a class, of the other half."""
    return issubclass(type(value), Proxy)


def is_object(value: Any) -> bool:
    """Whether the value is an object of the other half that is not a value here."""
    return is_proxy(value) and not isinstance(value, VALUE_BASES)


def is_remote(value: Any) -> bool:
    """Whether a comparison with the value tells the other half nothing: the value is its own object or class."""
    return is_proxy(value) or hasattr(type(value), "_turnwise_reference")


def is_guarded(proxy: Any, *, always: bool = False) -> bool:
    """Whether the object is untrusted. Without `always`, an object whose operators the task trusts counts as
    trusted."""
    peer = peer_of(proxy)
    return peer.guarded and (always or not peer.allow_operators)


def check_name(proxy: Any, name: str) -> None:
    """Raise AttributeError for a name that is refused."""
    if name in TELLING and is_guarded(proxy):
        raise AttributeError(
            f"{name!r} of a candidate's object is not trusted; the function should return a value of a built-in type"
        )
    if name.startswith(("__array", "__cuda_array")) and is_guarded(proxy, always=True):
        raise AttributeError(name)  # numpy would read memory at an address that the candidate chooses


def is_derived(proxy: Any) -> bool:
    """Whether the object is a result of arithmetic with a value of the tests."""
    try:
        return bool(object.__getattribute__(proxy, "_turnwise_derived"))
    except AttributeError:
        return False


def refuse_derived(proxy: Any, operation: str) -> None:
    """Raise TypeError if the proxy is derived and untrusted."""
    if is_derived(proxy) and is_guarded(proxy):
        raise TypeError(
            f"{operation} on the result of arithmetic between a candidate's object and a test's value is not trusted; "
            "the function should return a value of a built-in type"
        )


def take_word(proxy: Any, operation: str, other: Any) -> Any:
    """The candidate's answer to a question about two of its own objects."""
    peer = peer_of(proxy)
    peer.words += 1
    return peer.ask(operation, proxy, other)


def get_plain(proxy: Any) -> tuple[bool, Any]:
    """Whether the object has plain content, and the content or None."""
    try:
        plain = ask(proxy, "plain")
    except TypeError:
        return False, None
    return is_copied(plain), plain


def agrees(proxy: Any, other: Any) -> Any:
    """The result of `proxy == other`, without trusting the object about a value."""
    if proxy is other:
        return True
    if is_remote(other) or not is_guarded(proxy, always=True):
        return take_word(proxy, "eq", other)
    is_plain, plain = get_plain(proxy)
    return bool(plain == other) if is_plain else ask_for_object(proxy, "eq", other, False)


def ask_for_object(proxy: Any, operation: str, other: Any, otherwise: Any) -> Any:
    """The result of comparing with a value if it is an object, as in `where("x") == 1` of a query; it is marked as
    derived, so that it says nothing by its truth value. `otherwise` for any other result."""
    try:
        result = ask(proxy, operation, other)
    except Exception:
        return otherwise
    if not is_object(result):
        return otherwise
    object.__setattr__(result, "_turnwise_derived", True)
    return result


def disagrees(proxy: Any, other: Any) -> Any:
    """The result of `proxy != other`."""
    if proxy is not other and (is_remote(other) or not is_guarded(proxy, always=True)):
        return take_word(proxy, "ne", other)
    if proxy is other:
        return False
    is_plain, plain = get_plain(proxy)
    return bool(plain != other) if is_plain else ask_for_object(proxy, "ne", other, True)


def contains(proxy: Any, value: Any) -> bool:
    """The result of `value in proxy`."""
    if is_remote(value) or not is_guarded(proxy):
        return take_word(proxy, "contains", value) is True
    refuse_derived(proxy, "contains")
    is_plain, plain = get_plain(proxy)
    if is_plain:
        return value in plain
    return any(item is value or item == value for item in itertools.islice(proxy, MAX_SEARCHED))


def build_binary(operation: str) -> Callable[[Any, Any], Any]:
    """A binary operator. With a value that is no proxy, ordering is refused and the result of arithmetic is marked as
    derived."""
    ordering = operation in ORDERINGS

    def run(self: Any, other: Any) -> Any:
        guarded = is_guarded(self)
        mixed = guarded and not is_proxy(other)
        if mixed and ordering:
            is_plain, plain = get_plain(self)
            if is_plain:
                return ORDERINGS[operation](plain, other)
            result = ask_for_object(self, operation, other, None)
            if result is None:
                raise TypeError(f"{operation}: a candidate's object is not ordered against a value of the tests")
            return result
        result = take_word(self, operation, other) if ordering else ask(self, operation, other)
        if guarded and not ordering and (mixed or is_derived(self) or is_derived(other)):
            if not is_object(result):
                raise TypeError(
                    f"{operation}: arithmetic between a candidate's object and a test's value must not give a bare "
                    "value"
                )
            object.__setattr__(result, "_turnwise_derived", True)
        return result

    return run


ORDERINGS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def build_plain(operation: str) -> Callable[..., Any]:
    """Build a method that asks the other half for the operation; a derived object refuses every operation that
    reveals its value."""

    def run(self: Any, *arguments: Any) -> Any:
        if operation not in ("setitem", "delitem"):
            refuse_derived(self, operation)
        return ask(self, operation, *arguments)

    return run


def build_unary(operation: str) -> Callable[[Any], Any]:
    """An operator on one object. That of a derived object is derived, and must be an object."""

    def run(self: Any) -> Any:
        result = ask(self, operation)
        if is_derived(self) and is_guarded(self):
            if not is_object(result):
                refuse_derived(self, operation)
            object.__setattr__(result, "_turnwise_derived", True)
        return result

    return run


def call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the object."""
    return ask(self, "call", args, kwargs)


def leave(self: Any, kind: Any, error: Any, _: Any) -> Any:
    """Leave `with` the object. It may claim to swallow an exception, but not a failed assertion."""
    result = ask(self, "leave", kind, error)
    if kind is None or not is_guarded(self, always=True):
        return result
    if not result:
        return False
    peer_of(self).words += 1
    return not (issubclass(kind, AssertionError) or (kind.__module__, kind.__name__) == ("builtins", "Failed"))


OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"__{name.rstrip('_')}__": build_binary(name) for name in BINARY},
    **{f"__r{name.rstrip('_')}__": build_binary("r" + name) for name in REFLECTED},
    **{f"__{name}__": build_plain(name) for name in PLAIN.split()},
    **{f"__{name}__": build_unary(name) for name in ("neg", "pos", "invert", "abs")},
    "__eq__": agrees,
    "__ne__": disagrees,
    "__contains__": contains,
    "__hash__": lambda self: int(ask(self, "hash")),
    "__call__": call,
    "__enter__": lambda self: ask(self, "enter"),
    "__exit__": leave,
}
"""The methods of a stand-in, by their names in its class."""
