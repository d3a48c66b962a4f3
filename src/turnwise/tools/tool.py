"""Turn a typed Python function into a tool: schema from its signature and docstring; calls checked, timed, cut.

`environments.tool_environment` handles episodes and messages.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from turnwise.core.errors import (
    ConfigError,
    EnvironmentFault,
    PictureError,
    ToolFailure,
    ToolTimeout,
    boundary,
)
from turnwise.core.holding import named
from turnwise.core.threads import OwnThread, run_in_thread
from turnwise.core.types import Part, TextPart, ToolCall, ToolRecord, ToolSpec
from turnwise.tools.arguments import read_arguments
from turnwise.tools.docstrings import to_plain_google
from turnwise.tools.members import find_members, read_members
from turnwise.tools.output import clip_parts, to_parts

# Environments are built thousands of times with the same functions as tools; weak, so that closures can be freed.
_specs: WeakKeyDictionary[Callable[..., object], ToolSpec] = WeakKeyDictionary()
_members: WeakKeyDictionary[Callable[..., object], dict[str, Any]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function and its description for the model."""

    spec: ToolSpec
    function: Callable[..., object]
    """Synchronous or `async`; called with keyword arguments."""


def to_tool(function: Callable[..., object]) -> Tool:
    """Build the tool for a function with type hints and a Google-style docstring (`Args:` names every parameter).

    Bound methods work; `self` is not part of the schema. Raises ConfigError naming the function and what is missing.
    """
    underlying = getattr(function, "__func__", function)
    spec = _specs.get(underlying)
    if spec is None:
        spec = _specs[underlying] = _read_spec(function)
        _members[underlying] = find_members(function)
    return Tool(spec=spec, function=function)


def _read_spec(function: Callable[..., object]) -> ToolSpec:
    from transformers.utils import get_json_schema

    name = getattr(function, "__name__", repr(function))
    _check_names(function, name)
    with boundary(
        ConfigError,
        f"tool {name!r} needs type hints and a Google-style docstring with an 'Args:' entry for every parameter",
    ):
        is_written = inspect.ismethod(function) or inspect.isfunction(function)
        schema = get_json_schema(_plain(function) if is_written else function)["function"]
    return ToolSpec(name=schema["name"], description=schema["description"], parameters=schema["parameters"])


def _check_names(function: Callable[..., object], name: str) -> None:
    """Raise ConfigError if a call, which passes arguments by name, cannot fill a parameter."""
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: ("{0}, which takes no name", "take the mark / out of its signature"),
        inspect.Parameter.VAR_POSITIONAL: ("*{0}", "give it a parameter {0}: list[...]"),
        inspect.Parameter.VAR_KEYWORD: ("**{0}", "give it a parameter {0}: dict[str, ...]"),
    }
    for parameter in _parameters(function):
        if parameter.kind in kinds:
            what, remedy = (text.format(parameter.name) for text in kinds[parameter.kind])
            raise ConfigError(f"tool {name!r} has the parameter {what}; a model passes arguments by name: {remedy}")


def _parameters(function: Callable[..., object]) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return ()


def _plain(function: Callable[..., object]) -> Callable[..., object]:
    """Return a function that looks like the function or bound method: without `self`, its docstring in the form that
    is read."""

    def bare(*_: object) -> None: ...

    bare.__name__, doc = function.__name__, function.__doc__
    bare.__doc__ = doc and to_plain_google(doc)
    bare.__annotations__ = inspect.get_annotations(function, eval_str=True)
    bare.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    return bare


async def run_tool(
    tool: Tool, call: ToolCall, *, timeout_s: float, max_chars: int, thread: OwnThread | None = None
) -> ToolRecord:
    """Run one call and return its record. The model's mistakes are returned as an observation.

    Synchronous functions run in `thread`, or a daemon thread of the pool; one that hangs is abandoned, never waited
    for. The observation is `to_text` of the result, or what `to_parts` makes of one with pictures; text longer than
    `max_chars` is cut, with a marker.

    Raises:
        ToolTimeout: the function ran past `timeout_s`.
        EnvironmentFault: the function raised something other than ToolFailure, or returned a picture that cannot be
            read: the tool is broken, not the model.
    """
    started = time.perf_counter()
    error: str | None = None
    try:
        arguments = read_arguments(tool.spec, call.arguments, tool.function)
        if hints := _members.get(getattr(tool.function, "__func__", tool.function)):
            arguments = read_members(arguments, hints)
        with boundary(
            EnvironmentFault, f"tool {tool.spec.name!r} crashed (raise ToolFailure for what the model did wrong)"
        ):
            parts = await _run(tool, arguments, timeout_s, thread)
    except ToolFailure as failure:
        error = f"error: {failure}"
        parts = (TextPart(text=error),)
    except PictureError as problem:
        raise EnvironmentFault(str(problem)) from problem
    parts, cut = clip_parts(parts, max_chars)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    observation = "".join(texts)
    return ToolRecord(
        call=call,
        observation=observation,
        content=parts if len(texts) < len(parts) else (),
        error=None if error is None else observation,
        seconds=time.perf_counter() - started,
        clipped_chars=cut,
    )


async def _run(tool: Tool, arguments: dict[str, Any], timeout_s: float, thread: OwnThread | None) -> tuple[Part, ...]:
    deadline = asyncio.timeout(timeout_s)
    name = f"tool {tool.spec.name!r}"
    where = f"the result of {name}"
    run = run_in_thread if thread is None else thread.run
    try:
        async with deadline:
            if inspect.iscoroutinefunction(tool.function):
                return to_parts(await named(name, tool.function(**arguments)), where)
            parts = await run(lambda: _read_result(tool.function(**arguments), where))
            return to_parts(await named(name, parts), where) if inspect.isawaitable(parts) else parts
    except TimeoutError:
        if not deadline.expired():
            raise  # raised by the tool itself
        raise ToolTimeout(
            f"tool {tool.spec.name!r} ran longer than {timeout_s:g} s with arguments {repr(arguments)[:200]}; make it "
            "faster or raise environment.tool_timeout_s"
        ) from None


def _read_result(result: object, where: str) -> tuple[Part, ...] | Awaitable[object]:
    """Return what a plain function returned as parts, converted in its own thread; an awaitable is returned
    unchanged."""
    return result if inspect.isawaitable(result) else to_parts(result, where)
