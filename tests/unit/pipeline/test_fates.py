"""What becomes of groups that cannot train as they are, and of a run whose annotators or engines fail."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_world import (
    Pace,
    World,
    WorldEngine,
    WorldEnvironment,
    WorldFamily,
    WorldRun,
    WorldSync,
    WorldTrainer,
    make_config,
)

from turnwise.core.batch import Receipt
from turnwise.core.errors import DataError, EngineError, EnvironmentFault
from turnwise.core.metrics import Metric
from turnwise.core.types import (
    Completion,
    IntArray,
    Message,
    SamplingParams,
    Session,
    Task,
    TrajectoryGroup,
    text_message,
)
from turnwise.credit.gold_answers import GoldAnswerAnnotator
from turnwise.store.groups import GroupStore
from turnwise.store.journal import read_journal
from turnwise.sync.publication import EngineGroup


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here kills a process, so none waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def make_world(path: Path, sections: Mapping[str, dict[str, Any]], **changes: Any) -> World:
    return World(path=path, config=make_config(**sections), **changes)


def check_audit(world: World) -> None:
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]


def check_resumed(world: World) -> None:
    """Let another process end the run that failed: it redoes the same steps and samples no finished group again."""
    before = world.journal
    world.live()
    assert {step: world.sums()[step] for step in before.trained} == {
        step: dict(trained.sums) for step, trained in before.trained.items()
    }
    assert not world.sampled_draws() & {record.draw for record in before.draws.values() if record.digest is not None}
    assert max(world.journal.trained) == world.config.train.steps
    check_audit(world)


def count_sampled_tokens(world: World, draw: int) -> int:
    group = GroupStore(world.path).load(draw)
    trajectories = [*group.trajectories, *(each.trajectory for each in group.discarded)]
    return sum(trajectory.num_sampled_tokens for trajectory in trajectories)


# Groups without a baseline.

REMAX: dict[str, dict[str, Any]] = {"credit": {"method": "remax"}}


def refuse_greedy(patch: pytest.MonkeyPatch, refuses: Callable[[int], bool]) -> None:
    """The engine refuses the greedy attempts at the draws that `refuses` names."""
    generate = WorldEngine.generate

    async def refuse(
        self: WorldEngine, prompt_ids: IntArray, params: SamplingParams, *, session: Session
    ) -> Completion:
        scope, draw = session.group.split("/")
        if scope == "baseline" and refuses(int(draw)):
            raise EngineError("the engine has no room")
        return await generate(self, prompt_ids, params, session=session)

    patch.setattr(WorldEngine, "generate", refuse)


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_group_without_a_scored_baseline_is_dropped_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    refuse_greedy(monkeypatch, lambda draw: draw == 2)
    sections = {**REMAX, "rollout": {"max_invalid_share": 0.5}, "schedule": {"max_staleness": staleness}}
    world = make_world(tmp_path / "run", sections)
    world.live()
    rows = {row["draw"]: row for row in world.read_lines("ledger.jsonl")}
    assert {draw for draw, row in rows.items() if row["fate"] == "no_baseline"} == {2}
    assert rows[2]["dropped"] == {"no_baseline": count_sampled_tokens(world, 2)}
    assert rows[2]["trained"] == 0
    assert len(rows) == 4 * 2 + 1  # 4 steps of 2 groups, and the one that was dropped
    assert sorted(world.journal.trained) == [1, 2, 3, 4]
    check_audit(world)


def test_many_groups_without_a_baseline_stop_the_run_with_the_commonest_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path / "run", REMAX)
    with monkeypatch.context() as patch:
        refuse_greedy(patch, lambda draw: draw >= 4)
        with pytest.raises(
            EnvironmentFault, match=r"4 of 4 .*most often \(4x\): greedy baseline: EngineError: the engine has no room"
        ):
            world.live()
    assert sorted(world.journal.trained) == [1, 2]
    check_resumed(world)
    fates = {row["draw"]: row["fate"] for row in world.read_lines("ledger.jsonl")}
    failed = {draw for draw, fate in fates.items() if fate == "no_baseline"}
    # The first of 4 and 5 to fail frees a place for 6, which may fail before the other.
    assert len(failed) == 2
    assert failed < {4, 5, 6}


def test_a_scored_baseline_counts_although_something_went_wrong_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: WorldEngine, session: Session) -> None:
        if session.group.startswith("baseline/"):
            raise OSError("the cache is gone")

    monkeypatch.setattr(WorldEngine, "release", fail)
    world = make_world(tmp_path / "run", REMAX)
    world.live()
    assert {row["fate"] for row in world.read_lines("ledger.jsonl")} == {"trained"}
    baseline = GroupStore(world.path).load(0).baseline
    assert baseline is not None
    assert "the cache is gone" in str(baseline.error)
    check_audit(world)


# Annotators that fail.


class GoldFamily(WorldFamily):
    """The right answer to every task is alpha. Implements `GoldAnswers` as well."""

    def gold_answer(self, task: Task) -> str:
        return "alpha"

    def answer_reply(self, task: Task, answer: str) -> Message:
        return text_message("assistant", f"<answer> {answer} </answer>")


IGPO: dict[str, dict[str, Any]] = {"credit": {"method": "igpo"}, "rollout": {"trajectory_timeout_s": 0.4}}


async def _raise(group: TrajectoryGroup) -> TrajectoryGroup:
    raise OSError("the scorer is gone")


async def _hang(group: TrajectoryGroup) -> TrajectoryGroup:
    await asyncio.sleep(60)
    return group


async def _shorten(group: TrajectoryGroup) -> TrajectoryGroup:
    return replace(group, trajectories=group.trajectories[:1])


async def _exchange(group: TrajectoryGroup) -> TrajectoryGroup:
    return replace(group, draw=replace(group.draw, index=99))


FAILURES = [
    (_raise, "raised OSError: the scorer is gone; fix it"),
    (_hang, r"ran longer than 0\.4 s; make it faster or raise rollout.trajectory_timeout_s"),
    (_shorten, "returned another group: its members were [45]/0, [45]/1 and are [45]/0; return the group"),
    (_exchange, r"returned another group: its draw is 99 \(task \w+\); return the group that was passed to it"),
]


def annotate_with(patch: pytest.MonkeyPatch, work: Callable[..., Any], fails: Callable[[int], bool]) -> None:
    """The gold answers' annotator does `work` instead on the draws that `fails` names."""
    annotate_well = GoldAnswerAnnotator.annotate

    async def annotate(self: GoldAnswerAnnotator, group: TrajectoryGroup) -> TrajectoryGroup:
        return await (work(group) if fails(group.draw.index) else annotate_well(self, group))

    patch.setattr(GoldAnswerAnnotator, "annotate", annotate)


