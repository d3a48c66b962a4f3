"""Decides what the candidate may do with objects of the tests (callbacks, test doubles) that were passed to it.

It may call them, iterate over them, use their operators and their public attributes. It may not reach anything that
decides a test: no names with an underscore, no attributes of functions, of `type`, of generators or of a mock's
assertions, and no writing except to plain instances of classes that the tests define.
"""

import sys
import types
from typing import Any

from turnwise_sandbox.grading.guest.rpc import Peer

HARMLESS_NAMES = {"__name__", "__qualname__", "__doc__", "__module__"}
BASES = (object, tuple, list, dict, set, frozenset, str, bytes, int, float, Exception, BaseException)
STEPPED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
OPAQUE = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type(len), types.MethodWrapperType)


def check_request(peer: Peer, operation: str, arguments: list[Any]) -> None:
    """Raise AttributeError or TypeError for a request that is refused."""
    if not arguments or id(arguments[0]) not in peer.numbers:
        raise TypeError(f"{operation}: not an object that was passed to the candidate")
    target = arguments[0]
    if peer.numbers[id(target)] in peer.implied and not is_plain_class(target):
        raise TypeError(f"{operation}: a class that was not passed to the candidate")
    if operation in ("dir", "copy", "vars", "await", "lookup"):
        raise TypeError(f"{operation} is not available on objects of the tests")
    if operation in ("getattr", "setattr", "delattr"):
        check_attribute(target, arguments[1] if len(arguments) > 1 else None, write=operation != "getattr")


def check_attribute(target: Any, name: Any, *, write: bool) -> None:
    """Raise AttributeError for an attribute that the candidate may not read, or with `write` may not change."""
    allowed = type(name) is str and (not name.startswith("_") or (name in HARMLESS_NAMES and not write))
    if isinstance(target, STEPPED):
        allowed = allowed and name in ("send", "throw", "close")
    elif isinstance(target, OPAQUE):
        allowed = allowed and name in HARMLESS_NAMES
    elif (mock := sys.modules.get("unittest.mock")) is not None and isinstance(target, mock.NonCallableMock):
        allowed = (
            allowed and not write and name not in dir(mock.NonCallableMock) and not name.startswith(("assert", "call"))
        )
    elif isinstance(target, type):
        allowed = allowed and not write and name not in dir(type)
    elif write:
        allowed = allowed and (is_defined_by_tests(type(target)) or isinstance(target, types.SimpleNamespace))
    if not allowed:
        raise AttributeError(
            f"attribute {name!r} of a test's {type(target).__name__} is not available to the candidate"
        )


def is_plain_class(kind: Any) -> bool:
    """Whether a class is the tests' own, down to built-in types of values."""
    return isinstance(kind, type) and all(base in BASES or is_defined_by_tests(base) for base in kind.__mro__)


def is_defined_by_tests(kind: type) -> bool:
    """Whether the class is neither the standard library's nor derived from one of unittest's."""
    roots = {base.__module__.split(".")[0] for base in kind.__mro__}
    return kind.__module__.split(".")[0] not in sys.stdlib_module_names and "unittest" not in roots
