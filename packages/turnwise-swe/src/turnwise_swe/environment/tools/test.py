"""`test`: run the tests of the tree as it is, and summarise the failures in a few lines."""

from __future__ import annotations

import re
from dataclasses import replace

from turnwise.core.errors import ToolFailure
from turnwise.tools.sandboxed import clip_middle
from turnwise_swe.environment.workspace import Workspace
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.testing import LIMITS, TestRun, run_repository

GOOD = ("passed", "skipped", "xfailed", "xpassed")
MAX_FAILURES = 3
"""Most failures shown with their last lines; further ones are only named."""
MAX_NAMED = 10
MAX_FRAMES = 2
MAX_ERROR_LINES = 6
ALL_PASS = "all pass"
"""How the answer begins if no test fails."""
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_FRAME = re.compile(r"^(\S+?):(\d+): (?:in (.+)|\S.*)$")


class Test:
    """Runs tests on a copy of the tree; their writes are not kept."""

    __test__ = False  # pytest would mistake the name for a class of tests

    def __init__(self, workspace: Workspace, max_chars: int, wall_s: float) -> None:
        """`wall_s` is the deadline of a run, in seconds of real time."""
        self._workspace = workspace
        self._max_chars = max_chars
        self._limits = replace(LIMITS, wall_s=wall_s)

    async def test(self, tests: str = "") -> str:
        """Run tests, and see which fail and where.

        Args:
            tests: Ids or files of tests with blanks between them; empty runs all.
        """
        run = await run_repository(
            self._workspace.sandbox,
            self._workspace.repository,
            self._workspace.layers(await self._workspace.changes())[1:],
            ids=split_ids(tests) or None,
            limits=self._limits,
        )
        if tests and not run.outcomes and not run.not_collected and run.problem is None:
            raise ToolFailure(f"there is no test {tests!r}; give ids such as tests/test_a.py::test_b, or a file")
        return clip_middle(summarize(run), self._max_chars)


def split_ids(tests: str) -> list[str]:
    """Return the ids in a text; parameters in brackets may contain spaces."""
    return re.findall(r"(?:[^\s\[]|\[[^\]]*\])+", tests)


def summarize(run: TestRun) -> str:
    """Summarise how many tests fail, with the id, the error and the last frames in the tree of the first ones.

    The summary contains no times or addresses, so that equal runs read the same.
    """
    failed = {test: outcome for test, outcome in run.outcomes.items() if outcome.status not in GOOD}
    failed |= {path: outcome for path, outcome in run.not_collected.items() if outcome.status not in GOOD}
    lines = []
    if run.problem is not None:
        lines.append(f"the run stopped: {run.problem}{f'; {run.running} was running' if run.running else ''}")
    if not failed and run.problem is None:
        return f"{ALL_PASS}: {len(run.outcomes)} tests"
    if failed:
        lines.append(f"{len(failed)} of {len({**run.outcomes, **run.not_collected})} fail")
    for number, (test, outcome) in enumerate(failed.items()):
        if number < MAX_FAILURES:
            lines += [f"{test}: {_ADDRESS.sub('0x...', outcome.message)}", *show_frames(outcome)]
        elif number < MAX_NAMED:
            lines.append(test)
    if len(failed) > MAX_NAMED:
        lines.append(f"and {len(failed) - MAX_NAMED} more")
    return "\n".join(lines)


def show_frames(outcome: Outcome) -> list[str]:
    """Return the last frames in the tree with their lines of code, and the error's own lines."""
    frames: list[list[str]] = []
    error: list[str] = []
    for line in outcome.details.split("\n"):
        if match := _FRAME.match(line):
            frames.append(
                [] if match[1].startswith(("/", "<")) else [f"  {match[1]}:{match[2]} {match[3] or ''}".rstrip()]
            )
        elif line.startswith("E "):
            error.append(f"  {line}")
        elif frames and frames[-1] and line.startswith("    "):
            frames[-1].append(f"    {line.strip()}")
    shown = [frame for frame in frames if frame][-MAX_FRAMES:]
    lines = [*(line for frame in shown for line in frame), *error[1:MAX_ERROR_LINES]]
    return [_ADDRESS.sub("0x...", line) for line in lines]
