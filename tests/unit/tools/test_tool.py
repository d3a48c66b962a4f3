"""Functions as tools: schemas, bad arguments, crashes, hangs, floods, and what a hung thread may cost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, ToolTimeout
from turnwise.core.threads import run_in_thread
from turnwise.core.types import ToolCall, ToolRecord, ToolSpec
from turnwise.tools.text import clip, to_text
from turnwise.tools.tool import Tool, run_tool, to_tool


def add(first: int, second: float = 0.0, label: str | None = None, tags: list[str] | None = None) -> str:
    """Add two numbers.

    Args:
        first: One number.
        second: Another.
        label: What to call the sum.
        tags: Words to attach.
    """
    return f"{label}:{first + second}"


class Shop:
    def __init__(self, stock: int) -> None:
        self.stock = stock

    def count(self, item: str) -> int:
        """Count the stock.

        Args:
            item: What to count.
        """
        return self.stock


def run(function: Any, arguments: str, *, timeout_s: float = 5.0, max_chars: int = 100) -> ToolRecord:
    call = ToolCall(id="call_1", name=function.__name__, arguments=arguments)
    return asyncio.run(run_tool(to_tool(function), call, timeout_s=timeout_s, max_chars=max_chars))


def test_schema_comes_from_hints_and_docstring() -> None:
    spec = to_tool(add).spec
    assert (spec.name, spec.description) == ("add", "Add two numbers.")
    assert spec.parameters["required"] == ["first"]
    assert spec.parameters["properties"]["first"] == {"type": "integer", "description": "One number."}


def test_bound_methods_lose_self_and_keep_their_object() -> None:
    small, large = Shop(3), Shop(70)
    assert list(to_tool(small.count).spec.parameters["properties"]) == ["item"]
    assert to_tool(small.count).spec is to_tool(large.count).spec  # read once per function, not once per environment
    assert run(large.count, '{"item": "pear"}').observation == "70"


def test_missing_hint_or_docstring_is_a_config_error_naming_the_function() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        """Do.

        Args:
            x: Something.
        """

    def undocumented(x: int) -> None: ...

    def half_documented(x: int) -> None:
        """Do."""

    for function in (untyped, undocumented, half_documented):
        with pytest.raises(ConfigError, match=rf"tool '{function.__name__}' needs type hints"):
            to_tool(function)


def test_a_parameter_that_no_call_can_fill_is_refused() -> None:
    def by_position(x: int, /) -> None:
        """Do.

        Args:
            x: Something.
        """

    def many(*names: str) -> None:
        """Do.

        Args:
            names: Something.
        """

    def more(**counts: int) -> None:
        """Do.

        Args:
            counts: Something.
        """

    for function, words in (
        (by_position, "tool 'by_position' has the parameter x, which takes no name; .*: take the mark /"),
        (many, r"tool 'many' has the parameter \*names; .*: give it a parameter names: list"),
        (more, r"tool 'more' has the parameter \*\*counts; .*: give it a parameter counts: dict"),
    ):
        with pytest.raises(ConfigError, match=words):
            to_tool(function)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


def test_a_hint_of_an_enumeration_gets_its_members() -> None:
    def paint(
        colour: Colour, rest: list[Colour] | None = None, size: Size | str = "", named: dict[str, Colour] | None = None
    ) -> str:
        """Paint.

        Args:
            colour: The colour.
            rest: More of them.
            size: How large.
            named: Colours by name.
        """
        return repr((colour, rest, size, named))

    assert run(paint, '{"colour": "blue"}').observation == "(<Colour.BLUE: 'blue'>, None, '', None)"
    assert run(paint, '{"colour": "red", "rest": ["red"], "size": 1, "named": {"a": "blue"}}').observation == (
        "(<Colour.RED: 'red'>, [<Colour.RED: 'red'>], <Size.SMALL: 1>, {'a': <Colour.BLUE: 'blue'>})"
    )
    assert run(paint, '{"colour": "red", "size": "red", "rest": null}').observation == (
        "(<Colour.RED: 'red'>, None, 'red', None)"
    )
    assert "must be one of" in run(paint, '{"colour": "green"}').observation


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ("{}", "missing: first"),
        ('{"first": 1, "third": 2}', "unknown: third"),
        ('{"first": "1"}', "first of add must be of type integer, not string"),
        ('{"first": true}', "must be of type integer, not boolean"),
        ('{"first": 1, "second": NaN}', "not valid JSON"),
        ('{"first": 1, "label": 2}', "label of add must be of type string, not integer"),
        ('{"first": 1, "tags": ["a", 3]}', "item 1 of tags of add must be of type string, not integer"),
        ('{"first": 1, "label": "\\ud800"}', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_wrong_arguments_are_told_to_the_model(arguments: str, expected: str) -> None:
    record = run(add, arguments)
    assert record.error is not None
    assert expected in record.error
    assert record.observation == record.error


def test_a_schema_may_allow_further_arguments() -> None:
    async def collect(**arguments: Any) -> Any:
        return arguments

    def answer(parameters: dict[str, Any]) -> str:
        tool = Tool(spec=ToolSpec(name="collect", description="", parameters=parameters), function=collect)
        call = ToolCall(id="c", name="collect", arguments='{"known": 1, "other": 2}')
        return asyncio.run(run_tool(tool, call, timeout_s=5, max_chars=100)).observation

    schema = {"type": "object", "properties": {"known": {"type": "integer"}}}
    absent: list[dict[str, Any]] = [{}, {"additionalProperties": True}, {"additionalProperties": {}}]
    for more in absent:
        assert answer({**schema, **more}) == '{"known": 1, "other": 2}'
    assert answer({**schema, "additionalProperties": False}) == "error: collect takes known; unknown: other"
    assert "other of collect must be of type string" in answer({**schema, "additionalProperties": {"type": "string"}})


def test_null_fits_an_optional_argument_and_an_integer_fits_a_number() -> None:
    assert run(add, '{"first": 1, "second": 2, "label": null}').observation == "None:3"


scalars = st.none() | st.booleans() | st.integers() | st.text()
objects = st.dictionaries(
    st.sampled_from(["first", "second", "label", "tags", "other"]), scalars | st.lists(scalars, max_size=3)
)


@settings(max_examples=50, deadline=None)
@given(st.text() | scalars.map(json.dumps) | objects.map(json.dumps))
def test_no_arguments_raise(arguments: str) -> None:
    assert isinstance(run(add, arguments), ToolRecord)


def test_results_that_are_not_text_become_json_and_async_functions_run() -> None:
    async def look() -> dict[str, str]:
        """Look."""
        await asyncio.sleep(0)
        return {"naïve": "é"}

    assert run(look, "{}").observation == '{"naïve": "é"}'


def test_tool_failure_is_an_observation_and_another_exception_is_a_fault_of_the_tool() -> None:
    def closed() -> str:
        """Refuse."""
        raise ToolFailure("the shop is closed")

    def broken() -> str:
        """Break."""
        raise KeyError("stock")

    def waits_in_vain() -> str:
        """Raise a time-out of its own."""
        raise TimeoutError("socket")

    def exits() -> str:
        """Try to end the run."""
        raise SystemExit(3)

    def stops() -> str:
        """Raise what a future refuses to carry."""
        raise StopIteration

    def circular() -> list[object]:
        """Return what JSON cannot say."""
        loop: list[object] = []
        loop.append(loop)
        return loop

    assert run(closed, "{}").error == "error: the shop is closed"
    with pytest.raises(EnvironmentFault, match=r"tool 'broken' crashed .*KeyError: 'stock'"):
        run(broken, "{}")
    for function in (waits_in_vain, exits, stops, circular):
        with pytest.raises(EnvironmentFault, match=function.__name__):
            run(function, "{}")


def test_ten_megabytes_are_cut_with_a_marker() -> None:
    def flood() -> str:
        """Return 10 MB."""
        return "x" * 10_000_000

    record = run(flood, "{}", max_chars=4000)
    assert record.observation == "x" * 4000 + " [... 9996000 characters cut]"  # 10,000,000 - 4,000
    assert record.clipped_chars == 9_996_000
    assert record.error is None
    assert clip("abc", 3) == ("abc", 0)


def test_hanging_tools_time_out_and_their_threads_come_back_when_they_end() -> None:
    release = threading.Event()

    def hang() -> str:
        """Wait for ever."""
        release.wait()
        return "late"

    async def sleep_long() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "late"

    for function in (hang, sleep_long):
        started = time.perf_counter()
        with pytest.raises(
            ToolTimeout, match=rf"tool '{function.__name__}' ran longer than 0.05 s .*environment.tool_timeout_s"
        ):
            run(function, "{}", timeout_s=0.05)
        assert time.perf_counter() - started < 2.0
    assert run(add, '{"first": 1}').observation == "None:1.0"  # the abandoned thread delays nothing
    release.set()  # delivers to a closed loop: nothing may be raised in the thread


def test_threads_are_reused() -> None:
    async def many() -> None:
        for _ in range(50):
            await run_in_thread(threading.get_ident)

    asyncio.run(many())  # at least one idle thread exists now
    before = threading.active_count()
    asyncio.run(many())
    assert threading.active_count() <= before


def test_a_process_exits_while_a_tool_hangs() -> None:
    program = """
