"""Measure what sessions with an MCP server cost: start, one call, calls side by side, end.

python benchmarks/mcp_start.py [COMMAND ARGS...]      default: the example's server
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

from turnwise.tools.mcp.servers import McpServer
from turnwise.tools.mcp.session import McpSession

EXAMPLE = Path(__file__).parents[1] / "recipes" / "mcp" / "server.py"
NUM_SESSIONS, NUM_CALLS = 5, 200
ARGUMENTS = {"house": 1, "thing": "lamp"}


async def measure(server: McpServer) -> dict[str, float]:
    """Milliseconds of each phase: medians over `NUM_SESSIONS` sessions, after one that warms the disk's cache."""
    rows: list[dict[str, float]] = []
    for _ in range(1 + NUM_SESSIONS):
        session = McpSession(server, "server")
        times = [time.perf_counter()]
        await session.open(60)
        times.append(time.perf_counter())
        for _ in range(NUM_CALLS):
            await session.call("locate", ARGUMENTS)
        times.append(time.perf_counter())
        await asyncio.gather(*(session.call("locate", ARGUMENTS) for _ in range(NUM_CALLS)))
        times.append(time.perf_counter())
        await session.close()
        times.append(time.perf_counter())
        start, calls, together, end = ((b - a) * 1e3 for a, b in pairwise(times))
        rows.append({"start": start, "call": calls / NUM_CALLS, "call of 200": together / NUM_CALLS, "end": end})
    return {name: statistics.median(row[name] for row in rows[1:]) for name in rows[0]}


if __name__ == "__main__":
    command, *args = sys.argv[1:] or ["python", str(EXAMPLE)]
    for name, milliseconds in asyncio.run(measure(McpServer(command=command, args=args))).items():
        print(f"{name:<12} {milliseconds:8.1f} ms")
