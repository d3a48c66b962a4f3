"""What the gateway costs: `OMP_NUM_THREADS=1 python benchmarks/gateway.py`, as JSON on standard output.

overhead: conversations sampled by the engine alone, whose caller renders them and has no server, and the same ones
asked for over HTTP by a process of their own, in turns; the first round does not count. Tokens per second by the clock,
and per processor second of the process that samples and serves, which other programs disturb less.
requests: processor milliseconds of the server for a request, and how long a client waits for it, with a policy that
costs nothing. first_text: how long after the engine's first token a client of a stream has text, one stream alone and
16 at once; a first token that is white space is told with the next. idle: memory that sessions hold whose conversations
are over.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit" / "gateway"))

from gateway_world import build_renderer, build_tokenizer, serve

from turnwise.core.messages import text_message
from turnwise.core.protocols import Receive
from turnwise.core.types import Completion, IntArray, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.sampling import Limits, SamplingRule
from turnwise.gateway.server import GatewayServer
from turnwise.gateway.session import Policy
from turnwise.gateway.settled import find_streaming
from turnwise.models.build import build_model
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer

ASKER = Path(__file__).parent / "gateway_asker.py"
SHAPE = {"num_key_value_heads": 2, "tie_word_embeddings": True, "max_position_embeddings": 8192}
SIZES = {
    "2M": {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6},
    "20M": {"hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 9, "num_attention_heads": 6},
}
LIMITS = Limits(max_context=8192, max_reply_tokens=4096)


async def ask(url: str, sessions: int, turns: int, tokens: int, words: int) -> list[float]:
    """Play conversations from a process of its own; returns the milliseconds of every request."""
    numbers = map(str, (sessions, turns, tokens, words))
    process = await asyncio.create_subprocess_exec(sys.executable, str(ASKER), url, *numbers, stdout=-1)
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit("the clients failed")
    spent: list[float] = json.loads(out)
    return spent


async def converse_alone(engine: Any, number: int, turns: int, tokens: int, words: int) -> int:
    """Play one conversation with the engine alone; returns the number of sampled tokens."""
    renderer, session, count = build_renderer(), Session("alone", str(number)), 0
    prompt = renderer.open([text_message("user", f"What is {number} + 18 ?")], ())
    for turn in range(turns):
        params = SamplingParams(
            max_tokens=tokens, stop=renderer.stop, stop_token_ids=renderer.stop_token_ids, seed=number * turns + turn
        )
        completion = await engine.generate(prompt, params, session=session)
        count += len(completion.token_ids)
        said = text_message("user", "add 17 " * (words // 2))
        context = renderer.extend(prompt, completion.token_ids, [said], ())
        prompt = to_ids(np.concatenate([prompt, completion.token_ids, context]))
    await engine.release(session)
    return count


async def measure(play: Callable[[], Awaitable[int]]) -> tuple[float, float]:
    """Return tokens per second, and per processor second of this process."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    count = await play()
    return count / (time.perf_counter() - wall), count / (time.process_time() - processor)


async def compare(size: str, rounds: int, sessions: int, turns: int, tokens: int, words: int) -> dict[str, Any]:
    """Compare the engine alone with the gateway."""
    tokenizer = build_tokenizer()
    model = build_model("qwen3", {**SHAPE, **SIZES[size], "head_dim": 32}, vocab_size=len(tokenizer), seed=1)
    engine = PagedEngine(model, max_concurrency=sessions, max_context=8192)
    policy = Policy(
        engine=engine, renderer=build_renderer(), encode=None, decode=lambda ids: str(tokenizer.decode(list(ids)))
    )
    gateway = Gateway(policy, LIMITS, SamplingRule(), is_open=True)
    server = GatewayServer(gateway)
    url = await server.start()

    async def alone() -> int:
        return sum(
            await asyncio.gather(*(converse_alone(engine, number, turns, tokens, words) for number in range(sessions)))
        )

    async def served() -> int:
        before = gateway.count().get("sampled_tokens", 0)
        await ask(url, sessions, turns, tokens, words)
        count = gateway.count()["sampled_tokens"] - before
        for name in list(gateway.sessions):
            await gateway.end(name)
        return count

    rates: dict[str, list[tuple[float, float]]] = {"alone": [], "served": []}
    for _ in range(rounds + 1):
        rates["alone"].append(await measure(alone))
        rates["served"].append(await measure(served))
    counts = gateway.count()
    await server.close()
    await engine.close()
    told: dict[str, Any] = {"continued": counts["continued"], "requests": sessions * turns * (rounds + 1)}
    for at, clock in enumerate(("wall", "processor")):
        found = {name: [rate[at] for rate in each[1:]] for name, each in rates.items()}
        ratios = [served / alone for served, alone in zip(found["served"], found["alone"], strict=True)]
        told[clock] = {name: round(statistics.median(each), 1) for name, each in found.items()}
        told[clock]["ratios"] = [round(ratio, 3) for ratio in sorted(ratios)]
        told[clock]["ratio"] = round(statistics.median(ratios), 3)
    return told


