"""Stand-ins for classes of the other half: real classes with the same bases, so that `isinstance`, `type(x) is C` and
subclasses work without asking. An object's class is sent with it, before any question about the object is known.

A test's class that derives from a stand-in is created in both halves: here with the test's own functions, there with
functions that call these.
"""

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from turnwise_sandbox.grading.guest.proxy import (
    OPERATORS,
    VALUE_BASES,
    Proxy,
    ask,
    check_name,
    is_guarded,
    peer_of,
    take_word,
)
from turnwise_sandbox.grading.guest.rpc import Peer
from turnwise_sandbox.grading.guest.shared import find, is_shared, name_of
from turnwise_sandbox.grading.guest.wire import TYPES, WireError

OF_VALUES = {
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__bool__", "__len__", "__iter__"),
    *("__int__", "__float__", "__index__", "__complex__", "__getitem__", "__add__", "__mul__", "__rmul__"),
}
"""Operators that such a value takes from its built-in type, regardless of its class."""
LOCAL = {
    *("__dict__", "__weakref__", "__module__", "__qualname__", "__name__", "__slots__", "__new__", "__class__"),
    *("__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__del__", "__annotations__", "__mro_entries__"),
    *("__init_subclass__", "__class_getitem__", "__reduce__", "__reduce_ex__", "__getstate__", "__subclasshook__"),
    *("__str__", "__repr__", "__format__", "__dir__", "__copy__", "__deepcopy__", "__classcell__", "__set_name__"),
    *("__abstractmethods__", "_abc_impl", "__get__", "__set__", "__delete__", "__instancecheck__", "__prepare__"),
}
"""Names of a class that its stand-in does not take over."""


