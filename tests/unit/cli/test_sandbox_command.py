"""`turnwise sandbox`: exit statuses, limits, JSON, and the table of properties."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from turnwise.cli.main import main; main()", "sandbox", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=60)


def test_a_program_s_output_status_and_stdin_are_the_command_s(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.stdin.read().upper())\nprint('late', file=sys.stderr)\nsys.exit(7)\n")
    done = run("run", str(program), stdin="hello")
    assert (done.returncode, done.stdout, done.stderr) == (7, "HELLO\n", "late\n")


def test_a_limit_is_named_and_gives_124(tmp_path: Path) -> None:
    program = tmp_path / "loop.py"
    program.write_text("while True: pass\n")
    done = run("run", str(program), "--timeout-s", "0.3")
    assert done.returncode == 124
    assert "stopped at the wall limit after 0.3" in done.stderr


def test_json_holds_the_whole_result_and_a_shell_script_runs_in_bash(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("echo $((6 * 7)); [[ -r /etc/shadow ]] && echo shadow\nexit 3\n")
    done = run("run", str(script), "--json")
    result = json.loads(done.stdout)
    assert (result["stdout"], result["exit_code"], result["limit"], done.returncode) == ("42\n", 3, None, 3)
    assert result["level"] != "none"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("missing.py",), "missing.py"),
        ((__file__, "--profile", "torch"), "it must be one of auto, std, numpy, numpy_random, sympy, openai, pytest"),
        ((__file__, "--level", "best"), "unknown sandbox level 'best'"),
        ((__file__, "--timeout-s", "0"), "limit wall_s is 0.0; it must be positive"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple[str, ...], expected: str) -> None:
    done = run("run", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_lists_every_property_with_what_enforces_it() -> None:
    report = json.loads(run("doctor", "--json").stdout)
    assert report["properties"]["net"] == {"enforced_by": "seccomp: no socket but AF_UNIX", "verified": True}
    unheld = [name for name, item in report["properties"].items() if item["enforced_by"] and not item["verified"]]
    assert unheld == []