@pytest.mark.parametrize(("work", "says"), FAILURES, ids=["raises", "hangs", "shortens", "exchanges"])
def test_annotators_that_fail_stop_the_run_with_the_cause_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[..., Any], says: str
) -> None:
    world = make_world(tmp_path / "run", IGPO, family=GoldFamily())
    with monkeypatch.context() as patch:
        annotate_with(patch, work, lambda draw: draw >= 4)
        where = r"annotator 'answer_probability' of draw [45] \(task \w+\)"
        with pytest.raises(EnvironmentFault, match=rf"4 of 4 .*most often \(4x\): {where} {says}"):
            world.live()
    assert sorted(world.journal.trained) == [1, 2]
    for draw in (4, 5):  # stored with rewards that say why, and all tokens
        group = GroupStore(world.path).load(draw)
        assert group.rewards() == [None, None]
        [text] = {trajectory.error for trajectory in group.trajectories}
        assert text is not None
        assert text.startswith(f"annotator 'answer_probability' of draw {draw} (task {group.task.id})")
    check_resumed(world)
    rows = {row["draw"]: row for row in world.read_lines("ledger.jsonl")}
    assert [draw for draw, row in sorted(rows.items()) if row["fate"] == "invalid"] == [4, 5]
    assert rows[4]["dropped"] == {"invalid": count_sampled_tokens(world, 4)}


def test_a_few_annotators_that_fail_cost_their_groups_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    annotate_with(monkeypatch, _raise, lambda draw: draw == 3)
    sections = {**IGPO, "rollout": {"max_invalid_share": 0.5}}
    world = make_world(tmp_path / "run", sections, family=GoldFamily())
    world.live()
    rows = {row["draw"]: row for row in world.read_lines("ledger.jsonl")}
    assert rows[3]["trained"] == 0
    assert rows[3]["dropped"] == {"invalid": count_sampled_tokens(world, 3)}
    assert sorted(world.journal.trained) == [1, 2, 3, 4]
    check_audit(world)