class Forward:
    """An attribute that the class in the other half has."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return ask(owner, "getattr", self.name)
        check_name(instance, self.name)
        if not is_guarded(instance, always=True):
            return ask(instance, "getattr", self.name)
        found = next(base for base in type(instance).__mro__ if base.__dict__.get(self.name) is self)
        home = found.__dict__.get("_turnwise_mirrors", found)
        if home is not found and home not in TYPES.values():
            return ask(instance, "getattr", self.name)
        return ask(instance, "lookup", home, self.name)


class RemoteType(type):
    """The class of stand-ins for classes, which provides their attributes and instances."""

    def __new__(cls, name: str, bases: tuple[Any, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """A class statement in this half, which derives from a stand-in."""
        return define(name, bases, namespace, options)

    def __init__(cls, name: str, bases: tuple[Any, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)

    def _turnwise_reference(cls) -> tuple[Peer, int] | None:
        return cls.__dict__.get("_turnwise_class")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        real = cls.__dict__.get("_turnwise_mirrors")
        return ask(cls, "call", args, kwargs) if real is None else real(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if "_turnwise_class" not in cls.__dict__:
            raise AttributeError(name)
        return ask(cls, "getattr", name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if not is_guarded(cls, always=True):
            ask(cls, "setattr", name, value)
        elif isinstance(value, Forward):  # the value that monkeypatch found in the class before it set the attribute
            ask(cls, "restore_in_class", name)
        else:
            ask(cls, "set_in_class", name, value)

    def __delattr__(cls, name: str) -> None:
        ask(cls, "delattr", name)

    def __instancecheck__(cls, value: Any) -> bool:
        if super().__instancecheck__(value):
            return True
        return cls.__dict__.get("_turnwise_asks", False) and take_word(cls, "is_instance_of", value) is True

    def __subclasscheck__(cls, value: Any) -> bool:
        if super().__subclasscheck__(value):
            return True
        return cls.__dict__.get("_turnwise_asks", False) and take_word(cls, "is_subclass_of", value) is True

    def __repr__(cls) -> str:
        return str(ask(cls, "repr"))

    def __dir__(cls) -> Any:
        return list(ask(cls, "dir"))

    def __bool__(cls) -> bool:
        return True

    def __iter__(cls) -> Any:
        return ask(cls, "iter")

    def __len__(cls) -> int:
        return int(ask(cls, "len"))

    def __getitem__(cls, key: Any) -> Any:
        return ask(cls, "getitem", key)

    def __contains__(cls, value: Any) -> bool:
        return take_word(cls, "contains", value) is True

    def __or__(cls, other: Any) -> Any:
        return ask(cls, "or_", other)

    def __ror__(cls, other: Any) -> Any:
        return ask(cls, "ror_", other)


def describe(kind: type) -> tuple[str, str, bool, list[str], list[str]]:
    """What the other half needs to know about a class besides its bases: name, module, whether it has its own
    metaclass, names of its attributes, and names of those ancestors that both halves can import."""
    names = [name for name in vars(kind) if type(name) is str and name not in LOCAL]
    kin = [f"{base.__module__}:{base.__qualname__}" for base in kind.__mro__ if is_shared(base.__module__)]
    return kind.__name__, str(kind.__module__), type(kind) is not type, names, kin[:20]


def build_class(peer: Peer, number: int, parts: list[Any], bases: Sequence[Any]) -> type:
    """The stand-in for class `number`, described by `parts`. Raises WireError."""
    name, module, asks, names, kin = parts
    if type(name) is not str or type(module) is not str or type(names) is not list or type(kin) is not list:
        raise WireError("a malformed class")
    body = {"_turnwise_class": (peer, number), "_turnwise_asks": asks is True, "__module__": module}
    is_value = any(isinstance(base, type) and issubclass(base, VALUE_BASES) for base in bases)
    body |= build_members((item for item in names if type(item) is str), is_value=is_value)
    parents = tuple(local_base(base) for base in bases if base is not object)
    return build_type(name, parents, body | build_class_property(name, filter(None, map(find_kin, kin))))


def find_kin(name: Any) -> type | None:
    """This half's class with the name of an ancestor; None for built-in types whose instances are values, and for
    classes that were not imported here."""
    module, _, path = name.partition(":") if type(name) is str else ("", "", "")
    found = find(module, path) if path and is_shared(module) else None
    return found if isinstance(found, type) and found is not object and not issubclass(found, VALUE_BASES) else None


def build_class_property(name: str, kin: Iterable[type]) -> dict[str, Any]:
    """`__class__` for stand-ins of objects whose class has these ancestors, at which `isinstance` also looks: a class
    without instances that derives from them."""
    nearest: list[type] = []
    for kind in kin:
        if not any(issubclass(one, kind) for one in nearest):
            nearest.append(kind)
    for chosen in (nearest, nearest[:1]):
        try:
            shown = types.new_class(name, tuple(chosen)) if chosen else None
        except Exception:
            continue  # a class that cannot be a base
        return {} if shown is None else {"__class__": property(functools.partial(_give, shown))}
    return {}


def _give(value: Any, _: Any) -> Any:
    return value


def build_members(names: Any, *, is_value: bool) -> dict[str, Any]:
    """The body of a stand-in whose class has attributes of these names."""
    body: dict[str, Any] = {"__doc__": Forward("__doc__")}
    for name in names:
        if name in LOCAL or (is_value and name in OF_VALUES):
            continue
        body[name] = OPERATORS.get(name) or Forward(name)
    return body


def build_type(name: str, parents: tuple[type, ...], body: dict[str, Any]) -> type:
    """Build a stand-in class. If the parents cannot be combined here, it has fewer of them."""
    for chosen in (parents, parents[:1], ()):
        if not any(issubclass(parent, Proxy) for parent in chosen):
            chosen = (Proxy, *chosen)
        with contextlib.suppress(TypeError):
            return type.__new__(RemoteType, name, chosen, dict(body))
    raise WireError(f"cannot build class {name}")


def local_base(base: Any) -> type:
    """The stand-in for a base of a class of the other half."""
    if not isinstance(base, type):
        raise WireError("a base that is not a class")
    return base if isinstance(base, RemoteType) or base in VALUE_BASES else mirror(base)


@functools.cache
def mirror(kind: type) -> type:
    """The stand-in for a built-in type that is a base of a class in the other half."""
    body = {"_turnwise_mirrors": kind, "_turnwise_asks": False, "__module__": kind.__module__}
    names = dict.fromkeys(name for base in kind.__mro__[:-1] for name in vars(base))
    body |= build_members(names, is_value=False)
    return build_type(kind.__name__, (), body | build_class_property(kind.__name__, [kind]))


def build_object(peer: Peer, number: int, kind: Any, content: Any = None) -> Any:
    """The stand-in for object `number` of a class. `content` is that of a value. Raises WireError."""
    if not isinstance(kind, type):
        raise WireError("an object without a class")
    kind = kind if isinstance(kind, RemoteType) else mirror(kind)
    value_kind = next((base for base in VALUE_BASES if issubclass(kind, base)), None)
    if (value_kind is not None) != (content is not None):
        kind = build_type(kind.__name__, (), {**OPERATORS, "_turnwise_class": (peer, number)})
        value_kind = None
    if value_kind is None:
        made = object.__new__(kind)
    elif type(content) is not value_kind:
        raise WireError("a value whose type is not its class")
    else:
        made = value_kind.__new__(kind, content)
    object.__setattr__(made, "_turnwise_at", (peer, number))
    return made


# ------------------------------------------------------------------------------------------------ subclasses


def define(name: str, bases: tuple[Any, ...], namespace: dict[str, Any], options: dict[str, Any]) -> type:
    """Make the class of a class statement in this half, also in the other half. Functions stay here; the other half
    calls them."""
    peer = next(peer_of(base) for base in bases if isinstance(base, RemoteType))
    cell = namespace.pop("__classcell__", None)
    members = [
        [key, *split_member(value)] for key, value in namespace.items() if key not in ("__dict__", "__weakref__")
    ]
    number = peer.ask("define_class", name, list(map(to_remote_base, bases)), members, options)
    if type(number) is not int or number in peer.stand_ins:
        peer.lose("the worker sent a class that it had before")
    body = {
        key: value
        if isinstance(value, (types.FunctionType, classmethod, staticmethod, property))
        or key in LOCAL
        or (key.startswith("__") and key.endswith("__"))
        else Forward(key)
        for key, value in namespace.items()
    }
    body |= {"_turnwise_class": (peer, number), "_turnwise_asks": False}
    made = type.__new__(RemoteType, name, bases, body)
    if cell is not None:
        cell.cell_contents = made
    peer.stand_ins[number] = made
    return made


def split_member(value: Any) -> tuple[str, Any]:
    """Split a member of a class for sending: its kind, and the function or functions in it."""
    if isinstance(value, (classmethod, staticmethod)):
        return type(value).__name__, value.__func__
    if isinstance(value, property):
        return "property", [value.fget, value.fset, value.fdel]
    return "plain", value


def to_remote_base(base: Any) -> Any:
    """A base of a class of this half, as the other half can use it."""
    is_known = isinstance(base, RemoteType) or base in TYPES.values() or name_of(base) is not None
    return base if is_known else mirrored(base)


def mirrored(base: type) -> Any:
    """A description of a class of this half, from which the other half makes its own class."""
    members = [
        [key, *split_member(value)]
        for key, value in vars(base).items()
        if key not in ("__dict__", "__weakref__", "__doc__", "__module__")
    ]
    return [base.__name__, [to_remote_base(parent) for parent in base.__bases__], members]


def define_class(peer: Peer, name: str, bases: list[Any], members: list[Any], options: dict[str, Any]) -> int:
    """Make a class whose functions are in the other half; returns its number."""
    made = make_class(name, bases, members, options)
    number = peer.number(made)
    peer.sent.add(number)
    return number


def make_class(name: str, bases: list[Any], members: list[Any], options: dict[str, Any]) -> type:
    """The class from a description by `define` or `mirrored`."""
    real = tuple(make_class(base[0], base[1], base[2], {}) if isinstance(base, list) else base for base in bases)
    kinds: dict[str, Callable[[Any], Any]] = {
        "plain": lambda value: value,
        "classmethod": classmethod,
        "staticmethod": staticmethod,
        "property": lambda parts: property(*parts),
    }
    body = {key: kinds[kind](value) for key, kind, value in members}
    return types.new_class(name, real, options, lambda namespace: namespace.update(body))
