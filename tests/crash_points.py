"""Crashes at chosen places: before or after the n-th call that leaves something behind, everything stops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from pipeline_world import WorldSync, WorldTrainer

from turnwise.pipeline import steps
from turnwise.runs import train
from turnwise.store import checkpoint_folder
from turnwise.store.groups import GroupStore
from turnwise.store.journal import Journal
from turnwise.store.run_folder import RunFolder

PLACES: list[tuple[Any, str]] = [
    (Journal, "_append"),
    (GroupStore, "prepare"),
    (GroupStore, "_write"),
    (GroupStore, "load"),
    (RunFolder, "append_metrics"),
    (RunFolder, "append_event"),
    (RunFolder, "truncate"),
    (steps, "append_accounts"),
    (steps, "save_advantages"),
    (checkpoint_folder, "_swap_in"),
    (train, "prune"),
    (train, "sweep"),
    (WorldTrainer, "step"),
    (WorldTrainer, "save"),
    (WorldTrainer, "load"),
    (WorldSync, "publish"),
]


class Crash(BaseException):
    """The process is gone: nothing after it has an effect."""


@dataclass
class Counter:
    """How many places were passed, and at which the crash comes (None: nowhere)."""

    crash_at: int | None
    num_passed: int = 0
    where: str = ""

    def pass_by(self, where: str) -> None:
        """Raise Crash at the chosen place and at every one after it."""
        if self.crash_at is not None and self.num_passed >= self.crash_at:
            self.where = self.where or where
            raise Crash(self.where)
        self.num_passed += 1


@contextmanager
def crash_at(number: int | None) -> Iterator[Counter]:
    """Inside, the process ends at place `number`; None only counts the places."""
    counter = Counter(number)
    patches = [patch.object(owner, name, _guard(getattr(owner, name), name, counter)) for owner, name in PLACES]
    for each in patches:
        each.start()
    try:
        yield counter
    finally:
        for each in patches:
            each.stop()


def _guard(work: Callable[..., Any], name: str, counter: Counter) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(work):

        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            counter.pass_by(f"before {name}")
            result = await work(*args, **kwargs)
            counter.pass_by(f"after {name}")
            return result

        return guarded_async

    def guarded(*args: Any, **kwargs: Any) -> Any:
        counter.pass_by(f"before {name}")
        result = work(*args, **kwargs)
        counter.pass_by(f"after {name}")
        return result

    return guarded
