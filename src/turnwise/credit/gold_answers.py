"""Measures how likely the policy finds the right answer before and after every turn (IGPO), teacher-forced.

Scores use the weights that sampled. The family provides the right answer and the reply that states it. The
probabilities are stored as scores of the turns, so that an audit can recompute the advantages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from turnwise.core.errors import ConfigError
from turnwise.core.keys import Span
from turnwise.core.protocols import GoldAnswers, Renderer
from turnwise.core.types import (
    IntArray,
    Origin,
    Sample,
    Task,
    Trajectory,
    TrajectoryGroup,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.credit.annotator_kind import AnnotatorKind, AnnotatorParts, ScoreSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldAnswerAnnotator:
    """Implements `Annotator`: fills `answer_probability` of every turn and `answer_prior` of the first.

    The score is the probability of the answer's tokens in place of the next reply, as a geometric mean per token. Only
    tokens in which the reply differs from one with an empty answer count, not the tags around the answer. A reply that
    no other follows keeps the score before it (IGPO judges it by the outcome). In a tree, all futures of a turn see the
    same observations, so the turn's score is that before any of them.
    """

    family: GoldAnswers
    renderer: Renderer
    score: ScoreSamples

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the group with the scores. Raises ConfigError if the answer has no tokens of its own."""
        reply, span = encode_answer(self.family, self.renderer, group.task)
        samples = [sample for t in group.trajectories for sample in _to_samples(t, reply, span)]
        logprobs = iter(await self.score(samples))

        def mark(trajectory: Trajectory) -> Trajectory:
            before = [float(np.exp(next(logprobs).astype(np.float64).mean())) for _ in trajectory.turns]
            after = list(before)
            for index, turn in reversed(list(enumerate(trajectory.turns))):
                if turn.parent is not None:
                    after[turn.parent] = before[index]
            turns = [
                replace(
                    turn,
                    scores=replace(
                        turn.scores,
                        answer_probability=after[index],
                        answer_prior=turn.scores.answer_prior if index else before[0],
                    ),
                )
                for index, turn in enumerate(trajectory.turns)
            ]
            return replace(trajectory, turns=tuple(turns))

        return replace(group, trajectories=tuple(map(mark, group.trajectories)))


def encode_answer(family: GoldAnswers, renderer: Renderer, task: Task) -> tuple[IntArray, slice]:
    """Return the token ids of the reply that states the right answer, and the span of the answer itself.

    Raises ConfigError if the answer has no tokens.
    """
    answer = family.gold_answer(task)
    full = renderer.encode_reply(family.answer_reply(task, answer))
    empty = renderer.encode_reply(family.answer_reply(task, ""))
    shortest = min(len(full), len(empty))
    start = next((i for i in range(shortest) if full[i] != empty[i]), shortest)
    tail = next((i for i in range(shortest - start) if full[-1 - i] != empty[-1 - i]), shortest - start)
    if start >= len(full) - tail:
        raise ConfigError(
            f"the right answer {answer!r} of task {task.id} has no token of its own in the reply that contains it"
        )
    return full, slice(start, len(full) - tail)


def _to_samples(trajectory: Trajectory, reply: IntArray, span: slice) -> list[Sample]:
    """Return for each turn the conversation up to its reply, with the answer in the reply's place."""
    samples = []
    prompts: list[IntArray] = []
    """For each turn the tokens before its reply."""
    images: list[tuple[Span, ...]] = []
    """For each turn the places of pictures in them."""
    for turn in trajectory.turns:
        before: list[IntArray] = []
        if turn.parent is not None:
            before = [prompts[turn.parent], trajectory.turns[turn.parent].completion.token_ids]
        seen = () if turn.parent is None else images[turn.parent]
        prompts.append(to_ids(np.concatenate([*before, turn.context_ids])))
        images.append((*seen, *(span.shift(sum(map(len, before))) for span in turn.images)))
        token_ids = to_ids(np.concatenate([prompts[-1], reply]))
        mask = np.zeros(len(token_ids), np.bool_)
        first = len(prompts[-1])
        mask[first + span.start : first + span.stop] = True
        zeros = to_floats(np.zeros(len(token_ids)))
        samples.append(
            Sample(
                token_ids=token_ids,
                loss_mask=to_mask(mask),
                behavior_logprobs=zeros,
                advantages=zeros,
                version_first=turn.completion.version_first,
                version_last=turn.completion.version_last,
                origin=Origin(trajectory=trajectory.id, task_id=trajectory.task_id),
                images=images[-1],
            )
        )
    return samples


def build_gold_answers(parts: AnnotatorParts) -> GoldAnswerAnnotator:
    """Build the annotator for a family. Raises ConfigError if the family does not say which answers are right."""
    if not isinstance(parts.family, GoldAnswers):
        raise ConfigError(f"credit needs a family with gold_answer, which {type(parts.family).__name__} lacks")
    return GoldAnswerAnnotator(family=parts.family, renderer=parts.renderer, score=parts.score)


ANSWER_PROBABILITY = AnnotatorKind(
    name="answer_probability",
    fills="answer_probability",
    needs_gold_answers=True,
    build=build_gold_answers,
)
