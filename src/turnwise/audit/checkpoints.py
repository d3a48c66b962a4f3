"""The checkpoints of a run: whether they are whole, and which weight version each holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from turnwise.audit.breaches import Breach, Tallies
from turnwise.audit.materials import AuditMaterials
from turnwise.core.errors import CheckpointError
from turnwise.store.checkpoint_folder import list_checkpoints, verify_checkpoint
from turnwise.store.journal import JournalState


def check_checkpoints(
    run: Path, journal: JournalState | None, materials: AuditMaterials, tallies: Tallies
) -> dict[int, Path]:
    """Check every checkpoint, and return the intact ones by weight version.

    A checkpoint of step s holds the version that the journal's `trained` line of step s names, 0 for step 0, and its
    weights have the checksums of that line. Checkpoints whose version cannot be determined are not used: `journal` is
    None.
    """
    tally = tallies["checkpoints"]
    by_version: dict[int, Path] = {}
    for step, path in list_checkpoints(run):
        try:
            verify_checkpoint(path)
        except CheckpointError as cause:
            tally.breaches.append(Breach(check="checkpoints", step=step, text=str(cause)))
            continue
        tally.checked += 1
        if journal is None:
            continue
        trained = journal.trained.get(step)
        if trained is None and step > 0:
            text = f"checkpoint {path} is of step {step}, which the journal never trained"
            tally.breaches.append(Breach(check="checkpoints", step=step, text=text))
            continue
        if trained is not None and (different := _find_difference(trained.sums, materials.sum_weights(path))):
            text = f"checkpoint {path}: {different}; it holds other weights than step {step} left"
            tally.breaches.append(Breach(check="checkpoints", step=step, text=text))
        by_version[0 if trained is None else trained.version] = path
    return by_version


def _find_difference(journal: Mapping[str, int], checkpoint: Mapping[str, int]) -> str | None:
    """The difference between two sets of checksums, naming the parameter; None if they agree."""
    names = sorted(name for name in journal.keys() | checkpoint.keys() if journal.get(name) != checkpoint.get(name))
    if not names:
        return None
    name, others = names[0], f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the checksum of {name}{others} is {checkpoint.get(name)}, in the journal {journal.get(name)}"
