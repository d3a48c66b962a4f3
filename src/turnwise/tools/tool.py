"""A typed Python function becomes a tool: its schema from the signature and docstring, its calls checked, timed and clipped.

Knows nothing about episodes or messages; `environments.tool_environment` does.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, ToolTimeout, boundary
from turnwise.core.types import ToolCall, ToolRecord, ToolSpec
from turnwise.tools.threads import run_in_thread

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function and what the model is told about it."""

    spec: ToolSpec
    function: Callable[..., object]


def to_tool(function: Callable[..., object]) -> Tool:
    """The tool of a function with type hints and a Google-style docstring (`Args:` names every parameter).

    Methods work; `self` is not part of the schema. Raises ConfigError naming the function and what is missing.
    """
    return Tool(spec=_spec_of(getattr(function, "__func__", function)), function=function)


@lru_cache(maxsize=1024)
def _spec_of(function: Callable[..., object]) -> ToolSpec:
    from transformers.utils import get_json_schema

    name = getattr(function, "__name__", repr(function))
    with boundary(ConfigError, f"tool {name!r} needs type hints and a docstring with an 'Args:' entry for every parameter"):
        schema = get_json_schema(_without_self(function))["function"]
    return ToolSpec(name=schema["name"], description=schema["description"], parameters=schema["parameters"])


def _without_self(function: Callable[..., object]) -> Callable[..., object]:
    """The function as its callers see it: a method loses its first parameter."""
    parameters = list(inspect.signature(function).parameters)
    if not parameters or parameters[0] != "self":
        return function

    def bare(*_: object) -> None: ...

    signature = inspect.signature(function, eval_str=True)
    bare.__name__, bare.__doc__ = function.__name__, function.__doc__
    bare.__annotations__ = {k: v for k, v in inspect.get_annotations(function, eval_str=True).items() if k != "self"}
    bare.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return bare


async def run_tool(tool: Tool, call: ToolCall, *, timeout_s: float, max_chars: int) -> ToolRecord:
    """Run one call and say what happened. What the model did wrong comes back as an observation.

    Synchronous functions run in a daemon thread; one that hangs is abandoned, never waited for.

    Raises:
        ToolTimeout: the function ran past `timeout_s`.
        EnvironmentFault: the function raised something other than ToolFailure: the tool is broken, not the model.
    """
    started = time.perf_counter()
    arguments = _read_arguments(tool.spec, call.arguments)
    if isinstance(arguments, str):
        return ToolRecord(call=call, observation=arguments, error=arguments, seconds=time.perf_counter() - started)
    error: str | None = None
    try:
        with boundary(EnvironmentFault, f"tool {tool.spec.name!r} crashed"):
            result = await _run(tool, arguments, timeout_s)
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    except ToolFailure as failure:
        text = error = str(failure)
    observation, cut = clip(text, max_chars)
    return ToolRecord(call=call, observation=observation, error=error, seconds=time.perf_counter() - started, clipped_chars=cut)


async def _run(tool: Tool, arguments: dict[str, Any], timeout_s: float) -> object:
    try:
        async with asyncio.timeout(timeout_s):
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**arguments)
            return await run_in_thread(lambda: tool.function(**arguments))
    except TimeoutError:
        raise ToolTimeout(
            f"tool {tool.spec.name!r} ran past {timeout_s:g} s with arguments {arguments!r:.200}; make it faster or raise "
            "environment.tool_timeout_s"
        ) from None


def _read_arguments(spec: ToolSpec, raw: str) -> dict[str, Any] | str:
    """The arguments, or what to tell the model about them."""
    try:
        arguments = json.loads(raw)
    except (ValueError, RecursionError):
        return f"error: the arguments of {spec.name} are not valid JSON"
    if not isinstance(arguments, dict):
        return f"error: the arguments of {spec.name} must be a JSON object"
    properties: dict[str, Any] = spec.parameters.get("properties", {})
    missing = [k for k in spec.parameters.get("required", []) if k not in arguments]
    unknown = [k for k in arguments if k not in properties]
    if missing or unknown:
        problem = f"missing {missing}" if missing else f"unknown {unknown}"
        return f"error: {spec.name} takes {sorted(properties)}; {problem}"
    for key, value in arguments.items():
        allowed = _JSON_TYPES.get(str(properties[key].get("type")))
        if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed)):
            return f"error: {key} of {spec.name} must be of type {properties[key]['type']}, not {type(value).__name__}"
    return arguments


def clip(text: str, max_chars: int) -> tuple[str, int]:
    """At most `max_chars` characters of text followed, where it was longer, by a marker; and how many were cut."""
    cut = len(text) - max_chars
    if cut <= 0:
        return text, 0
    return f"{text[:max_chars]} [... {cut} characters cut]", cut
