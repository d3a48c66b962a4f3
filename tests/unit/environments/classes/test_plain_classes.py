"""Plain classes as environments: TRL's contract, and what goes wrong in a class."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import sqlite3
import threading
import time
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import pytest

from turnwise.core.errors import ConfigError, DataError, EnvironmentFault, ToolTimeout
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Invalid, Message, RewardPart, Scored, ToolCall, text_message
from turnwise.environments.classes.family import MAX_FAILURES, ClassFamily
from turnwise.environments.classes.policies import draw_arguments
from turnwise.environments.episodes import Episode, Played, play_at_once, play_episode


class Counter:
    """Reach the goal; the tool raises, hangs or floods on request."""

    def __init__(self) -> None:
        self.total, self.done = 0, False

    def reset(self, goal: int = 5, seed: int = 0, **row: Any) -> str:
        self.goal, self.seed = goal, seed
        return f" Reach {goal}."

    def add(self, amount: int) -> Any:
        """Add to the total.

        Args:
            amount: How much.
        """
        self.total += amount
        self.done = self.total >= self.goal
        return {"total": self.total}

    async def peek(self) -> str:
        """Look at the total."""
        return str(self.total)

    def get_reward(self) -> float:
        return float(self.total == self.goal)

    def _oracle(self) -> tuple[str, dict[str, int]]:
        return "add", {"amount": 1}


class Trouble(Counter):
    def fail(self, how: Literal["raise", "crash", "hang", "flood", "none"]) -> Any:
        """Fail.

        Args:
            how: In which way.
        """
        if how == "raise":
            raise ValueError("no more of that")
        if how == "crash":
            self.no_such_attribute  # type: ignore[attr-defined]  # noqa: B018
        if how == "hang":
            time.sleep(5)
        return "x" * 10_000_000 if how == "flood" else None


class Say:
    """Says some replies, then nothing."""

    def __init__(self, *replies: Message) -> None:
        self.replies = list(replies)

    def reply(self, task: Any, messages: Any, rng: Random) -> Message:
        return self.replies.pop(0) if self.replies else text_message("assistant", "")


def calls(*arguments: dict[str, Any], name: str = "add") -> Message:
    made = (ToolCall(id=str(i), name=name, arguments=json.dumps(each)) for i, each in enumerate(arguments))
    return text_message("assistant", "", tool_calls=tuple(made))


def play(plain: type, *replies: Message, **arguments: Any) -> Played:
    family = ClassFamily(plain, **arguments)
    return asyncio.run(play_episode(family, family.task("train", 0), Say(*replies), seed=0, max_turns=9))


def with_methods(**methods: Any) -> type:
    """`Counter` with other methods."""
    return type("Changed", (Counter,), methods)


# ------------------------------------------------------------------------------------------------ TRL's contract


def test_an_episode_of_a_class() -> None:
    played = play(Counter, calls({"amount": 2}), calls({}, name="peek"), calls({"amount": 3}, {"amount": 4}))
    assert [tool.name for tool in played.opening.tools] == ["add", "peek"]
    assert played.opening.messages == (text_message("user", " Reach 5."),)
    assert [record.observation for result in played.results[:2] for record in result.tool_records] == [
        '{"total": 2}',
        "2",
    ]
    # 2 + 3 = 5 ends the episode: the model reads no answer, and the second call of the reply does not run.
    assert (played.results[2].done, played.results[2].observations) == (True, ())
    assert [record.observation for record in played.results[2].tool_records] == ['{"total": 5}']
    assert played.reward == Scored(total=1.0)


def test_the_prompt_of_a_row_gets_what_reset_returns_at_its_end() -> None:
    rows = [{"goal": 3, "prompt": [{"role": "system", "content": "Count."}, {"role": "user", "content": "Go."}]}]
    messages = play(Counter, rows=rows).opening.messages
    assert [(m.role, m.text) for m in messages] == [("system", "Count."), ("user", "Go. Reach 3.")]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, [("user", "Go.")]),
        ("Now.", [("user", "Go.Now.")]),
        ([{"type": "text", "text": " A"}, {"type": "text", "text": "B"}], [("user", "Go. AB")]),
        ([{"role": "user", "content": "Now."}], [("user", "Go."), ("user", "Now.")]),
    ],
)
def test_what_reset_may_return(returned: object, expected: list[tuple[str, str]]) -> None:
    plain = with_methods(reset=lambda self, prompt, seed: returned)
    messages = play(plain, rows=[{"prompt": "Go."}]).opening.messages
    assert [(message.role, message.text) for message in messages] == expected


EXCHANGE = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4."}]


def test_what_reset_returns_behind_a_reply_is_the_users() -> None:
    plain = with_methods(reset=lambda self, prompt, seed: "And 3 + 3?")
    messages = play(plain, rows=[{"prompt": EXCHANGE}]).opening.messages
    assert [(m.role, m.text) for m in messages] == [("user", "2 + 2?"), ("assistant", "4."), ("user", "And 3 + 3?")]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (EXCHANGE, "starts with a message from the assistant"),
        ([{"role": "user", "content": None}], r"prompt of .* has a message without text"),
        ([{**EXCHANGE[1], "tool_calls": [{"function": {}}]}, EXCHANGE[0]], "with tool calls, which it would lose"),
    ],
)
def test_prompts_that_would_lose_something_are_refused(prompt: object, words: str) -> None:
    with pytest.raises((EnvironmentFault, ConfigError), match=words):
        play(with_methods(reset=lambda self, prompt, seed: None), rows=[{"prompt": prompt}])


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "would see no text"),
        (7, "returned 7"),
        ([{"type": "video", "video": "x"}], "has a part of type video; use text and images"),
        ([{"role": "tool", "content": "x"}], "role 'tool'"),
    ],
)
def test_what_reset_may_not_return(returned: object, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        play(with_methods(reset=lambda self, seed: returned))


def test_tasks_have_seeds_of_their_own_and_columns_keep_theirs() -> None:
    family = ClassFamily(Counter)
    assert isinstance(family, EnvironmentFamily)
    rows = [family.task(split, index).payload["row"] for split in ("train", "heldout") for index in range(50)]
    assert len({row["seed"] for row in rows}) == 100
    assert all(0 <= row["seed"] < 2**31 for row in rows)
    assert ClassFamily(Counter, rows=[{"seed": 7}]).task("train", 3).payload["row"] == {"seed": 7}
    seedless = ClassFamily(with_methods(reset=lambda self: "Go."))
    assert seedless.task("train", 3).payload["row"] == {}
    assert any("takes no seed" in note for note in seedless.notes)


def test_a_class_without_an_oracle_says_what_is_lost() -> None:
    family = ClassFamily(with_methods(_oracle=None))
    assert any("no _oracle" in note for note in family.notes)
    with pytest.raises(ConfigError, match="no policy 'oracle'"):
        family.policy("oracle")
    with pytest.raises(ConfigError, match="naive_skill"):
        ClassFamily(with_methods(_oracle=None), naive_skill=0.5)
    assert ClassFamily(Counter).notes == ()


def test_the_oracle_continues_an_episode_from_its_messages() -> None:
    family = ClassFamily(Counter, naive_skill=1.0)
    for name in ("oracle", "naive"):
        played = asyncio.run(play_episode(family, family.task("train", 0), family.policy(name), seed=0, max_turns=9))
        assert (played.reward, len(played.replies)) == (Scored(total=1.0), 5)
    wrong = with_methods(_oracle=lambda self: ("subtract", {}))
    family = ClassFamily(wrong)
    with pytest.raises(EnvironmentFault, match=r"_oracle\(\) returned"):
        asyncio.run(play_episode(family, family.task("train", 0), family.policy("oracle"), seed=0, max_turns=9))


def test_texts_have_the_schema_the_calls_and_what_is_read() -> None:
    texts = ClassFamily(Counter).texts(200)
    assert len(texts) == 200
    joined = "\n".join(texts)
    for part in ('"description": "How much."', " Reach 5.", " add amount = ", '{"amount": ', ' {"total": ', " done"):
        assert part in joined
    assert texts == ClassFamily(Counter).texts(200)

    async def within_a_loop() -> list[str]:
        return ClassFamily(Counter).texts(200)

    assert asyncio.run(within_a_loop()) == texts


def test_random_arguments_fit_their_schema() -> None:
    schema = {
        "properties": {
            "number": {"type": "integer"},
            "ratio": {"type": "number"},
            "word": {"type": "string"},
            "choice": {"type": "string", "enum": ["a", "b"]},
            "items": {"type": "array", "items": {"type": "boolean"}},
            "table": {"type": "object", "additionalProperties": {"type": "integer"}},
            "either": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
            "rare": {"type": "string"},
        },
        "required": ["number", "ratio", "word", "choice", "items", "table", "either"],
    }
    messages = [text_message("user", "not 2.5 or x9; from 3 to 5."), text_message("tool", "77")]
    drawn = [draw_arguments(schema, messages, Random(seed)) for seed in range(200)]
    assert {each["number"] for each in drawn} == {3, 4, 5}
    assert {each["choice"] for each in drawn} == {"a", "b"}
    assert {type(item) for each in drawn for item in each["items"]} == {bool}
    assert {type(each["either"]) for each in drawn} == {int, type(None)}
    assert {each["word"] for each in drawn} <= {"from", "3", "to", "5", "not", "2", "or", "x9"}
    assert {"rare" in each for each in drawn} == {True, False}
    assert all(set(each["table"]) == {"key"} for each in drawn)


# ------------------------------------------------------------------------------------------------ classes that fail


def test_what_a_tool_raises_is_told_to_the_model_and_on_record() -> None:
    played = play(Trouble, calls({"how": "raise"}, name="fail"), calls({"how": "crash"}, name="fail"))
    (raised,), (crashed,) = (result.tool_records for result in played.results[:2])
    assert raised.observation == raised.error == "error: no more of that"
    assert crashed.error is not None
    assert crashed.error.startswith("error: AttributeError: ")
    assert played.reward == Scored(total=0.0)


def test_a_flood_is_cut_and_nothing_is_text() -> None:
    played = play(Trouble, calls({"how": "flood"}, {"how": "none"}, name="fail"))
    flood, nothing = played.results[0].tool_records
    assert flood.clipped_chars == 10_000_000 - 4000
    assert len(flood.observation) < 4100
    assert nothing.observation == "null"


def test_a_tool_that_hangs_is_left_behind() -> None:
    started = time.perf_counter()
    with pytest.raises(ToolTimeout, match=r"'fail' ran longer than 0.2 s"):
        play(Trouble, calls({"how": "hang"}, name="fail"), tool_timeout_s=0.2)
    assert time.perf_counter() - started < 4


def broken(self: Any, *_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


def hangs(self: Any, *_: Any, **__: Any) -> Any:
    time.sleep(5)


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"reset": broken}, "Changed.reset failed: RuntimeError: broken"),
        ({"reset": hangs}, r"Changed.reset ran longer than 0\.2 s"),
        ({"__init__": broken}, r"Changed\(\) failed: RuntimeError: broken"),
    ],
)
def test_a_reset_that_fails_is_one_clear_line(methods: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        play(with_methods(**methods), tool_timeout_s=0.2)


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda self: None, "None, not a finite number"),
        (lambda self: math.nan, "nan, not a finite number"),
        (lambda self: "1", "'1', not a finite number"),
        (broken, "RuntimeError: broken"),
        (hangs, r"took longer than 0\.2 s"),
    ],
)
def test_a_reward_that_is_none_is_invalid_never_zero(reward: Any, words: str) -> None:
    played = play(with_methods(get_reward=reward), tool_timeout_s=0.2)
    assert isinstance(played.reward, Invalid)
    assert "Changed.get_reward()" in played.reward.reason
    assert words.replace("\\", "") in played.reward.reason


@pytest.mark.parametrize("value", [True, 1, np.float32(1.0), np.array(1.0)])
def test_numbers_of_any_kind_are_rewards(value: Any) -> None:
    assert play(with_methods(get_reward=lambda self: value)).reward == Scored(total=1.0)


class Attribute:
    """As in TRL's examples, a reward function reads the attribute."""

    def reset(self, **row: Any) -> str:
        self.reward, self.done = 0.0, False
        return "Go."

    def win(self) -> str:
        """Win."""
        self.reward, self.done = 0.5, True
        return "won"


