"""Describes an execution for the agent."""

from __future__ import annotations

from turnwise.tools.sandboxed import clip_middle
from turnwise_sandbox.types import Execution, Limits

ENDED = "the shell was ended; files are kept"


def describe(execution: Execution, limits: Limits, max_chars: int) -> str:
    """Return the output, cut in its middle, and in brackets why the command did not end well."""
    body = clip_middle(execution.text().strip("\n"), max_chars)
    notes = explain(execution, limits)
    return "\n".join(part for part in (body, f"[{notes}]" if notes else "") if part) or "(no output)"


def explain(execution: Execution, limits: Limits) -> str:
    """Return why the command did not end well; "" if it did."""
    notes = []
    if execution.limit == "wall":
        notes.append(f"it ran longer than {limits.wall_s:g} s and was interrupted")
    elif execution.limit == "output":
        notes.append(f"it printed more than {limits.output_bytes} bytes and was interrupted")
    elif execution.limit == "disk":
        notes.append(f"the disk is full: changed files may hold {limits.disk_bytes >> 20} MiB")
    elif execution.limit is not None:
        notes.append(f"it hit its {execution.limit} limit")
    elif execution.exit_code:
        notes.append(f"exit status {execution.exit_code}")
    if execution.exit_code is None:
        notes.append(ENDED)
    return "; ".join(notes)
