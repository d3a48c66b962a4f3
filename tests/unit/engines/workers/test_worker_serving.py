"""A worker answers every message, also where its service raises an error that is not an engine's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from turnwise.core.errors import StoreError
from turnwise.engines.workers.messages import READY_ID, encode_message, read_message
from turnwise.engines.workers.serving import serve


class Blind:
    """A service whose pictures are gone."""

    is_computing = False

    async def answer(self, message: Mapping[str, Any]) -> Any:
        raise StoreError("picture abc is missing")

    def statistics(self) -> Mapping[str, Any]:
        return {}


async def ask(*, starts: bool) -> list[dict[str, Any]]:
    """What a worker sends: when it is ready, and to one message."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)

    async def build(settings: Mapping[str, Any], say: Any) -> Blind:
        if not starts:
            raise StoreError("the store is missing")
        return Blind()

    async with asyncio.timeout(60):
        served = asyncio.create_task(serve(theirs, build, {"alive_s": 60.0}))
        heard = [await read_message(reader)]
        if starts:
            writer.write(encode_message({"id": 7, "kind": "generate"}))
            heard.append(await read_message(reader))
        writer.close()
        await served
    return [message for message in heard if message is not None]


@pytest.mark.parametrize("starts", [True, False])
def test_what_is_missing_is_said(starts: bool) -> None:
    heard = asyncio.run(ask(starts=starts))
    assert heard[0]["id"] == READY_ID
    if starts:
        assert (heard[1]["id"], heard[1]["error"]) == (7, "picture abc is missing")
    else:
        assert heard[0]["error"] == "the store is missing"
