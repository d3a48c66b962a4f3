"""`turnwise compare`, and evaluations that stop when they are sure: of stored evaluations and of files."""

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import run_command

from turnwise.core.errors import ConfigError, DataError, StoreError
from turnwise.core.types import Draw, TrajectoryGroup
from turnwise.evaluation.comparison import compare_results
from turnwise.evaluation.results import Results, TaskResult, to_results
from turnwise.evaluation.summary import summarise
from turnwise.runs.compare import load_results, run_compare
from turnwise.runs.until_sure import UntilSure, build_until
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_groups
from turnwise.testing import make_group, make_task, make_trajectory, make_turn


def make_groups(
    outcomes: Sequence[Sequence[float | None]], *, start: int = 0, **payload: object
) -> list[TrajectoryGroup]:
    """One group per task, with the rewards of its attempts; every third task is hard."""
    groups = []
    for index, rewards in enumerate(outcomes, start=start):
        task = make_task(str(index), kind="hard" if index % 3 == 0 else "easy", **payload)
        members = [
            make_trajectory(make_turn([1], [2]), reward=reward, member=member, draw=index, task_id=task.id)
            for member, reward in enumerate(rewards)
        ]
        groups.append(make_group(*members, task=task))
    return groups


def add_evaluation(run: RunFolder, name: str, step: int, groups: Sequence[TrajectoryGroup]) -> None:
    save_groups(run.path / "evaluations", name, groups, decode=None)
    run.write_json(f"evaluations/{name}.summary.json", summarise(groups, name=name, label=name, step=step).to_json())


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with evaluations of 30 tasks: before RL 10 are solved, after it these and 12 more; step 20 lost one."""
    folder = RunFolder.create(tmp_path / "demo")
    folder.write_json("config.json", {})
    add_evaluation(folder, "heldout_000000", 0, make_groups([[float(i < 10)] for i in range(30)]))
    add_evaluation(folder, "heldout_000010", 10, make_groups([[float(i < 22)] for i in range(30)]))
    add_evaluation(folder, "heldout_000020", 20, make_groups([[float(0 < i < 22)] for i in range(30)]))
    add_evaluation(
        folder, "again_000020_samples2", 20, make_groups([[float(i < 10), float(i < 22)] for i in range(30)])
    )
    return folder


def test_two_steps_of_a_run(run: RunFolder) -> None:
    compared = run_compare(f"{run.path}@0", f"{run.path}@10")
    total = compared.total
    assert (total.n, total.clusters, total.first_only, total.second_only) == (30, 30, 0, 12)
    assert (total.first, total.second, total.difference) == (pytest.approx(1 / 3), pytest.approx(22 / 30), 0.4)
    assert total.test == "McNemar"
    assert total.p == 2 / 2**12
    assert 0 < total.low < 0.4 < total.high
    # Every third task is hard: 0, 3, 6, 9 were solved, 12, 15, 18, 21 are more; of the easy ones 8 are more.
    easy, hard = compared.rows[:2]
    assert (easy.kind, easy.n, easy.second_only, hard.kind, hard.n, hard.second_only) == ("easy", 20, 8, "hard", 10, 4)
    assert (easy.p, hard.p) == (2 / 2**8, 2 / 2**4)
    assert (easy.p_holm, hard.p_holm) == (2 * easy.p, hard.p)
    assert compared.verdict.startswith("demo@10 is better by 40.0 points (p = 0.00049)")
    assert compared.to_json()["rows"][-1]["p"] == total.p


def test_latest_best_and_named_evaluations(run: RunFolder) -> None:
    assert load_results(str(run.path)).name == "demo@20"
    best = load_results(f"{run.path}@best")
    assert sum(task.mean for task in best.tasks.values()) == 22
    assert best.notes == ("demo@best was chosen as the best of 3 evaluations, so its success is too high by chance",)
    several = run_compare(f"{run.path}@0", f"{run.path}@again_000020_samples2").total
    assert several.test == "sign flips"
    assert several.difference == pytest.approx(6 / 30)
    same = run_compare(str(run.path), str(run.path))
    assert (same.total.p, same.total.difference) == (1.0, 0.0)
    assert same.verdict.startswith("no difference is shown (p = 1); 30 tasks can see ")


def test_what_cannot_be_compared_is_one_line(run: RunFolder, tmp_path: Path) -> None:
    for target, error, line in (
        (f"{run.path}@30", DataError, "has no evaluation 'heldout_000030'; name a step or one of these"),
        (f"{run.path}@mine", DataError, "has no evaluation 'mine'"),
        (str(tmp_path / "nothing"), DataError, "neither a run folder nor a file"),
        (str(tmp_path), StoreError, "is not a run folder"),
    ):
        with pytest.raises(error, match=line):
            load_results(target)
    save_groups(run.path / "evaluations", "heldout_000040", make_groups([[1.0]]), decode=None)
    with pytest.raises(DataError, match=r"evaluation heldout_000040 of run .* was interrupted; repeat it"):
        load_results(f"{run.path}@40")
    (run.path / "evaluations" / "heldout_000020.summary.json").write_text("{")
    with pytest.raises(StoreError, match=r"cannot read .*summary\.json"):
        load_results(f"{run.path}@20")
    empty = RunFolder.create(tmp_path / "empty")
    empty.write_json("config.json", {})
    with pytest.raises(DataError, match="no finished evaluation on held-out tasks; make one with `turnwise evaluate"):
        load_results(str(empty.path))
    with pytest.raises(ConfigError, match="--score f1 chooses a score of a file"):
        run_compare(f"{run.path}@0", f"{run.path}@10", score="f1")
    with pytest.raises(ConfigError, match="--aim 0 is not a difference"):
        run_compare(f"{run.path}@0", f"{run.path}@10", aim=0.0)


def make_results(name: str, scores: dict[str, list[float]], clusters: dict[str, str] | None = None) -> Results:
    tasks = {
        task: TaskResult(scores=tuple(each), cluster=(clusters or {}).get(task, task)) for task, each in scores.items()
    }
    return Results(name=name, tasks=tasks)


def test_other_tasks_and_their_number_are_named() -> None:
    first = make_results("a", {"1": [1.0], "2": [0.0], "3": [1.0]})
    with pytest.raises(DataError, match="a has 3 tasks and b has 1, of which 0 are shared"):
        compare_results(first, make_results("b", {"4": [1.0]}))
    compared = compare_results(first, make_results("b", {"2": [1.0], "3": [], "1": [0.0], "9": [1.0]}))
    assert compared.notes[:2] == (
        "a has 3 tasks and b has 4, of which 3 are shared; only these are compared",
        "1 shared tasks have no scored attempt in one of the evaluations and are left out; if hard tasks fail more "
        "often, the comparison favours whoever failed",
    )
    assert (compared.total.n, compared.total.difference) == (2, 0.0)
    with pytest.raises(DataError, match="none of the 3 shared tasks has a scored attempt in both"):
        compare_results(first, make_results("b", {"1": [], "2": [], "3": []}))


def test_one_cluster_says_nothing_and_few_say_so() -> None:
    scores = {str(index): [float(index % 2)] for index in range(6)}
    one = make_results("a", scores, dict.fromkeys(scores, "w"))
    with pytest.raises(DataError, match=r"all 6 shared tasks are in one cluster \(w\), which is one result"):
        compare_results(one, one)
    with pytest.raises(DataError, match="task '0' is in cluster 'w' in a and in '0' in b"):
        compare_results(make_results("a", scores, {"0": "w"}), make_results("b", scores))
    # Two worlds, of which one got all and one lost all: ten tasks, two results.
    worlds = {str(index): f"w{index // 5}" for index in range(10)}
    first = make_results("a", {str(index): [float(index < 5)] for index in range(10)}, worlds)
    second = make_results("b", {str(index): [float(index >= 5)] for index in range(10)}, worlds)
    compared = compare_results(first, second)
    assert (compared.total.clusters, compared.total.test, compared.total.p) == (2, "sign flips", 1.0)
    assert compared.notes[0].startswith("only 2 clusters of tasks")


def test_a_kind_of_one_cluster_claims_nothing() -> None:
    tasks = {
        "1": TaskResult(scores=(0.0,), cluster="1", kind="rare"),
        "2": TaskResult(scores=(0.0,), cluster="2", kind="common"),
        "3": TaskResult(scores=(0.0,), cluster="3", kind="common"),
    }
    better = {name: TaskResult(scores=(1.0,), cluster=task.cluster, kind=task.kind) for name, task in tasks.items()}
    rare = compare_results(Results(name="a", tasks=tasks), Results(name="b", tasks=better)).rows[1]
    assert (rare.kind, rare.low, rare.high, rare.p, rare.detectable) == ("rare", -1.0, 1.0, 1.0, None)


def test_the_command_compares_files(tmp_path: Path) -> None:
    draws = random.Random(0)
    for name, share in (("a.jsonl", 0.5), ("b.jsonl", 0.9)):
        rows = [{"task": f"t{i}", "score": int(draws.random() < share), "kind": "[x]"} for i in range(60)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = run_command("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert shown.returncode == 0, shown.stderr
    for text in ("b.jsonl is better by", "[x]", "difference of 2 points", "test: McNemar"):
        assert text in shown.stdout
    plain = run_command("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--json")
    assert [row["kind"] for row in json.loads(plain.stdout)["rows"]] == ["[x]", "all"]
    wrong = run_command("compare", tmp_path / "a.jsonl", tmp_path / "none")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "neither a run folder nor a file" in wrong.stderr


def test_an_evaluation_stops_when_it_is_sure() -> None:
    groups = {group.draw.index: group for group in make_groups([[float(i % 10 > 0)] for i in range(500)])}
    asked: list[int] = []

    async def play(draws: Sequence[Draw]) -> list[TrajectoryGroup]:
        asked.append(len(draws))
        return [groups[draw.index] for draw in draws]

    draws = [group.draw for group in groups.values()]
    played, decision = asyncio.run(UntilSure(against="0.5", share=0.5).play(play, draws))
    assert decision.side == "above"
    assert len(played) == sum(asked) == decision.results < 100
    assert decision.available == 500
    assert [group.draw.index for group in played] == sorted(group.draw.index for group in played)
    # Where success is what it is compared with, every task is played and nothing is said.
    every, near = asyncio.run(UntilSure(against="0.9", share=0.9).play(play, draws))
    assert (len(every), near.side, near.results) == (500, None, 500)
    summary = summarise(every, name="n", label="l", step=0, decision=near).to_json()
    assert summary["decision"]["side"] is None


def test_an_evaluation_is_compared_with_another_until_it_is_sure(run: RunFolder) -> None:
    groups = {group.draw.index: group for group in make_groups([[1.0]] * 200)}
    other = to_results("other", make_groups([[0.0]] * 100))

    async def play(draws: Sequence[Draw]) -> list[TrajectoryGroup]:
        return [groups[draw.index] for draw in draws]

    until = UntilSure(against="other", share=None, other=other)
    played, decision = asyncio.run(until.play(play, [group.draw for group in groups.values()]))
    assert (decision.side, decision.available) == ("above", 100)  # only the tasks that the other has
    assert len(played) == 32
    strange = UntilSure(against="other", share=None, other=to_results("other", make_groups([[0.0]], start=900)))
    with pytest.raises(DataError, match="other has scored 0 of these 200 tasks"):
        asyncio.run(strange.play(play, [group.draw for group in groups.values()]))
    # Tasks of one world are one result: whole worlds are played.
    worlds = {
        g.draw.index: g for g in make_groups([[1.0]] * 40, world=1) + make_groups([[1.0]] * 40, start=40, world=2)
    }

    async def play_worlds(draws: Sequence[Draw]) -> list[TrajectoryGroup]:
        return [worlds[draw.index] for draw in draws]

    every, unknown = asyncio.run(
        UntilSure(against="0.5", share=0.5).play(play_worlds, [group.draw for group in worlds.values()])
    )
    assert (len(every), unknown.side, unknown.results) == (80, None, 2)
    assert build_until("0.25").share == 0.25
    assert build_until(f"{run.path}@10").against == "demo@10"
    for wrong in ("1", "0", "nan"):
        with pytest.raises(ConfigError, match=f"--until-sure {wrong} is not a share between 0 and 1"):
            build_until(wrong)
    with pytest.raises(DataError, match="neither a run folder nor a file"):
        build_until("nowhere")


def test_a_comparison_with_an_evaluation_that_stopped_early_says_so(run: RunFolder) -> None:
    path = run.path / "evaluations" / "heldout_000010.summary.json"
    decision = {"against": "0.5", "side": "above", "error": 0.05, "results": 30, "available": 500}
    path.write_text(json.dumps({**json.loads(path.read_text()), "decision": decision}))
    assert "demo@10 stopped as soon as its answer was known" in run_compare(f"{run.path}@0", f"{run.path}@10").notes[0]
