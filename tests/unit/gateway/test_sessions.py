"""Sessions of any program with any client: every sampled token is in one turn, on the prompt it was sampled from."""

import asyncio
import random
from dataclasses import replace

from gateway_world import build_renderer, build_trajectory, serve
from hypothesis import given, settings
from hypothesis import strategies as st
from test_forest import TOOLS, Step, echo, sessions

from turnwise.audit.recheck import check_rendering
from turnwise.audit.stored_turns import check_endings, check_turns
from turnwise.core.messages import Message
from turnwise.core.protocols import Opening
from turnwise.gateway.protocols.call import Call
from turnwise.gateway.sampling import Limits
from turnwise.gateway.turns import to_turns


async def play(steps: list[Step], rng: random.Random) -> None:
    """Play a session, and compare its turns with what the engine was asked for."""
    said: list[Message] = []
    served = serve(lambda prompt: said[-1], limits=Limits(max_context=50_000, max_reply_tokens=5_000))
    session = served.gateway.sessions[served.gateway.open().name]
    nodes: dict[int, Message] = {}
    while len(nodes) < len(steps):
        k = rng.choice([k for k in range(len(steps)) if k not in nodes and steps[k].after in (None, *nodes)])
        path = [k]
        while (before := steps[path[0]].after) is not None:
            path.insert(0, before)
        messages: list[Message] = []
        for j in path:
            sent = messages[-1].tool_calls if messages else ()
            tail = [m for m in steps[j].tail if m.role != "tool"]
            results = [m for m in steps[j].tail if m.role == "tool"]
            messages += [replace(m, tool_call_id=c.id) for m, c in zip(results, sent, strict=False)] + tail
            if j != k:
                messages.append(echo(nodes[j], rng))
        if messages[-1].role == "assistant":  # its calls were delivered as text, so there is nothing to answer
            messages.append(Message(role="user", content=()))
        said.append(steps[k].reply)
        call = Call(body={}, model="policy", messages=tuple(messages), tools=TOOLS)
        exchange = session.begin(call, "chatcmpl", str(k).encode())
        [reply] = await exchange.task
        session.deliver(exchange)
        nodes[k] = reply.message
    told = to_turns(session.forest.replies)
    requests = [request[1].tolist() for request in served.engine.requests]
    for turn, request in zip(told.turns, requests, strict=True):
        path_ids: list[int] = turn.context_ids.tolist()
        parent = turn.parent
        while parent is not None:
            before_turn = told.turns[parent]
            path_ids = [*before_turn.context_ids.tolist(), *before_turn.completion.token_ids.tolist(), *path_ids]
            parent = before_turn.parent
        assert path_ids == request
    trajectory = build_trajectory(told)
    first = told.openings[0]
    assert check_turns(0, trajectory) == []
    assert check_endings(0, trajectory) == []
    assert check_rendering(trajectory, Opening(messages=first.messages, tools=first.tools), build_renderer()) == []
    counts = session.counts
    assert counts["continued"] + counts["branched"] + counts["opened"] == len(steps)
    assert counts["sampled_tokens"] == sum(len(turn.completion.token_ids) for turn in told.turns)


@settings(max_examples=25, deadline=None)
@given(sessions(), st.integers(0, 2**32))
def test_every_sampled_token_is_in_one_turn(steps, seed) -> None:
    asyncio.run(play(steps, random.Random(seed)))