def test_the_attribute_reward_counts_where_there_is_no_method() -> None:
    assert play(Attribute, calls({}, name="win")).reward == Scored(total=0.5)

    class Nothing(Attribute):
        def reset(self, **row: Any) -> str:
            return "Go."

    with pytest.raises(ConfigError, match="neither a method get_reward nor"):
        play(Nothing)


class Kinds(Counter):
    @classmethod
    def of_class(cls, number: int) -> str:
        """Take.

        Args:
            number: One.
        """
        return f"{cls.__name__} {number}"

    @functools.lru_cache  # noqa: B019
    def kept(self, number: int) -> str:
        """Take.

        Args:
            number: One.
        """
        return f"kept {number}"


def test_methods_of_every_kind_are_tools() -> None:
    played = play(Kinds, calls({"number": 1}, name="of_class"), calls({"number": 2}, name="kept"))
    shown = [record.observation for result in played.results for record in result.tool_records]
    assert shown == ["Kinds 1", "kept 2"]


def test_a_helper_without_an_underscore_is_told_how_to_be_none() -> None:
    words = "class Changed, method close: tool '<lambda>' needs type hints.* Start the name with an underscore"
    with pytest.raises(ConfigError, match=words):
        play(with_methods(close=lambda self: None))


def untyped(self: Any, number) -> str:  # type: ignore[no-untyped-def]
    """Take.

    Args:
        number: One.
    """
    return str(number)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (type("Bare", (), {"reset": lambda self: "Go."}), "class Bare has no tool"),
        (with_methods(__init__=lambda self, size: None), "cannot be built without arguments"),
        (with_methods(take=untyped), "class Changed: .*'untyped' needs type hints|tool 'untyped' needs type hints"),
        (with_methods(reset=lambda self, question: "Go."), "does not accept the columns .*question"),
    ],
)
def test_a_class_that_cannot_be_an_environment_is_refused_at_once(plain: type, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClassFamily(plain)


# ------------------------------------------------------------------------------------------------ rows


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return str(path)


class Strict(Counter):
    def reset(self, goal: int) -> str:  # type: ignore[override]
        self.goal = goal
        return f"Reach {goal}."


def test_rows_of_a_file_are_split_and_shared_with_nobody(tmp_path: Path) -> None:
    family = ClassFamily(Strict, path=write(tmp_path / "rows.jsonl", *({"goal": goal} for goal in range(1, 21))))
    # A tenth of 20 rows is held out; the others start over after a pass.
    heldout = {family.task("heldout", index).payload["row"]["goal"] for index in range(2)}
    passes = [[family.task("train", base + i).payload["row"]["goal"] for i in range(18)] for base in (0, 18)]
    assert heldout | set(passes[0]) == set(range(1, 21))
    assert sorted(passes[0]) == sorted(passes[1])
    assert passes[0] != passes[1]
    with pytest.raises(IndexError):
        family.task("heldout", 2)
    other = write(tmp_path / "heldout.jsonl", {"goal": 99})
    family = ClassFamily(Strict, path=str(tmp_path / "rows.jsonl"), heldout_path=other)
    assert family.task("heldout", 0).payload["row"] == {"goal": 99}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (['{"goal": 1}', '{"goal": '], "rows.jsonl:2: not JSON"),
        (['{"goal": 1}', "", "[1]"], "rows.jsonl:3: list instead of an object"),
        (['{"goal": 1}', '{"aim": 1}'], r"rows.jsonl:2: Strict.reset does not accept the columns \['aim'\]"),
        ([], "rows.jsonl: no rows"),
    ],
)
def test_a_row_of_the_wrong_layout_is_named_by_file_and_line(tmp_path: Path, rows: list[str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        ClassFamily(Strict, path=write(tmp_path / "rows.jsonl", *rows))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": []}, "is empty; add"),
        ({"rows": [{"goal": 1}, {"aim": 1}]}, r"rows\[1\]"),
        ({"rows": [{"goal": 1}]}, "takes no seed"),
        ({"rows": "x"}, "is not a list"),
        ({"rows": [{"goal": 1}], "path": "x"}, "both set"),
        ({"heldout_path": "x"}, "without rows"),
        ({"goal": 3}, "unknown argument"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClassFamily(Strict, **arguments)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        ClassFamily(Strict, path=str(tmp_path / "none.jsonl"))


def test_an_episode_is_fresh_whatever_came_before() -> None:
    family = ClassFamily(Counter)
    task = family.task("train", 0)
    episodes = [Episode(family, task, Say(calls({"amount": 2})), seed=0, max_turns=1) for _ in range(2)]
    assert len({id(episode) for episode in episodes}) == 2
    first, second = (
        asyncio.run(play_episode(family, task, Say(calls({"amount": 2})), seed=0, max_turns=2)) for _ in range(2)
    )
    assert first.results[0].observations == second.results[0].observations


# ------------------------------------------------------------------------------------------------ threads and faults


class Stock:
    """Keeps its state in a database that only the thread which opened it may use."""

    def __init__(self) -> None:
        self.base = sqlite3.connect(":memory:")
        self.threads = {threading.get_ident()}

    def reset(self, seed: int) -> str:
        self.base.execute("create table stock (name text, number integer)")
        self.base.execute("insert into stock values ('pear', ?)", (seed % 7,))
        self.said = -1
        return "How many pears are there?"

    def count(self, name: str) -> int:
        """How many there are.

        Args:
            name: Of what.
        """
        self.threads.add(threading.get_ident())
        time.sleep(0.001)  # another episode takes the thread of the pool meanwhile
        return int(self.base.execute("select number from stock where name = ?", (name,)).fetchone()[0])

    def answer(self, number: int) -> str:
        """Say how many.

        Args:
            number: The answer.
        """
        self.said = number
        return "noted"

    def get_reward(self) -> dict[str, float]:
        (number,) = self.base.execute("select number from stock").fetchone()
        self.threads.add(threading.get_ident())
        return {"reward": float(self.said == number), "success": self.said == number, "threads": len(self.threads)}

    def _close(self) -> None:
        self.base.close()


def test_an_object_lives_in_one_thread_whatever_others_do() -> None:
    family = ClassFamily(Stock)

    async def play_many() -> list[Played]:
        tasks = [family.task("train", index) for index in range(20)]
        numbers = [task.payload["row"]["seed"] % 7 for task in tasks]
        replies = [
            Say(calls({"name": "pear"}, name="count"), calls({"number": number}, name="answer")) for number in numbers
        ]
        return await play_at_once(
            [Episode(family, task, say, seed=0, max_turns=9) for task, say in zip(tasks, replies, strict=True)]
        )

    for played in asyncio.run(play_many()):
        assert [record.error for result in played.results for record in result.tool_records] == [None, None]
        assert played.reward == Scored(
            total=1.0, parts=(RewardPart(name="success", value=1.0), RewardPart(name="threads", value=1.0))
        )


def test_close_is_called_in_the_same_thread_and_what_it_raises_is_named() -> None:
    seen: list[int] = []

    class Own(Stock):
        def _close(self) -> None:
            seen.append(len(self.threads | {threading.get_ident()}))
            super()._close()

    play(Own)
    assert seen == [1]

    class Bad(Stock):
        def _close(self) -> None:
            raise OSError("device is gone")

    with pytest.raises(EnvironmentFault, match=r"Bad\._close failed: OSError: device is gone"):
        play(Bad)


def test_a_tool_that_hangs_is_left_behind_and_close_does_not_wait_for_it() -> None:
    release = threading.Event()

    class Hanging(Stock):
        def count(self, name: str) -> int:
            """How many.

            Args:
                name: Of what.
            """
            release.wait()
            return 0

    started = time.monotonic()
    with pytest.raises(ToolTimeout, match="count"):
        play(Hanging, calls({"name": "pear"}, name="count"), tool_timeout_s=0.5)
    release.set()
    assert time.monotonic() - started < 5  # not the 10 s that closing may take


def test_an_exception_of_the_tools_own_code_is_on_record_and_a_value_error_is_told() -> None:
    for how, expected in (("crash", "AttributeError: "), ("raise", None)):
        (record,) = play(Trouble, calls({"how": how}, name="fail")).results[0].tool_records
        assert record.error is not None
        assert (record.exception or "").startswith(expected or "")
        assert (record.exception is None) == (expected is None)


def test_texts_of_a_tool_that_hangs_fail_after_a_few_episodes() -> None:
    class Hanging(Counter):
        tried = 0

        def add(self, amount: int) -> Any:
            """Add.

            Args:
                amount: How much.
            """
            Hanging.tried += 1
            time.sleep(2)

        async def peek(self) -> str:
            """Look."""
            Hanging.tried += 1
            await asyncio.sleep(5)
            return ""

    with pytest.raises(ToolTimeout):
        ClassFamily(Hanging, tool_timeout_s=0.2).texts(200)
    assert Hanging.tried == MAX_FAILURES


@pytest.mark.parametrize("value", ["no", 2, None, math.nan])
def test_done_must_be_true_or_false(value: object) -> None:
    class Own(Counter):
        def add(self, amount: int) -> Any:
            """Add.

            Args:
                amount: How much.
            """
            self.done = value  # type: ignore[assignment]
            return amount

    if value is None:  # as if there were none
        assert not play(Own, calls({"amount": 1})).results[0].done
    else:
        with pytest.raises(EnvironmentFault, match=r"Own\.done is .*return True or False"):
            play(Own, calls({"amount": 1}))
