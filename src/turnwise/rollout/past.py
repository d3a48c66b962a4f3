"""Snapshots of the run's own policy that speak for a role, and the engines that hold a few of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from turnwise.algorithms.opponents import Choice, Standings, choose_snapshot, list_snapshots
from turnwise.core.errors import EngineError, boundary
from turnwise.core.protocols import Engine, Renderer
from turnwise.core.types import Completion, SamplingParams, Scored, Session, Task, TrajectoryGroup
from turnwise.rollout.attempt import Attempt
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.policies import EnginePolicy, RolePolicy

MAX_PAST = 4
"""Snapshots of a run in memory at once that play a role. A reply of one more waits until one of them is idle."""


@dataclass(slots=True, kw_only=True)
class _Loaded:
    engine: Engine
    num_open: int = 0


@dataclass(slots=True, eq=False)
class SnapshotPool:
    """Engines on checkpoints of a run, opened on first use."""

    load_engine: Callable[[Path], Engine]
    run: Path | None = None
    """The run folder; None before there is one."""
    roles: tuple[str, ...] = ()
    """Roles that snapshots play."""
    standings: Standings = field(default_factory=Standings)
    _loaded: dict[int, _Loaded] = field(default_factory=dict)
    """Loaded snapshots by step, the most recently used last."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def open(self, snapshot: int) -> AsyncIterator[Engine]:
        """Open the engine of a snapshot, which stays loaded while it is used. Raises EngineError if there is no such
        snapshot."""
        async with self._changed:
            await self._changed.wait_for(lambda: snapshot in self._loaded or self._find_idle() is not None)
            if snapshot not in self._loaded:
                await self._load(snapshot)
            used = self._loaded[snapshot] = self._loaded.pop(snapshot)
            used.num_open += 1
        try:
            yield used.engine
        finally:
            used.num_open -= 1
            async with self._changed:
                self._changed.notify_all()

    def _find_idle(self) -> int | None:
        """Return the step of a snapshot that may be unloaded for another: -1 if there is a free place, None if all are
        in use."""
        if len(self._loaded) < MAX_PAST:
            return -1
        return next((step for step, loaded in self._loaded.items() if not loaded.num_open), None)

    async def _load(self, snapshot: int) -> None:
        folder = Path() if self.run is None else self.run / "checkpoints" / f"step_{snapshot:06d}"
        if self.run is None or not folder.is_dir():
            raise EngineError(
                f"there is no checkpoint {folder} for a role bound to the run's past; restore it from a copy"
            )
        idle = self._find_idle()
        if idle is not None and idle in self._loaded:
            await self._loaded.pop(idle).engine.close()
        with boundary(EngineError, f"loading {folder}"):
            self._loaded[snapshot] = _Loaded(engine=await asyncio.to_thread(self.load_engine, folder))

    async def release(self, snapshot: int, session: Session) -> None:
        """Free a session's cache if the snapshot is still loaded."""
        if snapshot in self._loaded:
            await self._loaded[snapshot].engine.release(session)

    async def close(self) -> None:
        """Close every engine."""
        while self._loaded:
            _, loaded = self._loaded.popitem()
            await loaded.engine.close()

    def count(self, groups: Iterable[TrajectoryGroup]) -> None:
        """Record how the roles that learn fared against snapshots, episode by episode in the order of draws.

        An episode is lost if a role that learns has less reward than the snapshot, and half lost if both have the same.
        """
        for group in sorted(groups, key=lambda group: group.draw.index):
            scored = [(t, t.reward.total) for t in group.trajectories if isinstance(t.reward, Scored)]
            for past, reward in scored:
                if past.id.role not in self.roles or not past.turns:
                    continue
                snapshot = past.turns[0].completion.version_first
                for rival, rival_reward in scored:
                    if rival.learns and rival.id.member == past.id.member:
                        lost = 1.0 if rival_reward < reward else 0.5 if rival_reward == reward else 0.0
                        self.standings.count(snapshot, lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPolicy:
    """Implements `RolePolicy`: in each draw one snapshot of the run's past, the same for all its members.

    An evaluation plays against the starting weights, so that evaluations can be compared.
    """

    pool: SnapshotPool
    renderer: Renderer
    choice: Choice
    every: int
    """Steps between two snapshots."""
    seed: int
    role: str
    snapshot: int | None = None
    """The snapshot that speaks; None before it is drawn."""
    learns: bool = False

    def of(self, attempt: Attempt) -> RolePolicy:
        """Draw the snapshot for an attempt: a function of the seed, the draw, the weights that opened it and the
        standings."""
        version = 0 if attempt.scope == "evaluate" else attempt.version
        snapshots = list_snapshots(version, self.every)
        chosen = choose_snapshot(self.choice, snapshots, self.pool.standings, self.seed, self.role, attempt.draw.index)
        return replace(self, snapshot=chosen)

    async def reply(
        self, task: Task, conversation: Conversation, params: SamplingParams, session: Session
    ) -> Completion:
        """See `Engine.generate`; the tokens carry the snapshot's step as their version."""
        assert self.snapshot is not None
        async with self.pool.open(self.snapshot) as engine:
            completion = await EnginePolicy(engine=engine, renderer=self.renderer).reply(
                task, conversation, params, session
            )
        return replace(completion, version_first=self.snapshot, version_last=self.snapshot, versions=None)

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        if self.snapshot is not None:
            await self.pool.release(self.snapshot, session)

    async def close(self) -> None:
        """Close the snapshots' engines."""
        await self.pool.close()
