"""Short runs of `recipes/agents`: agents written with other people's clients train, and the audit agrees."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.config.load import load_config
from turnwise.core.errors import TurnwiseError
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train

ROOT = Path(__file__).parents[2]
SHORT = ["sft.steps=2", "sft.num_demonstrations=32", "sft.batch_size=8", "train.steps=2", "evaluate.tasks=4"]
SHORT += ["rollout.tasks_per_step=2", "rollout.group_size=4", "engine.num_threads=1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "packages"),
    [
        (["tiny"], ["openai"]),
        (["first_run"], ["openai"]),
        (["tiny", "langgraph"], ["langgraph", "langchain_openai"]),
        (["tiny", "team", "team_roles"], ["langgraph", "langchain_openai"]),
        (["tiny", "smolagents"], ["smolagents"]),
    ],
)
def test_a_run_of_an_agent_passes_the_audit(
    names: list[str], packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in packages:
        pytest.importorskip(package)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    files = [ROOT / "recipes" / "agents" / f"{name}.toml" for name in names]
    recipe = load_config(files, [*SHORT, f"run.output={tmp_path}"])
    run = run_train(recipe, resume=None, display=False)
    report = audit_run(run, replay_tools=False)
    assert report.breaches == []
    assert report.to_json()["ok"]
    if names == ["tiny"]:
        check_commands(run, tmp_path)


PROGRAM = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)
body = {"model": os.environ["TURNWISE_MODEL"], "messages": task["prompt"]}
headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
open(os.environ["HOME"] + "/asked", "a").write(task["id"] + "\\n")
"""


def check_commands(run: Path, folder: Path) -> None:
    """`turnwise evaluate RUN --command` plays held-out tasks with a program, and says what is wrong with it."""
    program = folder / "a program.py"
    program.write_text(PROGRAM)

    def evaluate(*arguments: str) -> Any:
        environment = {"HOME": str(folder)}
        return CliRunner().invoke(app, ["evaluate", str(run), *arguments], env=environment)

    done = evaluate("--command", f"{sys.executable} '{program}'", "--tasks", "3", "--json")
    assert done.exit_code == 0, done.output
    [row] = [row for row in json.loads(done.stdout)["rows"] if row["kind"] == "all"]
    asked = (folder / "asked").read_text().split()
    assert (row["episodes"], row["invalid"], len(asked), len(set(asked))) == (3, 0, 3, row["n"])
    for arguments, problem in (
        (("--command", f"{sys.executable} -c 'raise SystemExit(3)'"), "ended with status 3"),
        (("--command", "/nothing/there"), "'/nothing/there' cannot be started"),
        (("--command", f"{sys.executable} -c pass"), "received no reply"),
        (("--command", " "), "--command is empty; name a program"),
        (("--command", "x", "--agent", "y:z"), "give one of them"),
    ):
        failed = evaluate(*arguments, "--tasks", "1")
        assert isinstance(failed.exception, TurnwiseError), (arguments, failed.output)
        assert problem in str(failed.exception)
