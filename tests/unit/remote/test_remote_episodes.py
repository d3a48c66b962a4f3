"""Attempts and episodes survive the way between processes, in every bit."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.core.errors import EngineError, StoreError
from turnwise.core.messages import without_pixels
from turnwise.core.types import ByteArray, Draw, Episode, Message, StopReason, TextPart, to_experts
from turnwise.core.verdicts import Question, Verdict
from turnwise.pictures.pixels import to_part, with_pixels
from turnwise.pictures.store import PictureStore
from turnwise.remote.episodes import decode_attempt, decode_episode, encode_attempt, encode_episode
from turnwise.remote.judges import DistantJudge
from turnwise.rollout.attempt import Attempt
from turnwise.store.rows import judgement_from_json, judgement_to_json
from turnwise.store.trajectories import encode_groups
from turnwise.testing.builders import make_completion, make_group, make_task, make_trajectory, make_turn

TASK = make_task("what is 0.1 + 0.2?", number=0.1)
ATTEMPT = Attempt(draw=Draw(index=7, task=TASK, attempt=2), member=3, number=4, version=5, scope="parity")


def make_episode(experts: ByteArray | None = None) -> Episode:
    first = make_completion([3, 4, 5], logprobs=[-0.1, -1 / 3, -1e-30])
    turns = [
        make_turn([1, 2], replace(first, experts=experts)),
        make_turn([6], make_completion([7], logprobs=[-2.5]), parent=0),
    ]
    said = replace(make_trajectory(*turns, task_id=TASK.id), id=ATTEMPT.id)
    silent = replace(make_trajectory(reward=None, task_id=TASK.id), id=replace(ATTEMPT.id, role="other"))
    return Episode(draw=ATTEMPT.draw, member=3, trajectories=(said, silent), stop=StopReason.DONE)


def travel(fields: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(fields))


@pytest.mark.parametrize("experts", [None, to_experts(np.arange(16).reshape(4, 2, 2))])
def test_an_attempt_and_its_episode_arrive_as_they_were_sent(experts: ByteArray | None) -> None:
    store = PictureStore(None)
    assert decode_attempt(travel(encode_attempt(ATTEMPT, store)), store) == ATTEMPT
    sent = make_episode(experts)
    arrived = decode_episode(travel(encode_episode(sent)), ATTEMPT)
    assert (arrived.draw, arrived.member, arrived.stop) == (sent.draw, sent.member, sent.stop)
    both = [encode_groups([make_group(*each.trajectories, task=TASK)], decode=None) for each in (sent, arrived)]
    assert both[0] == both[1]


@pytest.mark.parametrize("damage", ["rows", "arrays", "length", "member"])
def test_an_answer_that_is_no_episode_of_the_attempt_is_refused(damage: str) -> None:
    fields = travel(encode_episode(make_episode()))
    if damage == "rows":
        del fields["rows"][0]["turns"]
    elif damage == "arrays":
        del fields["arrays"]["logprobs"]
    elif damage == "length":
        fields["arrays"]["token_ids"] = fields["arrays"]["token_ids"][:6]
    else:
        fields["rows"][1]["id"]["member"] = 4
    with pytest.raises(EngineError, match=r"the answer of a rollout process for 7/3.4(: | holds 7/4)"):
        decode_episode(fields, ATTEMPT)


def test_the_pictures_of_a_task_arrive_with_their_pixels(tmp_path: Path) -> None:
    """Environments in the process may show them, or cut pieces out of them."""
    part = to_part(np.full((2, 4, 3), 9, np.uint8), label="a page")
    prompt = Message(role="user", content=(TextPart(text="read "), part))
    attempt = replace(ATTEMPT, draw=replace(ATTEMPT.draw, task=replace(TASK, id="", prompt=(prompt,))))
    fields = travel(encode_attempt(attempt, PictureStore(tmp_path)))
    [arrived] = decode_attempt(fields, PictureStore(tmp_path)).draw.task.prompt
    assert arrived == prompt
    assert (arrived.images[0].pixels, arrived.images[0].label) == (part.pixels, "a page")
    with pytest.raises(StoreError, match=part.digest):
        decode_attempt(fields, PictureStore(tmp_path / "elsewhere"))
    # A family may keep the pixels itself.
    task = replace(attempt.draw.task, prompt=(without_pixels(prompt),))
    alone = replace(attempt, draw=replace(attempt.draw, task=task))
    [arrived] = decode_attempt(travel(encode_attempt(alone, PictureStore(None))), PictureStore(None)).draw.task.prompt
    assert arrived.images[0].pixels is None


def test_a_judge_elsewhere_finds_the_pictures_of_its_question(tmp_path: Path) -> None:
    part = to_part(np.full((2, 4, 3), 9, np.uint8))
    asked: list[Mapping[str, Any]] = []

    async def ask(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(travel(dict(fields)))
        judgement = judgement_from_json(asked[0])
        return judgement_to_json(replace(judgement, verdict=Verdict(score=0.5)))

    question = Question(messages=(Message(role="tool", content=(part,)),))
    verdict = asyncio.run(DistantJudge("teller", ask, PictureStore(tmp_path)).judge(question))
    assert verdict.score == 0.5
    [read] = judgement_from_json(asked[0]).question.messages
    assert with_pixels(read, PictureStore(tmp_path)).images[0].pixels == part.pixels
