"""How likely the policy finds the right answer before and after every turn (IGPO): teacher-forced, under the weights
that sampled.

A family that says what the right answer is and how a reply gives it is all this needs. What is found stays on the turns
as signals, so that it is stored and an audit can compute advantages again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Renderer
from turnwise.core.types import (
    IntArray,
    Message,
    Origin,
    Sample,
    Task,
    Trajectory,
    TrajectoryGroup,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.training.forward import score_logprobs


@runtime_checkable
class GoldAnswers(Protocol):
    """What an environment family may offer besides: the right answer of every task."""

    def gold_answer(self, task: Task) -> str:
        """The right answer (one of them), as a reply should give it."""
        ...

    def answer_reply(self, answer: str) -> Message:
        """The reply that gives this answer and nothing else; "" leaves its place empty."""
        ...


def add_answer_probabilities(
    groups: Sequence[TrajectoryGroup],
    *,
    family: GoldAnswers,
    renderer: Renderer,
    model: PreTrainedModel,
    temperature: float,
    micro_batch_tokens: int,
) -> list[TrajectoryGroup]:
    """The groups with the score `answer_probability` on every turn, and `answer_prior` on the first.

    The probability of the answer's tokens, in place of the next reply, as a geometric mean per token, at `temperature`.
    Only the tokens in which the reply differs from one with an empty place count: not the tags around the answer. After
    the last reply there is no next one; it keeps the number before it (IGPO judges it by the outcome). Turns must be
    linear.

    Raises ConfigError when an answer has no tokens of its own.
    """
    answers = {group.draw.index: encode_answer(family, renderer, group.task) for group in groups}
    samples = [
        sample for group in groups for t in group.trajectories for sample in _to_samples(t, *answers[group.draw.index])
    ]
    scores = iter(score_logprobs(model, samples, temperature, micro_batch_tokens=micro_batch_tokens))

    def mark(trajectory: Trajectory) -> Trajectory:
        before = [float(np.exp(next(scores).astype(np.float64).mean())) for _ in trajectory.turns]
        turns = tuple(
            replace(
                turn,
                scores=replace(
                    turn.scores,
                    answer_probability=before[min(index + 1, len(before) - 1)],
                    answer_prior=None if index else before[0],
                ),
            )
            for index, turn in enumerate(trajectory.turns)
        )
        return replace(trajectory, turns=turns)

    return [replace(group, trajectories=tuple(mark(t) for t in group.trajectories)) for group in groups]


def encode_answer(family: GoldAnswers, renderer: Renderer, task: Task) -> tuple[IntArray, slice]:
    """Token ids of the reply that gives the right answer, and which of them are the answer's own. Raises ConfigError:
    there are none."""
    answer = family.gold_answer(task)
    full = renderer.encode_reply(family.answer_reply(answer))
    empty = renderer.encode_reply(family.answer_reply(""))
    shortest = min(len(full), len(empty))
    start = next((i for i in range(shortest) if full[i] != empty[i]), shortest)
    tail = next((i for i in range(shortest - start) if full[-1 - i] != empty[-1 - i]), shortest - start)
    if start >= len(full) - tail:
        raise ConfigError(
            f"the right answer {answer!r} of task {task.id} has no token of its own in the reply that gives it"
        )
    return full, slice(start, len(full) - tail)


def _to_samples(trajectory: Trajectory, reply: IntArray, own: slice) -> list[Sample]:
    """The conversation up to each reply, with the answer in its place."""
    samples = []
    so_far: list[IntArray] = []
    for turn in trajectory.turns:
        so_far.append(turn.context_ids)
        token_ids = to_ids(np.concatenate([*so_far, reply]))
        mask = np.zeros(len(token_ids), np.bool_)
        first = len(token_ids) - len(reply)
        mask[first + own.start : first + own.stop] = True
        nothing = to_floats(np.zeros(len(token_ids)))
        samples.append(
            Sample(
                token_ids=token_ids,
                loss_mask=to_mask(mask),
                behavior_logprobs=nothing,
                advantages=nothing,
                version_first=turn.completion.version_first,
                version_last=turn.completion.version_last,
                origin=Origin(trajectory=trajectory.id, task_id=trajectory.task_id),
            )
        )
        so_far.append(turn.completion.token_ids)
    return samples
