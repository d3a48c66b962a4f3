"""The groups of one RL step: rollouts, further ones where groups teach nothing, greedy attempts where credit asks for
them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from turnwise.algorithms.advantages import is_informative, plan_refill
from turnwise.algorithms.vspo import compute_task_value, draw_refill
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.metrics import Mean, Metric, Rate, Sum
from turnwise.core.paths import first_path, unfold_groups
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Scored, Task, Trajectory, TrajectoryGroup
from turnwise.credit.assignment import read_metric
from turnwise.credit.gold_answers import GoldAnswers, add_answer_probabilities
from turnwise.evaluation.summary import is_success
from turnwise.rollout.branching import Branching, EntropyTree, RandomTree, ValueEstimates
from turnwise.rollout.group import RolloutWorker
from turnwise.runs.build import System, set_threads
from turnwise.runs.methods import needs_fork, needs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What the rollout phase of a step gave."""

    groups: Sequence[TrajectoryGroup]
    """All that were rolled out, in the order drawn."""
    kept: Sequence[TrajectoryGroup]
    """Those to learn from."""
    over_budget: frozenset[str]
    """Ids of groups that teach something and are not kept, as the step had enough without them."""
    retried: Sequence[TrajectoryGroup]
    """Attempts that were thrown away for another at the same member, by group; groups without any are left out."""
    num_tasks: int
    """Training tasks drawn."""
    greedy: Sequence[TrajectoryGroup]
    """One greedy attempt for each kept group, where asked for; `GROUP/greedy` is the id."""
    seconds: float

    @property
    def greedy_rewards(self) -> dict[str, float]:
        """Outcome of the greedy attempt by group id; without those that could not be scored."""
        return read_greedy_rewards(self.greedy)


