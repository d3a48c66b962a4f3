"""The committed numbers of the peers, the batches they were made from, and the register of comparisons.

`peers/make_golden.py` writes golden.npz and golden.json. A comparison is a function that computes ours for one case and
asserts that it equals the peer's numbers, or that the two differ by a named relation, which it asserts instead."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.algorithms.aggregate import Aggregation, compute_weights
from turnwise.algorithms.credit import CreditFunction, CreditTrajectory, CreditTurn
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
EQUAL = "equal"
Array = NDArray[np.float64]


def load_module(path: Path) -> ModuleType:
    """A module of the repository that is not installed."""
    name = f"agreement_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


batches = load_module(ROOT / "peers" / "batches.py")


@cache
def load_arrays() -> Mapping[str, NDArray[Any]]:
    """Every array of golden.npz by name."""
    with np.load(FOLDER / "golden.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    for array in arrays.values():
        array.setflags(write=False)  # shared by all tests
    return arrays


@cache
def load_manifest() -> Mapping[str, dict]:
    """golden.json."""
    return json.loads((FOLDER / "golden.json").read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of a peer."""

    name: str
    options: Mapping[str, Any]
    inputs: Mapping[str, Any]
    batch_name: str | None

    @property
    def batch(self):
        """The batch that went in, as `peers.batches.Batch`."""
        prefix = f"batch/{self.batch_name}:"
        arrays = {key.removeprefix(prefix): array for key, array in load_arrays().items() if key.startswith(prefix)}
        return batches.Batch(**arrays)

    def output(self, name: str) -> Array:
        """The peer's numbers."""
        return load_arrays()[f"{self.name}:{name}"]


def load_case(name: str) -> Case:
    """One case of the manifest."""
    entry = load_manifest()["cases"][name]
    return Case(name=name, options=entry["options"], inputs=entry["inputs"], batch_name=entry["batch"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How one case is compared."""

    ours: tuple[Callable, ...]
    """The functions of Turnwise that gave our numbers."""
    relation: str
    """`EQUAL`, or the named difference."""
    check: Callable[[Case], None]


COMPARISONS: dict[str, Comparison] = {}


def compares(*cases: str, ours: Callable | tuple[Callable, ...], relation: str = EQUAL) -> Callable:
    """Register the decorated check for these cases."""

    def register(check: Callable[[Case], None]) -> Callable[[Case], None]:
        for case in cases:
            assert case not in COMPARISONS, f"{case} is compared twice"
            COMPARISONS[case] = Comparison(
                ours=ours if isinstance(ours, tuple) else (ours,), relation=relation, check=check
            )
        return check

    return register


def assert_equal(ours: object, peers: object, *, tolerance: float = 1e-6) -> None:
    """Equal to 1e-6, relative or absolute, in float64."""
    np.testing.assert_allclose(np.asarray(ours, dtype=np.float64), np.asarray(peers), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------ credit


def to_trajectories(batch, *, turn_rewards: bool = False, reward: Array | None = None) -> list[CreditTrajectory]:
    """The batch as credit sees it: no observations, no padding; a masked turn has no sampled token."""
    rewards = batch.reward if reward is None else reward
    return [
        CreditTrajectory(
            group=str(batch.group[row]),
            reward=None if np.isnan(rewards[row]) else float(rewards[row]),
            turns=tuple(_to_turns(batch, row, turn_rewards)),
            parts={f"part{index}": float(value) for index, value in enumerate(batch.parts[row])},
            greedy_reward=float(batch.greedy_reward[row]),
        )
        for row in range(len(batch.group))
    ]


def _to_turns(batch, row: int, turn_rewards: bool):
    for turn, (start, end) in enumerate(batch.spans[row]):
        if start < 0:
            return
        kept = slice(start, end if batch.trains[row, turn] else start)
        yield CreditTurn(
            num_tokens=kept.stop - kept.start,
            reward=float(batch.turn_reward[row, turn]) if turn_rewards else 0.0,
            values=batch.values[row, kept],
            logprobs=batch.behavior_logprobs[row, kept],
            reference_logprobs=batch.reference_logprobs[row, kept],
            squared_mass=batches.squared_mass(batch)[row, kept],
        )


def to_padded(batch, advantages) -> Array:
    """Advantages per turn back into `[B, T]`, 0 where nothing trains; None becomes 0."""
    padded = np.zeros_like(batch.mask)
    for row, turns in enumerate(advantages):
        joined = np.concatenate([np.zeros(0), *turns]) if turns is not None else 0.0
        padded[row, batch.mask[row] == 1] = joined
    return padded


def compute_credit(case: Case, function: CreditFunction, *, turn_rewards: bool = False) -> Array:
    """Our advantages of the case's batch, `[B, T]`."""
    return to_padded(case.batch, function(to_trajectories(case.batch, turn_rewards=turn_rewards)))


# ------------------------------------------------------------------------------------------------ losses


def pack(batch, array: NDArray[Any]) -> torch.Tensor:
    """`[K]` of `[B, T]` or `[B]`: tokens that train, row after row."""
    if array.ndim == 1:
        array = np.repeat(array[:, None], batch.mask.shape[1], axis=1)
    return torch.from_numpy(array[batch.mask == 1])


def unpack(batch, packed: torch.Tensor) -> Array:
    """`[B, T]` of `[K]`, exactly 0 elsewhere."""
    padded = np.zeros_like(batch.mask)
    padded[batch.mask == 1] = packed.detach().numpy()
    return padded


def pack_inputs(batch, *, advantages: str, behavior: str = "old_logprobs") -> LossInputs:
    """What our losses take. `advantages` is "token" or "row"; `behavior` names the batch's field (peers know two
    policies)."""
    rows = np.repeat(np.arange(len(batch.group))[:, None], batch.mask.shape[1], axis=1)
    return LossInputs(
        policy_logprobs=pack(batch, batch.policy_logprobs).requires_grad_(),
        old_logprobs=pack(batch, batch.old_logprobs),
        behavior_logprobs=pack(batch, getattr(batch, behavior)),
        advantages=pack(batch, batch.token_advantages if advantages == "token" else batch.advantages),
        sequence=pack(batch, rows),
        entropy=pack(batch, batch.entropy),
    )


def weigh(inputs: LossInputs, mode: Aggregation, *, constant: float | None = None) -> torch.Tensor:
    """Aggregation weights of all tokens, `[K]`."""
    return torch.from_numpy(compute_weights(mode, sequence_of_token=inputs.sequence.numpy(), constant=constant))


def check_loss(
    case: Case,
    loss: LossFunction,
    *,
    aggregation: Aggregation = "token_mean",
    constant: float | None = None,
    behavior: str = "old_logprobs",
) -> None:
    """Value, gradient (exactly 0 where nothing trains, by construction) and, where the peer tells them, per-token
    losses."""
    inputs = pack_inputs(case.batch, advantages=str(case.options.get("advantages", "token")), behavior=behavior)
    losses = loss(inputs).losses
    value = (weigh(inputs, aggregation, constant=constant) * losses).sum()
    (gradient,) = torch.autograd.grad(value, inputs.policy_logprobs)
    assert_equal(value.item(), case.output("value"))
    assert_equal(unpack(case.batch, gradient), case.output("gradient"))
    if f"{case.name}:losses" in load_arrays():
        assert_equal(unpack(case.batch, losses), case.output("losses"))
