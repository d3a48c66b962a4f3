"""What is sent in place of an object that is not copied, and what the other half makes of it.

    h  number, class                             an object
    v  number, class, content                    an instance of a subclass of an immutable type
    C  number, its description, its bases        a class (classes.py)
    k  number, class                             a coroutine
    M  name                                      a module of the candidate, or one that both can import
    F  number, name, doc, kind, parameters       a function of the tests
    IM module, name                              an object that the tests and the candidate can both import
    RD callable, arguments                       an immutable object of a type that both can import

IM, RD and F go to the worker only. It is trusted with nothing, so it may import and call; the grader never does.
"""

import types
from typing import Any

from turnwise_sandbox.grading.guest import classes, exceptions
from turnwise_sandbox.grading.guest.functions import build_function, describe_function
from turnwise_sandbox.grading.guest.modules import RemoteModule
from turnwise_sandbox.grading.guest.proxy import VALUE_BASES
from turnwise_sandbox.grading.guest.rpc import Peer, get_plain
from turnwise_sandbox.grading.guest.wire import Encoder, WireError


def is_stand_in(value: Any) -> bool:
    """Whether the value stands for an object, class or module of the other half. Asks nothing of it."""
    kinds = (classes.RemoteType, exceptions.RemoteErrorType)
    return isinstance(value, RemoteModule) or isinstance(type(value), kinds) or type(value) in kinds


def describe(peer: Peer, value: Any, number: int, encoder: Encoder) -> list[Any]:
    """The first reference to object `number`."""
    if isinstance(value, type):
        parts = map(encoder.encode, classes.describe(value))
        return ["C", number, *parts, *map(encoder.encode_implied, value.__bases__)]
    if peer.guarded and isinstance(value, (types.FunctionType, types.MethodType)):
        return ["F", number, *map(encoder.encode, describe_function(value))]
    kind = encoder.encode_implied(type(value))
    if isinstance(value, VALUE_BASES):
        return ["v", number, kind, encoder.encode(get_plain(value))]
    return ["k" if isinstance(value, types.CoroutineType) else "h", number, kind]


def build(peer: Peer, tag: str, number: int, parts: list[Any]) -> Any:
    """The stand-in for object `number`. Raises WireError for an unknown tag or a malformed description."""
    if tag == "C" and len(parts) >= 5:
        return classes.build_class(peer, number, parts[:5], parts[5:])
    if tag == "h" and len(parts) == 1:
        return classes.build_object(peer, number, parts[0])
    if tag == "v" and len(parts) == 2:
        return classes.build_object(peer, number, *parts)
    if tag == "k" and len(parts) == 1:
        return run_coroutine(peer, classes.build_object(peer, number, parts[0]))
    if tag == "X" and parts:
        return exceptions.build_error_class(peer, number, str(parts[0]), tuple(parts[1:]))
    if tag == "x" and len(parts) == 3:
        return exceptions.build_error(peer, number, *parts)
    if tag == "F" and not peer.guarded:
        return build_function(peer, number, *parts)
    raise WireError(f"unknown tag {tag!r}")


async def run_coroutine(peer: Peer, proxy: Any) -> Any:
    """A coroutine that lets the other half run its coroutine to its end, in one step."""
    return peer.ask("await", proxy)