def read_greedy_rewards(greedy: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """Outcome of greedy attempts by the id of the group they belong to."""
    return {
        group.group_id.removesuffix("/greedy"): trajectory.reward.total
        for group in greedy
        for trajectory in group.trajectories
        if isinstance(trajectory.reward, Scored)
    }


def sample_groups(system: System, *, step: int, first_task: int, with_greedy: bool) -> Sampled:
    """Roll out `rollout.tasks_per_step` groups from training task `first_task` on, refilled by
    `rollout.dynamic_sampling`.

    Raises EnvironmentFault when too many trajectories are Invalid, ConfigError when the metric of dynamic sampling does
    not exist."""
    config = system.config
    dynamic_sampling, wanted = config.rollout.dynamic_sampling, config.rollout.tasks_per_step
    set_threads(config.engine.num_threads)
    worker = replace(system.worker("train"), branching=build_branching(system))
    started = time.perf_counter()
    groups: list[TrajectoryGroup] = []
    thrown_away: list[Trajectory] = []
    worker = replace(worker, on_retry=thrown_away.append)
    over_budget: frozenset[str] = frozenset()
    num_tasks = 0

    def draw_new(count: int) -> list[Task]:
        return [system.family.task("train", first_task + num_tasks + i) for i in range(count)]

    tasks = draw_new(wanted)
    num_tasks += len(tasks)
    groups += _roll_out(worker, tasks, step, len(groups), config.rollout.group_size)
    kept: Sequence[TrajectoryGroup] = groups
    if dynamic_sampling.metric:
        while True:
            informative = [
                is_informative(read_metric(group, dynamic_sampling.metric, "rollout.dynamic_sampling.metric"))
                for group in unfold_groups(groups)
            ]
            refill = plan_refill(
                informative, num_wanted=wanted, batch_size=wanted, max_batches=dynamic_sampling.max_batches
            )
            if refill.state != "draw":
                kept = [groups[i] for i in refill.kept]
                surplus = {i for i, teaches in enumerate(informative) if teaches} - set(refill.kept)
                over_budget = frozenset(groups[i].group_id for i in surplus)
                break
            seed = derive_seed(config.run.seed, "refill", step, len(groups))
            tasks = (
                draw_by_value(groups, refill.num_prompts, dynamic_sampling.max_reward, seed)
                if dynamic_sampling.refill == "value"
                else []
            )
            if not tasks:
                tasks = draw_new(refill.num_prompts)
                num_tasks += len(tasks)
            groups += _roll_out(worker, tasks, step, len(groups), config.rollout.group_size)
    greedy: list[TrajectoryGroup] = []
    if with_greedy:
        arg_max = replace(worker, branching=None, on_retry=None, sampling=replace(worker.sampling, temperature=0.0))
        greedy = asyncio.run(
            arg_max.run_groups([(f"{group.group_id}/greedy", group.task) for group in kept], group_size=1)
        )
        worker.failure.check(greedy)
        # Without its greedy attempt a group has nothing to compare with.
        scored = read_greedy_rewards(greedy)
        kept = [group for group in kept if group.group_id in scored]
    if "answer_probability" in needs_of(config.credit.method) and config.train.algorithm == "policy_gradient":
        kept = _score_answers(system, kept)
        scored_groups = {group.group_id: group for group in kept}
        groups = [scored_groups.get(group.group_id, group) for group in groups]
    return Sampled(
        groups=groups,
        kept=kept,
        over_budget=over_budget,
        retried=_sort_retried(groups, thrown_away),
        num_tasks=num_tasks,
        greedy=greedy,
        seconds=time.perf_counter() - started,
    )


def _sort_retried(groups: Sequence[TrajectoryGroup], thrown_away: Sequence[Trajectory]) -> list[TrajectoryGroup]:
    """By group, member and attempt: the order in which attempts failed depends on timing."""
    found: dict[str, list[Trajectory]] = {}
    for trajectory in sorted(thrown_away, key=lambda t: (t.member, t.attempt)):
        found.setdefault(trajectory.group_id, []).append(trajectory)
    return [replace(group, trajectories=tuple(found[group.group_id])) for group in groups if group.group_id in found]


def _score_answers(system: System, groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """The groups with the probability of the right answer on every turn. Raises ConfigError where the family does not
    know it."""
    config, family = system.config, system.family
    if not isinstance(family, GoldAnswers):
        raise ConfigError(
            f"credit.method={config.credit.method!r} needs a family with gold_answer, {type(family).__name__} has none"
        )
    set_threads(config.train.num_threads)
    return add_answer_probabilities(
        groups,
        family=family,
        renderer=system.renderer,
        model=system.model,
        temperature=config.rollout.temperature,
        micro_batch_tokens=config.train.micro_batch_tokens,
    )


def build_branching(system: System) -> Branching | None:
    """The branches that the recipe's credit method asks for; None for none."""
    config = system.config
    branching, method = config.credit.branching, config.credit.method
    if config.train.algorithm != "policy_gradient" or not needs_fork(config):
        return None
    if method == "vine":
        return ValueEstimates(num_continuations=branching.num_continuations)
    if method == "tree":
        return RandomTree(num_branches=branching.num_branches, num_rounds=branching.num_rounds)
    return EntropyTree(
        num_branches=branching.num_branches,
        vocab_size=len(system.tokenizer),
        weight=branching.entropy_weight,
        threshold=branching.entropy_threshold,
        num_tokens=branching.num_entropy_tokens,
    )


def _roll_out(
    worker: RolloutWorker, tasks: Sequence[Task], step: int, first: int, group_size: int
) -> list[TrajectoryGroup]:
    named = [(f"step{step}/task{first + i}", task) for i, task in enumerate(tasks)]
    groups = asyncio.run(worker.run_groups(named, group_size=group_size))
    worker.failure.check(groups)
    return groups


def draw_by_value(groups: Sequence[TrajectoryGroup], count: int, max_reward: float, seed: int) -> list[Task]:
    """`count` tasks of these groups, drawn by VSPO's task value over all their trajectories; none where every value is
    0.

    Deviation from VSPO: the tasks are sampled afresh, so their advantages need no decay. Raises ConfigError for a
    reward above `max_reward`."""
    tasks: dict[str, Task] = {}
    rewards: dict[str, list[float | None]] = {}
    for group in groups:
        tasks[group.task.id] = group.task
        rewards.setdefault(group.task.id, []).extend(group.rewards())
    with boundary(ConfigError, "rollout.dynamic_sampling.max_reward"):
        values: Mapping[str, float] = {
            name: compute_task_value(found, max_reward=max_reward) for name, found in rewards.items()
        }
    return [tasks[name] for name in draw_refill(values, num_slots=count, seed=seed)]


def compute_rollout_metrics(sampled: Sampled) -> dict[str, Metric]:
    """What a rollout phase says, over all groups rolled out. Branches and attempts that were thrown away count in
    tokens only."""
    whole = [t for group in sampled.groups for t in group.trajectories]
    trajectories = [first_path(t) for t in whole]
    scored = [t for t in trajectories if isinstance(t.reward, Scored)]
    retried = [t for group in sampled.retried for t in group.trajectories]
    num_sampled = sum(t.num_sampled_tokens for t in (*whole, *retried))
    context = sum(len(turn.context_ids) for t in (*whole, *retried) for turn in t.turns)
    return {
        "rollout/reward": Mean.of(t.reward.total for t in scored if isinstance(t.reward, Scored)),
        "rollout/success": Mean.of(float(is_success(t)) for t in scored),
        "rollout/tool_calls": Mean.of(float(t.num_tool_calls) for t in trajectories),
        "rollout/turns": Mean.of(float(len(t.turns)) for t in trajectories),
        "rollout/sampled_tokens": Sum(num_sampled),
        "rollout/context_tokens": Sum(context),
        "rollout/tokens_per_s": Rate(num_sampled, sampled.seconds),
        "rollout/truncated": Mean.of(float(t.stop.is_truncated) for t in trajectories),
        "rollout/invalid": Mean.of(float(not isinstance(t.reward, Scored)) for t in trajectories),
        "rollout/parse_errors": Mean.of(
            float(sum(len(turn.message.tool_errors) for turn in t.turns)) for t in trajectories
        ),
        "rollout/groups": Sum(len(sampled.groups)),
        "rollout/kept_groups": Sum(len(sampled.kept)),
        "rollout/seconds": Sum(sampled.seconds),
    }
