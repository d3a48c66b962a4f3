"""A run without a model: the real phases, pipeline, journal, stores, ledger and audit around an engine, a trainer and
an environment that take milliseconds.

Every number is a function of what it is for. A token follows from the weights, the prompt, the seed and its place, and
its log-probability from the weights, the prefix and the token, so an audit can score it again. A step changes the
weights by everything that reaches the trainer, in order: two runs that end with the same weights trained on the same
numbers. Delays are random and change nothing.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.audit.materials import AuditMaterials
from turnwise.audit.pictures import FixedPictures
from turnwise.building.audited import read_audit_settings
from turnwise.building.curriculum import build_curriculum
from turnwise.config.load import dump_resolved
from turnwise.config.roles import list_learners
from turnwise.config.run import RunConfig
from turnwise.core.batch import Columns, Receipt, StepReport, TrainingBatch, Wanted
from turnwise.core.metrics import Sum
from turnwise.core.protocols import Interrupt, Opening, ScriptedPolicy, Split, StepResult
from turnwise.core.types import (
    Completion,
    FinishReason,
    IntArray,
    Message,
    Reward,
    RewardPart,
    Sample,
    SamplingParams,
    Scored,
    Session,
    StopReason,
    Task,
    ToolRecord,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.models.checksums import join_sums
from turnwise.pictures.store import open_pictures
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.reporting.console import Display
from turnwise.rollout.meter import MeteredEngine
from turnwise.rollout.past import SnapshotPool
from turnwise.runs.build import NamedLearner, System
from turnwise.runs.data_files import list_data_files
from turnwise.runs.roles import bind_roles, read_bindings
from turnwise.runs.sft import first_rl_task
from turnwise.runs.train import Run
from turnwise.store.checkpoint_folder import policy_folder
from turnwise.store.journal import JournalState, read_journal
from turnwise.store.run_folder import RunFolder
from turnwise.sync.publication import EngineGroup
from turnwise.sync.several import SyncOfSeveral

Weights = dict[str, NDArray[np.float64]]

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa"


def hash_numbers(*numbers: int) -> int:
    """A 32-bit number that follows from some 64-bit ones."""
    return zlib.crc32(struct.pack(f"{len(numbers)}q", *numbers))


def extend_hash(prefix: int, token: int) -> int:
    """The hash of a prefix with one more token."""
    return zlib.crc32(struct.pack("i", token), prefix)


def fingerprint(weights: Weights) -> int:
    """One number for all weights."""
    return hash_numbers(*sum_weights(weights).values())


def sum_weights(weights: Weights) -> dict[str, int]:
    """One checksum per array."""
    return {name: zlib.crc32(array.tobytes()) for name, array in weights.items()}


def score_token(weights: int, prefix: int, token: int) -> float:
    """Log-probability of a token after a prefix under weights of this fingerprint."""
    return -0.1 - hash_numbers(weights, prefix, token) % 1000 / 500


def score_sample(weights: Weights, sample: Sample) -> NDArray[np.float32]:
    """`[K]` log-probabilities of the trained tokens."""
    name, prefix, scores = fingerprint(weights), 0, []
    for token, trains in zip(sample.token_ids.tolist(), sample.loss_mask.tolist(), strict=True):
        if trains:
            scores.append(score_token(name, prefix, token))
        prefix = extend_hash(prefix, token)
    return np.array(scores, np.float32)


@lru_cache(maxsize=1)
def make_tokenizer() -> PreTrainedTokenizerBase:
    """Tags and words of one token each."""
    return train_tokenizer([f"{WORDS} task " * 20], vocab_size=340, special_tokens=TAG_SPECIAL_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take, in seconds: the longest, drawn evenly from 0."""

    seed: int = 0
    token_s: float = 0.0002
    environment_s: float = 0.002
    step_s: float = 0.002


