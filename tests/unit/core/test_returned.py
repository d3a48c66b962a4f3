"""The one door: what is a number passes with its value, what is none is named on one line, at every place."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.core.checked import judge, to_asking
from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.messages import hash_pixels
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.returned import NoNumber, read_messages, read_number, read_records, read_reward, read_task
from turnwise.core.types import (
    ImagePart,
    Invalid,
    Message,
    Reward,
    RewardPart,
    Scored,
    Signal,
    StopReason,
    Task,
    TextPart,
    ToolCall,
    ToolRecord,
    TurnScores,
    text_message,
)
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.draws import LeftOut, try_task
from turnwise.environments.episodes import play_episode
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.guard import score_guarded


class Grade(IntEnum):
    GOOD = 1


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


NUMBERS: list[tuple[object, float]] = [
    (True, 1.0),
    (False, 0.0),
    (1, 1.0),
    (-0.25, -0.25),
    (np.float32(0.5), 0.5),
    (np.float16(0.5), 0.5),
    (np.int64(3), 3.0),
    (np.uint8(3), 3.0),
    (np.bool_(True), 1.0),
    (np.array(0.5), 0.5),
    (np.array([0.5]), 0.5),
    (torch.tensor(0.5), 0.5),
    (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
    (torch.tensor([1]), 1.0),
    (torch.tensor(True), 1.0),
    (Decimal("0.5"), 0.5),
    (Fraction(1, 4), 0.25),
    (Grade.GOOD, 1.0),
    (10**20, 1e20),
]
NO_NUMBERS: list[tuple[object, str]] = [
    (None, "None"),
    ("1", "'1'"),
    (b"1", "b'1'"),
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    (np.float32("nan"), "nan"),
    (torch.tensor(math.inf), "inf"),
    (Decimal("NaN"), "nan"),
    (1 + 0j, "complex"),
    (np.complex64(1), "complex"),
    (10**400, "too large"),
    (1e300, "beyond"),
    ([1.0], "[1.0]"),
    ((1.0,), "(1.0,)"),
    (np.zeros(2), "shape (2,)"),
    (np.zeros(0), "shape (0,)"),
    (torch.zeros(2, 1), "shape (2, 1)"),
    (np.array("1"), "'1'"),
    (np.array(None), "None"),
    (np.ma.masked, "masked"),
    (np.datetime64("2020-01-01"), "date"),
    (torch.empty((), device="meta"), "contains no number"),
    (object(), "object"),
    (Rude(), "Rude"),
    (lambda: 1.0, "function"),
    (SimpleNamespace(a="\n\n"), "SimpleNamespace"),
]


@pytest.mark.parametrize(("value", "expected"), NUMBERS, ids=lambda value: repr(value)[:40])
def test_numbers_of_every_package_pass_as_python_floats(value: object, expected: float) -> None:
    assert read_number(value) == expected
    assert type(read_number(value)) is float


@pytest.mark.parametrize(("value", "words"), NO_NUMBERS)
def test_what_is_no_number_says_what_it_is_on_one_line(value: object, words: str) -> None:
    with pytest.raises(NoNumber) as raised:
        read_number(value)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_a_reward_may_have_parts_as_a_tuple_pairs_or_a_dict() -> None:
    expected = Scored(total=0.5, parts=(RewardPart(name="success", value=1.0), RewardPart(name="speed", value=0.25)))
    parts: list[object] = [
        expected.parts,
        [RewardPart(name="success", value=True), RewardPart(name="speed", value=np.float32(0.25))],  # type: ignore[arg-type]
        {"success": 1, "speed": torch.tensor(0.25)},
        [("success", True), ("speed", Fraction(1, 4))],
    ]
    for each in parts:
        assert read_reward(Scored(total=np.float32(0.5), parts=each), "x") == expected  # type: ignore[arg-type]
    assert read_reward({"reward": 0.5, "success": True, "speed": 0.25}, "x") == expected
    assert read_reward({"score": 0.5, "success": 1, "speed": 0.25}, "x") == expected
    assert read_reward({"reward": 0.5, "score": 0.25}, "x") == Scored(
        total=0.5, parts=(RewardPart(name="score", value=0.25),)
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Scored(total=math.nan), "the reward is nan"),
        (Scored(total=1.0, parts=(RewardPart(name="f1", value=math.nan),)), "the reward's f1 is nan"),
        ({"reward": 1.0, "speed": math.inf}, "the reward's speed is inf"),
        ({"reward": 1.0, "answer": "42"}, "the reward's answer is '42'"),
        ({"success": 1.0}, "names the reward itself 'reward'"),
        ({"reward": 1.0, 3: 1.0}, "one of the reward's parts is (3, 1.0)"),
        (Scored(total=1.0, parts="f1"), "the reward's parts are 'f1'"),  # type: ignore[arg-type]
        (Scored(total=1.0, parts=None), "the reward's parts are None"),  # type: ignore[arg-type]
        (Scored(total=1.0, parts=(0.5,)), "one of the reward's parts is 0.5"),  # type: ignore[arg-type]
        (Scored(total=1.0, parts=(RewardPart(name="a", value=1.0),) * 2), "two parts 'a'"),
    ],
)
def test_a_reward_that_is_none_names_the_part(value: object, words: str) -> None:
    reward = read_reward(value, "Shop.score")
    assert isinstance(reward, Invalid)
    assert not reward.retryable
    assert reward.reason.startswith("Shop.score: ")
    assert words in reward.reason
    assert "return a number" in reward.reason


def test_an_invalid_reward_passes_as_it_is() -> None:
    refused = Invalid(reason="no judge", retryable=True)
    assert read_reward(refused, "x") == refused


# ------------------------------------------------------------------------------------------------ every place


class Base:
    async def reset(self, task: Task, seed: int) -> Opening:
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        return StepResult(observations=(), done=True)

    async def close(self) -> None: ...


def of_protocol(value: object) -> Reward:
    class Own(Base):
        async def score(self, replies: Sequence[Message], stop: StopReason) -> Any:
            return value

    return asyncio.run(judge(Own(), (), StopReason.DONE))


def of_plain_score(value: object) -> Reward:
    class Own(Base):
        def score(self, replies: Sequence[Message], stop: StopReason) -> Any:
            return value

    return asyncio.run(judge(Own(), (), StopReason.DONE))  # type: ignore[arg-type]


def of_tool_environment(value: object) -> Reward:
    class Own(ToolEnvironment):
        async def score(self, replies: Sequence[Message], stop: StopReason) -> Any:
            return value

    return asyncio.run(judge(Own(), (), StopReason.DONE))


def of_asking(value: object) -> Reward:
    class Own:
        spec = EpisodeSpec(roles=(RoleSpec(name="a"), RoleSpec(name="b")))

        async def begin(self, task: Task, seed: int) -> Asked:
            return Asked(asks=())

        async def tell(self, conversation: str, reply: Message) -> Asked:
            return Asked(asks=())

        async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Any:
            return {"a": 1.0, "b": value}

        async def close(self) -> None: ...

    rewards = asyncio.run(to_asking(Own()).score({}, EpisodeEnd(stop=StopReason.DONE)))
    assert rewards["a"] == Scored(total=1.0)
    return rewards["b"]


class Silent:
    def reply(self, task: object, messages: object, rng: object) -> Message:
        return text_message("assistant", "")


class Plain:
    def reset(self, seed: int) -> str:
        return "Go."

    def look(self) -> str:
        """Look."""
        return "nothing"


def of_plain_class(value: object) -> Reward:
    own = type("Own", (Plain,), {"get_reward": lambda self: value})
    family = ClassFamily(own)
    return asyncio.run(play_episode(family, family.task("train", 0), Silent(), seed=0, max_turns=2)).reward


def of_an_attribute(value: object) -> Reward:
    own = type("Own", (Plain,), {"reward": property(lambda self: value)})
    family = ClassFamily(own)
    return asyncio.run(play_episode(family, family.task("train", 0), Silent(), seed=0, max_turns=2)).reward


def of_a_guard(value: object) -> Reward:
    return asyncio.run(score_guarded(lambda: value, 5.0))


PLACES: list[Callable[[object], Reward]] = [
    of_protocol,
    of_plain_score,
    of_tool_environment,
    of_asking,
    of_plain_class,
    of_an_attribute,
    of_a_guard,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_every_place_takes_the_same_numbers_and_refuses_the_same(place: Callable[[object], Reward]) -> None:
    for value, expected in NUMBERS:
        assert place(value) == Scored(total=expected)
    for value, words in NO_NUMBERS:
        reward = place(value)
        assert isinstance(reward, Invalid), value
        assert not reward.retryable
        assert words in reward.reason
        in_part = place({"reward": 1.0, "speed": value})
        assert isinstance(in_part, Invalid), value
        assert "the reward's speed is" in in_part.reason
    assert place({"reward": 0.5, "speed": np.float32(2)}) == Scored(
        total=0.5, parts=(RewardPart(name="speed", value=2.0),)
    )


# ------------------------------------------------------------------------------------------------ turns

TASK = Task(environment="x", prompt=(text_message("user", "Go."),), payload={})


def step(result: object) -> Asked:
    class Own(Base):
        async def step(self, message: Message) -> Any:
            return result

        async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
            return Scored(total=0.0)

    return asyncio.run(to_asking(Own()).tell("main", text_message("assistant", "")))


SAID = (text_message("tool", "ok"),)


def test_a_step_may_have_lists_and_numbers_of_numpy() -> None:
    asked = step(
        StepResult(
            observations=list(SAID),  # type: ignore[arg-type]
            done=np.bool_(False),  # type: ignore[arg-type]
            scores=TurnScores(reward=np.float32(0.5)),  # type: ignore[arg-type]
            signals=[Signal(name="speed", value=torch.tensor(2))],  # type: ignore[arg-type]
        )
    )
    assert asked == Asked(
        asks=(Ask(messages=SAID),), scores=TurnScores(reward=0.5), signals=(Signal(name="speed", value=2.0),)
    )
    assert type(asked.scores.reward) is float


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "Own.step returned None; return StepResult"),
        ((SAID, True), "return StepResult"),
        (StepResult(observations="ok", done=False), "the observations of Own.step are 'ok'"),  # type: ignore[arg-type]
        (StepResult(observations=("ok",), done=False), "have 'ok' at 0"),  # type: ignore[arg-type]
        (StepResult(observations=(text_message("tool", 3),), done=False), "have a part TextPart"),  # type: ignore[arg-type]
        (StepResult(observations=(text_message("tool", "\ud800"),), done=False), "half of a surrogate pair"),
        (StepResult(observations=SAID, done="no"), "done of Own.step is 'no', a str"),  # type: ignore[arg-type]
        (StepResult(observations=SAID, done=None), "done of Own.step is None"),  # type: ignore[arg-type]
        (StepResult(observations=SAID, done=False, scores=TurnScores(progress=math.nan)), "progress is nan"),
        (StepResult(observations=SAID, done=False, scores={"reward": 1}), "return TurnScores"),  # type: ignore[arg-type]
        (StepResult(observations=SAID, done=False, signals=(Signal(name="v", value=math.inf),)), "'v' is inf"),
        (StepResult(observations=SAID, done=False, tool_records=(1,)), "ToolRecord"),  # type: ignore[arg-type]
    ],
)
def test_a_step_that_is_none_names_what_is_wrong(result: object, words: str) -> None:
    with pytest.raises(EnvironmentFault) as raised:
        step(result)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_opening_that_is_none_is_named() -> None:
    for opening, words in (
        (None, "Own.reset returned None"),
        (Opening(messages=("Go.",), tools=()), "the messages of Own.reset have 'Go.' at 0"),  # type: ignore[arg-type]
        (Opening(messages=SAID, tools=(print,)), "the tools of Own.reset have"),  # type: ignore[arg-type]
    ):

        class Own(Base):
            async def reset(self, task: Task, seed: int, opening: Any = opening) -> Any:
                return opening

            async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
                return Scored(total=0.0)

        with pytest.raises(EnvironmentFault) as raised:
            asyncio.run(to_asking(Own()).begin(TASK, 0))
        assert words in str(raised.value)


def test_an_environment_that_asks_is_checked_too() -> None:
    def asking(asked: object, rewards: object) -> Any:
        class Own:
            spec = EpisodeSpec()

            async def begin(self, task: Task, seed: int) -> Any:
                return asked

            async def tell(self, conversation: str, reply: Message) -> Any:
                return asked

            async def score(self, replies: Any, end: EpisodeEnd) -> Any:
                return rewards

            async def close(self) -> None: ...

        return to_asking(Own())

    for asked, words in (
        (None, "Own.begin returned None"),
        (Asked(asks=("x",)), "the asks of Own.begin have 'x'"),  # type: ignore[arg-type]
        (Asked(asks=(Ask(messages=("x",)),)), "in conversation 'main' have 'x'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(EnvironmentFault) as raised:
            asyncio.run(asking(asked, {}).begin(TASK, 0))
        assert words in str(raised.value)
    for rewards, words in (
        (1.0, "Own.score returned 1.0; return a dict"),
        ({}, "returned no reward for agent"),
        ({"agent": 1.0, "judge": 1.0}, "returned a reward for 'judge'; the roles are agent"),
    ):
        with pytest.raises(EnvironmentFault) as raised:
            asyncio.run(asking(Asked(asks=()), rewards).score({}, EpisodeEnd(stop=StopReason.DONE)))
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (None, "returned None; return Task"),
        ({"prompt": "Go."}, "return Task"),
        (Task(environment="x", prompt="Go.", payload={}, id="a"), "the prompt of Own.task are 'Go.'"),  # type: ignore[arg-type]
        (Task(environment="x", prompt=("Go.",), payload={}, id="a"), "have 'Go.' at 0"),  # type: ignore[arg-type]
        (Task(environment="x", prompt=(), payload=[1], id="a"), "the payload of Own.task is [1]"),  # type: ignore[arg-type]
        (Task(environment="x", prompt=(), payload={}, id=7), "the id of Own.task is 7"),  # type: ignore[arg-type]
    ],
)
def test_a_task_that_is_none_is_named_and_left_out(task: object, words: str) -> None:
    class Own:
        def task(self, split: str, index: int) -> object:
            return task

    left_out = try_task(Own(), "train", 3)  # type: ignore[arg-type]
    assert isinstance(left_out, LeftOut)
    assert left_out.why.startswith("task 3 of split 'train'")
    assert words in left_out.why
    assert "\n" not in left_out.why


def test_a_prompt_may_be_a_list() -> None:
    given = Task(environment="x", prompt=[text_message("user", "Go.")], payload={})  # type: ignore[arg-type]
    read = read_task(given, "Own.task")
    assert (read.prompt, read.id) == ((text_message("user", "Go."),), given.id)


def test_pictures_are_checked_where_they_are_returned() -> None:
    pixels = bytes(range(12))
    good = ImagePart(digest=hash_pixels(pixels, 2, 2), width=2, height=2, pixels=pixels)
    known = replace(good, pixels=None)
    message = Message(role="user", content=(good, TextPart(text="a"), known))
    assert read_messages([message], "the messages of X.reset") == (message,)
    start, end = "the messages of X.reset have a picture ", "; build it with turnwise.read_picture"
    for part, problem in (
        (replace(good, digest="12ab"), "with the digest '12ab', not 64 hexadecimal digits"),
        (replace(good, digest="0" * 64), "whose pixels differ from its digest 000000000000..."),
        (replace(good, width=3), "of 3 x 2 pixels with 12 bytes, not 18"),
        (replace(good, width=0), "of 0 x 2 pixels; both must be whole numbers above 0"),
        (replace(good, width=2.0), "of 2.0 x 2 pixels; both must be whole numbers above 0"),  # type: ignore[arg-type]
        (replace(good, pixels=bytearray(pixels)), "whose pixels are bytearray, not bytes"),  # type: ignore[arg-type]
        (replace(good, label=None), "with the label None, not text"),  # type: ignore[arg-type]
    ):
        with pytest.raises(EnvironmentFault) as raised:
            read_messages([Message(role="user", content=(part,))], "the messages of X.reset")
        assert str(raised.value) == start + problem + end
    record = ToolRecord(call=ToolCall(id="", name="f", arguments="{}"), observation="", error=None, seconds=0.0)
    assert read_records([replace(record, content=(known,))], "the records")[0].content == (known,)
    with pytest.raises(EnvironmentFault, match="the records have a picture with the digest"):
        read_records([replace(record, content=(replace(known, digest=""),))], "the records")
