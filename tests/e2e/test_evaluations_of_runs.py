"""Evaluations of a run: a set that chooses, an early end, further sets, foreign models, and beside training."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from chat_server import chat_server
from run_rows import read_rows

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.reporting.other_evaluations import describe_foreign, load_foreign
from turnwise.reporting.report import write_report
from turnwise.reporting.summaries import load_summaries
from turnwise.runs.audit import audit_run
from turnwise.runs.continuing import Continuation
from turnwise.runs.evaluate import run_evaluate
from turnwise.runs.evaluations import read_outstanding
from turnwise.runs.foreign import ForeignModel
from turnwise.runs.train import run_train
from turnwise.store.chosen_checkpoints import find_checkpoint_of
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups

NOTES = "turnwise.testing.notes:NotesFamily"
SMALL = [
    *(f"environment.name={NOTES}", "tokenizer.num_texts=50", "tokenizer.vocab_size=400"),
    *("rollout.tasks_per_step=2", "rollout.group_size=2", "rollout.max_tokens=64", "rollout.max_turn_tokens=8"),
    *("sft.steps=1", "sft.batch_size=2", "sft.num_demonstrations=2"),
    *("train.num_threads=1", "engine.num_threads=1", "engine.max_concurrency=4", "train.steps=3"),
    *("train.parity_every=0", "train.checkpoint_every=0", "train.decay=none", "train.keep_best=1"),
    *("evaluate.tasks=4", "evaluate.every=1", "evaluate.selection_tasks=5"),
    "evaluate.sets.easy={args={linked=0.0},tasks=3}",
]
GIVEN: dict[str, Any] = {"tasks": None, "changes": {}, "step": None}


def recipe(output: Path, *overrides: str) -> RunConfig:
    return load_config([], [*SMALL, f"run.output={output}", *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_train(recipe(tmp_path_factory.mktemp("runs")), resume=None, display=False)


def read_events(run: Path, kind: str) -> list[str]:
    rows = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [row["text"] for row in rows if row["kind"] == kind]


def test_every_evaluation_plays_every_set_and_one_of_them_chooses(finished: Path) -> None:
    folder = finished / "evaluations"
    names = {path.name.removesuffix(".summary.json") for path in folder.glob("*.summary.json")}
    kinds = ("heldout", "heldout-selection", "heldout-easy")
    assert {f"{kind}_{step:06d}" for kind in kinds for step in range(4)} <= names
    reported, chosen_by = (
        {group.task.id for group in load_groups(folder, f"{kind}_000003")} for kind in ("heldout", "heldout-selection")
    )
    assert (len(reported), len(chosen_by), reported & chosen_by) == (4, 5, set())
    easy = load_groups(folder, "heldout-easy_000003")
    assert [group.task.payload["kind"] for group in easy] == ["direct"] * 3
    assert len(load_summaries(finished)) == 4, "the sets are no controls of the run"
    rows = [row for row in read_rows(finished) if row["phase"] == "evaluate"]
    assert all(
        {"evaluate/success", "evaluate/on_selection_success", "evaluate/on_easy_success"} <= set(r) for r in rows
    )
    # A tie goes to the later one.
    assert json.loads((finished / "selection.json").read_text())["step"] == 3
    assert find_checkpoint_of(finished, "best").name == "step_000003"
    [text] = read_events(finished, "selection")
    assert text.startswith("step 3 is the best of 4 evaluations, 0.0% [0.0, 45.1] of 5 on the tasks that chose it")
    page = (finished / "report.html").read_text()
    assert 'id="selection"' in page
    assert 'id="sets"' in page
    assert 'id="foreign"' not in page


def test_the_selection_set_ends_training_and_a_resumed_run_knows(finished: Path, tmp_path: Path) -> None:
    run = run_train(recipe(tmp_path, "train.patience=1", "train.patience_on=plateau"), resume=None, display=False)
    whole = {(row["phase"], row["step"]): row for row in read_rows(finished)}
    rows = read_rows(run)
    assert [row["step"] for row in rows if row["phase"] == "train"] == [1]
    assert all(row == whole[row["phase"], row["step"]] for row in rows)
    [text] = read_events(run, "ended_early")
    assert text.startswith(
        "training ends after step 1 of 3: on the tasks of evaluate.selection_tasks, 1 evaluations in"
    )
    assert (run / "report.html").is_file()
    assert not audit_run(run).breaches
    run_train(None, resume=run, display=False)
    assert read_rows(run) == rows
    run_train(None, resume=Continuation(run=run, overrides=["train.patience=0"]), display=False)
    assert sorted(map(str, read_rows(run))) == sorted(map(str, read_rows(finished)))


@pytest.mark.slow
def test_evaluations_beside_training_leave_it_and_their_results_as_they_are(finished: Path, tmp_path: Path) -> None:
    beside = recipe(tmp_path, "evaluate.num_workers=2", "evaluate.deadline_s=0.001")
    run = run_train(beside, resume=None, display=False)
    # Training is over; what the deadline left is played when the run continues, from the checkpoints of its steps.
    outstanding = read_outstanding(RunFolder(run))
    assert outstanding
    assert all((run / "checkpoints" / f"step_{step:06d}").is_dir() for step in outstanding)
    assert "took longer than evaluate.deadline_s=0.001" in read_events(run, "evaluation")[-1]
    run_train(
        None,
        resume=Continuation(run=run, overrides=["evaluate.deadline_s=600", "evaluate.num_workers=1"]),
        display=False,
    )
    assert read_outstanding(RunFolder(run)) == set()
    assert sorted(map(str, read_rows(run))) == sorted(map(str, read_rows(finished)))
    for file in sorted((finished / "evaluations").glob("heldout*.npz")):
        assert (run / "evaluations" / file.name).read_bytes() == file.read_bytes(), file.name
    for file in sorted((finished / "evaluations").glob("heldout*.summary.json")):
        assert (run / "evaluations" / file.name).read_bytes() == file.read_bytes(), file.name
    left, right = (path / "checkpoints" / "step_000003" / "state.safetensors" for path in (run, finished))
    assert left.read_bytes() == right.read_bytes()


def play_notes(text: str) -> tuple[int, str]:
    """A server's answer: it reads notes until it knows the code, and refuses one kind of task."""
    word = text.split()[-1] if text else ""
    if text == "/v1/models":
        return 200, "{}"
    if word == "fjord":
        return 400, "no"
    message: dict[str, Any]
    if text.startswith("code"):
        message = {"role": "assistant", "content": f"<answer> {word} </answer>"}
    else:
        call = {"id": "x", "type": "function", "function": {"name": "search", "arguments": {"query": word}}}
        message = {"role": "assistant", "tool_calls": [call], "content": None}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return 200, json.dumps({"choices": [{"index": 0, "message": message}], "usage": usage})


