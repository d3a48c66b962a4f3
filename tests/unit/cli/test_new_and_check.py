"""`turnwise new env` writes a package that works; `turnwise check env` judges and exits."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from installed import write_entry_points
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.cli.new import write_package
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new package as an editable installation leaves it: its folder and its entry points on the path."""
    folder = write_package("number_game", tmp_path)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    write_entry_points(folder, project["name"], project["entry-points"])
    monkeypatch.syspath_prepend(folder)
    return folder


def test_the_new_package_passes_its_own_test(package: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


def test_the_new_package_is_listed_and_passes_the_check(package: Path) -> None:
    code, text = run("check", "env")
    assert code == 0
    assert "number_game number_game:NumberGame (number_game)" in [" ".join(line.split()) for line in text.splitlines()]
    code, text = run("check", "env", "number_game", "--tasks", "16")
    assert code == 0, text
    assert "pass  oracle" in text


@pytest.mark.slow
def test_the_new_package_trains(package: Path, tmp_path: Path) -> None:
    from turnwise.runs.train import run_train
    from turnwise.store.run_folder import RunFolder

    short = ["sft.steps=4", "sft.num_demonstrations=32", "train.steps=2", "evaluate.tasks=4"]
    short += ["rollout.tasks_per_step=2", "rollout.group_size=4", "train.num_threads=1", f"run.output={tmp_path}"]
    folder = RunFolder.open(run_train(load_config([package / "tiny.toml"], short), resume=None, display=False))
    assert [row["step"] for row in folder.read_metrics() if row["phase"] == "train"] == [1, 2]


@pytest.mark.parametrize("name", ["Game", "9lives", "my-game", "class", "search_qa", "../game", "numpy", "json", "sys"])
def test_a_name_that_cannot_be_one_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name"):
        write_package(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_never_written_over(tmp_path: Path) -> None:
    write_package("number_game", tmp_path)
    with pytest.raises(ConfigError, match="exists"):
        write_package("number_game", tmp_path)


FAULTY = '''
class Open:
    """Anything wins."""

    def reset(self, seed: int) -> str:
        return "Go."

    def go(self, where: str) -> str:
        """Go.

        Args:
            where: Anywhere.
        """
        return ""

    def get_reward(self) -> float:
        return 1.0
'''


def test_a_fault_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty_module.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    code, text = run("check", "env", "faulty_module:Open", "--tasks", "4")
    assert code == 1
    assert "fail  random" in text
    assert "fail  attack: empty reply" in text


def test_a_recipe_brings_its_arguments_and_its_controls() -> None:
    code, text = run("check", "env", "search_r1/tiny", "--tasks", "12")
    assert "control search_off" in text
    assert code in (0, 1)


def test_rows_of_the_wrong_layout_are_named(tmp_path: Path, package: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"high": 3}\n{"hight": 3}\n')
    with pytest.raises(Exception, match=r"rows.jsonl:2: NumberGame.reset does not accept the columns"):
        run("check", "env", "number_game", f"path={rows}")
    with pytest.raises(Exception, match=r"rows.jsonl:2: NumberGame.reset does not accept the columns"):
        run("check", "env", "number_game", f"environment.args.path={rows}")
