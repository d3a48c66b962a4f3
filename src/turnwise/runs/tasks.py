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
from turnwise.pictures.chat_parts import EMBEDDED, write_content


def iterate_tasks(
    config: RunConfig, split: Split, count: int, *, with_pictures: bool = False
) -> Iterator[dict[str, Any]]:
    """The first `count` tasks of a split as plain data; fewer where the data set ends. `with_pictures` writes those of
    prompts as data URLs; else prompts are texts that name them."""
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
            "prompt": [
                {
                    "role": message.role,
                    "content": write_content(message.content, EMBEDDED) if with_pictures else to_plain_text(message),
                }
                for message in task.prompt
            ],
            "payload": dict(task.payload),
        }
