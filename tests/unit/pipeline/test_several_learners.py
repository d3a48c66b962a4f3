"""Two learners in one run: each trains on its own roles only, and the books, the disk and the audit say so."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asking_worlds import Wanderer, WandererFamily
from pipeline_world import Pace, Weights, World, WorldRun, WorldTrainer, make_config, read_story

from turnwise.core.batch import StepReport, TrainingBatch
from turnwise.core.episodes import Ask
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Metric
from turnwise.core.types import Task
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.store.groups import GroupStore
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import LEDGER

PACE = Pace(token_s=0, environment_s=0, step_s=0)


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


def make_world(path: Path, roles: Mapping[str, str], *, steps: int = 4) -> World:
    config = make_config(rollout={"max_turns": 8}, train={"steps": steps, "checkpoint_every": 2})
    config = config.model_copy(update={"roles": dict(roles)})
    return World(path=path, config=config, family=WandererFamily(num_roles=3), pace=PACE)


def load_weights(path: Path) -> Weights:
    trainer = WorldTrainer(PACE)
    trainer.load(path)
    return trainer.weights


def is_same(first: Weights, second: Weights) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in first)


def test_every_token_trains_the_learner_of_its_role(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", {"second": "learns:other", "third": "follows:other"})
    world.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert report.tallies["logprobs"].checked > 0
    lines = world.read_lines(LEDGER)
    learners = {(line["role"], line["fate"], line.get("learner")) for line in lines}
    assert learners == {
        ("first", "trained", None),
        ("second", "trained", "other"),
        ("third", "not_learning", None),
    }
    metrics = world.read_lines("metrics.jsonl")
    rows = [row for row in metrics if row["phase"] == "train"]
    for row in rows:
        own = [line for line in lines if line["step"] == row["step"]]
        assert row["rollout/sampled_tokens"] == sum(line["sampled"] for line in own)
        assert row["train/samples"] > 0
        assert row["other/train/samples"] > 0
    # Each engine samples with its learner's weights: the checkpoints score what each role said.
    folder = world.path / "checkpoints" / "step_000004"
    assert is_same(load_weights(folder), world.trainer.weights)
    assert is_same(load_weights(folder / "policies" / "other"), world.other_trainers["other"].weights)
    assert not is_same(load_weights(folder), load_weights(folder / "policies" / "other"))
    assert is_same(world.engine.weights, world.trainer.weights)
    assert is_same(world.other_engines["other"].weights, world.other_trainers["other"].weights)


def test_a_learner_without_a_group_keeps_its_weights_bit_by_bit(tmp_path: Path) -> None:
    class OnlyFirst(TrainerThread):
        """Gives the learner with a name nothing to train."""

        async def step(self, batches: Mapping[str, TrainingBatch]) -> dict[str, StepReport]:
            empty = {name: replace(batch, updates=()) for name, batch in batches.items() if name}
            return await super().step({**batches, **empty})

    world = make_world(tmp_path / "run", {"second": "learns:other"}, steps=1)

    class Run(WorldRun):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            self.steps.trainer = OnlyFirst(world.trainer, num_threads=1, others=world.other_trainers)

    world.run_class = Run
    world.live()
    checkpoints = world.path / "checkpoints"
    start, end = checkpoints / "step_000000", checkpoints / "step_000001"
    assert not is_same(load_weights(start), load_weights(end))
    assert is_same(load_weights(start / "policies" / "other"), load_weights(end / "policies" / "other"))


class Silent(Wanderer):
    """Asks only the first role."""

    def _ask(self, caller: str | None = None) -> tuple[Ask, ...]:
        return tuple(ask for ask in super()._ask(caller) if ask.role == "first")


class SilentFamily(WandererFamily):
    """In the tasks of the second step one role is not asked."""

    def build_environment(self, task: Task) -> Wanderer:
        return Silent() if task in [self.task("train", index) for index in (2, 3)] else Wanderer()


def test_a_learner_with_nothing_to_train_sits_the_step_out_and_the_other_trains(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", {"second": "learns:other"}, steps=3)
    world.family = SilentFamily()
    followed: list[tuple[str, int]] = []

    class Run(WorldRun):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            for name, learner in self.steps.learners.items():
                learner.follow = lambda report, name=name: followed.append((name, self.steps.step + 1))  # type: ignore

    world.run_class = Run
    world.live()
    rows = [row for row in world.read_lines("metrics.jsonl") if row["phase"] == "train"]
    assert [row.get("other/train/skipped_steps") for row in rows] == [None, 1, None]
    assert [row["train/samples"] > 0 for row in rows] == [True, True, True]
    assert [row["other/train/samples"] > 0 for row in rows] == [True, False, True]
    assert followed == [("", 1), ("other", 1), ("", 2), ("", 3), ("other", 3)]
    [line] = [row["text"] for row in world.read_lines("events.jsonl") if "keeps its weights" in row.get("text", "")]
    assert line.startswith("step 2: learner 'other' keeps its weights: no token to train on: every trajectory of the")
    assert "has no sampled token" in line
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]


def test_the_first_learner_comes_out_as_if_the_second_role_were_someone_elses(tmp_path: Path) -> None:
    # One step: what the second role said is the same in both runs, so only its training could make a difference.
    first = make_world(tmp_path / "two", {"second": "learns:other"}, steps=1)
    first.live()
    frozen = first.path / "checkpoints" / "step_000000" / "policies" / "other"
    second = make_world(tmp_path / "frozen", {"second": f"frozen:{frozen}"}, steps=1)
    second.live()
    assert is_same(first.trainer.weights, second.trainer.weights)
    alone = [line["trajectories"] for line in first.read_lines(LEDGER) if line["role"] == "first"]
    assert alone == [line["trajectories"] for line in second.read_lines(LEDGER) if line["role"] == "first"]


class StopsAfter(WorldRun):
    """A run that is killed between a step and what is due after it."""

    async def _after_step(self, step: int) -> dict[str, Metric]:
        if step == 3:
            raise KeyboardInterrupt
        return await super()._after_step(step)


def test_a_run_of_two_learners_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path) -> None:
    roles = {"second": "learns:other"}
    whole, stopped = make_world(tmp_path / "whole", roles), make_world(tmp_path / "stopped", roles)
    whole.live()
    stopped.run_class = StopsAfter
    with pytest.raises(KeyboardInterrupt):
        stopped.live()
    stopped.run_class = WorldRun
    stopped.live()
    assert read_story(stopped) == read_story(whole)
    assert is_same(stopped.other_trainers["other"].weights, whole.other_trainers["other"].weights)
    assert {name.partition(":")[0] for name in whole.sums()[4] if ":" in name} == {"other"}
    report = stopped.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]


@pytest.mark.parametrize("fails", ["first", "other"])
def test_a_step_that_fails_for_one_changes_neither(tmp_path: Path, fails: str) -> None:
    world = make_world(tmp_path / "run", {"second": "learns:other"})

    class Failing(WorldTrainer):
        def step(self, batch: TrainingBatch) -> StepReport:
            if batch.step == 3:
                raise TrainingError("the gradient is not finite")
            return super().step(batch)

    class Run(WorldRun):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            broken = world.trainer if fails == "first" else world.other_trainers["other"]
            broken.__class__ = Failing

    world.run_class = Run
    with pytest.raises(TrainingError):
        world.live()
    before = {name: dict(trainer.weights) for name, trainer in (("", world.trainer), *world.other_trainers.items())}
    world.run_class = WorldRun
    folder = world.path / "checkpoints" / "step_000002"
    assert is_same(before[""], load_weights(folder))
    assert is_same(before["other"], load_weights(folder / "policies" / "other"))
    world.live()
    assert sorted(world.sums()) == [1, 2, 3, 4]
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]


def test_an_audit_finds_tokens_that_trained_another_learner(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", {"second": "learns:other"}, steps=2)
    world.live()
    ledger = world.path / LEDGER
    ledger.write_text(ledger.read_text().replace('"learner": "other"', '"learner": "stranger"'))
    assert {account.learner for account in load_accounts(world.path)} == {"", "stranger"}
    found = " | ".join(str(breach) for breach in world.audit().breaches)
    assert "role 'second' trained learner 'stranger', the recipe binds it to 'other'" in found


def test_an_audit_finds_weights_that_were_exchanged(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", {"second": "learns:other"}, steps=2)
    world.live()
    # As if the recipe had named the roles the other way round.
    world.config = world.config.model_copy(update={"roles": {"first": "learns:other"}})
    found = {breach.check for breach in world.audit().breaches}
    assert {"ledger", "logprobs"} <= found
    assert len(GroupStore(world.path).list_draws()) == 4
