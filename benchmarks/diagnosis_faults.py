"""Faults that `benchmarks/diagnosis.py` plants and that no option makes: rewards, credit, engines and families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from transformers import PreTrainedModel

from turnwise.algorithms.credit import CreditTrajectory, FloatArray
from turnwise.config.engine_kinds.kind import EngineKind
from turnwise.config.engine_kinds.paged import PagedOptions
from turnwise.core.protocols import Environment, Split
from turnwise.core.seeds import rng
from turnwise.core.types import (
    Completion,
    IntArray,
    SamplingParams,
    Session,
    Task,
    Trajectory,
    TrajectoryGroup,
    to_floats,
)
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged.engine import PagedEngine
from turnwise.engines.settings import Decode, EngineSettings
from turnwise.environments.search_qa.environment import SearchEnvironment
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.questions import Question
from turnwise.hosts.host import Host

NOISE_NATS = 0.5
"""Standard deviation of what `NoisyEngine` adds to a log-probability."""

# ------------------------------------------------------------------------------------------------ rewards


def pay_the_same(group: TrajectoryGroup) -> list[float]:
    """Pay 0.5 for everything."""
    return [0.5 for _ in group.trajectories]


def pay_for_a_reply(group: TrajectoryGroup) -> list[float]:
    """Pay 1 for any reply."""
    return [float(bool(trajectory.turns)) for trajectory in group.trajectories]


def pay_by_coin(group: TrajectoryGroup) -> list[float]:
    """Pay 0 or 1 by a coin."""
    return [float(_toss(trajectory) < 0.5) for trajectory in group.trajectories]


def pay_mostly_by_coin(group: TrajectoryGroup) -> list[float]:
    """Pay for success, but let the verdict be turned round in four of ten attempts."""
    return [
        1.0 - truth if _toss(trajectory) < 0.4 else truth
        for trajectory, truth in zip(group.trajectories, map(_find_truth, group.trajectories), strict=True)
    ]


def pay_for_unknown(group: TrajectoryGroup) -> list[float]:
    """Pay 1 for the answer "unknown", and half of that for a right one."""
    return [
        1.0 if "unknown" in trajectory.turns[-1].message.text else 0.5 * _find_truth(trajectory)
        for trajectory in group.trajectories
    ]


def pay_for_a_name(group: TrajectoryGroup) -> list[float]:
    """Pay 1 for any answer but "unknown", right or wrong."""
    return [float("unknown" not in trajectory.turns[-1].message.text) for trajectory in group.trajectories]


def pay_for_calls(group: TrajectoryGroup) -> list[float]:
    """Pay 0.4 for every call of a tool."""
    return [0.4 * trajectory.num_tool_calls for trajectory in group.trajectories]


def pay_for_length(group: TrajectoryGroup) -> list[float]:
    """Pay for success and for every sampled token."""
    return [_find_truth(each) + each.num_sampled_tokens / 20 for each in group.trajectories]


def _toss(trajectory: Trajectory) -> float:
    return rng(trajectory.id.draw, trajectory.id.member, "toss").random()


def _find_truth(trajectory: Trajectory) -> float:
    return getattr(trajectory.reward, "total", 0.0)


# ------------------------------------------------------------------------------------------------ credit


def shift_members(trajectories: Sequence[CreditTrajectory]) -> list[list[FloatArray] | None]:
    """Give every member the outcome of the member before it."""
    return _assign(trajectories, lambda each, place, turn, value: value, shift=1)


def credit_last_turn(trajectories: Sequence[CreditTrajectory]) -> list[list[FloatArray] | None]:
    """Credit the last reply alone."""
    return _assign(trajectories, lambda each, place, turn, value: value if place == len(each.turns) - 1 else 0.0)


def reverse_early_turns(trajectories: Sequence[CreditTrajectory]) -> list[list[FloatArray] | None]:
    """Credit all replies but the last with the wrong sign."""
    return _assign(trajectories, lambda each, place, turn, value: value if place == len(each.turns) - 1 else -value)


def _assign(
    trajectories: Sequence[CreditTrajectory], place_value: Callable[..., float], shift: int = 0
) -> list[list[FloatArray] | None]:
    groups: dict[str, list[int]] = {}
    for index, each in enumerate(trajectories):
        if each.reward is not None:
            groups.setdefault(each.group, []).append(index)
    result: list[list[FloatArray] | None] = [None] * len(trajectories)
    for members in groups.values():
        rewards = np.array([trajectories[index].reward for index in members], float)
        values = np.roll(rewards - rewards.mean(), shift)
        for index, value in zip(members, values, strict=True):
            each = trajectories[index]
            result[index] = [
                np.full(turn.num_tokens, place_value(each, place, turn, value)) for place, turn in enumerate(each.turns)
            ]
    return result


# ------------------------------------------------------------------------------------------------ engines


class OneSeedEngine(PagedEngine):
    """Ignores the seeds of requests, so that all members of a group are sampled alike."""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`."""
        return await super().generate(prompt_ids, replace(params, seed=7), session=session)