def test_a_model_behind_an_api_is_compared_with_its_cost_and_its_failures(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    with chat_server(play_notes) as (url, _):
        foreign = ForeignModel(address=f"{url}#some/model", prompt_price=2.0, reply_price=10.0)
        summary = run_evaluate(run, **{**GIVEN, "tasks": 4}, foreign=foreign)
    assert summary.label == "some/model by API"
    row = summary.row("all")
    groups = load_groups(run / "evaluations", summary.name)
    refused = [group for group in groups if "fjord" in str(group.task.payload["notes"])]
    assert (row.success, row.n, row.invalid) == (1.0, 4 - len(refused), len(refused))
    stored = load_foreign(run, summary.name)["foreign"]
    assert stored["requests"] == sum(len(t.turns) for group in groups for t in group.trajectories)
    assert stored["cost"] == pytest.approx(stored["requests"] * (100 * 2 + 10 * 10) / 1e6)
    assert sum(stored["failures"].values()) == len(refused)
    assert describe_foreign(load_foreign(run, summary.name)).startswith(
        f"some/model by API: {stored['requests']} replies, {100 * stored['requests']:,} tokens read"
    )
    write_report(RunFolder(run))
    assert "some/model by API" in (run / "report.html").read_text()


def test_what_cannot_be_evaluated_is_refused_in_one_line(finished: Path) -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"tasks": 8}, r"evaluate.tasks=8 has 4 of the 5 held-out tasks of evaluate.selection_tasks.*at most 4"),
        ({"samples": 0}, r"evaluate\.samples is 0"),
        ({"tasks": 0}, r"evaluate\.tasks=0: there is nothing to evaluate; give a number"),
        ({"on": "nowhere"}, "nowhere"),
        ({"foreign": ForeignModel(address="http://127.0.0.1:9/v1")}, "names no model; write URL#MODEL"),
        ({"foreign": ForeignModel(address="http://127.0.0.1:9/v1#m")}, "--model: no server answers"),
    ]
    before = sorted(path.name for path in (finished / "evaluations").iterdir())
    for given, words in refusals:
        with pytest.raises(ConfigError, match=words) as error:
            run_evaluate(finished, **{**GIVEN, **given})
        assert "\n" not in str(error.value)
    assert sorted(path.name for path in (finished / "evaluations").iterdir()) == before


def test_another_set_is_evaluated_by_name(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    names = [
        run_evaluate(run, **GIVEN, on="easy").name,
        run_evaluate(run, **{**GIVEN, "tasks": 2}, on="selection").name,
        run_evaluate(run, **{**GIVEN, "changes": {"linked": 1.0}, "tasks": 2}, on=NOTES).name,
    ]
    assert names[:2] == ["again-easy_000003", "again-selection_000003_tasks2"]
    assert names[2].startswith("again-turnwise.testing.notes-NotesFamily-")
    kinds = [{g.task.payload["kind"] for g in load_groups(run / "evaluations", name)} for name in names]
    assert kinds[0] == {"direct"}
    assert kinds[2] == {"linked"}


def test_changes_that_draw_other_tasks_are_said_not_to_play_them(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    heard: list[str] = []
    run_evaluate(run, **{**GIVEN, "changes": {"linked": 0.0}}, tell=heard.append)
    assert any("with linked the environment draws other tasks, but the recipe's" in text for text in heard)
    heard.clear()
    run_evaluate(run, **{**GIVEN, "tasks": 2}, tell=heard.append)
    assert not any("draws other tasks" in text for text in heard)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["evaluate.tasks=0"], "train.keep_best=1 ranks checkpoints"),
        (["evaluate.tasks=0", "train.keep_best=0"], r"evaluate.selection_tasks=5 chooses .* evaluate.tasks=0"),
        (["train.patience=2", "evaluate.selection_tasks=0"], "train.patience=2 ends training by a selection set"),
        (["evaluate.controls.easy={linked=1.0}"], "evaluate.sets and evaluate.controls both have 'easy'"),
        (["evaluate.sets.selection={}"], "'selection' is the set of evaluate.selection_tasks; use another name"),
        (["evaluate.sets.a_1={}"], "must be letters, digits and '-'"),
        (["evaluate.sets.Easy={}"], "differ only in capitals"),
        (["evaluate.samples=0"], "evaluate.samples is 0"),
    ],
)
def test_a_recipe_that_cannot_choose_is_refused(tmp_path: Path, overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        recipe(tmp_path, *overrides)
