"""Represents functions of the tests as functions of the worker with the same name and parameters, for code that
inspects or decorates functions."""

import inspect
import types
from typing import Any

from turnwise_sandbox.grading.guest.proxy import Proxy
from turnwise_sandbox.grading.guest.rpc import Peer

Parameter = inspect.Parameter


def describe_function(function: Any) -> tuple[Any, ...]:
    """Name, module, doc, annotations, whether it is a coroutine function, and its parameters: for each its name, kind,
    whether it has a default, and the default."""
    inner = getattr(function, "__func__", function)
    try:
        parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    except (TypeError, ValueError):
        parameters = [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]
    rows = []
    for one in parameters:
        has_default = one.default is not Parameter.empty
        rows.append([one.name, int(one.kind), has_default, one.default if has_default else None])
    annotations = {name: value for name, value in getattr(inner, "__annotations__", {}).items() if is_simple(value)}
    return inner.__name__, inner.__module__, inner.__doc__, annotations, inspect.iscoroutinefunction(inner), rows


def is_simple(annotation: Any) -> bool:
    """Whether the annotation is a type or a string."""
    return isinstance(annotation, (type, str))


def build_function(peer: Peer, number: int, *parts: Any) -> Any:
    """A function that calls function `number` of the other half."""
    name, module, doc, annotations, is_async, rows = parts
    target = object.__new__(Proxy)
    object.__setattr__(target, "_turnwise_at", (peer, number))
    defaults = {row[0]: row[3] for row in rows if row[2]}
    scope: dict[str, Any] = {"_turnwise_target": target, "_turnwise_ask": peer.ask, "_turnwise_defaults": defaults}
    head, arguments = build_head(rows)
    shown = name if name.isidentifier() else "function"
    source = f"{'async ' if is_async else ''}def {shown}({head}):\n    return "
    source += f"{'await ' if is_async else ''}_turnwise_ask('call', _turnwise_target, {arguments})\n"
    exec(source, scope)
    function: types.FunctionType = scope[shown]
    function.__name__, function.__module__, function.__doc__ = name, module, doc
    function.__qualname__, function.__annotations__ = name, annotations
    peer.functions[id(function)] = number
    return function


def build_head(rows: list[Any]) -> tuple[str, str]:
    """The source text of a function's parameters, and of the positional and keyword arguments made from them."""
    head: list[str] = []
    positional: list[str] = []
    keywords: list[str] = []
    was = None
    for name, kind, has_default, _ in rows:
        text = f"{name}=_turnwise_defaults[{name!r}]" if has_default else name
        if was == Parameter.POSITIONAL_ONLY != kind:
            head.append("/")
        if kind == Parameter.KEYWORD_ONLY and was not in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL):
            head.append("*")
        if kind == Parameter.VAR_POSITIONAL:
            head.append(f"*{name}")
            positional.append(f"*{name}")
        elif kind == Parameter.VAR_KEYWORD:
            head.append(f"**{name}")
            keywords.append(f"**{name}")
        else:
            head.append(text)
            if kind == Parameter.KEYWORD_ONLY:
                keywords.append(f"{name!r}: {name}")
            else:
                positional.append(name)
        was = kind
    if was == Parameter.POSITIONAL_ONLY:
        head.append("/")
    inner = "".join(f"{part}, " for part in positional)
    return ", ".join(head), f"({inner}), {{{', '.join(keywords)}}}"
