"""A Model Context Protocol server with two tools, written with the official SDK (1.x or 2.x): things in a house.

    python recipes/mcp/server.py                  serve on stdin and stdout
    python recipes/mcp/server.py rows 600 train   print tasks over it as JSON lines, as recipes/mcp has them

Every house is different and has twelve things. A thing is in a bay, or inside another thing that is in a bay. How many
there are is given directly, or as the count of another thing. The tools only read, so one process can serve all
episodes of a run.
"""

from __future__ import annotations

import json
import random
import sys

THINGS = ("anvil", "basket", "candle", "drum", "easel", "flask", "globe", "harp", "iron", "jug", "kettle", "lamp")
LINKED = 0.65
"""Share of things for which a tool answers with another thing instead of a number."""


def look_up(house: int, tool: str, thing: str) -> str:
    """A tool's answer about a thing: a number, or another thing to ask about, which has one."""
    draw = random.Random(f"{house} {tool}")
    ends = set(draw.sample(THINGS, 4))
    answers = {name: str(draw.randrange(10)) for name in THINGS}
    linked = {name for name in THINGS if name not in ends and draw.random() < LINKED / (1 - 4 / len(THINGS))}
    targets = {name: draw.choice(sorted(ends)) for name in THINGS}
    words = {"locate": ("bay", "inside"), "count": ("exactly", "like")}[tool]
    return f"{words[1]} {targets[thing]}" if thing in linked else f"{words[0]} {answers[thing]}"


def build_row(seed: str) -> dict[str, object]:
    """A question about a thing in some house, its answer, and the calls that find the answer."""
    draw = random.Random(seed)
    house, tool, thing = draw.randrange(10**6), draw.choice(("locate", "count")), draw.choice(THINGS)
    calls = [[tool, {"thing": thing}]]
    reply = look_up(house, tool, thing)
    while not reply.split()[-1].isdigit():
        thing = reply.split()[-1]
        calls.append([tool, {"thing": thing}])
        reply = look_up(house, tool, thing)
    return {
        "question": f"{'where' if tool == 'locate' else 'howmany'} {calls[0][1]['thing']}",  # type: ignore[index]
        "answer": reply.split()[-1],
        "kind": f"{len(calls)}call",
        "bind": {"house": house},
        "calls": calls,
    }


def serve() -> None:
    """Offer `locate` and `count` on stdin and stdout."""
    try:
        from mcp.server import MCPServer  # 2.x
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[no-redef] # 1.x

    server = MCPServer("storehouse", log_level="WARNING")

    def answer(house: int, tool: str, thing: str) -> str:
        if thing not in THINGS:
            raise ValueError(f"there is no {thing} here")
        return look_up(house, tool, thing)

    @server.tool()  # type: ignore[untyped-decorator]
    def locate(house: int, thing: str) -> str:
        """Say in which bay a thing is, or inside which other thing."""
        return answer(house, "locate", thing)

    @server.tool()  # type: ignore[untyped-decorator]
    def count(house: int, thing: str) -> str:
        """Say how many there are of a thing, or which other thing there are as many of."""
        return answer(house, "count", thing)

    server.run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["rows"]:
        for index in range(int(sys.argv[2])):
            print(json.dumps(build_row(f"{sys.argv[3]} {index}")))
    else:
        serve()
