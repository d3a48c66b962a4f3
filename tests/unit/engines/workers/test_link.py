"""What a link to a worker does with messages that it cannot use: every wait ends."""

import asyncio
import socket
from typing import Any

import pytest

from turnwise.core.errors import EngineError
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.messages import READY_ID, encode_message, read_message


class Program:
    """A process that is only killed."""

    name, pid, exitcode = "worker", 0, None

    def kill(self) -> None: ...

    def join(self, timeout: float) -> None: ...


async def open_link() -> tuple[Link, asyncio.StreamReader, asyncio.StreamWriter]:
    """A link, and the streams of the other side."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    link = Link(Program(), *await asyncio.open_connection(sock=ours), silence_s=60.0)  # type: ignore[arg-type]
    writer.write(encode_message({"id": READY_ID, "answer": None}))
    await link.hear_ready(60.0)
    return link, reader, writer


def test_a_part_that_its_request_cannot_take_ends_that_request_alone() -> None:
    def hear(number: int, part: Any) -> None:
        raise TimeoutError("no answer")

    async def play() -> tuple[Any, Any, list[dict[str, Any] | None]]:
        link, reader, writer = await open_link()
        asked = [asyncio.create_task(link.ask("generate", hear=hear)), asyncio.create_task(link.ask("generate"))]
        first, second = [await read_message(reader) for _ in asked]
        assert first is not None
        assert second is not None
        writer.write(encode_message({"id": first["id"], "part": [1]}))
        writer.write(encode_message({"id": second["id"], "answer": 7}))
        async with asyncio.timeout(60):
            one, other = await asyncio.gather(*asked, return_exceptions=True)
            told = await read_message(reader)
        link.end("was ended", is_loss=False)
        return one, other, [first, told]

    one, other, (first, told) = asyncio.run(play())
    assert isinstance(one, EngineError)
    assert "TimeoutError: no answer" in str(one)
    assert other == 7
    assert first is not None
    assert told == {"kind": "cancel", "request": first["id"]}


def test_a_worker_whose_messages_cannot_be_read_is_ended() -> None:
    async def play() -> None:
        link, reader, writer = await open_link()
        asked = asyncio.create_task(link.ask("generate"))
        await read_message(reader)
        writer.write(b"\x00\x00\x00\x03{,}")
        async with asyncio.timeout(60):
            await asked

    with pytest.raises(EngineError, match=r"worker.*sent what cannot be read and was ended: JSONDecodeError"):
        asyncio.run(play())
