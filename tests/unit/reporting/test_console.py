from __future__ import annotations

import io
import math
import subprocess
import sys

import pytest
from rich.console import Console

from turnwise.reporting.console import Display, format_numbers, format_seconds, results_table

VALUES = {
    "rollout/reward": 0.534,
    "rollout/success": 0.51,
    "rollout/tool_calls": 1.32,
    "rollout/tokens_per_s": 5210.4,
    "train/loss": 0.1,
}


def make_console() -> tuple[io.StringIO, Console]:
    stream = io.StringIO()
    return stream, Console(file=stream, force_terminal=False, width=200)


def test_without_a_terminal_a_step_is_one_line() -> None:
    stream, console = make_console()
    with Display(total_steps=12, title="demo", console=console) as show:
        show.phase("rollout")
        show.phase("train")
        show.update(12, VALUES)
    assert stream.getvalue() == "step 12/12  reward 0.53  success 0.51  calls 1.32  tok/s 5,210\n"


def test_fast_steps_are_thinned_out_but_the_last_one_shows() -> None:
    stream, console = make_console()
    with Display(total_steps=5, title="demo", console=console) as show:
        show.phase("sft", total=300)
        for step in range(1, 301):
            show.update(step, {"sft/loss": 1.0})
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("sft 1/300  loss 1.000")
    assert lines[-1].startswith("sft 300/300")
    assert len(lines) < 10


def test_time_left_counts_the_steps_after_the_first() -> None:
    # Resumed at step 41 of 60, after 300 s of demonstrations; step 42 took 10 s, so 18 steps are left: 180 s = 3m00s
    now = 100.0
    stream, console = make_console()
    with Display(total_steps=60, title="demo", console=console, clock=lambda: now) as show:
        show.phase("rollout")
        now += 300.0
        show.update(41, {})
        now += 10.0
        show.update(42, {})
    assert stream.getvalue() == "step 41/60\nstep 42/60  left 3m00s\n"


def test_a_number_that_is_missing_or_not_finite_is_left_out() -> None:
    assert (
        format_numbers({"rollout/reward": None, "rollout/success": math.nan, "rollout/tool_calls": 2.0}) == "calls 2.00"
    )


def test_not_enabled_shows_nothing_and_markup_stays_text() -> None:
    stream, console = make_console()
    with Display(total_steps=1, title="[bold]x", enabled=False, console=console) as show:
        show.phase("rollout")
        show.update(1, VALUES)
        show.note("hidden")
    assert stream.getvalue() == ""
    with Display(total_steps=1, title="[/bold]x", console=console) as show:
        show.phase("[/red]")
        show.note("[/red] kept")
    assert "[/red] kept" in stream.getvalue()


def test_what_a_note_repeats_of_a_model_commands_no_terminal() -> None:
    stream, console = make_console()
    with Display(total_steps=1, title="demo", console=console) as show:
        show.note("the answer \x1b[2J\r\x9b1m is no [0,\xa01]")
    assert stream.getvalue().endswith("the answer \ufffd[2J\ufffd\ufffd1m is no [0,\xa01]\n")


def test_a_terminal_gets_a_live_line_and_it_ends_with_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR"):  # either asks for plain lines, wherever the tests run
        monkeypatch.delenv(name, raising=False)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=160, _environ={"TERM": "xterm"})

    def interrupted() -> None:
        with Display(total_steps=3, title="[demo]", console=console) as show:
            show.phase("rollout")
            show.update(1, VALUES)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().rstrip().endswith("\x1b[2K")  # the transient line is wiped
    assert "\x1b[?25h" in stream.getvalue()  # and the cursor is back


def test_no_color_gives_lines_even_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    with Display(
        total_steps=1, title="demo", console=Console(file=stream, force_terminal=True, width=120, highlight=False)
    ) as show:
        show.phase("rollout")
        show.update(1, VALUES)
    assert stream.getvalue().startswith("step 1/1  reward 0.53")


def test_a_reader_that_goes_away_does_not_end_the_run() -> None:
    program = (
        "from turnwise.reporting.console import Display\n"
        "import sys, time\n"
        "sys.stdin.readline()\n"
        "with Display(total_steps=9, title='demo') as show:\n"
        "    show.phase('rollout')\n"
        "    for step in range(1, 10):\n"
        "        show.note('x' * 100_000)\n"
        "print('trained')\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:  # type: ignore[call-overload]
        process.stderr.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stdout.read() == "trained\n"


def test_seconds_as_people_say_them() -> None:
    assert [format_seconds(s) for s in (-1, 4.4, 59.4, 80, 3600)] == ["0s", "4s", "59s", "1m20s", "60m00s"]


def test_the_results_table_shows_every_kind_with_its_interval() -> None:
    def row(kind: str, n: int, success: float) -> dict[str, object]:
        return {"kind": kind, "n": n, "success": success, "low": 0.1, "high": 0.255, "tool_calls": 1.5}

    stream, console = make_console()
    before = {"label": "before [RL]", "rows": [row("all", 30, 0.2)]}
    after = {"label": "after RL", "rows": [row("2hop", 20, 0.25), row("none", 0, 0.0), row("all", 30, 0.25)]}
    console.print(results_table([before, after]))
    text = stream.getvalue().replace("\u00a0", " ")
    assert "before [RL]" in text
    assert "25.0% [10.0, 25.5]" in text
    assert text.index("│ 2hop") < text.index("│ all")
    console.print(results_table([]))
