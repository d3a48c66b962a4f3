"""Objects that tests and candidate can both import, and that the worker therefore makes itself."""

import copyreg
import operator
import os
import re
import sys
import types
from typing import Any

NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
"""Types of objects that are sent by name."""
IMMUTABLE = (
    re.Pattern,
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
    types.GenericAlias,
    types.UnionType,
)
"""Types whose instances are sent as copies, beside those of modules in `IMMUTABLE_MODULES`."""
IMMUTABLE_MODULES = {"datetime", "typing", "zoneinfo", "dateutil", "pytz", "ipaddress"}


def name_of(value: Any) -> list[Any] | None:
    """How to send an object that the worker can make itself; None for any other."""
    if isinstance(value, types.ModuleType):
        return ["IM", value.__name__, ""] if is_shared(value.__name__) else None
    if isinstance(value, NAMED):
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        module = value.__module__ if not isinstance(owner, type) else owner.__module__
        is_same = is_shared(module) and find(module, value.__qualname__) is value
        return ["IM", module, value.__qualname__] if is_same else None
    name = getattr(value, "_name", None) if type(value).__module__ == "typing" else None
    return ["IM", "typing", name] if type(name) is str and find("typing", name) is value else None


def reduce_immutable(value: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The callable and the arguments that make an immutable object of a type which both halves can import; None for any
    other."""
    kind = type(value)
    if kind not in IMMUTABLE and kind.__module__.split(".")[0] not in IMMUTABLE_MODULES:
        return None
    try:
        reduced = copyreg.dispatch_table[kind](value) if kind in copyreg.dispatch_table else value.__reduce_ex__(2)
    except (TypeError, ValueError, AttributeError):
        return None
    if type(reduced) is not tuple or any(part is not None for part in reduced[2:]) or name_of(reduced[0]) is None:
        return None
    return reduced[0], reduced[1]


def is_shared(module: Any) -> bool:
    """Whether both halves can import the module: it is neither a file of the tree nor part of a test framework."""
    root = str(module).split(".")[0]
    if root == "builtins":
        return True
    if root in ("pytest", "_pytest", "pluggy", "unittest", "grading_guest", "turnwise_sandbox", "__main__"):
        return False
    if root in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(root), "__file__", None)
    return isinstance(file, str) and not os.path.abspath(file).startswith(os.getcwd() + os.sep)


def find(module: str, name: str) -> Any:
    """The object of this qualified name; None if there is none."""
    found: Any = sys.modules.get(module)
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    return found


def find_module(name: Any) -> Any:
    """The module of the tests' half that the worker names; None if it must be a stand-in."""
    return sys.modules.get(name) if type(name) is str and is_shared(name) else None


def build_named(module: str, name: str) -> Any:
    """The worker's object for a description from `name_of`."""
    __import__(module)
    return find(module, name)