import asyncio, threading
from turnwise.core.errors import ToolTimeout
from turnwise.core.types import ToolCall, ToolSpec
from turnwise.tools.tool import Tool, run_tool
tool = Tool(spec=ToolSpec(name="hang", description="", parameters={}), function=threading.Event().wait)
try:
    asyncio.run(run_tool(tool, ToolCall(id="c", name="hang", arguments="{}"), timeout_s=0.05, max_chars=10))
except ToolTimeout:
    print("timed out")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "timed out\n"
    assert done.stderr == ""


def test_a_cheap_call_costs_little() -> None:
    tool, call = to_tool(add), ToolCall(id="c", name="add", arguments='{"first": 1}')

    async def many(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            await run_tool(tool, call, timeout_s=5.0, max_chars=100)
        return (time.perf_counter() - started) / count

    # The aim is 150 us; ten times that still tells a thread or a schema per call from neither, on a busy machine.
    assert min(asyncio.run(many(300)) for _ in range(3)) < 1.5e-3


class Said(BaseModel):
    kind: str
    text: str


@dataclass
class Pear:
    name: str
    weight: np.float32


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "null"),
        ("plain", "plain"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        ("half \ud83d", "half \ufffd"),
        ("\ud83d\ude00", "\U0001f600"),  # both halves, each a character of its own
        (np.float32(0.1), "0.1"),
        (np.int64(3), "3"),
        (np.bool_(True), "true"),
        (np.array([0.1, 0.25], np.float32), "[0.1, 0.25]"),
        (torch.tensor([1, 2]), "[1, 2]"),
        ({"number": np.int64(1), "share": np.float32(0.1)}, '{"number": 1, "share": 0.1}'),
        ({(1, 2): 3, np.int64(4): {5: b"x"}}, '{"(1, 2)": 3, "4": {"5": "x"}}'),
        ({"b", "a"}, '["a", "b"]'),
        (Pear("pear", np.float32(0.1)), '{"name": "pear", "weight": 0.1}'),
        (Said(kind="text", text="hi"), '{"kind": "text", "text": "hi"}'),
        ([Said(kind="text", text="hi")], '[{"kind": "text", "text": "hi"}]'),
        (Decimal("0.10"), '"0.10"'),
        (date(2020, 1, 2), '"2020-01-02"'),
        ((1, "a", None), '[1, "a", null]'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_model_reads_of_results_that_are_no_text(result: object, text: str) -> None:
    assert to_text(result) == text
    to_text(result).encode()


def test_docstrings_with_types_and_further_headings_are_read() -> None:
    def find(query: str, *, mode: str = "fast", limit: int = 10) -> str:
        """Search.

        Args:
            query (str): What to look for.
            mode (Literal["fast", "deep"], optional): One of:
                fast or deep.

        Keyword Args:
            limit: Most results.

        Returns:
            str: Lines.
        """
        return ""

    spec = to_tool(find).spec
    said = {name: each["description"] for name, each in spec.parameters["properties"].items()}
    assert spec.description == "Search."
    assert said == {"query": "What to look for.", "mode": "One of: fast or deep.", "limit": "Most results."}


def test_what_a_generator_yields_is_its_result() -> None:
    def lines() -> Any:
        """List lines."""
        yield "a"
        yield 2

    def endless() -> Any:
        """Count."""
        at = 0
        while True:
            yield at
            at += 1

    async def streamed() -> Any:
        """Stream."""
        yield "a"

    call = ToolCall(id="1", name="lines", arguments="{}")
    assert asyncio.run(run_tool(to_tool(lines), call, timeout_s=20, max_chars=100)).observation == '["a", 2]'
    for function, said in ((endless, "more than 100,000 values"), (streamed, "an async generator; return text")):
        with pytest.raises(EnvironmentFault, match=said):
            asyncio.run(run_tool(to_tool(function), call, timeout_s=20, max_chars=100))
