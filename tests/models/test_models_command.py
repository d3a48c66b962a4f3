"""`benchmarks/models.py`: a row for a model that works, one that is refused, and ones that take too long or die."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).parents[2] / "benchmarks" / "models.py"


def run(*arguments: str, program: str = "") -> str:
    """What the command prints; `program` changes it before it starts."""
    start = f"import runpy, sys; sys.argv = sys.argv[1:]; sys.path.insert(0, {str(COMMAND.parent)!r}); {program}\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{start}runpy.run_path(sys.argv[0], run_name='__main__')", str(COMMAND), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_the_command_prints_a_row_for_every_model(tmp_path: Path) -> None:
    printed = run("qwen3", "bert", "gemma3n", "--json", str(tmp_path / "rows.json"))
    assert [line.split(" | ")[:2] for line in printed.splitlines()[2:5]] == [
        ["| qwen3", "fast"],
        ["| bert", "refused"],
        ["| gemma3n", "not built"],
    ]
    assert "3 models: 1 fast, 1 refused, 1 not built." in printed
    rows = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    assert set(rows[0]["gaps"]) == {"packed", "shared", "sampled", "cached", "step"}
    assert rows[1]["gaps"] == {}


@pytest.mark.slow
def test_a_model_that_hangs_or_dies_is_a_row_like_the_others() -> None:
    assert "| qwen3 | failed |  |  |  |  |  |  | took longer than 0 s |" in run("qwen3", "--limit", "0.01")
    dies = (
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r}); import model_measures, os; "
        "model_measures.measure_model = lambda name: os._exit(7) if name == 'qwen3' else 1 / 0"
    )
    printed = run("qwen3", "llama", program=dies)
    assert "| qwen3 | failed |  |  |  |  |  |  | ended with 7:" in printed
    assert "| llama | failed |  |  |  |  |  |  | ended with 1: ZeroDivisionError: division by zero |" in printed
