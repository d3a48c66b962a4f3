"""Workers that are separate programs, on any host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnwise.core.errors import EngineError, EngineRefusal
from turnwise.engines.workers.link import ALIVE_S, Link
from turnwise.hosts.host import Host, Program


async def start_program(
    host: Host,
    program: Program,
    settings: Mapping[str, Any],
    *,
    folders: Mapping[str, Path],
    start_s: float,
    silence_s: float,
) -> Link:
    """Start a program on `host`, send it its settings and the place of each of `folders`, and wait until it is ready.

    Raises EngineRefusal with its message if it says that it cannot start, EngineError with the end of its log if it
    ends without a message or is not ready in `start_s`, or if it cannot be started.
    """
    running, end = await host.start(program)
    try:
        streams = await asyncio.open_connection(sock=end)
    except BaseException:
        running.kill()
        raise
    link = Link(running, *streams, silence_s=silence_s, carry=running.carry, address=running.address)
    try:
        carried = {key: str(await link.carry(folder)) for key, folder in folders.items()}
        link.tell_settings({**settings, **carried, "alive_s": min(ALIVE_S, silence_s / 8)})
        await link.hear_ready(start_s)
    except EngineError as error:
        link.end("could not start")
        if link.refusal is not None:
            raise EngineRefusal(link.refusal) from error
        if log := running.read_log():
            raise EngineError(f"{error}; the end of {program.log}:\n{log}") from error
        raise
    return link
