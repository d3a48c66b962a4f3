"""Records of made-up runs for the rules: a healthy one, and changes of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.diagnosis.facts import CreditedTurn, GroupFacts
from turnwise.diagnosis.record import Record

NUM_STEPS = 12
OPTIONS = {
    "train": {"lr": 1e-3},
    "model": {"dtype": "float32"},
    "loss": {
        "mask_observations": True,
        "epochs": 1,
        "updates_per_step": 1,
        "method": "ppo",
        "options": {},
        "entropy_coefficient": 0.0,
        "kl": {"coefficient": 0.01, "kind": "k3"},
        "correction": {"mode": "auto"},
    },
    "credit": {"method": "grpo"},
    "rollout": {"temperature": 1.0, "max_turns": 4, "max_turn_tokens": 16, "max_tokens": 128},
    "schedule": {"max_staleness": 0},
}
STILL = {
    "credit/no_signal_groups": 0.3,
    "rollout/success": 0.4,
    "rollout/reward": 0.4,
    "rollout/identical_groups": 0.1,
    "rollout/truth_order": 1.0,
    "rollout/parse_errors": 0.1,
    "rollout/turns": 2.0,
    "rollout/length_mean": 20.0,
    "rollout/truncated": 0.05,
    "rollout/sampled_tokens": 1000.0,
    "train/entropy": 0.3,
    "train/clip_fraction": 0.01,
    "train/kl_reference": 0.01,
    "train/relative_update": 0.01,
    "train/changed_share": 1.0,
    "train/served_share": 1.0,
    "train/grad_norm": 0.2,
    "train/lr": 1e-3,
    "train/logprob_gap_mean": 1e-7,
    "train/effective_share": 1.0,
    "train/staleness_mean": 0.0,
}
"""Metrics of a run that is sound and does not rise."""


def make_rows(**changes: float | Sequence[float]) -> list[dict[str, float | None]]:
    """Rows of `STILL` with other values: one for all steps, or the first and the last, between which it is linear. A
    name is written with two underscores for its slash."""
    rows: list[dict[str, float | None]] = []
    for index in range(NUM_STEPS):
        row: dict[str, float | None] = {"step": float(index + 1), **STILL}
        for name, value in changes.items():
            first, last = value if isinstance(value, Sequence) else (value, value)
            row[name.replace("__", "/")] = first + (last - first) * index / (NUM_STEPS - 1)
        rows.append(row)
    return rows


def make_record(groups: Sequence[GroupFacts] = (), **changes: float | Sequence[float]) -> Record:
    """A record with these metrics."""
    return Record(steps=make_rows(**changes), options=OPTIONS, groups=groups)


def make_facts(
    rewards: Sequence[float] = (1.0, 0.0), truths: Sequence[float] | None = None, **fields: Any
) -> GroupFacts:
    """The facts of a group with these rewards, sound but for `fields`."""
    size = len(rewards)
    sound: dict[str, Any] = {
        "step": 1,
        "lengths": (20,) * size,
        "truncated": (False,) * size,
        "errors": 0,
        "replies": 2 * size,
        "tools": {},
        "num_alike": 0,
        "num_alike_paid_apart": 0,
        "is_identical": False,
        "advantages": (),
        "turns": (),
    }
    chosen = tuple(rewards if truths is None else truths)
    return GroupFacts(rewards=tuple(rewards), truths=chosen, **(sound | fields))


def make_credited(pairs: Sequence[tuple[float, float]], *, is_last: bool = False) -> tuple[CreditedTurn, ...]:
    """Turns with these advantages and outcomes."""
    return tuple(CreditedTurn(advantage=advantage, outcome=outcome, is_last=is_last) for advantage, outcome in pairs)


def make_summary(step: int, success: float, low: float, high: float, n: int = 100) -> Mapping[str, Any]:
    """An evaluation with one row."""
    row = {"kind": "all", "n": n, "success": success, "low": low, "high": high}
    return {"name": f"heldout_{step:06d}", "label": f"step {step}", "step": step, "rows": [row]}
