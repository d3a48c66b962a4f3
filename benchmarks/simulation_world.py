"""Real runs whose engine, trainer and tools take known seconds, for `simulation.py`.

Phases, pipeline, gate, groups in flight, journal, stores and ledger are those of every run. The engine makes real steps
for all its requests together, one token each, and the trainer real ones, but both sleep instead of computing, so that
their times depend on neither the machine nor its load. The tokens of a reply and the wait of a tool follow from draw,
member and turn alone."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from pipeline_world import (
    Pace,
    WorldEngine,
    WorldEnvironment,
    WorldFamily,
    WorldRun,
    WorldTrainer,
    hash_numbers,
    make_config,
    make_tokenizer,
)

from turnwise.config.load import dump_resolved
from turnwise.core.batch import Receipt, StepReport, TrainingBatch
from turnwise.core.metrics import Sum
from turnwise.core.protocols import Interrupt, StepResult
from turnwise.core.seeds import rng
from turnwise.core.types import (
    Completion,
    FinishReason,
    IntArray,
    Message,
    SamplingParams,
    Session,
    Task,
    to_floats,
    to_ids,
)
from turnwise.forecast.simulation.work import Spread
from turnwise.rendering.tags import TagRenderer
from turnwise.reporting.console import Display
from turnwise.rollout.meter import MeteredEngine
from turnwise.runs.build import System
from turnwise.store.run_folder import RunFolder
from turnwise.sync.publication import EngineGroup

STEP_S, TOKEN_S = 0.03, 0.0005
"""Seconds of an engine step, and of each token that it samples or computes."""
TRAIN_S, TRAIN_TOKEN_S = 0.2, 0.0001
"""Seconds of a trainer step, and of each token of its trajectories."""
PUBLISH_S = 0.1
WORDS_OF_A_REPLY = 10
"""Maximum number of words in a reply, besides its tags."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request of the engine."""

    computed: int
    """Number of context tokens that the next step computes."""
    ids: list[int]
    """Token ids to be sampled."""
    done: asyncio.Future[None]
    num_sampled: int = 0
    versions: list[int] = field(default_factory=list)


