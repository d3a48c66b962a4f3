"""Rollout processes as the training process sees them: they play attempts, and adopt the weights that are published.

The samples of an episode depend only on its attempt and the weights, so they are bit for bit the same in any process,
with an engine that guarantees this. A process that ends takes its episodes with it: they come back as failed attempts,
which are repeated, and a new process takes its place."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from turnwise.core.checked import to_asking
from turnwise.core.closing import CLOSE_S, close_environment
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import EngineError
from turnwise.core.judging import Slot
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import Environment, Interrupt
from turnwise.core.types import Episode, Invalid, Session, StopReason, Trajectory
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.pool import WorkerPool
from turnwise.models.checksums import find_difference
from turnwise.models.staging import Staged, Staging
from turnwise.remote.episodes import decode_episode, encode_attempt
from turnwise.remote.judges import answer_question
from turnwise.rollout.attempt import Attempt
from turnwise.rollout.loop import Cut, absorb_cut, cut_reward
from turnwise.rollout.meter import Meter
from turnwise.rollout.workers import RolloutWorker

StartProcess = Callable[[str, Path, int], Awaitable[Link]]
"""Starts the process with a name on the weights of a version in a folder, and waits until it is ready."""


class RolloutPool(Meter):
    """Plays attempts in separate processes. Belongs to the event loop that first uses it.

    Weights are published to it as to a `PausableEngine`: `pause`, `adopt`, `resume`."""

    def __init__(
        self, model: PreTrainedModel, start: StartProcess, *, num_workers: int, max_open: int, pictures: Pictures
    ) -> None:
        """Processes sample with the parameters of `model` as they were at the last `adopt`; each plays up to `max_open`
        attempts at once before another is preferred. They start with the first attempt, and read and keep pictures in
        the same store as `pictures`.

        Raises EngineError if weights cannot be staged.
        """
        super().__init__()
        self._version = 0
        self._model = model
        self._start_process = start
        self._pictures = pictures
        self._staging = Staging(None)
        weakref.finalize(self, self._staging.remove)
        self._staged: Staged | None = None
        self._lock = asyncio.Lock()
        self._pool = WorkerPool(self._start, num_workers=num_workers, max_open=max_open, name="rollout process")
        weakref.finalize(self, self._pool.kill)

    @property
    def version(self) -> int:
        """See `Engine.version`."""
        return self._version

    @property
    def folder(self) -> Path:
        """Folder where weights are staged, and where processes write their output."""
        return self._staging.root

    def pids(self) -> list[int]:
        """Process ids of the running processes."""
        return self._pool.pids()

    async def play(
        self, worker: RolloutWorker, attempt: Attempt, cut: Cut | None, slot: Slot | None, *, changes: Mapping[str, Any]
    ) -> Episode:
        """The episode of an attempt, as from `RolloutWorker.run_attempt`, in an environment with these `changes` to its
        arguments. What it asks judges is answered here. If its process ends, the episode has no turns and Invalid
        rewards that say so."""
        async with self._lock:
            if self._staged is None:
                self._staged = await asyncio.to_thread(self._staging.write, self._model)
                self._pool.remember(self.version, self._staged.folder)
        key = attempt.session()
        sampling = {name: getattr(worker.sampling, name) for name in ("temperature", "seed", "top_p", "top_k", "min_p")}
        fields = {
            "attempt": encode_attempt(attempt, self._pictures),
            "limits": asdict(worker.limits),
            "sampling": sampling,
            "is_guided": worker.sampling.build_grammar is not None,
            "is_branched": worker.branching is not None,
            "changes": dict(changes),
            "key": str(key),
        }
        judging: set[asyncio.Task[None]] = set()

        async def judge(link: Link, number: int, question: Mapping[str, Any]) -> None:
            verdict = await answer_question(question["judgement"], worker.judges, slot)
            link.tell("verdict", request=number, number=question["number"], judgement=verdict)

        def hear(link: Link, number: int, question: Mapping[str, Any]) -> None:
            task = asyncio.create_task(judge(link, number, question))
            judging.add(task)
            task.add_done_callback(judging.discard)

        asking = asyncio.ensure_future(self._pool.ask_one("play", fields, key, hear))
        try:
            answer = await self._wait(asking, key, cut)
            return decode_episode(answer, attempt)
        except EngineError as error:
            if cut is not None and cut.reason is not None:
                return await _without_turns(worker, attempt, StopReason.CUT, cut_reward(), None)
            text = f"{type(error).__name__}: {error}"
            return await _without_turns(worker, attempt, StopReason.ERROR, Invalid(reason=text, retryable=True), text)
        finally:
            self._pool.release(key)
            for task in judging:
                task.cancel()

    async def _wait(self, asking: asyncio.Future[Any], key: Session, cut: Cut | None) -> Any:
        """The answer of a process; if the task is cancelled for a cut, what the process has so far."""
        while True:
            try:
                return await asyncio.shield(asking)
            except asyncio.CancelledError:
                if not absorb_cut(cut):
                    asking.cancel()
                    await asyncio.wait({asking}, timeout=CLOSE_S)
                    raise
                assert cut is not None
                assert cut.reason is not None
                link = self._pool.find(key)
                if link is None:  # its process has not started yet
                    asking.cancel()
                    raise EngineError("cancelled before it started") from None
                link.tell("cut", key=str(key), reason=cut.reason.value)

    async def pause(self, interrupt: Interrupt = "continue") -> int:
        """See `PausableEngine.pause`."""
        return await self._pool.pause(interrupt)

    async def adopt(self, version: int) -> Mapping[str, int]:
        """See `PausableEngine.adopt`. Raises EngineError naming the tensor that a process read or holds differently."""
        async with self._lock:
            staged = await asyncio.to_thread(self._staging.write, self._model)
            _compare(await self._pool.ask_all("stage", folder=staged.folder), staged, f"read for version {version}")
            self._staged, self._version = staged, version
            self._pool.remember(version, staged.folder)
            answers = await self._pool.ask_all("adopt", folder=staged.folder, version=version)
            _compare(answers, staged, f"holds in version {version}")
            return staged.sums

    async def resume(self) -> None:
        """See `PausableEngine.resume`."""
        await self._pool.resume()

    async def close(self) -> None:
        """End all processes; their episodes are lost."""
        await self._pool.close()
        self._staging.remove()

    async def _start(self, name: str) -> Link:
        assert self._staged is not None
        link = await self._start_process(name, self._staged.folder, self.version)
        link.hear_statistics = self._count_open
        return link

    def _count_open(self) -> None:
        """Record what processes report as sampled."""
        statistics = self._pool.statistics()
        self.open_sessions = Counter(Session(*each) for counts in statistics for each in counts["sessions"])
        self.num_replies = sum(int(counts["num_replies"]) for counts in statistics)
        self.look()


def _compare(answers: list[tuple[Link, Mapping[str, int]]], staged: Staged, what: str) -> None:
    for link, sums in answers:
        tensor = find_difference(staged.sums, sums)
        if tensor is not None:
            raise EngineError(f"{link.name}: the {tensor} that it {what} differs from the trainer's")


async def _without_turns(
    worker: RolloutWorker, attempt: Attempt, stop: StopReason, reward: Invalid, error: str | None
) -> Episode:
    """An empty episode, for one that did not come back."""
    environment: Environment | AskingEnvironment = worker.build_environment(attempt.task)
    roles = to_asking(environment).spec.roles
    await close_environment(environment)
    trajectories = [
        Trajectory(
            id=replace(attempt.id, role=role.name),
            task_id=attempt.task.id,
            turns=(),
            stop=stop,
            reward=reward,
            error=error,
            compare=role.compare,
            learns=worker.policies[role.name].learns if role.name in worker.policies else True,
        )
        for role in roles
    ]
    return Episode(draw=attempt.draw, member=attempt.member, trajectories=tuple(trajectories), stop=stop)