# Engines that cannot publish.

ASYNCHRONOUS: dict[str, dict[str, Any]] = {"schedule": {"max_staleness": 2}}
PUBLISHED = 3
"""The version whose publication fails."""


async def _refuse(self: WorldEngine, *args: Any) -> Any:
    raise OSError("no room on the device")


async def _never_answer(self: WorldEngine, *args: Any) -> Any:
    await asyncio.sleep(60)


class HastySync(WorldSync):
    """Engines get a twentieth of a second for an answer."""

    def __init__(self, trainer: WorldTrainer, engine: WorldEngine) -> None:
        super().__init__(trainer, engine)
        self._engines = EngineGroup({"engine": engine}, deadline_s=0.05)


@pytest.mark.parametrize(
    ("method", "work", "message"),
    [
        ("pause", _refuse, "engine 'engine' cannot stop for version 3: .*no room on the device"),
        ("pause", _never_answer, r"engine 'engine' did not stop for version 3 within 0\.05 s"),
        ("adopt", _refuse, "engine 'engine' cannot adopt version 3: .*no room on the device"),
        ("adopt", _never_answer, r"engine 'engine' did not adopt version 3 within 0\.05 s"),
        ("resume", _refuse, "engine 'engine' cannot go on with version 3: .*no room on the device"),
    ],
)
@pytest.mark.parametrize("staleness", [0, 2])
def test_an_engine_that_cannot_publish_is_one_clear_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staleness: int, method: str, work: Any, message: str
) -> None:
    world = make_world(tmp_path / "run", {"schedule": {"max_staleness": staleness}})
    works = getattr(WorldEngine, method)
    publish = HastySync.publish

    async def publish_and_fail(self: HastySync, version: int) -> Receipt:
        if version == PUBLISHED:
            patch.setattr(WorldEngine, method, work)
        return await publish(self, version)

    with monkeypatch.context() as patch:
        patch.setattr("pipeline_world.WorldSync", HastySync)
        patch.setattr(HastySync, "publish", publish_and_fail)
        with pytest.raises(EngineError, match=message):
            world.live()
    assert getattr(WorldEngine, method) is works
    assert sorted(world.journal.trained) == [1, 2, 3]
    check_resumed(world)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: replace(r, sums={**r.sums, "second": 1}),
            "the values of second in version 3",
        ),
        (lambda r: replace(r, sums={"first": r.sums["first"]}), "the engines have no tensor second in version 3"),
        (
            lambda r: replace(r, sums={**r.sums, "third": 1}),
            "the engines have third in version 3, a tensor that the trainer does not have",
        ),
        (lambda r: replace(r, version=2), "the engines acknowledged version 2, but the trainer published 3"),
    ],
    ids=["digest", "missing", "further", "version"],
)
def test_a_receipt_of_something_else_is_one_clear_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Receipt], Receipt], message: str
) -> None:
    world = make_world(tmp_path / "run", ASYNCHRONOUS)
    publish = WorldSync.publish

    async def lie(self: WorldSync, version: int) -> Receipt:
        receipt = await publish(self, version)
        return change(receipt) if version == PUBLISHED else receipt

    with monkeypatch.context() as patch:
        patch.setattr(WorldSync, "publish", lie)
        with pytest.raises(EngineError, match=message):
            world.live()
    assert sorted(world.journal.trained) == [1, 2, 3]
    assert 3 not in {row["step"] for row in world.read_lines("metrics.jsonl")}
    check_resumed(world)


# Late groups.

SLOW_DRAW = 2
"""Opened under version 0 with staleness 1: it trains at the second step, or never."""


