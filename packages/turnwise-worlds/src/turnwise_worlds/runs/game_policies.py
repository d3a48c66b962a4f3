"""From a model to the tabular policy it plays a game by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel

from turnwise.building.trainer import build_packing
from turnwise.core.types import IntArray, Origin, Sample, TrajectoryId, text_message, to_floats, to_ids, to_mask
from turnwise.environments.replies import answer_message
from turnwise.runs.build import System
from turnwise.training.forward import score_logprobs
from turnwise_worlds.games.graph import GameGraph
from turnwise_worlds.games.values import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """What a model does at every information set."""

    policy: Policy
    """The probabilities of the legal moves, which add up to 1."""
    legal: float
    """The mean over information sets of the probability that a reply is one of the legal moves, written as the renderer
    writes them. What is missing is illegal, or a legal move written otherwise."""


def read_policy(system: System, model: PreTrainedModel, graph: GameGraph) -> ReadPolicy:
    """The policy of `model`, at the temperature of training, from one forward pass over all moves.

    A move's probability is that of the tokens of the reply that makes it, divided by the sum over the legal moves.
    """
    renderer, samples = system.renderer, []
    for place in graph.information_sets:
        prompt = renderer.open((text_message("user", place.text),), ())
        samples += [_to_sample(prompt, renderer.encode_reply(answer_message(move))) for move in place.moves]
    scores = iter(score_logprobs(model, samples, system.config.rollout.temperature, **build_packing(system.config)))
    policy, legal = [], []
    for place in graph.information_sets:
        masses = [math.exp(float(np.sum(next(scores), dtype=np.float64))) for _ in place.moves]
        legal.append(math.fsum(masses))
        policy.append(tuple(mass / legal[-1] for mass in masses))
    return ReadPolicy(policy=policy, legal=math.fsum(legal) / len(legal))


def _to_sample(prompt: IntArray, reply: IntArray) -> Sample:
    token_ids = to_ids(np.concatenate([prompt, reply]))
    zeros = to_floats(np.zeros(len(token_ids)))
    return Sample(
        token_ids=token_ids,
        loss_mask=to_mask(np.arange(len(token_ids)) >= len(prompt)),
        behavior_logprobs=zeros,
        advantages=zeros,
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id=""),
    )