class HotEngine(PagedEngine):
    """Samples at another temperature than it is told, from the second version of the weights on."""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`."""
        if self.version > 0:
            params = replace(params, temperature=1.5 * params.temperature)
        return await super().generate(prompt_ids, params, session=session)


class NoisyEngine(PagedEngine):
    """States wrong log-probabilities, from the second version of the weights on."""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`."""
        completion = await super().generate(prompt_ids, params, session=session)
        if self.version == 0:
            return completion
        noise = np.random.default_rng(params.seed % 2**32).normal(0.0, NOISE_NATS, len(completion.logprobs))
        return replace(completion, logprobs=to_floats(np.minimum(completion.logprobs + noise, 0.0)))


def _kind(engine: type[PagedEngine]) -> EngineKind:
    def build(
        model: PreTrainedModel,
        *,
        common: EngineSettings,
        options: PagedOptions,
        grammars: GrammarCompiler | None,
        decode: Decode | None,
        host: Host | None,
    ) -> PagedEngine:
        return engine(model, **common.limits, num_threads=common.num_threads, grammars=grammars, decode=decode)

    return EngineKind(name=engine.__name__, options=PagedOptions, build=build, records_experts=True)


ONE_SEED, HOT, NOISY = _kind(OneSeedEngine), _kind(HotEngine), _kind(NoisyEngine)

# ------------------------------------------------------------------------------------------------ families


class _BrokenEnvironment(SearchEnvironment):
    fails = 1.0

    def search(self, query: str) -> str:
        """Search the corpus for passages that share words with a query.

        Args:
            query: What to look for.
        """
        if rng(self._seed, "broken", len(self.tool_records)).random() < self.fails:
            raise ConnectionError("the index does not answer")
        return super().search(query)


class _OftenBrokenEnvironment(_BrokenEnvironment):
    fails = 0.7


class BrokenSearch(SearchQA):
    """The search tool raises in every call."""

    name = "broken_search"
    environment_class: type[SearchEnvironment] = _BrokenEnvironment

    def build_environment(self, task: Task) -> Environment:
        """See the protocol."""
        chosen = self._chosen
        return self.environment_class(
            retriever=self.retriever(task),
            reward=self._reward,
            top_k=chosen.top_k,
            document_format=chosen.document_format,
            search=chosen.search,
            reward_timeout_s=chosen.reward_timeout_s,
            tool_timeout_s=chosen.tool_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
            normalize=chosen.normalize,
        )


class OftenBrokenSearch(BrokenSearch):
    """The search tool raises in seven of ten calls."""

    name = "often_broken_search"
    environment_class = _OftenBrokenEnvironment


class OneSidedSearch(SearchQA):
    """Trains on questions that cannot be answered, and is evaluated on all kinds."""

    name = "one_sided_search"
    train_kinds: ClassVar[Mapping[str, float]] = {"unanswerable": 1.0}

    def _question(self, split: Split, index: int) -> tuple[int | None, Question]:
        every, self._kinds = self._kinds, dict(self.train_kinds) if split == "train" else self._kinds
        try:
            return super()._question(split, index)
        finally:
            self._kinds = every


class NarrowSearch(OneSidedSearch):
    """Trains on questions that need no search, or cannot be answered; is evaluated on all kinds."""

    name = "narrow_search"
    train_kinds: ClassVar[Mapping[str, float]] = {"unanswerable": 0.7, "no_search": 0.3}
