"""The exact probability to succeed from every state of a chain task, under a language model.

A state is what the model has written so far: its whole conversation counts, nothing is assumed. A task of n steps has
7^n ways of valid replies; their probabilities are computed, not sampled. Other replies end the episode without success.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
from transformers import PreTrainedModel

from turnwise.core.protocols import Renderer
from turnwise.core.types import Origin, Sample, Task, Trajectory, TrajectoryId, text_message, to_floats, to_ids, to_mask
from turnwise.environments.replies import answer_message
from turnwise.training.forward import score_logprobs
from turnwise_rewards.reward_models.chain import MODULUS, apply, format_state, read_value

Values = tuple[int, ...]
"""The values written so far."""


def compute_values(model: PreTrainedModel, renderer: Renderer, task: Task) -> tuple[dict[Values, float], float]:
    """Return the success probability after every sequence of values, () for the start, and the least probability of
    valid replies in any state that the model reaches with a probability above 0.001."""
    operations = str(task.payload["operations"])
    ways = list(product(range(MODULUS), repeat=len(operations)))
    samples = [to_sample(renderer, task, way) for way in ways]
    scores = score_logprobs(model, samples, 1.0, micro_batch_tokens=16384, shared_prefix=True)
    steps: dict[Values, float] = {}
    for way, logprobs in zip(ways, scores, strict=True):
        for place, part in enumerate(np.split(logprobs.astype(np.float64), len(operations))):
            steps[way[: place + 1]] = float(np.exp(part.sum()))
    right = int(task.payload["start"])
    for operation in operations:
        right = apply(operation, right)
    values: dict[Values, float] = {way: float(way[-1] == right) for way in ways}
    for length in reversed(range(len(operations))):
        for prefix in product(range(MODULUS), repeat=length):
            nexts = [(*prefix, value) for value in range(MODULUS)]
            values[prefix] = sum(steps[each] * values[each] for each in nexts)
    return values, _find_coverage(steps, len(operations))


def _find_coverage(steps: Mapping[Values, float], length: int) -> float:
    reached: dict[Values, float] = {(): 1.0}
    least = 1.0
    for count in range(length):
        for prefix in product(range(MODULUS), repeat=count):
            nexts = {(*prefix, value): steps[(*prefix, value)] for value in range(MODULUS)}
            reached |= {each: reached[prefix] * step for each, step in nexts.items()}
            if reached[prefix] > 1e-3:
                least = min(least, sum(nexts.values()))
    return least


def to_sample(renderer: Renderer, task: Task, way: Values) -> Sample:
    """The conversation in which these values are written, with all replies to be scored."""
    operations = str(task.payload["operations"])
    ids, mask = renderer.open(task.prompt, ()), np.zeros(0, np.bool_)
    mask = np.zeros(len(ids), np.bool_)
    for place, value in enumerate(way):
        reply = renderer.encode_reply(answer_message(str(value)))
        mask = np.concatenate([mask, np.ones(len(reply), np.bool_)])
        if place + 1 < len(operations):
            shown = text_message("user", f" {format_state(value, operations[place + 1 :])}")
            context = renderer.extend(ids, reply, (shown,), ())
            mask = np.concatenate([mask, np.zeros(len(context), np.bool_)])
            ids = to_ids(np.concatenate([ids, reply, context]))
        else:
            ids = to_ids(np.concatenate([ids, reply]))
    nothing = to_floats(np.zeros(len(ids)))
    return Sample(
        token_ids=ids,
        loss_mask=to_mask(mask),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id=task.id),
    )


def read_values(trajectory: Trajectory) -> list[Values | None]:
    """The values written up to and with each turn; None from a turn that states none."""
    found: list[Values | None] = []
    so_far: Values | None = ()
    for turn in trajectory.turns:
        value = read_value(turn.message)
        so_far = None if so_far is None or value is None else (*so_far, value)
        found.append(so_far)
    return found