class PacedEngine(WorldEngine):
    """An engine whose requests share steps of `STEP_S`, plus `TOKEN_S` per token."""

    def __init__(self) -> None:
        super().__init__(Pace())
        self._requests: list[Asked] = []
        self._cached: dict[Session, tuple[int, int]] = {}
        """Length and weight version of each session's context."""
        self._steps: asyncio.Task[None] | None = None
        self._is_stepping = asyncio.Lock()

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`. The tokens follow from `params.seed`."""
        length, version = self._cached.get(session, (0, self.version))
        known = length if version == self.version else 0
        asked = Asked(len(prompt_ids) - known, self._write(params), asyncio.get_running_loop().create_future())
        self._requests.append(asked)
        if self._steps is None or self._steps.done():
            self._steps = asyncio.create_task(self._make_steps())
        try:
            await asked.done
        finally:
            if asked in self._requests:
                self._requests.remove(asked)
        self._cached[session] = len(prompt_ids) + len(asked.ids), self.version
        return Completion(
            token_ids=to_ids(asked.ids),
            logprobs=to_floats([-1.0] * len(asked.ids)),
            finish_reason=FinishReason.STOP,
            version_first=asked.versions[0],
            version_last=asked.versions[-1],
            versions=to_ids(asked.versions),
        )

    def _write(self, params: SamplingParams) -> list[int]:
        """Write a search with chance 2/3, else an answer, of 1 to `WORDS_OF_A_REPLY` words."""
        tags = self._tokenizer.get_added_vocab()
        kind = "search" if params.seed % 3 else "answer"
        words = [self._words[hash_numbers(params.seed, k) % len(self._words)] for k in range(WORDS_OF_A_REPLY)]
        return [tags[f"<{kind}>"], *words[: 1 + params.seed // 3 % WORDS_OF_A_REPLY], tags[f"</{kind}>"]]

    async def _make_steps(self) -> None:
        """Make steps while there are requests. A step starts when the one before was due to end, so that no lag
        accumulates."""
        due = time.perf_counter()
        while self._requests:
            await self._going.wait()
            async with self._is_stepping:
                batch = [*self._requests]
                due += STEP_S + TOKEN_S * sum(1 + asked.computed for asked in batch)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                for asked in batch:
                    asked.computed = 0
                    asked.num_sampled += 1
                    asked.versions.append(self.version)
                    if asked.num_sampled == len(asked.ids) and not asked.done.done():
                        self._requests.remove(asked)
                        asked.done.set_result(None)
            if not self._going.is_set():
                await self._going.wait()
                due = time.perf_counter()
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # sessions that were answered may ask again

    async def pause(self, interrupt: Interrupt) -> int:
        """Stop at the end of the step."""
        self._going.clear()
        async with self._is_stepping:
            return 0

    async def adopt(self, version: int) -> Mapping[str, int]:
        """Compute the contexts of replies under way again."""
        for asked in self._requests:
            asked.computed += asked.num_sampled
        return await super().adopt(version)


class PacedTrainer(WorldTrainer):
    """A trainer whose step takes `TRAIN_S`, plus `TRAIN_TOKEN_S` per token."""

    def step(self, batch: TrainingBatch) -> StepReport:
        """See `Trainer.step`."""
        began = time.perf_counter()
        report = super().step(batch)
        tokens = sum(len(sample.token_ids) for sample in batch.samples)
        time.sleep(max(0.0, TRAIN_S + TRAIN_TOKEN_S * tokens - (time.perf_counter() - began)))
        return replace(report, metrics={**report.metrics, "train/tokens": Sum(tokens)})


class PacedSync:
    """A publication that takes `PUBLISH_S`. Implements `core.protocols.WeightSync`."""

    def __init__(self, trainer: PacedTrainer, engine: PacedEngine) -> None:
        self._trainer, self._engine = trainer, engine
        self._engines = EngineGroup({"engine": engine}, deadline_s=60.0)

    async def publish(self, version: int) -> Receipt:
        """Pause, copy, adopt and resume."""
        await self._engines.pause("continue", version)
        await asyncio.sleep(PUBLISH_S)
        self._engine.weights = {name: array.copy() for name, array in self._trainer.weights.items()}
        sums = await self._engines.adopt(version)
        await self._engines.resume(version)
        return Receipt(version=version, sums=sums, seconds=PUBLISH_S)


class PacedEnvironment(WorldEnvironment):
    """An environment whose searches wait for as long as `waits` says."""

    def __init__(self, family: WorldFamily, task: Task, waits_s: list[float]) -> None:
        super().__init__(family, task)
        self._waits_s = waits_s

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`."""
        if message.tool_calls:
            await asyncio.sleep(self._waits_s.pop(0))
        return await super().step(message)


@dataclass(slots=True, kw_only=True)
class PacedFamily(WorldFamily):
    """`WorldFamily` with slow searches."""

    tool_s: Spread
    num_attempts: dict[int, int] = field(default_factory=dict)

    def build_environment(self, task: Task) -> WorldEnvironment:
        """See `EnvironmentFamily.build_environment`. Members start in order, so an attempt's number is its member's."""
        index = int(task.payload["index"])
        member = self.num_attempts[index] = self.num_attempts.get(index, -1) + 1
        return PacedEnvironment(self, task, draw_waits(self.tool_s, index, member))


def draw_waits(tool_s: Spread, task: int, member: int) -> list[float]:
    """Seconds of the searches of a task's member, in order; equal in every run."""
    random = rng("paced", task, member)
    return [tool_s.at(random.gauss(0.0, 1.0)) for _ in range(8)]


def train(path: Path, tool_s: Spread, sections: dict[str, dict[str, Any]]) -> None:
    """Make one run from start to end, in a new folder."""
    config = make_config(**sections)
    folder = RunFolder.create(path)
    folder.write_json("config.json", dump_resolved(config))
    asyncio.run(_train(folder, PacedFamily(tool_s=tool_s, pace=Pace(environment_s=0.0)), config))


async def _train(folder: RunFolder, family: PacedFamily, config: Any) -> None:
    engine, trainer, tokenizer = PacedEngine(), PacedTrainer(Pace(step_s=0.0)), make_tokenizer()
    model = cast(Any, SimpleNamespace(device=torch.device("cpu")))
    renderer = TagRenderer(tokenizer)
    system = System(
        config=config,
        family=family,
        tokenizer=tokenizer,
        renderer=renderer,
        model=model,
        served=model,
        engine=MeteredEngine(engine),
    )
    show = Display(total_steps=config.train.steps, title="paced", enabled=False)
    await WorldRun(system, folder, show, trainer=trainer, sync=PacedSync(trainer, engine)).run()
