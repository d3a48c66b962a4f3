"""Requests of files with listed calls: what is shown, what is right, which files are read, and refused arguments."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Message, Scored, StopReason, Task, ToolCallError, text_message
from turnwise_worlds.tool_calls.family import ToolCalls
from turnwise_worlds.tool_calls.policies import calls_message

PLAY = {
    "name": "spotify.play",
    "description": "Play songs.",
    "parameters": {
        "type": "dict",
        "properties": {
            "artist": {"type": "string"},
            "minutes": {"type": "float", "default": 3.5},
            "tags": {"type": "tuple", "items": {"type": "any"}},
        },
        "required": ["artist"],
    },
}
BOTH: dict[str, Any] = {
    "id": "parallel_3",
    "question": [[{"role": "system", "content": "Be quick."}, {"role": "user", "content": "Play A-ha and Abba."}]],
    "function": [PLAY],
    "ground_truth": [
        {"spotify.play": {"artist": ["A-ha"], "minutes": [20.0, ""]}},
        {"spotify.play": {"artist": ["Abba"], "minutes": [15.0]}},
    ],
}
NONE: dict[str, Any] = {
    "id": "irrelevance_0",
    "question": [[{"role": "user", "content": "Is it wet?"}]],
    "function": [PLAY],
}
FIRST = ("spotify.play", {"artist": "aha"})
SECOND = ("spotify.play", {"artist": "ABBA", "minutes": 15})


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def make_family(tmp_path: Path, **arguments: Any) -> ToolCalls:
    paths = {"train_path": write(tmp_path / "train.json", BOTH), "heldout_path": write(tmp_path / "none.json", NONE)}
    return ToolCalls(mode="files", **{**paths, **arguments})


def play(family: ToolCalls, task: Task, reply: Message | None) -> tuple[float, float | None, float | None]:
    """Total, `success` and `fulfilled` of one reply; None: a limit cut it off."""

    async def run() -> Scored:
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        if reply is not None:
            assert (await environment.step(reply)).done
        reward = await environment.score([] if reply is None else [reply], StopReason.DONE)
        await environment.close()
        assert isinstance(reward, Scored)
        return reward

    reward = asyncio.run(run())
    return reward.total, reward.part("success"), reward.part("fulfilled")


def test_the_calls_of_a_row_are_right_in_any_order_and_nothing_else_is(tmp_path: Path) -> None:
    family = make_family(tmp_path)
    task = family.task("train", 0)
    assert play(family, task, calls_message([FIRST, SECOND])) == (1, 1, 1)
    assert play(family, task, calls_message([SECOND, FIRST])) == (1, 1, 1)
    # One of two wanted calls; a call too many; the second without the 15 minutes that have no "" among them.
    assert play(family, task, calls_message([SECOND])) == (0, 0, 0.5)
    assert play(family, task, calls_message([FIRST, SECOND, SECOND])) == (0, 0, 1)
    assert play(family, task, calls_message([FIRST, ("spotify.play", {"artist": "Abba"})])) == (0, 0, 0.5)
    assert play(family, task, text_message("assistant", "No.")) == (0, 0, 0)
    assert play(family, task, None) == (0, 0, 0)


def test_where_no_call_is_right_words_are_and_a_malformed_call_is_not(tmp_path: Path) -> None:
    family = make_family(tmp_path)
    task = family.task("heldout", 0)
    error = ToolCallError(kind="bad_json", raw="{", message="not JSON")
    broken = Message(role="assistant", content=(), tool_errors=(error,))
    assert play(family, task, text_message("assistant", "No tool fits.")) == (1, 1, 1)
    assert play(family, task, calls_message([FIRST])) == (0, 0, 0)
    assert play(family, task, broken) == (0, 0, 0)
    assert play(family, task, None) == (0, 0, 0)


def test_the_model_sees_the_rows_messages_and_functions_as_json_schema(tmp_path: Path) -> None:
    family = make_family(tmp_path)
    assert isinstance(family, EnvironmentFamily)
    task = family.task("train", 0)

    async def open_it() -> Any:
        environment = family.build_environment(task)
        opening = await environment.reset(task, 0)
        await environment.close()
        return opening

    opening = asyncio.run(open_it())
    assert [(message.role, message.text) for message in opening.messages] == [
        ("system", "Be quick."),
        ("user", "Play A-ha and Abba."),
    ]
    (tool,) = opening.tools
    assert (tool.name, tool.description) == ("spotify.play", "Play songs.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "artist": {"type": "string"},
            "minutes": {"type": "number", "default": 3.5},
            "tags": {"type": "array", "items": {}},
        },
        "required": ["artist"],
    }
    assert task.payload["kind"] == "parallel"
    assert family.place("train", 0) == f"{tmp_path / 'train.json'}:1"


def test_the_policies_of_a_file(tmp_path: Path) -> None:
    family = make_family(tmp_path, naive_skill=0.0, naive_tact=0.0)
    right, none = family.task("train", 0), family.task("heldout", 0)
    for task in (right, none):
        reply = family.policy("oracle").reply(task, task.prompt, Random(0))
        assert play(family, task, reply)[0] == 1
        for seed in range(5):
            assert play(family, task, family.policy("random").reply(task, task.prompt, Random(seed)))[0] in (0, 1)
    # Without skill the demonstrator makes the first of two calls, without tact one where none is right.
    assert play(family, right, family.policy("naive").reply(right, right.prompt, Random(0))) == (0, 0, 0.5)
    assert play(family, none, family.policy("naive").reply(none, none.prompt, Random(0))) == (0, 0, 0)
    assert [text for text in family.texts(3) if "spotify.play" in text]


def test_the_allowed_calls_may_stand_in_a_folder_beside_the_file(tmp_path: Path) -> None:
    truth = {"id": "parallel_3", "ground_truth": BOTH["ground_truth"]}
    answers = write(tmp_path / "possible_answer" / "rows.json", truth)
    bare = {name: value for name, value in BOTH.items() if name != "ground_truth"}
    path = write(tmp_path / "rows.json", bare)
    family = make_family(tmp_path, train_path=path)
    assert play(family, family.task("train", 0), calls_message([FIRST, SECOND]))[0] == 1
    named = [(file.path.name, file.path.parent.name, file.num_rows) for file in family.data_files]
    assert (named[-1], len(named)) == (("rows.json", "possible_answer", 1), 3)
    write(Path(answers), truth, {**truth, "ground_truth": []})
    with pytest.raises(DataError, match=r"possible_answer/rows.json:2: .*'parallel_3' already has another"):
        make_family(tmp_path, train_path=path)
    write(Path(answers), {"id": "parallel_3"})
    with pytest.raises(DataError, match=r'possible_answer/rows.json:1: .*expected "id" and "ground_truth"'):
        make_family(tmp_path, train_path=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ground_truth": [{"spotify.play": {"artist": "A-ha"}}]}, r"spotify.play.artist\" is 'A-ha'; expected a list"),
        ({"ground_truth": [{"spotify.play": {"artist": []}}]}, "at least one allowed value"),
        ({"ground_truth": [{"spotify.stop": {}}]}, "calls 'spotify.stop'"),
        ({"ground_truth": ["spotify.play(artist='A-ha')"]}, r"ground_truth\[0\]"),
        ({"ground_truth": {"spotify.play": {}}}, "expected"),
        ({"function": [PLAY, PLAY]}, "like an earlier function's"),
        ({"function": [{**PLAY, "parameters": {"type": "dict"}}]}, r"function\[0\].parameters"),
        ({"function": None}, r"function\[0\]"),
        ({"function": [{**PLAY, "parameters": {"properties": {"x": {"type": "HashMap"}}}}]}, "x.type\" is 'HashMap'"),
        ({"question": [[{"role": "assistant", "content": "Yes."}]]}, "'assistant'"),
        ({"question": "Play A-ha."}, "question"),
    ],
)
def test_a_row_that_cannot_be_judged_is_refused_by_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"rows.json:1: .*{message}"):
        make_family(tmp_path, train_path=write(tmp_path / "rows.json", {**BOTH, **change}))


def test_arguments_of_the_other_mode_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="schema='blanked' has no effect in mode='files'"):
        make_family(tmp_path, schema="blanked")
    with pytest.raises(ConfigError, match="train_path='x' has no effect in mode='generated'"):
        ToolCalls(train_path="x")
    with pytest.raises(ConfigError, match="heldout_path='', but tasks are read from it"):
        make_family(tmp_path, heldout_path="")
