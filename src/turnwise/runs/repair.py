"""A run folder whose lines do not follow one another is continued from what can be proven of it."""

from __future__ import annotations

from turnwise.config.load import load_resolved
from turnwise.core.errors import StoreError
from turnwise.runs.audit import build_materials
from turnwise.store.run_folder import CONFIG, RunFolder
from turnwise.store.run_lock import Tell
from turnwise.store.salvage import SumWeights, apply_salvage, find_problem, plan_salvage


def mend_run(folder: RunFolder, *, is_asked: bool, tell: Tell, sum_weights: SumWeights | None = None) -> None:
    """Set aside what cannot be proven of a run that two processes wrote, or that was damaged; nothing of a sound one.

    Where the last checkpoint is proven, this loses nothing that a crash would not. An earlier one is gone back to only
    where `is_asked`. `sum_weights` None: those of the recipe's models. Raises StoreError saying what is wrong, what can
    be proven, and the remedy.
    """
    run = folder.path
    problem = find_problem(run)
    if problem is None:
        return
    if sum_weights is None:
        sum_weights = build_materials(run, load_resolved(run / CONFIG)).sum_weights
    salvage = plan_salvage(run, sum_weights, problem)
    if salvage is None:
        raise StoreError(
            f"{problem}. Journal, ledger and stored groups verify no checkpoint of {run}: restore the files from a "
            "copy; its checkpoints can still be evaluated, exported, and used as model.path of a new run"
        )
    if salvage.step < salvage.last and not is_asked:
        raise StoreError(
            f"{problem}. Journal, ledger and stored groups verify the checkpoint of step {salvage.step}, but not that "
            f"of step {salvage.last}: continue from it with --resume {run} --repair, which sets aside everything after "
            "it"
        )
    aside = apply_salvage(run, salvage)
    text = (
        f"repaired: {problem}. {salvage.num_left_out} lines of the journal are left out, the run continues from its "
        f"checkpoint of step {salvage.step}, and the previous files are in {aside}"
    )
    folder.append_event("repaired", text)
    tell(text)
