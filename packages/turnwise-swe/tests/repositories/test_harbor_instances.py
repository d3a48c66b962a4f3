"""Instances as Harbor's task folders: written, read back, judged without a container, and refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import CORE, INSTANCE

from turnwise.core.errors import ConfigError, DataError
from turnwise_swe.commands.swe import export_tasks, import_tasks
from turnwise_swe.harbor.instances import check_tree, read_instance_folder, write_instance
from turnwise_swe.harbor.tasks import read_task, write_task
from turnwise_swe.repositories.instance import load_instances, write_instances
from turnwise_swe.repositories.repository import Repository

TOLD = replace(INSTANCE, issue="Sums are wrong.\n", kind=("swap",), difficulty="easy")


@pytest.fixture(scope="module")
def task(sums: Repository, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_instance(tmp_path_factory.mktemp("tasks"), TOLD, sums)


def test_an_instance_comes_back_as_it_was(task: Path, sums: Repository):
    assert read_instance_folder(task) == TOLD
    check_tree(task, sums)


def test_the_agent_is_shown_the_bug_and_not_the_way_out(task: Path):
    assert (task / "instruction.md").read_text().startswith("Sums are wrong.\n\n\nThe repository is in /testbed.")
    shown = {path.relative_to(task / "environment") for path in (task / "environment").rglob("*") if path.is_file()}
    assert Path("testbed/src/sums/core.py") in shown
    assert "return a - b" in (task / "environment/testbed/src/sums/core.py").read_text()
    assert not any(b"return a + b" in (task / "environment" / path).read_bytes() for path in shown)
    assert "FROM python:" in (task / "environment/Dockerfile").read_text()


def judge(task: Path, testbed: Path, site_packages: Path) -> str:
    command = [sys.executable, str(task / "tests/judge.py"), str(testbed), str(task / "tests"), str(site_packages)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return ended.stdout


@pytest.fixture
def testbed(task: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(task / "environment/testbed", tmp_path / "testbed"))


def test_the_bug_gets_0_and_the_solution_1(task: Path, testbed: Path, sums: Repository):
    assert judge(task, testbed, sums.site_packages) == "0\n"
    subprocess.run(["sh", str(task / "solution/solve.sh")], check=True, env={"TESTBED": str(testbed)})
    assert (testbed / "src/sums/core.py").read_text() == CORE
    assert judge(task, testbed, sums.site_packages) == "1\n"


def test_changes_of_tests_and_their_settings_do_not_count(task: Path, testbed: Path, sums: Repository):
    (testbed / "tests/test_core.py").write_text("def test_add(): pass\n")
    (testbed / "src/sums/conftest.py").write_text("import os\nos._exit(0)\n")
    (testbed / "pytest.py").write_text("raise SystemExit(0)\n")
    (testbed / "src/sums/more.py").symlink_to("/etc/passwd")
    assert judge(task, testbed, sums.site_packages) == "0\n"


def test_a_run_that_is_cut_short_gets_0(task: Path, testbed: Path, sums: Repository):
    (testbed / "src/sums/core.py").write_text(CORE + "\nimport os\nos._exit(0)\n")
    assert judge(task, testbed, sums.site_packages) == "0\n"


def test_a_source_that_replaces_what_runs_the_tests_gets_0(task: Path, testbed: Path, sums: Repository):
    core = testbed / "src/sums/core.py"
    core.write_text(core.read_text() + "\nimport _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n")
    assert judge(task, testbed, sums.site_packages) == "0\n"


def test_a_row_of_the_swe_bench_adapter_is_read_and_the_instruction_is_the_issue(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    row = {name: value for name, value in INSTANCE.to_row().items() if name not in ("kind", "difficulty")}
    row["FAIL_TO_PASS"] = json.dumps(row["FAIL_TO_PASS"])  # as in SWE-bench's first releases
    (tmp_path / "tests/config.json").write_text(json.dumps(row))
    (tmp_path / "instruction.md").write_text("What somebody wrote.")
    assert read_instance_folder(tmp_path) == replace(INSTANCE, issue="What somebody wrote.")


def test_a_folder_with_nothing_but_a_dockerfile_is_named_with_the_remedy(tmp_path: Path):
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "instruction.md").write_text("Do it.")
    with pytest.raises(DataError, match=r"is a Dockerfile, which Turnwise does not build.*run it with Harbor"):
        read_instance_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "cannot read"), ("[]", "not an instance row"), ('{"repo": "a"}', "not an instance row")],
)
def test_a_damaged_row_is_named(tmp_path: Path, text: str, message: str):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/instance.json").write_text(text)
    (tmp_path / "instruction.md").write_text("Do it.")
    with pytest.raises(DataError, match=message):
        read_instance_folder(tmp_path)


def test_what_does_not_fit_is_refused(task: Path, sums: Repository, tmp_path: Path):
    with pytest.raises(DataError, match="exists; name an empty folder"):
        write_instance(task.parent, TOLD, sums)
    with pytest.raises(DataError, match="not a valid folder name"):
        write_instance(tmp_path, replace(TOLD, instance_id="../out"), sums)
    with pytest.raises(DataError, match=r"made from a different tree of sums==1.0"):
        check_tree(task, replace(sums, digest="0" * 64))


def test_the_folder_is_a_task_of_harbor_like_any_other(task: Path, tmp_path: Path):
    row = read_task(task)
    assert row.kind == "repository"
    again = write_task(tmp_path, 1, row)
    assert read_instance_folder(again) == TOLD


def test_the_commands_write_and_read_and_name_what_cannot_be_used(
    sums: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def load(key: str, library: Path) -> Repository:
        if key != sums.key:
            raise ConfigError(f"repository {key} is not on this machine")
        return sums

    monkeypatch.setattr("turnwise_swe.repositories.library.load_repository", load)
    rows, folder, again = tmp_path / "rows.jsonl", tmp_path / "tasks", tmp_path / "again.jsonl"
    write_instances(rows, [TOLD, replace(TOLD, instance_id="sums-2")])
    export_tasks(folder, rows)
    other = folder / "other"
    shutil.copytree(folder / "sums-2", other)
    elsewhere = {**replace(TOLD, instance_id="x").to_row(), "version": "9"}
    (other / "tests/instance.json").write_text(json.dumps(elsewhere))
    (folder / "plain").mkdir()
    (folder / "plain/instruction.md").write_text("Do it.")
    import_tasks(folder, again)
    said = capsys.readouterr().out
    assert load_instances(again) == load_instances(rows)
    assert "not read: repository sums==9 is not on this machine" in said
    assert f"not read: {folder / 'plain'}: its environment is a Dockerfile" in said
    assert f"2 instances in {again}, 2 folders skipped" in said
    with pytest.raises(DataError, match="none of its 1 task folders can be used here"):
        import_tasks(folder / "plain", again)