async def time_requests(sessions: int, turns: int, words: int) -> dict[str, Any]:
    """Measure requests with a policy that costs nothing."""
    served = serve(lambda prompt: "add a = 17 b = 18 " * 3, is_open=True, limits=LIMITS)
    server = GatewayServer(served.gateway)
    url = await server.start()
    await ask(url, 8, 2, 100, words)
    started = time.process_time()
    spent = sorted(await ask(url, sessions, turns, 100, words))
    processor_s = time.process_time() - started
    one_by_one = sorted(await ask(url, 1, turns, 100, words))
    await server.close()
    return {
        "requests": len(spent),
        "processor_ms": round(1000 * processor_s / len(spent), 2),
        "alone_wait_ms": {"median": round(statistics.median(one_by_one), 2), "most": round(one_by_one[-1], 2)},
        "concurrent_wait_ms": {"median": round(statistics.median(spent), 1), "most": round(spent[-1], 1)},
    }


class Clocked:
    """An engine that notes when the first token of each reply was sampled."""

    version = 0

    def __init__(self, engine: PagedEngine) -> None:
        self._engine, self.first_s = engine, dict[str, float]()

    async def stream(
        self, prompt_ids: IntArray, params: SamplingParams, *, session: Session, receive: Receive
    ) -> Completion:
        """Sample."""

        def note(token_ids: Sequence[int]) -> None:
            self.first_s.setdefault(session.group, time.perf_counter())
            receive(token_ids)

        return await self._engine.stream(prompt_ids, params, session=session, receive=note)

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """Sample."""
        return await self._engine.generate(prompt_ids, params, session=session)

    async def release(self, session: Session) -> None:
        """Release."""
        await self._engine.release(session)

    async def close(self) -> None:
        """Close."""
        await self._engine.close()


async def time_first_text(streams: int, rounds: int = 20) -> dict[str, Any]:
    """Measure how long after the first token the first text has arrived, over a loopback connection."""
    texts = ["Mira Tolen wrote Blue Lantern.", "Who wrote it ? I think."] * 40
    tokenizer = train_tokenizer(texts, vocab_size=400, special_tokens=QWEN3_SPECIAL_TOKENS)
    renderer = ChatRenderer(tokenizer)
    model = build_model("qwen3", {**SHAPE, **SIZES["2M"], "head_dim": 32}, vocab_size=len(tokenizer), seed=1)
    engine = Clocked(PagedEngine(model, max_concurrency=streams, max_context=1024))
    policy = Policy(
        engine=engine,
        renderer=renderer,
        encode=None,
        decode=lambda ids: str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)),
        streaming=find_streaming(renderer, tokenizer),
    )
    gateway = Gateway(policy, LIMITS, SamplingRule(), is_open=True)
    server = GatewayServer(gateway)
    url = await server.start()
    late: list[float] = []

    async def ask_one(number: int) -> None:
        body = {"model": "policy", "stream": True, "max_tokens": 40, "seed": number}
        body["messages"] = [{"role": "user", "content": f"Who wrote {number} ?"}]
        access = gateway.open()
        headers = {"authorization": f"Bearer {access.key}"}
        async with (
            httpx.AsyncClient(base_url=url, headers=headers, timeout=600) as client,
            client.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            async for line in answer.aiter_lines():
                if '"content": "' in line and '"content": ""' not in line:
                    late.append(1000 * (time.perf_counter() - engine.first_s[access.name]))
                    break

    for at in range(rounds):
        await asyncio.gather(*(ask_one(at * streams + number) for number in range(streams)))
    await server.close()
    await engine.close()
    late.sort()
    ms = {"median": statistics.median(late), "p95": late[int(0.95 * len(late))], "most": late[-1]}
    return {"streams": streams, "replies": len(late), **{f"{name}_ms": round(value, 1) for name, value in ms.items()}}


def read_memory_mib() -> float:
    """Return the resident memory of this process (Linux)."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure_idle(sessions: int, turns: int, words: int) -> dict[str, Any]:
    """Measure what idle sessions hold, the engine's stored requests aside."""
    served = serve(lambda prompt: "add a = 17 b = 18 " * 3, is_open=True, limits=LIMITS, max_sessions=sessions + 64)
    server = GatewayServer(served.gateway)
    url = await server.start()
    await ask(url, 50, turns, 100, words)
    served.engine.requests.clear()
    before, opened = read_memory_mib(), len(served.gateway.sessions)
    for _ in range(sessions // 50 - 1):
        await ask(url, 50, turns, 100, words)
        served.engine.requests.clear()
    more = len(served.gateway.sessions) - opened
    used = read_memory_mib() - before
    await server.close()
    return {"sessions": more, "mib": round(used, 1), "mib_for_1000": round(1000 * used / more, 1)}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything."""
    shape = {"turns": options.turns, "words": options.words}
    told: dict[str, Any] = {"sessions": options.sessions, **shape, "tokens": options.tokens, "overhead": {}}
    for size in options.sizes:
        told["overhead"][size] = await compare(size, options.rounds, options.sessions, tokens=options.tokens, **shape)
    told["requests"] = await time_requests(options.sessions, **shape)
    told["first_text"] = [await time_first_text(streams) for streams in (1, 16)]
    told["idle"] = await measure_idle(options.idle, **shape)
    return told


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=["20M"], choices=list(SIZES))
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--words", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--idle", type=int, default=1000)
    print(json.dumps(asyncio.run(run(parser.parse_args())), indent=1))


if __name__ == "__main__":
    main()