def slow_down(patch: pytest.MonkeyPatch, seconds: Mapping[int, float]) -> None:
    """Members of draw `SLOW_DRAW` search first and get their second reply after so many seconds."""
    generate = WorldEngine.generate
    num_replies = dict.fromkeys(seconds, 0)

    async def delay(self: WorldEngine, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        member = int(session.name.split("/")[0])
        if session.group != f"train/{SLOW_DRAW}" or member not in seconds:
            return await generate(self, prompt_ids, params, session=session)
        num_replies[member] += 1
        if num_replies[member] == 2:
            await asyncio.sleep(seconds[member])
        search = self._tokenizer.get_added_vocab()["<search>"]
        while True:
            completion = await generate(self, prompt_ids, params, session=session)
            if num_replies[member] > 1 or completion.token_ids[0] == search:
                return completion
            params = replace(params, seed=params.seed + 1)

    patch.setattr(WorldEngine, "generate", delay)


def make_late_world(path: Path, **schedule: Any) -> World:
    """6 steps of 2 groups of 3, trained at most one version late."""
    sections = {
        "rollout": {"group_size": 3},
        "schedule": {"max_staleness": 1, "patience_s": 0.2, "min_members": 2, **schedule},
        "train": {"steps": 6},
    }
    return make_world(path, sections)


def check_ages(rows: Mapping[int, Mapping[str, Any]], bound: int) -> None:
    ages = [row["version"] - row["start_version"] for row in rows.values() if row["fate"] == "trained"]
    assert 0 <= min(ages) <= max(ages) <= bound


def read_ledger(world: World) -> dict[int, dict[str, Any]]:
    rows = world.read_lines("ledger.jsonl")
    assert len({row["draw"] for row in rows}) == len(rows)
    return {row["draw"]: row for row in rows}


def list_members(group: TrajectoryGroup) -> tuple[list[int], list[tuple[int, str]]]:
    """The members that a group kept, and those that it discarded with their reasons."""
    discarded = [(each.trajectory.id.member, each.reason.value) for each in group.discarded]
    return [trajectory.id.member for trajectory in group.trajectories], discarded


def test_a_late_group_that_is_cut_trains_with_the_members_that_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_down(monkeypatch, {2: 60.0})
    world = make_late_world(tmp_path / "run", late="cut")
    world.live()
    rows = read_ledger(world)
    group = GroupStore(world.path).load(SLOW_DRAW)
    assert list_members(group) == ([0, 1], [(2, "late")])
    assert (rows[SLOW_DRAW]["fate"], rows[SLOW_DRAW]["step"]) == ("trained", 2)
    late_tokens = group.discarded[0].trajectory.num_sampled_tokens
    assert late_tokens > 0
    assert rows[SLOW_DRAW]["dropped"]["late"] == late_tokens
    assert len(rows) == 6 * 2
    check_ages(rows, 1)
    check_audit(world)


def test_a_late_group_is_cut_when_it_reaches_min_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, {1: 0.6, 2: 60.0})  # overdue after about 0.2 s, when one member of two has ended
    world = make_late_world(tmp_path / "run", late="cut")
    world.live()
    assert list_members(GroupStore(world.path).load(SLOW_DRAW)) == ([0, 1], [(2, "late")])
    rows = read_ledger(world)
    assert (rows[SLOW_DRAW]["fate"], rows[SLOW_DRAW]["step"]) == ("trained", 2)
    check_ages(rows, 1)
    check_audit(world)


def test_a_late_group_that_is_dropped_leaves_as_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, {2: 60.0})
    world = make_late_world(tmp_path / "run", late="drop")
    world.live()
    rows = read_ledger(world)
    assert rows[SLOW_DRAW]["fate"] == "late"
    assert rows[SLOW_DRAW]["trained"] == 0
    assert rows[SLOW_DRAW]["dropped"] == {"late": count_sampled_tokens(world, SLOW_DRAW)}
    assert sum(row["fate"] == "trained" for row in rows.values()) == 6 * 2  # another group came in its place
    check_ages(rows, 1)
    check_audit(world)


def test_a_batch_that_waits_neither_cuts_nor_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, {1: 0.6, 2: 0.7})
    world = make_late_world(tmp_path / "run", late="wait")
    world.live()
    rows = read_ledger(world)
    assert list_members(GroupStore(world.path).load(SLOW_DRAW)) == ([0, 1, 2], [])
    assert {row["fate"] for row in rows.values()} == {"trained"}
    assert not any("late" in row["dropped"] for row in rows.values())
    assert rows[SLOW_DRAW]["step"] == 2
    check_ages(rows, 1)
    check_audit(world)


