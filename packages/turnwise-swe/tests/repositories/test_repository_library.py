"""Repositories are made once, kept whole or not at all, and graded from the command line; without network."""

import functools
import io
import json
import tarfile
import threading
import time
from pathlib import Path

import pytest
from tiny import FILES, INSTANCE, copy_pytest, in_sandbox
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.core.errors import ConfigError, DataError, TurnwiseError
from turnwise_swe.repositories import library
from turnwise_swe.repositories.instance import write_instances
from turnwise_swe.repositories.library import add_repository, default_library, list_repositories, load_repository


def pack_sums(path: Path) -> Path:
    """The tiny package as a source distribution."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in FILES.items():
            member = tarfile.TarInfo(f"sums-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that has pytest, which pip would fetch."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = default_library()
    library._make_folder(folder, [[library.PYTEST]], copy_pytest)
    return folder


def test_a_source_distribution_is_added_once_and_its_patches_are_graded(cache: Path, tmp_path: Path) -> None:
    sdist = pack_sums(tmp_path / "sums-1.0.tar.gz")
    added = in_sandbox(lambda sandbox: add_repository(sandbox, str(sdist), cache))
    assert load_repository("sums==1.0", cache) == added
    assert (added.source_folders, len(added.baseline.passing)) == (("src/sums",), 5)
    assert list_repositories(cache) == ["sums==1.0"]
    [baseline] = (cache / "baselines").iterdir()
    written = baseline.stat().st_mtime_ns
    assert in_sandbox(lambda sandbox: add_repository(sandbox, str(sdist), cache)) == added
    assert baseline.stat().st_mtime_ns == written

    run = CliRunner()
    assert "5 stable tests,     5 pass,     5 of them apart" in run.invoke(app, ["repos", "list"]).output
    assert "5 of     5 100%; all" in run.invoke(app, ["repos", "apart", "sums==1.0"]).output
    shown = json.loads(run.invoke(app, ["repos", "show", "sums==1.0", "--json"]).output)
    assert shown["digest"] == added.digest
    instances = tmp_path / "instances.jsonl"
    write_instances(instances, [INSTANCE])
    answer = run.invoke(app, ["swe", "grade", "gold", "--instances", str(instances)])
    report = json.loads(answer.output)
    assert (report["resolved_ids"], report["forgeable_instances"]) == (["sums-1"], 0)
    control = json.loads(run.invoke(app, ["swe", "grade", "noop", "--instances", str(instances)]).output)
    assert control["endings"] == {"unresolved": 1}
    predictions = tmp_path / "predictions.jsonl"
    predictions.write_text(json.dumps({"instance_id": "sums-1", "model_patch": INSTANCE.patch}))
    output = tmp_path / "report.json"
    arguments = ["swe", "grade", str(predictions), "--instances", str(instances), "--output", str(output)]
    assert run.invoke(app, arguments).output == f"0 of 1 resolved; report in {output}\n"
    assert json.loads(output.read_text())["endings"] == {"patch_failed": 1}

    baseline.write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        load_repository("sums==1.0", cache)


def test_what_the_suite_of_an_own_package_needs_is_installed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "own"
    more = {"tests/test_more.py": "import helper\ndef test_more(): assert helper.two == 2\n"}
    for name, text in (FILES | more).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    run = CliRunner()
    answer = run.invoke(app, ["repos", "add", str(project)])
    assert "5 pass" in answer.output
    assert "(no module helper: add it again with --requires)" in answer.output

    def install(wanted: list[str], folder: Path) -> Path:
        def fill(target: Path) -> None:
            copy_pytest(target)
            (target / "helper.py").write_text("two = 2\n")

        assert wanted == [library.PYTEST, "helper>=1"]
        return library._make_folder(folder, [wanted], fill)

    monkeypatch.setattr(library, "_install", install)
    answer = run.invoke(app, ["repos", "add", str(project), "--requires", "helper>=1", "--option=-q"])
    assert "6 pass" in answer.output
    assert "left out: nothing\n" in answer.output


@pytest.mark.slow
def test_bugs_are_made_verified_and_graded_from_the_command_line(cache: Path, tmp_path: Path) -> None:
    run = CliRunner()
    assert run.invoke(app, ["repos", "add", str(pack_sums(tmp_path / "sums-1.0.tar.gz"))]).exit_code == 0
    out, predictions, report = (tmp_path / name for name in ("b.jsonl", "p.jsonl", "r.json"))
    make = ["bugs", "make", "sums==1.0", "--out", str(out), "--num", "2"]
    assert "2 bugs" in run.invoke(app, make).output
    before = out.read_bytes()
    assert "left out" not in run.invoke(app, make).output
    assert out.read_bytes() == before
    first, second = (json.loads(line)["instance_id"] for line in before.splitlines())
    rows = [{"instance_id": name, "model_patch": patch} for name, patch in ((first, ""), (first, "x"), (second, ""))]
    predictions.write_text("\n".join(map(json.dumps, rows)))
    answer = run.invoke(app, ["swe", "grade", str(predictions), "--instances", str(out), "--output", str(report)])
    assert "0 of 2 resolved in one of 2 rounds, 0.0% on average" in answer.output
    assert json.loads(report.read_text())["submitted_predictions"] == 3


def test_what_is_not_there_is_named(cache: Path) -> None:
    with pytest.raises(ConfigError, match="run `turnwise repos add toolz==1"):
        load_repository("toolz==1.2.0", cache)
    for what, message in (
        ("no/such/folder", "does not exist"),
        ("nothing==1", "cannot be added by name"),
        ("nothing", "not of the form name==version"),
    ):
        with pytest.raises(TurnwiseError, match=message):
            in_sandbox(functools.partial(add_repository, what=what, library=cache))


def test_parts_are_made_once_and_abandoned_ones_are_removed(tmp_path: Path) -> None:
    made: list[Path] = []

    def fill(folder: Path) -> None:
        made.append(folder)
        (folder / "half").write_text("")
        time.sleep(0.2)
        (folder / "half").rename(folder / "whole")

    (tmp_path / "environments" / ".new-4194999-x").mkdir(parents=True)  # above the largest process id
    threads = [threading.Thread(target=library._make_folder, args=(tmp_path, ["a"], fill)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    [folder] = (tmp_path / "environments").iterdir()
    assert len(made) == 1
    assert [path.name for path in folder.iterdir()] == ["whole"]

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise DataError("no")

    with pytest.raises(DataError, match="no"):
        library._make_folder(tmp_path, ["b"], fail)
    assert [path.name for path in (tmp_path / "environments").iterdir()] == [folder.name]
