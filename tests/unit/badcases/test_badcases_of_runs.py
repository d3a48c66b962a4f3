"""`turnwise badcases` on run folders: tables before and after, the report, and every input that is refused."""

import json
import shutil
from pathlib import Path

import pytest
from made_evaluation import make_run, plant, store
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.core.errors import ConfigError, DataError, TurnwiseError
from turnwise.reporting.badcases import write_badcases_page
from turnwise.reporting.report import write_report
from turnwise.runs.badcases import Search, find_badcases
from turnwise.store.run_folder import RunFolder

AGAIN, USED = ("never searched again", "made up", "never searched"), ("read and not used", "made up")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, family = make_run(tmp_path_factory.mktemp("runs") / "run", "train.steps=40", "evaluate.tasks=4")
    store(folder, "heldout_000000", "after SFT", 0, plant(family, (0, 1, 2, 4), AGAIN))
    store(folder, "heldout_000040", "after RL", 40, plant(family, (0, 1), USED))
    return folder.path


def find(run: Path, *, evaluation: str | None = None, step: int | None = None, **search: object) -> list[dict]:
    return find_badcases(run, evaluation=evaluation, step=step, search=Search(**search))  # type: ignore[arg-type]


def test_before_and_after_are_written_beside_the_evaluations_and_shown(run: Path) -> None:
    before, after = find(run)
    assert (before["label"], before["episodes"], before["failed"]) == ("after SFT", 4, 4)
    again = next(fault for fault in before["faults"] if fault["name"] == "never searched again")
    assert again["count"] == sum(each["name"] == "never searched again" for each in before["badcases"]) > 0
    assert again["low"] < again["share"] < 1 or again["share"] == 1.0
    assert {fault["name"] for fault in after["faults"]} <= set(USED)
    assert all(each["method"] == "oracle" and each["diverges"] == each["turn"] for each in before["badcases"])
    stored = json.loads((run / "evaluations" / "heldout_000040.badcases.json").read_text())
    assert stored == json.loads(json.dumps(after))
    pages = [write_badcases_page(RunFolder.open(run)).read_text(), write_report(RunFolder.open(run)).read_text()]
    for page in pages:
        assert "never searched again" in page
        assert "<details>" in page
        assert "here it leaves what would have succeeded; here it goes wrong" in page
        assert "0 of 2" in page  # a fault that RL removed


def test_a_step_or_a_name_chooses_one_evaluation(run: Path) -> None:
    assert [table["evaluation"] for table in find(run, step=40, most=0)] == ["heldout_000040"]
    [table] = find(run, evaluation="heldout_000000", most=1)
    assert [each["method"] for each in table["badcases"]] == ["oracle", None, None, None]
    assert table["methods"][-1].endswith("(--most)")


def test_the_command_prints_the_table_and_json(run: Path) -> None:
    printed = CliRunner().invoke(app, ["badcases", str(run), "--most", "0", "--page"])
    assert printed.exit_code == 0
    assert "never searched again" in printed.output
    assert (run / "badcases.html").exists()
    tables = json.loads(CliRunner().invoke(app, ["badcases", str(run), "--most", "0", "--json"]).output)
    assert [table["step"] for table in tables] == [0, 40]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"step": 7}, DataError, "has no evaluation of step 7; it has steps 0, 40. Make one with `turnwise evaluate"),
        ({"evaluation": "heldout_000050"}, DataError, "it has heldout_000000, heldout_000040"),
        ({"by": "critic"}, ConfigError, "--by critic: the run has no critic"),
        ({"by": "judge"}, ConfigError, r"no \[judges.NAME\]"),
    ],
)
def test_what_the_run_does_not_have_is_one_line_with_the_remedy(
    run: Path, arguments: dict, error: type[TurnwiseError], says: str
) -> None:
    with pytest.raises(error, match=says) as raised:
        find(run, **arguments)
    assert "\n" not in str(raised.value)


def test_a_run_without_an_evaluation_says_how_to_make_one(tmp_path: Path) -> None:
    none, _ = make_run(tmp_path / "none", "evaluate.tasks=0")
    with pytest.raises(DataError, match=r"evaluate.tasks=0. Make one with `turnwise evaluate .* --tasks 200`"):
        find(none.path)
    unfinished, _ = make_run(tmp_path / "unfinished")
    with pytest.raises(DataError, match="no evaluation yet; make one with"):
        find(unfinished.path)
    assert not (unfinished.path / "evaluations").exists()


def test_an_interrupted_evaluation_is_named_and_left_alone(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "evaluations" / "heldout_000040.summary.json").unlink()
    with pytest.raises(DataError, match=r"'heldout_000040' .* was interrupted .* --step 40"):
        find(copy, evaluation="heldout_000040")
    (copy / "evaluations" / "heldout_000000.summary.json").unlink()
    with pytest.raises(DataError, match="was interrupted before its summary was written"):
        find(copy)
    (copy / "evaluations" / "heldout_000000.summary.json").write_text("{")
    with pytest.raises(DataError, match="evaluate again"):
        find(copy, evaluation="heldout_000000")


def test_a_task_that_is_no_longer_derivable_is_named(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    recipe = json.loads((copy / "config.json").read_text())
    recipe["environment"]["args"]["seed"] = 7
    (copy / "config.json").write_text(json.dumps(recipe))
    with pytest.raises(DataError, match=r"held-out task 0 is now .* was played; .* evaluate again"):
        find(copy)


def test_a_family_without_an_oracle_still_has_names(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.environments.search_qa.family.SearchQA.policies", lambda self: {})
    table = find(run, step=0)[0]
    assert {each["why_not"] for each in table["badcases"]} == {
        "the family has no oracle; name another method with --by"
    }
    assert table["faults"]
    with pytest.raises(ConfigError, match="environment 'search_qa' has no oracle; use --by continuations"):
        find(run, step=0, by="oracle")
