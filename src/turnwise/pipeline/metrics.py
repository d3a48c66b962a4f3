"""Rollout metrics of a step, over all groups whose outcome it decided."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.metrics import Deviation, Max, Mean, Metric, Quantile, Rate, Sum
from turnwise.core.paths import first_path
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.evaluation.summary import is_success
from turnwise.pipeline.judge_metrics import compute_judge_metrics
from turnwise.pipeline.steps import Taken
from turnwise.pipeline.tool_metrics import compute_tool_metrics
from turnwise.pipeline.truth_metrics import compute_truth_metrics


def compute_rollout_metrics(taken: Taken, *, seconds: float) -> dict[str, Metric]:
    """Compute the rollout metrics of a step. Branches, baselines, discarded attempts and roles that do not learn count
    in tokens only.

    What judges did counts wherever they were asked.

    `seconds` is the time in which the step's groups were collected. Parts of rewards and signals of environments become
    the metrics `reward/PART` and `signal/NAME`.
    """
    groups = [*taken.groups, *(group for group, _ in taken.dropped)]
    members = [t for group in groups for t in group.trajectories]
    discarded = [each.trajectory for group in groups for each in group.discarded]
    trajectories = [first_path(t) for t in members if t.learns]
    rewards = [t.reward for t in trajectories if isinstance(t.reward, Scored)]
    num_sampled = sum(t.num_sampled_tokens for t in (*members, *discarded))
    num_context = sum(len(turn.context_ids) for t in (*members, *discarded) for turn in t.turns)
    parts: dict[str, list[float]] = {}
    for reward in rewards:
        for part in reward.parts:
            parts.setdefault(f"reward/{part.name}", []).append(part.value)
    for trajectory in trajectories:
        for signal in (signal for turn in trajectory.turns for signal in turn.signals):
            parts.setdefault(f"signal/{signal.name}", []).append(signal.value)
        if trajectory.credited is not None:
            for term in trajectory.terms:
                parts.setdefault(f"term/{term.name}", []).append(term.value)
                parts.setdefault(f"term/{term.name}_contribution", []).append(term.contribution)
    return {
        "rollout/reward": Mean.of(reward.total for reward in rewards),
        "rollout/reward_std": Deviation.of(reward.total for reward in rewards),
        "rollout/success": Mean.of(float(is_success(t)) for t in trajectories if isinstance(t.reward, Scored)),
        "rollout/tool_calls": Mean.of(float(t.num_tool_calls) for t in trajectories),
        "rollout/turns": Mean.of(float(len(t.turns)) for t in trajectories),
        "rollout/sampled_tokens": Sum(num_sampled),
        "rollout/context_tokens": Sum(num_context),
        "rollout/tokens_per_s": Rate(num_sampled, seconds),
        "rollout/truncated": Mean.of(float(t.stop.is_truncated) for t in trajectories),
        "rollout/invalid": Mean.of(float(not isinstance(t.reward, Scored)) for t in trajectories),
        "rollout/parse_errors": Mean.of(
            float(sum(len(turn.message.tool_errors) for turn in t.turns)) for t in trajectories
        ),
        "rollout/groups": Sum(len(groups)),
        "rollout/kept_groups": Sum(len(taken.groups)),
        "rollout/discarded_tokens": Sum(sum(t.num_sampled_tokens for t in discarded)),
        "rollout/seconds": Sum(seconds),
        **compute_diversity_metrics(groups),
        **compute_spread_metrics(groups),
        **compute_truth_metrics(groups),
        **compute_length_metrics(trajectories),
        **compute_tool_metrics(trajectories),
        **compute_judge_metrics([*members, *discarded]),
        **{name: Mean.of(values) for name, values in parts.items()},
    }


def compute_diversity_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, Metric]:
    """Compute `rollout/identical_groups`: the share of groups of two or more whose members all sampled the same tokens;
    absent without such groups.

    Only completions are compared. A policy that has become certain repeats itself too, but if all groups do so at a
    temperature above 0, the members share their random numbers.
    """
    shared = []
    for group in groups:
        if len(group.trajectories) > 1:
            sampled = {tuple(turn.completion.token_ids.tobytes() for turn in t.turns) for t in group.trajectories}
            shared.append(float(len(sampled) == 1))
    return {"rollout/identical_groups": Mean.of(shared)} if shared else {}


def compute_spread_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, Metric]:
    """Compute `rollout/group_reward_std` over groups in which at least two members that learn were scored; absent
    without one."""
    spreads = []
    for group in groups:
        rewards = [t.reward.total for t in group.trajectories if t.learns and isinstance(t.reward, Scored)]
        if len(rewards) > 1:
            spreads.append(Deviation.of(rewards).value)
    return {"rollout/group_reward_std": Mean.of(spreads)} if spreads else {}


def compute_length_metrics(trajectories: Sequence[Trajectory]) -> dict[str, Metric]:
    """Compute mean, 95% quantile and maximum of sampled tokens, and the total length of the longest trajectory; absent
    without a trajectory."""
    if not trajectories:
        return {}
    sampled = [float(t.num_sampled_tokens) for t in trajectories]
    whole = [t.num_sampled_tokens + sum(len(turn.context_ids) for turn in t.turns) for t in trajectories]
    return {
        "rollout/length_mean": Mean.of(sampled),
        "rollout/length_p95": Quantile(tuple(sampled)),
        "rollout/length_max": Max(max(sampled)),
        "rollout/total_length_max": Max(max(whole)),
    }
