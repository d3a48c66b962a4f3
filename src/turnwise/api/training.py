"""`train`: the whole training in one call, for scripts and notebooks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from turnwise.api.given import name_environment
from turnwise.api.run import RunReader, load_run
from turnwise.config.load import Source, load_config
from turnwise.core.errors import ConfigError

Recipe = str | os.PathLike[str] | Mapping[str, Any]
"""A recipe file, or its tables as a dictionary."""


def train(
    environment: object | None = None,
    /,
    *,
    recipe: Recipe | Sequence[Recipe] | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: str | os.PathLike[str] | None = None,
    wait_s: float = 0.0,
    display: bool = True,
    **options: Any,
) -> RunReader:
    """Train a model in an environment, evaluate it before and after, and return the run.

    Works in a script and in a notebook; a keyboard interrupt stops the run, which `resume` continues.

    Args:
        environment: A class, a family that is already built, or a name as in `environment.name`. It replaces the
            recipe's environment with its arguments and controls. A class from a notebook, a script or inside a function
            works, but only the same process can continue and evaluate its run. None: the recipe's own.
        recipe: A TOML file, its tables as a dictionary, or several of them, merged left to right; None: the defaults,
            with a small model from random weights.
        overrides: Options by name, `{"train.steps": 3}`.
        resume: A run folder to continue by its own recipe, with overrides of options that may change then
            (docs/runs.md); pass `environment` again if it was an object. "auto": the newest run of the recipe's name
            and seed, or a new one.
        wait_s: With `resume`, seconds to wait while another process writes the run.
        display: Whether progress is shown on standard error.
        **options: Further overrides with `__` for the dot: `train__steps=3`, `environment__args={"path": "a.jsonl"}`.

    Raises ConfigError and the other errors of `turnwise train`, with the same messages.
    """
    from turnwise.runs.continuing import AUTO, Continuation
    from turnwise.runs.train import run_train

    changes = {**(overrides or {}), **{key.replace("__", "."): value for key, value in options.items()}}
    name = None if environment is None else name_environment(environment)
    if resume is not None and resume != AUTO:
        if recipe is not None:
            raise ConfigError(
                "resume continues a run with its own recipe; pass no recipe with it, or use resume='auto' for the "
                "newest run with the recipe's name and seed"
            )
        run = Path(os.path.expanduser(resume))
        old = Continuation(run=run, changes=changes, wait_s=wait_s)
        return load_run(_run_anywhere(lambda drive: run_train(None, resume=old, display=display, drive=drive)))
    if name is not None:
        replaced = {"environment.name": name, "environment.args": {}, "environment.mixture": {}}
        changes = {**replaced, "evaluate.controls": {}, "evaluate.sets": {}, **changes}
    config = load_config([_to_source(each) for each in _list_recipes(recipe)], changes=changes)
    continuation = None if resume is None else Continuation(run=AUTO, wait_s=wait_s)
    return load_run(_run_anywhere(lambda drive: run_train(config, resume=continuation, display=display, drive=drive)))


def _list_recipes(recipe: Recipe | Sequence[Recipe] | None) -> list[Recipe]:
    if recipe is None:
        return []
    if isinstance(recipe, str | os.PathLike | Mapping):
        return [recipe]
    return list(recipe)


def _to_source(recipe: Recipe) -> Source:
    return dict(recipe) if isinstance(recipe, Mapping) else Path(recipe)


Drive = Callable[[Coroutine[Any, Any, None]], None]


def _run_anywhere(work: Callable[[Drive], Path]) -> Path:
    """Run `work`, which receives a function that runs an event loop: here, or in another thread if this one already has
    a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work(asyncio.run)
    return _Beside(work).run()


class _Beside:
    """Runs work in a separate thread, and stops it on a keyboard interrupt in this one."""

    def __init__(self, work: Callable[[Drive], Path]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._stopped = False
        self._cancel: Callable[[], object] | None = None

    def run(self) -> Path:
        """Wait for the work; returns its result and raises its exception."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="turnwise.train") as pool:
            try:
                return pool.submit(self._work, self._drive).result()
            except KeyboardInterrupt:
                self._stop()  # leaving the pool waits until the run has closed its resources
                raise

    def _drive(self, coroutine: Coroutine[Any, Any, None]) -> None:
        async def main() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            with self._lock:
                self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
                if self._stopped:
                    task.cancel()
            try:
                await coroutine
            finally:
                with self._lock:
                    self._cancel = None

        asyncio.run(main())

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._cancel is not None:
                self._cancel()
