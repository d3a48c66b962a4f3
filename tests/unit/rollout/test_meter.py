"""Busy seconds: the union of the times in which a request was open."""

import asyncio
import time

import pytest

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, FinishReason, IntArray, SamplingParams, Session, to_floats, to_ids
from turnwise.rollout.meter import MeteredEngine

PARAMS = SamplingParams(max_tokens=1)
COMPLETION = Completion(
    token_ids=to_ids([1]),
    logprobs=to_floats([0.0]),
    finish_reason=FinishReason.STOP,
    version_first=4,
    version_last=4,
)


class Gated:
    """Replies to a session when the test opens its gate."""

    def __init__(self) -> None:
        self.version = 4
        self.gates: dict[str, asyncio.Event] = {}
        self.released: list[Session] = []
        self.closed = False

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        await self.gates[session.name].wait()
        if session.name == "broken":
            raise EngineError("broken")
        return COMPLETION

    async def release(self, session: Session) -> None:
        self.released.append(session)

    async def close(self) -> None:
        self.closed = True


def test_seconds_with_a_request_open_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    async def run() -> None:
        engine = Gated()
        metered = MeteredEngine(engine)

        async def begin(name: str, at: float) -> asyncio.Task[Completion]:
            clock[0] = at
            engine.gates[name] = asyncio.Event()
            task = asyncio.create_task(metered.generate(to_ids([0]), PARAMS, session=Session("g", name)))
            await asyncio.sleep(0)
            return task

        async def end(name: str, task: asyncio.Task[Completion], at: float) -> None:
            clock[0] = at
            engine.gates[name].set()
            await asyncio.wait({task})

        assert metered.busy_s == 0.0
        first = await begin("a", 1.0)
        second = await begin("b", 2.0)
        await end("a", first, 4.0)
        assert metered.busy_s == 3.0  # open from 1 to 4, and still
        await end("b", second, 5.0)
        clock[0] = 9.0
        assert metered.busy_s == 4.0  # 1 to 5; idle since
        # A request that fails or is cancelled is no longer open.
        await end("broken", await begin("broken", 10.0), 11.0)
        third = await begin("c", 20.0)
        clock[0] = 22.0
        third.cancel()
        await asyncio.wait({third})
        clock[0] = 30.0
        assert metered.busy_s == 4.0 + 1.0 + 2.0
        assert first.result() is COMPLETION
        assert metered.version == 4
        await metered.release(Session("g", "a"))
        await metered.close()
        assert (engine.released, engine.closed) == ([Session("g", "a")], True)

    asyncio.run(run())
