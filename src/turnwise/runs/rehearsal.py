"""A rehearsal of a run's start. It does what `run_train` does until the first step, and writes nothing: what it
accepts, `run_train` starts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from turnwise.building.checks import check_methods
from turnwise.building.cores import describe_crowding
from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import Resolved
from turnwise.building.sizes import measure_recipe
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.forecast.fit import MEMORY_SHARE
from turnwise.forecast.memory import plan_memory
from turnwise.models.machine_memory import read_memory_size
from turnwise.runs.build import build_system, find_device
from turnwise.runs.continuing import AUTO, Continuation, find_newest, read_continued
from turnwise.runs.data_files import check_continued
from turnwise.runs.pretraining import find_stopped
from turnwise.runs.renderer import load_checkpoint_tokenizer
from turnwise.runs.start import (
    Check,
    build_parts,
    check_disk,
    check_engines,
    check_start,
    format_size,
    prepare_new,
)
from turnwise.store.checkpoint_folder import latest_checkpoint, verify_checkpoint
from turnwise.store.run_folder import RunFolder


def read_rehearsed(config: RunConfig | None, resume: Continuation | None) -> tuple[RunConfig, bool]:
    """The recipe that a run with these arguments would go by, not yet fitted to this machine where it is a new one, and
    whether it is. Raises ConfigError or StoreError."""
    run = _find_run(config, resume)
    if run is not None:
        assert resume is not None
        return read_continued(RunFolder.open(run), resume, config)[0], False
    if config is None:
        raise ConfigError("nothing to train: name a recipe file, or a run folder with --resume")
    return config, True


def rehearse_train(config: RunConfig | None, *, resume: Continuation | None) -> list[Check]:
    """Build the run that `run_train` would start with these arguments, check it, and write nothing.

    Returns what was checked. Raises what `run_train` would raise before its first step, with the same message.
    """
    checks: list[Check] = []
    tokenizer, warms_up = None, True
    config, is_new = read_rehearsed(config, resume)
    if is_new:
        resolved = prepare_new(config)
        config = resolved.config
        checks += [_describe_memory(resolved), check_disk(resolved)]
    else:
        config = check_methods(config)
        find_device(config)
        run = _find_run(config, resume)
        warms_up = run is None or latest_checkpoint(run) is None
        checkpoint = None if run is None else latest_checkpoint(run) or find_stopped(run)
        if checkpoint is not None:
            verify_checkpoint(checkpoint)
            checks.append(("checkpoint", f"{checkpoint} is whole"))
            tokenizer = load_checkpoint_tokenizer(config, checkpoint)
    system = build_system(config, training=True, tokenizer=tokenizer)
    if not is_new:
        run = _find_run(config, resume)
        assert run is not None
        changes = check_continued(run, config, system.family)
        checks.append(("data files", "; ".join(changes) or "those the run began with"))
    crowding = describe_crowding(config, cores=os.cpu_count() or 1, device=system.model.device.type)
    checks += [("processes", text) for text in crowding]
    checks += [("rows", text) for kind, text in system.notes if kind == "environment"]
    parts = build_parts(system, warms_up=warms_up)

    async def check() -> list[Check]:
        try:
            checks = await check_start(parts)
            if is_new:
                await check_engines(parts.system)
            return checks
        finally:
            await parts.close()

    return [*checks, *asyncio.run(check())]


def _find_run(config: RunConfig | None, resume: Continuation | None) -> Path | None:
    """The run folder that would be continued; None for a new run."""
    if resume is None:
        return None
    if resume.run != AUTO:
        return Path(resume.run)
    return None if config is None else find_newest(config)


def _describe_memory(resolved: Resolved) -> Check:
    config, copies = resolved.config, resolved.copies
    device = find_device(config)
    size = read_memory_size(device)
    memory = plan_memory(read_forecast_settings(resolved), shapes=measure_recipe(config, copies), device=device.type)
    needed = "unknown needs" if memory is None else format_size(memory.peak)
    return "memory", f"{needed} in {format_size(int(MEMORY_SHARE * size))} that a run may fill on {device.type}"


def describe_checks(checks: list[Check]) -> Iterator[str]:
    """A line of the terminal per check."""
    yield from (f"{f'checked {label}':<31} {text}" for label, text in checks)
