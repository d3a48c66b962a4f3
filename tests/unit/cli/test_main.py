"""The command line as a user sees it: quick help, one clear message, the right exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command
from typer.testing import CliRunner

from turnwise import __version__
from turnwise.audit.explain import ExplainedTurn, Explanation, TurnCredit
from turnwise.cli.main import Stopped, _expand_home, app, explain
from turnwise.core.errors import ConfigError

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
COMMAND = [sys.executable, "-c", "from turnwise.cli.main import main; main()"]


def invoke(*arguments: str | Path) -> str:
    """Standard output of a command run in this process; what it raises is raised here."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, turnwise.cli.main as m\n"
        "try: m.app(args=['--help'])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "print(sorted({'torch', 'transformers', 'tokenizers', 'renderers', 'bm25s', 'numpy', 'pydantic'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("train", "sft", "evaluate", "ask", "report", "tasks", "doctor"):
        assert f" {command} " in done.stdout


def test_importing_the_package_is_light() -> None:
    code = "import sys, turnwise; sys.exit(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version() -> None:
    assert invoke("--version") == f"{__version__}\n"


def test_dry_run_prints_the_resolved_recipe_and_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    output = invoke("train", TINY, "train.steps=7", f"run.output={tmp_path / 'runs'}", "--dry-run")
    tree, end = json.JSONDecoder().raw_decode(output)
    assert tree["train"]["steps"] == 7
    assert tree["credit"]["method"] == "grpo"  # a default the recipe does not mention
    trajectories = tree["rollout"]["tasks_per_step"] * tree["rollout"]["group_size"]
    [line] = [line for line in output[end:].splitlines() if line.startswith("trajectories per RL step")]
    assert line.endswith(f" {trajectories}")
    assert "key-value cache" in output[end:]
    [line] = [line for line in output[end:].splitlines() if line.startswith("device ")]
    assert line.split()[1] in ("cpu", "cuda")
    assert tree["train"]["micro_batch_tokens"] > 0  # chosen for this machine
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_what_does_not_fit_prints_the_plan_and_then_refuses(tmp_path: Path) -> None:
    done = run_command(
        "train", TINY, "engine.max_concurrency=1000000000", f"run.output={tmp_path / 'runs'}", "--dry-run", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "peak of engine and trainer" in done.stdout
    assert done.stderr.startswith("error: no train.micro_batch_tokens fits: even 256 needs")
    assert "use engine.max_concurrency=" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_later_file_wins_and_a_file_name_may_hold_an_equals_sign(tmp_path: Path) -> None:
    extra = tmp_path / "lr=big.toml"
    extra.write_text("[train]\nlr = 0.5\n", encoding="utf-8")
    tree, _ = json.JSONDecoder().raw_decode(invoke("train", TINY, extra, "--dry-run"))
    assert tree["train"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["train", "{tiny}", "train.stepz=3"],
            "override 'train.stepz=3': unknown key 'train.stepz'; did you mean 'train.steps'?",
        ),
        (["train", "{tiny}", "engine.max_concurrency=1000000000"], "no train.micro_batch_tokens fits: even 256 needs"),
        (
            ["train", "{tiny}", "train.micro_batch_tokens=1000000000"],
            "train.micro_batch_tokens=1000000000 does not fit: the run needs",
        ),
        (["train", "nowhere.toml"], "recipe file 'nowhere.toml' does not exist"),
        (["train"], "no recipe given; for example"),
        (["train", "train.micro_batch_tokens=1000000000"], "train.micro_batch_tokens=1000000000 does not fit"),
        (["train", "{tiny}", "--resume", "x"], "--resume x continues a run with its own recipe"),
        (["train", "{tiny}", "--wait", "3"], "--wait needs a run to resume"),
        (["train", "{tiny}", "--repair"], "--repair needs a run to resume"),
        (["train", "--resume", "auto"], "no recipe given; for example"),
        (["train", "--resume", "nowhere"], "nowhere"),
        (
            ["train", "{tiny}", "--device", "cpu"],
            "--device cpu needs --resume; for a new run use model.device=cpu",
        ),
        (["train", "--resume", "nowhere", "--device", "cpu"], "nowhere"),
        (
            ["train", "{tiny}", "--ranks", "2"],
            "--ranks 2 needs --resume; for a new run use train.ranks=2",
        ),
        (["train", "--resume", "nowhere", "--ranks", "2"], "nowhere"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "nowhere", "--set", "search"], "--set 'search' is not of the form key=value"),
        (["report", "nowhere"], "nowhere"),
        (["ask", "nowhere", "who?"], "nowhere"),
        (["tasks", "{tiny}", "--split", "test"], "--split is 'test'; it must be train or heldout"),
        (
            ["tasks", "{tiny}", "--count", "1", "--export", "no/such/folder/t.jsonl"],
            "name a file in an existing folder",
        ),
        (["tasks", "{tiny}", "environment.name=nothing"], "environment.name='nothing' is n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_raises_one_clear_message(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    from turnwise.core.errors import TurnwiseError

    with pytest.raises(TurnwiseError) as caught:
        invoke(*(a.format(tiny=TINY) for a in arguments))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_line_and_exit_code_2_and_debug_shows_where(tmp_path: Path) -> None:
    done = run_command("train", "nowhere.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: recipe file 'nowhere.toml' does not exist")
    assert done.stderr.count("\n") == 1
    for arguments in (["--debug", "train", "nowhere.toml"], ["train", "nowhere.toml", "--debug"]):
        done = run_command(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert "Traceback" in done.stderr


@pytest.mark.parametrize("module", ["turnwise", "turnwise.cli.main"])
def test_python_m_is_the_command_line(module: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        return done.returncode, done.stdout, done.stderr

    assert run("--version") == (0, f"{__version__}\n", "")
    code, output, error = run("train", "nowhere.toml")
    assert (code, output) == (2, "")
    assert error.startswith("error: recipe file 'nowhere.toml' does not exist")
    assert error.count("\n") == 1


def test_a_module_of_the_current_folder_is_found_and_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from turnwise.testing import NotesFamily\n", encoding="utf-8")
    (tmp_path / "json.py").write_text("raise SystemError\n", encoding="utf-8")
    (tmp_path / "r.toml").write_text("environment.name = 'mine:NotesFamily'\n", encoding="utf-8")
    script = (
        tmp_path / "bin" / "turnwise"
    )  # as an installed command: its own folder is on the path, not the current one
    script.parent.mkdir()
    script.write_text("from turnwise.cli.main import main\nmain()\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script, "tasks", "r.toml", "--count", "1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["prompt"][0]["content"].startswith("start ")


def test_a_wrong_option_is_exit_code_2() -> None:
    done = run_command("train", "--nonsense")
    assert done.returncode == 2
    assert "--nonsense" in done.stderr


def test_stored_texts_command_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task, a reply and what an error repeats."""
    turn = ExplainedTurn(
        text="\x1b[2Jreply", num_tokens=1, reward=0.0, state=None, twins=0, parent=None, ends="", credit={}
    )
    stored = Explanation(
        prompt="\x1b]0;task\x07", stop="done", reward=1.0, group_rewards=(1.0,), columns=(), turns=(turn,)
    )
    monkeypatch.setattr("turnwise.runs.explain.explain_trajectory", lambda *_: stored)
    shown = invoke("algorithms", "explain", "run", "0/0")
    assert "\ufffd[2Jreply" in shown
    assert "\ufffd]0;task\ufffd" in shown
    assert "\x1b" not in shown
    done = run_command("report", "nowhere\x1b[2J")
    assert done.returncode == 2
    assert "nowhere\ufffd[2J" in done.stderr


def test_numbers_beside_a_long_reply_are_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = tuple(f"a method with a long name, number {number}" for number in range(8))
    credit = TurnCredit(mean=0.123456, low=-1.0, high=1.0)
    turn = ExplainedTurn(
        text="word " * 99,
        num_tokens=1234567,
        reward=0.0,
        state=None,
        twins=0,
        parent=None,
        ends="",
        credit=dict.fromkeys(columns, credit),
    )
    stored = Explanation(prompt="", stop="done", reward=1.0, group_rewards=(1.0,), columns=columns, turns=(turn,))
    monkeypatch.setattr("turnwise.runs.explain.explain_trajectory", lambda *_: stored)
    shown = invoke("algorithms", "explain", "run", "0/0")
    assert all(column in shown for column in (*columns, "1234567"))
    assert shown.count("-1.0000 to +1.0000") == 8
    assert shown.count("word") == 99


def test_explain() -> None:
    assert explain(ConfigError("x is 3; use 4")) == ("error: x is 3; use 4", 2)
    assert explain(Stopped("stopped")) == ("stopped", 130)
    message, code = explain(MemoryError())
    assert code == 2
    assert "lower engine.max_concurrency" in message


@pytest.mark.parametrize(
    "arguments", [["train"], ["tasks", "--count", "10000000", "--export", "tasks.jsonl"]], ids=lambda a: a[0]
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_ctrl_c_is_one_line_and_exit_code_130(arguments: list[str], number: signal.Signals, tmp_path: Path) -> None:
    command, *options = arguments
    # The recipe is a pipe without data, so that the command is still reading it when the signal arrives.
    recipe = tmp_path / "slow.toml"
    os.mkfifo(recipe)
    process = subprocess.Popen(
        [*COMMAND, command, str(recipe), *options], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        with open(recipe, "w", encoding="utf-8"):  # opens when the command opens the other end
            time.sleep(0.2)
            process.send_signal(number)
            _, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error.startswith("stopped")
    assert error.count("\n") == 1


CTRL_C_WHERE_PYTHON_DROPS_IT = """
import signal, time, weakref
from turnwise.cli.main import app, main

class Node: pass

@app.command()
def wait():
    node = Node()
    reference = weakref.ref(node, lambda _: signal.raise_signal(signal.SIGINT))
    del node
    time.sleep(60)

main()
"""


TERM_TWICE = """
import signal, sys
from turnwise.cli.interrupts import end_as_interrupted

end_as_interrupted()
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    print("cleaning up", flush=True)
    signal.raise_signal(signal.SIGTERM)
print("still here")
"""


def test_a_second_sigterm_ends_the_process_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", TERM_TWICE], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "cleaning up\n")


TERM_IN_A_LOOP = """
import asyncio, os, signal
from turnwise.cli.interrupts import end_as_interrupted

async def work():
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
    try:
        await asyncio.sleep(30)
    finally:
        print("cleaning up", flush=True)

signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a background job of a script
end_as_interrupted()
try:
    asyncio.run(work())
except KeyboardInterrupt:
    print("stopped")
"""


def test_a_sigterm_stops_a_background_job_of_a_script() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TERM_IN_A_LOOP], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "cleaning up\nstopped\n"


def test_the_home_folder_is_found_where_a_shell_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    arguments = ["--resume=~/runs/a", "~/b.toml", "run.output=~/runs", "--export=x~/y", "~nobody-of-this-name/z"]
    # An override is expanded where the recipe is read.
    assert [_expand_home(each) for each in arguments] == [
        "--resume=/home/me/runs/a",
        "/home/me/b.toml",
        *arguments[2:],
    ]


def test_ctrl_c_during_an_evaluation_says_that_nothing_of_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("turnwise.runs.evaluate.run_evaluate", interrupted)
    with pytest.raises(Stopped, match="this evaluation is not stored, and earlier ones of runs/a are unchanged"):
        app(["evaluate", "runs/a"], standalone_mode=False)


def test_ctrl_c_during_a_callback_is_not_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C_WHERE_PYTHON_DROPS_IT, "wait"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr.startswith("stopped")
    assert done.stderr.count("\n") == 1


def test_tasks_prints_and_exports_the_same_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    invoke("tasks", TINY, "--count", "3", "--export", path)
    exported = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(exported) == 3
    assert all(row["prompt"] and row["payload"] for row in exported)
    first, _ = json.JSONDecoder().raw_decode(invoke("tasks", TINY, "--count", "1"))
    assert first == exported[0]
    training, _ = json.JSONDecoder().raw_decode(invoke("tasks", TINY, "--count", "1", "--split", "train"))
    assert training != first


def test_the_tables_of_methods_show_the_names_of_the_papers() -> None:
    tables = json.loads(invoke("algorithms", "--json"))
    vine = next(row for row in tables["credit"] if row["name"] == "vine")
    assert (vine["also called"], vine["compares"], vine["samples"]) == (["VinePPO"], "nothing", ["continuations"])
    samples = {row["name"]: row["samples"] for row in tables["credit"] if row["samples"]}
    assert set(samples) == {"vine", "tree", "arpo", "remax", "igpo"}
    assert samples["remax"] == ["greedy baseline"]
    text = invoke("algorithms")  # not a terminal: no cell is folded
    for row in (*tables["credit"], *tables["loss"]):
        assert all(row[column] in text for column in ("formula", "paper"))
    assert all(name in text for name in ("VinePPO", "Tree-GRPO", "MT-GRPO", "DPPO-Binary-KL"))


def test_doctor_names_versions_and_speed() -> None:
    findings = json.loads(invoke("doctor", "--json"))
    assert findings["python"].startswith("3.")
    assert findings["cores"] >= 1
    assert "missing" not in findings["torch"]
    assert findings["matrix multiply, 1 thread"].endswith("GFLOP/s")
    assert float(findings["matrix multiply, 1 thread"].split()[0]) > 0
