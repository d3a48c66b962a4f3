"""Looking at the tasks of a recipe without training anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnwise.building.families import build_family
from turnwise.config.run import RunConfig
from turnwise.core.errors import EnvironmentFault
from turnwise.core.messages import to_plain_text
from turnwise.core.protocols import Split
from turnwise.environments.draws import LeftOut, try_task


def iterate_tasks(config: RunConfig, split: Split, count: int) -> Iterator[dict[str, Any]]:
    """The first `count` tasks of a split as plain data; fewer where the data set ends."""
    family = build_family(config)
    for index in range(count):
        try:
            task = try_task(family, split, index)
        except IndexError:
            return
        if isinstance(task, LeftOut):
            raise EnvironmentFault(task.why)
        yield {
            "id": task.id,
            "prompt": [{"role": m.role, "content": to_plain_text(m)} for m in task.prompt],
            "payload": dict(task.payload),
        }
