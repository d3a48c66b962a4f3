"""Turn a typed Python function into a tool: schema from its signature and docstring; calls checked, timed, cut.

`environments.tool_environment` handles episodes and messages.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, ToolTimeout, boundary
from turnwise.core.holding import named
from turnwise.core.threads import OwnThread, run_in_thread
from turnwise.core.types import ToolCall, ToolRecord, ToolSpec
from turnwise.tools.arguments import read_arguments
from turnwise.tools.docstrings import to_plain_google
from turnwise.tools.members import find_members, read_members

MAX_ITEMS = 100_000
"""Most values that are taken from a generator."""

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
    for. The observation is `to_text` of the result; if longer than `max_chars`, it is cut, with a marker.

    Raises:
        ToolTimeout: the function ran past `timeout_s`.
        EnvironmentFault: the function raised something other than ToolFailure: the tool is broken, not the model.
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
            text = await _run(tool, arguments, timeout_s, thread)
    except ToolFailure as failure:
        text = error = f"error: {failure}"
    observation, cut = clip(text, max_chars)
    return ToolRecord(
        call=call,
        observation=observation,
        error=None if error is None else observation,
        seconds=time.perf_counter() - started,
        clipped_chars=cut,
    )


async def _run(tool: Tool, arguments: dict[str, Any], timeout_s: float, thread: OwnThread | None) -> str:
    deadline = asyncio.timeout(timeout_s)
    name = f"tool {tool.spec.name!r}"
    run = run_in_thread if thread is None else thread.run
    try:
        async with deadline:
            if inspect.iscoroutinefunction(tool.function):
                return to_text(await named(name, tool.function(**arguments)))
            text = await run(lambda: _read_result(tool.function(**arguments)))
            return text if isinstance(text, str) else to_text(await named(name, text))
    except TimeoutError:
        if not deadline.expired():
            raise  # raised by the tool itself
        raise ToolTimeout(
            f"tool {tool.spec.name!r} ran longer than {timeout_s:g} s with arguments {repr(arguments)[:200]}; make it "
            "faster or raise environment.tool_timeout_s"
        ) from None


def _read_result(result: object) -> str | Awaitable[object]:
    """Return the text of what a plain function returned, converted in its own thread; an awaitable is returned
    unchanged."""
    return result if inspect.isawaitable(result) else to_text(result)


def to_text(result: object) -> str:
    """Convert a tool's result to what the model reads: text unchanged, anything else as JSON.

    Numbers and arrays of numpy and torch are JSON numbers and lists, bytes are read as UTF-8, None is `null`, what a
    generator yields is a list; values that JSON cannot represent are written with `str`. Half of a surrogate pair,
    which is not text, becomes a replacement character.
    """
    text = _decode(result) if isinstance(result, str | bytes | bytearray) else _write_json(result)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _decode(result: str | bytes | bytearray) -> str:
    return str(result) if isinstance(result, str) else bytes(result).decode("utf-8", "replace")


def _write_json(result: object) -> str:
    try:
        return json.dumps(result, ensure_ascii=False, default=_to_plain)
    except TypeError:  # keys that are not text
        return json.dumps(_with_text_keys(result), ensure_ascii=False, default=_to_plain)


def _with_text_keys(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _with_text_keys(each) for key, each in value.items()}
    return [_with_text_keys(each) for each in value] if isinstance(value, list | tuple) else value


def _to_plain(value: object) -> object:
    """Return a value that JSON can represent in place of one that it cannot."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f" and value.dtype.itemsize < 8:
        value = np.asarray(value).astype(str).astype(np.float64)  # 0.1 stays 0.1, not 0.10000000149011612
    if hasattr(value, "tolist"):  # of numpy and torch
        return value.tolist()
    if hasattr(value, "model_dump"):  # of pydantic
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, Iterator):  # of a generator function: what it yields, not its address
        items = list(islice(value, MAX_ITEMS + 1))
        if len(items) > MAX_ITEMS:
            raise ValueError(f"the result yields more than {MAX_ITEMS:,} values; return text or a list")
        return items
    if isinstance(value, AsyncIterator):
        raise ValueError("the result is an async generator; return text or a list")
    return _decode(value) if isinstance(value, bytes | bytearray) else str(value)


def clip(text: str, max_chars: int) -> tuple[str, int]:
    """Return at most `max_chars` characters of text, followed by a marker if it was longer; and how many were cut."""
    cut = len(text) - max_chars
    if cut <= 0:
        return text, 0
    return f"{text[:max_chars]} [... {cut} characters cut]", cut
