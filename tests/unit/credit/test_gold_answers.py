"""How likely the right answer is, by hand, on a uniform policy and on one that favours a token; and its credit."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.core.batch import Wanted
from turnwise.core.errors import ConfigError
from turnwise.core.keys import Span
from turnwise.core.protocols import Annotator, GoldAnswers
from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    Message,
    Origin,
    Sample,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    TurnScores,
    text_message,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.credit.gold_answers import GoldAnswerAnnotator, encode_answer
from turnwise.models.build import build_model
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.training.forward import score_logprobs

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
TASK = Task(environment="e", prompt=(text_message("user", "q"),), payload={"answers": ["Port Vessa"]})


class Family:
    def gold_answer(self, task: Task) -> str:
        return str(task.payload["answers"][0])

    def answer_reply(self, task: Task, answer: str) -> Message:
        return text_message("assistant", f"<answer> {answer} </answer>")


@pytest.fixture(scope="module")
def renderer() -> TagRenderer:
    return TagRenderer(train_tokenizer(["Port Vessa lies far away"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS))


def make_group(num_turns: int, parents: tuple[int | None, ...] = ()) -> TrajectoryGroup:
    """One trajectory; its turns follow one another unless `parents` says otherwise."""

    def turn(index: int) -> Turn:
        completion = Completion(
            token_ids=to_ids([5, 6]),
            logprobs=to_floats([-1, -1]),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )
        return Turn(
            parent=parents[index] if parents else index - 1 if index else None,
            context_ids=to_ids([10 + index]),
            completion=completion,
            message=text_message("assistant", ""),
            scores=TurnScores(reward=0.5),
        )

    turns = tuple(turn(index) for index in range(num_turns))
    trajectory = Trajectory(
        id=TrajectoryId(draw=4, member=0), task_id=TASK.id, turns=turns, stop=StopReason.DONE, reward=Scored(total=1.0)
    )
    return TrajectoryGroup(draw=Draw(index=4, task=TASK), trajectories=(trajectory,))


def build(**changes: Any) -> Any:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    }
    return build_model("qwen3", sizes | changes, vocab_size=300, seed=3, dtype="float32")


def annotate(renderer: TagRenderer, model: Any, group: TrajectoryGroup) -> tuple[TurnScores, ...]:
    """The scores of the turns of the only member."""
    torch.set_num_threads(1)

    async def score(samples: Sequence[Sample], column: Wanted = "policy_logprobs", /) -> list[Any]:
        return score_logprobs(model, samples, 1.0, micro_batch_tokens=1000)

    annotator: Annotator = GoldAnswerAnnotator(family=Family(), renderer=renderer, score=score)
    [trajectory] = asyncio.run(annotator.annotate(group)).trajectories
    return tuple(turn.scores for turn in trajectory.turns)


def test_only_the_answers_own_tokens_count(renderer: TagRenderer) -> None:
    reply, answer_tokens = encode_answer(Family(), renderer, TASK)
    assert renderer._tokenizer.decode(reply[answer_tokens]).strip() == "Port Vessa"
    assert renderer._tokenizer.decode(reply).replace(" ", "") == "<answer>PortVessa</answer>"


def test_a_policy_that_knows_nothing_gives_every_token_one_in_300(renderer: TagRenderer) -> None:
    model = build()
    with torch.no_grad():
        for parameter in model.lm_head.parameters():
            parameter.zero_()
    scores = annotate(renderer, model, make_group(3))
    assert [each.answer_probability for each in scores] == pytest.approx([1 / 300] * 3, rel=1e-5)
    assert scores[0].answer_prior == pytest.approx(1 / 300, rel=1e-5)
    assert [each.answer_prior for each in scores[1:]] == [None, None]
    assert [each.reward for each in scores] == [0.5] * 3  # what the environment measured stays


def test_the_probability_is_that_of_the_conversation_so_far(renderer: TagRenderer) -> None:
    model = build(initializer_range=0.5)
    two, three = annotate(renderer, model, make_group(2)), annotate(renderer, model, make_group(3))
    # The same first turns: the same numbers. The last turn has no observations after it and keeps the number before it.
    for name in ("answer_probability", "answer_prior"):
        assert getattr(two[0], name) == pytest.approx(getattr(three[0], name), rel=1e-4)
    assert two[1].answer_probability == two[0].answer_probability
    assert three[1].answer_probability != pytest.approx(three[0].answer_probability, rel=1e-3)
    # By hand: the geometric mean over the answer's tokens after turn 0 and its observation (the context of turn 1).
    reply, answer_tokens = encode_answer(Family(), renderer, TASK)
    tokens = torch.tensor([[10, 5, 6, 11, *reply.tolist()]])
    mask = np.zeros(tokens.shape[1], bool)
    mask[4 + answer_tokens.start : 4 + answer_tokens.stop] = True
    nothing = to_floats(np.zeros(len(mask)))
    sample = Sample(
        token_ids=to_ids(tokens[0].numpy()),
        loss_mask=to_mask(mask),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id=""),
    )
    [logprobs] = score_logprobs(model, [sample], 1.0, micro_batch_tokens=100)
    assert two[0].answer_probability == pytest.approx(float(np.exp(logprobs.mean())), rel=1e-4)


def test_in_a_tree_every_future_starts_from_what_its_past_reached(renderer: TagRenderer) -> None:
    model = build(initializer_range=0.5)
    # Turns 1 and 2 both follow turn 0, as two futures of it; turn 2's context holds token 12, turn 1's token 11.
    tree = annotate(renderer, model, make_group(3, parents=(None, 0, 0)))
    line = annotate(renderer, model, make_group(2))
    assert tree[0].answer_prior == pytest.approx(line[0].answer_prior, rel=1e-4)
    assert tree[0].answer_probability == pytest.approx(line[0].answer_probability, rel=1e-4)
    assert tree[1].answer_probability == pytest.approx(line[1].answer_probability, rel=1e-4)
    # The second future keeps the number before it, which is that of its own context.
    assert tree[2].answer_probability != pytest.approx(tree[1].answer_probability, rel=1e-3)


def test_pictures_stay_at_the_tokens_that_show_them(renderer: TagRenderer) -> None:
    # Contexts of one token, each of them a picture, and replies of two; turn 2 is another future of turn 0.
    group = make_group(3, parents=(None, 0, 0))
    [member] = group.trajectories
    shown = [replace(turn, images=(Span(start=0, length=1, digest=f"{at}"),)) for at, turn in enumerate(member.turns)]
    places: list[list[tuple[int, str]]] = []

    async def score(samples: Sequence[Sample], column: Wanted = "policy_logprobs", /) -> list[Any]:
        places.extend([(span.start, span.digest) for span in sample.images] for sample in samples)
        return [np.zeros(int(sample.loss_mask.sum()), np.float32) for sample in samples]

    annotator = GoldAnswerAnnotator(family=Family(), renderer=renderer, score=score)
    asyncio.run(annotator.annotate(replace(group, trajectories=(replace(member, turns=tuple(shown)),))))
    assert places == [[(0, "0")], [(0, "0"), (3, "1")], [(0, "0"), (3, "2")]]


def test_an_answer_without_tokens_is_refused(renderer: TagRenderer) -> None:
    empty = Task(environment="e", prompt=(text_message("user", "q"),), payload={"answers": [""]})
    with pytest.raises(ConfigError, match=r"the right answer '' of task .* has no token of its own"):
        encode_answer(Family(), renderer, empty)


def test_built_in_families_know_their_answers() -> None:
    for recipe, overrides in (("search_r1", ["environment.args.num_entities=20"]), ("retool", [])):
        path = TINY.parents[1] / recipe / "tiny.toml"
        if not path.exists():
            continue
        family = build_family(load_config([path], overrides))
        assert isinstance(family, GoldAnswers)
        task = family.task("train", 0)
        assert family.gold_answer(task) in family.answer_reply(task, family.gold_answer(task)).text