class WorldEngine:
    """Implements `core.protocols.PausableEngine`."""

    def __init__(self, pace: Pace) -> None:
        self.weights: Weights = {}
        self.version = 0
        self.sessions: list[Session] = []
        """Of every request, in order."""
        self._tokenizer = make_tokenizer()
        self._words = [self._tokenizer.encode(f" {word}")[0] for word in WORDS.split()]
        self._going = asyncio.Event()
        self._going.set()
        self._pace, self._random = pace, Random(pace.seed)

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """A search or an answer of one to four words."""
        self.sessions.append(session)
        prefix = 0
        for token in prompt_ids.tolist():
            prefix = extend_hash(prefix, token)
        ids: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        while len(ids) < params.max_tokens and not (ids and ids[-1] in params.stop_token_ids):
            await asyncio.sleep(self._random.uniform(0, self._pace.token_s))
            await self._going.wait()
            name = fingerprint(self.weights)
            token = self._choose(hash_numbers(name, prefix, params.seed, len(ids)), ids)
            ids.append(token)
            logprobs.append(score_token(name, prefix, token))
            versions.append(self.version)
            prefix = extend_hash(prefix, token)
        return Completion(
            token_ids=to_ids(ids),
            logprobs=to_floats(logprobs),
            finish_reason=FinishReason.STOP if ids[-1] in params.stop_token_ids else FinishReason.LENGTH,
            version_first=versions[0],
            version_last=versions[-1],
            versions=to_ids(versions),
        )

    def _choose(self, number: int, ids: Sequence[int]) -> int:
        tags = self._tokenizer.get_added_vocab()
        if not ids:
            return int(tags["<search>" if number % 3 == 0 else "<answer>"])
        if len(ids) > 4 or (len(ids) > 1 and number % 2):
            return int(tags["</search>" if ids[0] == tags["<search>"] else "</answer>"])
        return self._words[number // 2 % len(self._words)]

    async def release(self, session: Session) -> None:
        """Nothing to free."""

    async def close(self) -> None:
        """Nothing to free."""

    async def pause(self, interrupt: Interrupt) -> int:
        """Stop before the next token."""
        self._going.clear()
        return 0

    async def adopt(self, version: int) -> Mapping[str, int]:
        """Later tokens carry `version`."""
        self.version = version
        return sum_weights(self.weights)

    async def resume(self) -> None:
        """Go on."""
        self._going.set()


class WorldTrainer:
    """Implements `core.protocols.RememberingTrainer`."""

    def __init__(self, pace: Pace, *, start: float = 0.0) -> None:
        self.weights: Weights = {"first": start + np.arange(3.0), "second": np.ones(2)}
        self.momentum: Weights = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self.optimizer_steps = 0
        self.is_busy = False
        self._pace, self._random = pace, Random(pace.seed + 1)

    def score(
        self, samples: Sequence[Sample], wanted: frozenset[Wanted], *, outcomes: Sequence[float] | None = None
    ) -> Columns:
        """Log-probabilities of the present weights for every column."""
        scores = tuple(score_sample(self.weights, sample) for sample in samples)
        columns: dict[str, Any] = dict.fromkeys(wanted, scores)
        return Columns(**columns)

    def step(self, batch: TrainingBatch) -> StepReport:
        """Each sample of each update moves the weights; so do their order and the columns."""
        self.is_busy = True
        time.sleep(self._random.uniform(0, self._pace.step_s))
        columns = [column for column in (batch.columns.old_logprobs, batch.columns.policy_logprobs) if column]
        for update in batch.updates:
            for index in update:
                sample = batch.samples[index]
                arrays = [sample.token_ids, sample.advantages, sample.behavior_logprobs, sample.loss_mask]
                arrays += [column[index] for column in columns]
                number = zlib.crc32(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
                for place, name in enumerate(self.weights):
                    push = np.sin(number % 1000 + place + np.arange(len(self.weights[name])))
                    self.momentum[name] = 0.9 * self.momentum[name] + push
                    self.weights[name] = self.weights[name] + 0.01 * self.momentum[name]
            self.optimizer_steps += 1
        self.is_busy = False
        return StepReport(
            metrics={"train/samples": Sum(len(batch.samples))},
            optimizer_steps=self.optimizer_steps,
            sums=sum_weights(self.weights),
        )

    def remember(self) -> Callable[[], None]:
        """Arrays are replaced and never changed, so the tables are enough."""
        kept = dict(self.weights), dict(self.momentum), self.optimizer_steps

        def put_back() -> None:
            self.weights, self.momentum, self.optimizer_steps = kept

        return put_back

    def save(self, folder: Path, counters: Mapping[str, Any]) -> None:
        """One JSON file; floats keep every bit."""
        state = {
            "weights": {name: array.tolist() for name, array in self.weights.items()},
            "momentum": {name: array.tolist() for name, array in self.momentum.items()},
            "counters": {**counters, "optimizer_steps": self.optimizer_steps},
        }
        (folder / "state.json").write_text(json.dumps(state))

    def load(self, folder: Path) -> Mapping[str, Any]:
        """The inverse of `save`."""
        state = json.loads((folder / "state.json").read_text())
        self.weights = {name: np.array(values) for name, values in state["weights"].items()}
        self.momentum = {name: np.array(values) for name, values in state["momentum"].items()}
        self.optimizer_steps = int(state["counters"]["optimizer_steps"])
        return cast(Mapping[str, Any], state["counters"])


class WorldSync:
    """Implements `core.protocols.WeightSync` by a copy."""

    def __init__(self, trainer: WorldTrainer, engine: WorldEngine) -> None:
        self._trainer, self._engine = trainer, engine
        self._engines = EngineGroup({"engine": engine}, deadline_s=10.0)

    async def publish(self, version: int) -> Receipt:
        """Stop, copy, adopt, go on."""
        assert not self._trainer.is_busy
        await self._engines.pause("continue", version)
        self._engine.weights = {name: array.copy() for name, array in self._trainer.weights.items()}
        sums = await self._engines.adopt(version)
        await self._engines.resume(version)
        return Receipt(version=version, sums=sums, seconds=0.0)


class WorldEnvironment:
    """Answers searches with their query; the reward follows from task and replies. Implements `Environment`."""

    scores_from_records = True

    def __init__(self, family: WorldFamily, task: Task) -> None:
        self.tool_records: list[ToolRecord] = []
        self._family, self._task = family, task

    async def reset(self, task: Task, seed: int) -> Opening:
        """The prompt."""
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """Done unless the reply is a search."""
        await asyncio.sleep(self._family.random.uniform(0, self._family.pace.environment_s))
        self._family.misbehave(self._task)
        if not message.tool_calls:
            return StepResult(observations=(), done=True)
        call = message.tool_calls[0]
        text = f"{call.arguments.count('a')} of task {self._task.payload['index']}"
        self.tool_records.append(ToolRecord(call=call, observation=text, error=None, seconds=0.0))
        observation = text_message("tool", text, tool_call_id=call.id, name=call.name)
        return StepResult(observations=(observation,), done=False, tool_records=(self.tool_records[-1],))

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """0 or 1."""
        number = zlib.crc32("|".join([self._task.id, *(reply.text for reply in replies)]).encode())
        total = float(number % 100 < 100 * self._family.success)
        return Scored(total=total, parts=(RewardPart(name="success", value=total),))

    async def close(self) -> None:
        """Nothing to free."""


@dataclass(slots=True, kw_only=True)
class WorldFamily:
    """Tasks by number. Implements `EnvironmentFamily`."""

    pace: Pace = field(default_factory=Pace)
    num_tasks: int = 10_000
    success: float = 0.5
    """Share of attempts with reward 1; at 0 and 1 no group teaches anything."""
    misbehave: Callable[[Task], None] = lambda task: None
    """Called at every step of every environment; may raise."""
    random: Random = field(default_factory=Random)

    def task(self, split: Split, index: int) -> Task:
        """Task `index`."""
        if index >= self.num_tasks:
            raise IndexError(index)
        prompt = (text_message("user", f"task {index} {split}"),)
        return Task(environment="world", prompt=prompt, payload={"index": index})

    def build_environment(self, task: Task) -> WorldEnvironment:
        """One episode."""
        return WorldEnvironment(self, task)

    def policy(self, name: str) -> ScriptedPolicy:
        """There is none."""
        raise NotImplementedError

    def texts(self, count: int) -> Sequence[str]:
        """Words."""
        return [WORDS] * count


def make_config(**sections: dict[str, Any]) -> RunConfig:
    """A recipe of 4 steps of 2 groups of 2; `sections` are laid over it."""
    plain: dict[str, dict[str, Any]] = {
        "run": {"name": "world", "seed": 3},
        "rollout": {"tasks_per_step": 2, "group_size": 2, "max_turns": 3, "max_turn_tokens": 8, "max_tokens": 120},
        "train": {"steps": 4, "checkpoint_every": 2, "num_threads": 1, "micro_batch_tokens": 64},
        "evaluate": {"tasks": 0},
        "engine": {"max_concurrency": 64},
        "credit": {"method": "grpo"},
    }
    names = plain.keys() | sections.keys()
    return RunConfig.model_validate({name: {**plain.get(name, {}), **sections.get(name, {})} for name in names})


class WorldRun(Run):
    """A run whose sampler and trainer are compared by the audit instead of a parity gate."""

    async def _check_parity(self, step: int) -> None:
        pass


@dataclass(kw_only=True)
class World:
    """One run folder and what its processes are made of."""

    path: Path
    config: RunConfig
    pace: Pace = field(default_factory=Pace)
    family: Any = field(default_factory=WorldFamily)
    """A `WorldFamily`, or one like it with `pace` and `random`."""
    run_class: type[Run] = WorldRun
    engine: WorldEngine = field(init=False)
    """Of the last process."""
    trainer: WorldTrainer = field(init=False)
    other_engines: dict[str, WorldEngine] = field(init=False)
    """Of further learners, by name."""
    other_trainers: dict[str, WorldTrainer] = field(init=False)
    loaded: list[str] = field(default_factory=list)
    """Checkpoints that an engine was opened on."""

    def __post_init__(self) -> None:
        if not self.path.exists():
            RunFolder.create(self.path).write_json("config.json", dump_resolved(self.config))

    def live(self) -> None:
        """The life of one process: start or continue the run until its end, or until something is raised."""
        asyncio.run(self._live(RunFolder.open(self.path)))

    async def _live(self, folder: RunFolder) -> None:
        self.engine, self.trainer = WorldEngine(self.pace), WorldTrainer(self.pace)
        names = list_learners(self.config.roles)
        self.other_engines = {name: WorldEngine(self.pace) for name in names}
        self.other_trainers = {name: WorldTrainer(self.pace, start=len(name)) for name in names}
        self.family.pace, self.family.random = self.pace, Random(self.pace.seed + 2)
        tokenizer = make_tokenizer()
        model = cast(Any, SimpleNamespace(device=torch.device("cpu")))
        past = SnapshotPool(self.load_engine)
        policies = bind_roles(
            self.config,
            read_bindings(self.config, self.family),
            self.family,
            TagRenderer(tokenizer),
            engines={"": self.engine, **self.other_engines},
            load_engine=self.load_engine,
            past=past,
        )
        system = System(
            config=self.config,
            family=self.family,
            tokenizer=tokenizer,
            renderer=TagRenderer(tokenizer),
            model=model,
            served=model,
            engine=MeteredEngine(self.engine),
            policies=policies,
            others={name: NamedLearner(model=model, engine=engine) for name, engine in self.other_engines.items()},
            past=past if past.roles else None,
        )
        show = Display(total_steps=self.config.train.steps, title="world", enabled=False)
        syncs = {name: WorldSync(self.other_trainers[name], self.other_engines[name]) for name in names}
        run = self.run_class(
            system,
            folder,
            show,
            trainer=self.trainer,
            others=self.other_trainers,
            sync=SyncOfSeveral({"": WorldSync(self.trainer, self.engine), **syncs}),
        )
        await run.run()

    def load_engine(self, path: Path) -> WorldEngine:
        """An engine on a checkpoint of such a run."""
        engine, trainer = WorldEngine(self.pace), WorldTrainer(self.pace)
        trainer.load(path)
        engine.weights = trainer.weights
        self.loaded.append(path.name)
        return engine

    @property
    def journal(self) -> JournalState:
        """What the journal says."""
        return read_journal(self.path)

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a file of the run folder."""
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]

    def sums(self) -> dict[int, Mapping[str, int]]:
        """Checksums by trained step."""
        return {step: dict(trained.sums) for step, trained in self.journal.trained.items()}

    def sampled_draws(self) -> set[int]:
        """Draws of which the last process sampled tokens to train on."""
        groups = (session.group.split("/") for session in self.engine.sessions)
        return {int(draw) for scope, draw in groups if scope == "train"}

    def audit(self) -> AuditReport:
        """Everything is checked, tools and log-probabilities included."""
        config = self.config

        def load(path: Path) -> Weights:
            trainer = WorldTrainer(self.pace)
            trainer.load(path)
            return trainer.weights

        materials = AuditMaterials(
            settings=read_audit_settings(config),
            family=self.family,
            data_files=list_data_files(self.family),
            pictures=FixedPictures(open_pictures(self.path)),
            renderer=TagRenderer(make_tokenizer()),
            score=lambda path, samples: [score_sample(load(path), sample) for sample in samples],
            score_exact=lambda path, samples: [score_sample(load(path), sample) for sample in samples],
            sum_weights=lambda path: join_sums(
                {name: sum_weights(load(policy_folder(path, name))) for name in ("", *list_learners(config.roles))}
            ),
            num_started=config.rollout.group_size + config.schedule.overdraw,
            max_staleness=config.schedule.max_staleness,
            cuts_late=config.schedule.late == "cut",
            build_curriculum=lambda: build_curriculum(config),
            first_task=first_rl_task(config),
        )
        return run_audit(self.path, materials, replay_tools=True)


METRIC_TIMES = ("time", "seconds", "_per_s")


def read_story(world: World) -> dict[str, Any]:
    """Metrics without timings, ledger and checksums: what must be equal between runs that differ in timing alone."""
    metrics = [
        {
            name: value
            for name, value in row.items()
            if not name.endswith(METRIC_TIMES) and not name.startswith("schedule/")
        }
        for row in world.read_lines("metrics.jsonl")
    ]
    return {"metrics": metrics, "ledger": world.read_lines("ledger.jsonl"), "sums": world.sums()}
