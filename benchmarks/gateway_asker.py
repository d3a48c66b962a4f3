"""The clients of `benchmarks/gateway.py`, in a process of their own and of the standard library alone.

    python benchmarks/gateway_asker.py URL SESSIONS TURNS TOKENS WORDS

Every session is a conversation on a connection of its own: after each reply it sends the whole conversation again, with
an observation of so many words. Prints the milliseconds of every request, as a JSON list.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit


class Connection:
    """One connection that is kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    async def post(self, path: str, key: str, body: Any) -> Any:
        """Post a JSON body; returns the answer's."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\nauthorization: Bearer {key}\r\n"
        self._writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        answer = json.loads(await self._reader.readexactly(length))
        if " 20" not in lines[0]:
            raise RuntimeError(f"{lines[0]}: {answer}")
        return answer


async def converse(url: str, number: int, turns: int, tokens: int, words: int) -> list[float]:
    """Play one conversation; returns the milliseconds of its requests."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    connection = Connection(reader, writer, place.netloc)
    session = await connection.post("/sessions", "", {})
    messages: list[Any] = [{"role": "user", "content": f"What is {number} + 18 ?"}]
    spent = []
    for _ in range(turns):
        body = {"model": "policy", "messages": messages, "max_tokens": tokens}
        started = time.perf_counter()
        answer = await connection.post(f"{session['path']}/v1/chat/completions", session["key"], body)
        spent.append(1000 * (time.perf_counter() - started))
        messages = [*messages, answer["choices"][0]["message"], {"role": "user", "content": "add 17 " * (words // 2)}]
    writer.close()
    return spent


async def main() -> None:
    """Play them all at once."""
    url, (sessions, turns, tokens, words) = sys.argv[1], map(int, sys.argv[2:])
    played = await asyncio.gather(*(converse(url, number, turns, tokens, words) for number in range(sessions)))
    print(json.dumps([spent for each in played for spent in each]))


if __name__ == "__main__":
    asyncio.run(main())
