"""New tasks near failures: planted failures are targeted, nothing held out is used, and the file is its own journal."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_world import World, WorldEnvironment, WorldFamily, make_config

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import Split
from turnwise.core.types import Message, Reward, RewardPart, Scored, StopReason, Task, text_message
from turnwise.environments.search_qa.family import SearchQA
from turnwise_synthesis.failures.family import NearFailures
from turnwise_synthesis.failures.making import KnownContent, list_entities, make_tasks, share_out
from turnwise_synthesis.failures.rates import KindRate, choose_targets
from turnwise_synthesis.failures.task_file import read_tasks
from turnwise_synthesis.runs.failures import Wanted, write_failures

KINDS = ("solved", "sometimes", "never")
SMALL = Wanted(count=12, steps=20, min_attempts=4, heldout=30)


class PlantedEnvironment(WorldEnvironment):
    """Tasks of one kind are always solved, of one sometimes, of one never."""

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """0 or 1."""
        kind = self._task.payload["kind"]
        number = zlib.crc32("|".join([self._task.id, *(reply.text for reply in replies)]).encode()) % 2
        total = {"solved": 1.0, "sometimes": float(number), "never": 0.0}[kind]
        return Scored(total=total, parts=(RewardPart(name="success", value=total),))


@dataclass(slots=True, kw_only=True)
class PlantedFamily(WorldFamily):
    """Tasks of three kinds about things; every tenth training task is about the thing of a held-out one."""

    salt: str = ""

    def task(self, split: Split, index: int) -> Task:
        """Task `index`."""
        if index >= self.num_tasks:
            raise IndexError(index)
        thing = f"What is {'Train' if split == 'train' and index % 10 else 'Heldout'} N{index}{self.salt}"
        prompt = (text_message("user", f"{split} {thing}"),)
        if split == "heldout":
            thing = f"What is Heldout N{10 * index}"
        return Task(
            environment="world", prompt=prompt, payload={"index": index, "question": thing, "kind": KINDS[index % 3]}
        )

    def build_environment(self, task: Task) -> PlantedEnvironment:
        """One episode."""
        return PlantedEnvironment(self, task)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = make_config(
        environment={"name": f"{__name__}:PlantedFamily", "args": {"num_tasks": 400}},
        rollout={"dynamic_sampling": {"metric": "success"}},
    )
    world = World(path=tmp_path_factory.mktemp("planted") / "run", config=config, family=PlantedFamily())
    world.live()
    return world.path


def test_planted_failures_are_targeted(run: Path, tmp_path: Path) -> None:
    content = write_failures(run, tmp_path / "tasks.jsonl", SMALL)
    rates = {row["of"]: row["rate"] for row in content.plan["rates"]}
    assert (rates["solved"], rates["never"]) == (1.0, 0.0)
    assert 0.1 < rates["sometimes"] < 0.9
    assert content.plan["weights"] == {"sometimes": 1.0}
    assert {task.kind for task in content.made.tasks} == {"sometimes"}
    assert len(content.made.tasks) == content.made.outcomes["made"] == 12
    assert read_tasks(tmp_path / "tasks.jsonl").made == content.made
    assert all(task.near for task in content.made.tasks)


def test_new_tasks_are_behind_those_of_the_run_and_share_nothing_held_out(run: Path, tmp_path: Path) -> None:
    content = write_failures(run, tmp_path / "tasks.jsonl", SMALL)
    drawn = [
        json.loads(line)["task"] for line in (run / "journal.jsonl").read_text().splitlines() if '"opened"' in line
    ]
    assert min(task.index for task in content.made.tasks) > max(drawn)
    assert all(task.index % 10 for task in content.made.tasks)  # every tenth is about a held-out thing
    tried = range(max(drawn) + 1, content.made.tasks[-1].index + 1)
    assert content.made.outcomes == Counter(
        "other kind" if index % 3 != 1 else "made" if index % 10 else "shares an entity with a held-out task"
        for index in tried
    )


def test_the_family_trains_on_the_file_and_evaluates_as_before(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    content = write_failures(run, path, SMALL)
    family, base = NearFailures(path=str(path)), PlantedFamily(num_tasks=400)
    assert [family.task("train", index).id for index in range(12)] == [task.id for task in content.made.tasks]
    assert family.task("heldout", 3).id == base.task("heldout", 3).id
    assert family.place("train", 0) == f"{path}, line 2"
    assert [(each.path, each.num_rows) for each in family.data_files] == [(path, 12)]
    with pytest.raises(IndexError):
        family.task("train", 12)
    with pytest.raises(DataError, match=r"line 2: task \d+ is \w+, and was \w+ when the file was written"):
        NearFailures(path=str(path), salt="!").task("train", 0)


def test_a_run_trains_on_them_with_a_curriculum(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    write_failures(run, path, SMALL)
    world = World(
        path=tmp_path / "next",
        config=make_config(curriculum={"sampler": "difficulty"}, train={"steps": 10}),
        family=Delegated(family=NearFailures(path=str(path))),
    )
    world.live()
    assert {record.task_index for record in world.journal.draws.values()} <= set(range(12))
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert report.tallies["curriculum"].checked == 20


class Delegated:
    """A family with the `pace` and `random` that a world sets, which are those of the family below it."""

    def __init__(self, family: NearFailures) -> None:
        object.__setattr__(self, "family", family)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.family, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.family._base, name, value)


def rate(kind: str, solved: float, attempts: int, *failed: str) -> KindRate:
    return KindRate(kind=kind, solved=solved, attempts=attempts, failed=failed)


def test_targets_are_weighted_by_their_failures() -> None:
    rates = [rate("a", 8, 10), rate("b", 4, 10), rate("c", 0, 10), rate("d", 1, 2), rate("e", 10, 10)]
    targets = choose_targets(rates, low=0.1, high=0.9, min_attempts=5)
    assert targets.weights == pytest.approx({"a": 0.25, "b": 0.75})  # failures .2 and .6; d has too few attempts
    with pytest.raises(
        DataError, match=r"success from 0\.85 to 0\.9 over 5 attempts \(a 0\.80 of 10, .*widen the bounds"
    ):
        choose_targets(rates, low=0.85, high=0.9, min_attempts=5)
    with pytest.raises(DataError, match=r"\(e 1\.00 of 10\)"):  # nothing failed
        choose_targets(rates[-1:], low=0.0, high=1.0, min_attempts=5)
    with pytest.raises(DataError, match=r"\(no attempts\)"):
        choose_targets([], low=0.0, high=1.0, min_attempts=5)


@given(st.dictionaries(st.text(max_size=3), st.floats(0.01, 10), min_size=1, max_size=6), st.integers(0, 50))
def test_shares_add_up(weights: dict[str, float], count: int) -> None:
    shares = share_out(weights, count)
    total = sum(weights.values())
    assert sum(shares.values()) == count
    assert all(abs(shares[key] - count * weights[key] / total) < 1 + 1e-9 for key in weights)


def test_a_split_that_ends_or_lacks_a_kind_is_told() -> None:
    none = KnownContent(heldout=frozenset(), drawn=frozenset())
    few = make_tasks(
        PlantedFamily(num_tasks=9),
        [],
        {"never": 5, "other": 1},
        none,
        first=0,
        by=("kind",),
        entity_fields=("question",),
    )
    assert [task.index for task in few.tasks] == [2, 5, 8]
    assert few.outcomes == {"made": 3, "other kind": 6, "split ended": 1}
    assert few.missing == {"never": 2, "other": 1}


def test_entities_are_names_and_long_texts_of_any_depth() -> None:
    payload = {
        "a": ["North  Vale", {"b": "Oak"}, "7", "vale"],
        "c": 3,
        "d": " ",
        "q": "Who runs Étang Bleu and O'Dell ?",
    }
    task = Task(environment="x", prompt=(), payload=payload, id="me")
    assert list_entities(task, ("a", "c", "d", "e")) == {"me", "north vale", "oak"}
    assert list_entities(task, ("q",)) == {"me", "who runs étang bleu and o'dell ?", "étang bleu", "o'dell"}


def test_search_questions_near_failures_name_no_held_out_entity() -> None:
    family = SearchQA(num_entities=24, num_words=32, kinds={"1hop": 0.5, "2hop": 0.5})
    fields = ("question", "answers")
    heldout = frozenset().union(*(list_entities(family.task("heldout", index), fields) for index in range(60)))
    made = make_tasks(
        family,
        [rate("2hop", 4, 10, "far", "near")],
        {"2hop": 6},
        KnownContent(heldout=heldout, drawn=frozenset()),
        first=100,
        by=("kind",),
        entity_fields=fields,
    )
    assert [(task.kind, task.near) for task in made.tasks] == [("2hop", "far"), ("2hop", "near")] * 3
    assert (
        not frozenset().union(*(list_entities(family.task("train", task.index), fields) for task in made.tasks))
        & heldout
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is no finished file of tasks"),
        ('{"kind": "plan", "environment": "x", "args": {}}\n', "is no finished file of tasks"),
        ('{"kind": "plan", "environment": "x"}\n', "line 1: it is no line of such a file"),
        (
            '{"kind": "plan", "environment": "x", "args": {}}\n{"kind": "end", "outcomes": {}, "missing": {}}\n',
            "no task",
        ),
        ("nonsense\n", "line 1: it is no line of such a file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=error):
        NearFailures(path=str(path))
    with pytest.raises(ConfigError, match=r"environment\.args\.path is missing"):
        NearFailures()


def test_evaluations_know_kinds_only(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--by level: evaluations know the field 'kind' only"):
        write_failures(run, tmp_path / "tasks.jsonl", replace(SMALL, steps=0, by=("level",)))
    with pytest.raises(DataError, match="has no evaluation; use --steps"):
        write_failures(run, tmp_path / "tasks.jsonl", replace(SMALL, steps=0))
