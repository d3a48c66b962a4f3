"""Check that the rows and the token arrays of stored groups fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.audit.breaches import Breach
from turnwise.core.types import TrajectoryId
from turnwise.store.rows import id_from_json
from turnwise.store.trajectories import OPTIONAL_ARRAYS


def check_masks(
    step: int | None, rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]
) -> list[Breach]:
    """Check that every token belongs to exactly one turn, and that mask, turn numbers and zeros follow from that.

    The mask is True exactly on the completions (provenance: who wrote the token); context has log-probability 0 and no
    weight version. `rows` and `arrays` as returned by `store.trajectories.load_rows` and `load_arrays`. Raises
    KeyError, TypeError or ValueError for a malformed row.
    """
    sizes = {name: len(array) for name, array in arrays.items() if name not in OPTIONAL_ARRAYS}
    if len(set(sizes.values())) != 1:
        return [Breach(check="files", step=step, text=f"token arrays have different lengths {sizes}")]
    total = sizes["token_ids"]
    sampled, turn_index = np.zeros(total, np.bool_), np.full(total, -1)
    guided, whole = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    starts: list[int] = []
    names: list[TrajectoryId] = []
    at = num_experts = 0
    for row in rows:
        starts.append(at)
        names.append(id_from_json(row))
        for number, turn in enumerate(row["turns"]):
            (start, middle), (completion_start, end) = turn["context"], turn["completion"]
            if (start, middle) != (at, completion_start) or not start <= middle < end <= total:
                text = (
                    f"turn {number} claims tokens {start}..{middle}..{end}, the turn before it ends at {at} of "
                    f"{total}; a turn or a trajectory is missing or moved"
                )
                return [Breach(check="files", step=step, trajectory=names[-1], text=text)]
            sampled[middle:end] = True
            turn_index[start:end] = number
            guided[middle:end] = turn["guided"]
            whole[middle:end] = turn["version_first"] == turn["version_last"]
            at = end
            if "experts" in turn:
                claimed, shape = turn["experts"]["at"], turn["experts"]["shape"]
                if claimed != num_experts:
                    text = (
                        f"turn {number} claims experts from {claimed} on, those of the turn before end at {num_experts}"
                    )
                    return [Breach(check="files", step=step, trajectory=names[-1], text=text)]
                num_experts += int(np.prod(shape))
    stored = len(arrays.get("experts", ()))
    if num_experts != stored:
        text = f"the turns claim {num_experts} of {stored} stored experts; the file is cut off, or a turn is missing"
        return [Breach(check="files", step=step, text=text)]
    if at != total:
        text = (
            f"the trajectories cover {at} of {total} stored tokens; the file is cut off, or a turn or a trajectory is "
            "missing"
        )
        return [Breach(check="files", step=step, text=text)]
    # A version of -1 means several versions that were not recorded one by one.
    wrong = {
        "loss_mask": arrays["loss_mask"] != sampled,
        "turn_index": arrays["turn_index"] != turn_index,
        "logprobs": ~sampled & (arrays["logprobs"] != 0),
        "versions": np.where(sampled, whole & (arrays["versions"] < 0), arrays["versions"] != -1),
        "full_logprobs": ~guided & (arrays["full_logprobs"] != 0),
    }
    return [
        Breach(
            check="masks",
            step=step,
            trajectory=names[owner],
            text=f"{name.replace('_', ' ')} at stored token {position} is {arrays[name][position]}, which does not fit "
            f"a {'sampled' if sampled[position] else 'context'} token",
        )
        for name, mask in wrong.items()
        for owner, position in _find_firsts(mask, starts)
    ]


def _find_firsts(wrong: NDArray[np.bool_], starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The trajectories that contain a wrong token, each with the position of the first one."""
    positions = np.flatnonzero(wrong)
    # A trajectory without turns starts where the next one does: the last start is the owner's.
    owners = np.searchsorted(starts, positions, side="right") - 1
    for owner, first in zip(*np.unique(owners, return_index=True), strict=True):
        yield int(owner), int(positions[first])
