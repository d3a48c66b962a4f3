"""How calls are found in what a model wrote, and how it reads the answers."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.types import ToolSpec
from turnwise_adapters.verl_tool.actions import read_action, write_observation


def spec(name: str, *required: str) -> ToolSpec:
    properties = {parameter: {"type": "string"} for parameter in required}
    return ToolSpec(
        name=name, description="", parameters={"type": "object", "properties": properties, "required": list(required)}
    )


TOOLS = [spec("python", "code"), spec("search", "query"), spec("write_file", "path", "content")]


def calls(text: str) -> list[tuple[str, dict[str, str]]] | None:
    written = read_action(text, TOOLS)
    return None if written is None else [(call.name, json.loads(call.arguments)) for call in written.calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I run <python>print(1)</python> now", [("python", {"code": "print(1)"})]),
        ("<python>a</python> and <search> b </search>", [("python", {"code": "a"}), ("search", {"query": "b"})]),
        ("<python>x = '</search>'</python>", [("python", {"code": "x = '</search>'"})]),
        ("```python\nprint(1)\n``` done", [("python", {"code": "print(1)"})]),
        ("```\npython\nprint(1)\n```", [("python", {"code": "print(1)"})]),
        ("```python\na\n```\n<python>b</python>", [("python", {"code": "b"})]),  # tags before fences
        ('<tool_call>{"name": "write_file", "arguments": {"path": "p", "content": "c"}}</tool_call>',
         [("write_file", {"path": "p", "content": "c"})]),
        ("<python>never closed", None),
        ("<write_file>two parameters</write_file>", None),
        ("<bash>ls</bash>", None),
        ("```pythonic\nx\n```", None),
        ("", None),
    ],
)  # fmt: skip
def test_calls_are_found(text: str, expected: list[tuple[str, dict[str, str]]] | None):
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<python>\nif x:\n    y\n</python>", "if x:\n    y"),
        ("<python>\n  if x:\n    y\n</python>", "  if x:\n    y"),  # an error to tell, not to mend
        ("<python> a = 1\nb = 2 </python>", "a = 1\nb = 2"),
        ("<python>\n\n\na\nb\n\n</python>", "\n\na\nb\n"),  # lines of a traceback are the writer's
        ("<python> \t\r\na\r\nb  \r\n  </python>", "a\r\nb  "),
        ("<python>\n  print(1)\n</python>", "print(1)"),
        ("<python>\n \n</python>", ""),
        ("<python>a\n  b</python>", "a\n  b"),
        ("```python\n  a\n  b\n  ```", "  a\n  b"),
        ("```python\n\n\u2003a\nb\t\n\n```", "\n\u2003a\nb\t\n"),
        ("```python\n a ```", "a"),
    ],
)
def test_what_runs_is_what_was_written_without_the_marks_own_lines(text: str, value: str):
    assert calls(text) == [("python", {"code": value})]


@given(st.lists(st.text("ab \t", max_size=4), min_size=2, max_size=5).map("\n".join))
def test_a_program_of_several_lines_comes_through_whole(program: str):
    for text in (f"<python>\n{program}\n</python>", f"```python\n{program}\n```"):
        expected = program if "\n" in program.strip() else program.strip()
        assert calls(text) == [("python", {"code": expected})]


def test_a_broken_call_is_an_error_with_its_reason():
    written = read_action("<tool_call>{nonsense</tool_call>", TOOLS)
    assert written is not None
    assert written.calls == ()
    assert written.errors[0].kind == "bad_json"


@given(st.lists(st.sampled_from(["<python>", "</python>", "```", "python\n", "<tool_call>", "{", "x"]), max_size=30))
def test_any_text_gives_calls_of_known_tools_or_none(pieces: list[str]):
    written = read_action("".join(pieces), TOOLS)
    assert written is None or all(call.name == "python" for call in written.calls)


@pytest.mark.parametrize("flood", ["<python>", "```python\n", "<search></python>"])
def test_a_flood_of_openings_is_read_in_linear_time(flood: str):
    started = time.process_time()
    read_action(flood * 20_000, TOOLS)
    assert time.process_time() - started < 2  # 0.1 s; in square time 10 s and more


@pytest.mark.parametrize(
    ("action", "name", "expected"),
    [
        ("<python>1</python>", "python", "\n<output>\n7\n</output>\n"),
        ("<search>a</search>", "search", "\n<information>\n7\n</information>\n"),
        ("```python\n1\n```", "python", "\n```output\n7\n```\n"),
        ("```python\n1\n```\n```output", "python", "\n7\n```\n"),
        ("<python>1</python>\n<output>\n", "python", "\n7\n</output>\n"),
        ('<tool_call>{"name": "python"}</tool_call>', "python", "\n<tool_response>\n7\n</tool_response>\n"),
    ],
)
def test_the_answer_comes_in_the_form_of_the_call(action: str, name: str, expected: str):
    written = read_action(action, TOOLS)
    assert written is not None
    assert write_observation(action, written.form, [(name, "7")]) == expected