# When groups open.


@pytest.mark.parametrize("staleness", [0, 1])
def test_groups_open_before_the_checkpoint_of_a_step_only_where_training_is_asynchronous(
    tmp_path: Path, staleness: int
) -> None:
    opened: dict[int, tuple[list[int], list[int]]] = {}

    class WatchedRun(WorldRun):
        """Writes down which draws were opened under a step's weights before and after its checkpoint and evaluation."""

        async def _after_step(self, step: int) -> dict[str, Metric]:
            before = self._list_opened(step)
            metrics = await super()._after_step(step)
            opened[step] = (before, self._list_opened(step))
            return metrics

        def _list_opened(self, version: int) -> list[int]:
            records = read_journal(self.folder.path).draws.values()
            return sorted(record.draw for record in records if record.version == version)

    sections = {"schedule": {"max_staleness": staleness}, "evaluate": {"tasks": 2, "every": 1}}
    world = make_world(tmp_path / "run", sections, run_class=WatchedRun)
    world.live()
    if staleness:  # draws 0 to 3 start under version 0, and a batch of 2 after each publication until all 8 are open
        assert {step: before for step, (before, _) in opened.items()} == {1: [4, 5], 2: [6, 7], 3: [], 4: []}
    else:
        assert opened == dict.fromkeys((1, 2, 3, 4), ([], []))
    check_audit(world)


@pytest.mark.parametrize(("steps", "staleness"), [(1, 0), (1, 3), (3, 1), (3, 5)])
def test_the_last_steps_open_no_group_that_could_not_train(tmp_path: Path, steps: int, staleness: int) -> None:
    world = make_world(tmp_path / "run", {"schedule": {"max_staleness": staleness}, "train": {"steps": steps}})
    world.live()
    rows = read_ledger(world)
    assert sorted(rows) == list(range(steps * 2))
    assert {row["fate"] for row in rows.values()} == {"trained"}
    assert world.journal.next_draw == steps * 2


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_training_split_that_ends_is_one_clear_error(tmp_path: Path, staleness: int) -> None:
    sections = {"schedule": {"max_staleness": staleness}}
    family = WorldFamily(num_tasks=8)
    family.misbehave = lambda task: setattr(family, "num_tasks", 7)  # the start saw enough of them
    world = make_world(tmp_path / "run", sections, family=family)
    with pytest.raises(
        DataError,
        match=r"^the training split ended after 7 tasks; lower train.steps or rollout.tasks_per_step, or add tasks to",
    ):
        world.live()
    family.misbehave, family.num_tasks = lambda task: None, 8
    check_resumed(world)


# Branched rollouts of which some members are superfluous or late.


class ForkableWorld(WorldEnvironment):
    """Implements `ForkableEnvironment` as well: the calls so far are the whole state."""

    async def fork(self) -> WorldEnvironment:
        twin = ForkableWorld(self._family, self._task)
        twin.tool_records = [*self.tool_records]
        return twin


class ForkableFamily(WorldFamily):
    def build_environment(self, task: Task) -> WorldEnvironment:
        return ForkableWorld(self, task)


@pytest.mark.parametrize("method", ["vine", "tree", "arpo"])
@pytest.mark.parametrize(
    "schedule",
    [
        {"overdraw": 1},
        {"max_staleness": 1, "late": "cut", "patience_s": 0.0, "min_members": 1},
        {"max_staleness": 1, "late": "drop", "patience_s": 0.0},
    ],
    ids=["overdraw", "cut", "drop"],
)
def test_branched_rollouts_lose_members_and_keep_every_token_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, schedule: dict[str, Any]
) -> None:
    slow_down(monkeypatch, {1: 60.0})
    sections = {"credit": {"method": method}, "schedule": schedule}
    world = make_world(tmp_path / "run", sections, family=ForkableFamily(), pace=Pace(environment_s=0.02))
    world.live()
    rows = read_ledger(world)
    assert sorted(world.journal.trained) == [1, 2, 3, 4]
    reasons = {reason for row in rows.values() for reason in row["dropped"]}
    assert ("overdrawn" if "overdraw" in schedule else "late") in reasons
    check_ages(rows, world.config.schedule.max_staleness)
    check_audit(world)
