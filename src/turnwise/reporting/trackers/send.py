"""Send what a run folder contains and a tracker does not have yet.

What was sent is noted in `trackers/NAME.json` of the run folder: the tracker's id for the run, the last step of each
phase, and which evaluations and notes. A step that is redone after a crash is therefore not sent again, and a tracker
that was behind catches up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.core.errors import StoreError
from turnwise.reporting.summaries import format_success, load_summaries
from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun, Tracker
from turnwise.store.run_folder import EVENTS, METRICS, write_json_atomic
from turnwise.store.trajectories import load_rows

MAX_TRANSCRIPT_CHARS = 20_000
"""Maximum number of characters sent per transcript."""


@dataclass(slots=True, kw_only=True)
class Sent:
    """Record of what was sent to a tracker."""

    path: Path
    """The file that stores this record."""
    id: str | None = None
    """The tracker's id for the run; None before the run is started there."""
    steps: dict[str, int] = field(default_factory=dict)
    """Last step by phase."""
    evaluations: list[str] = field(default_factory=list)
    """Names of evaluations."""
    num_notes: int = 0
    num_sent: int = 0
    """Number of points and tables sent."""

    @classmethod
    def load(cls, path: Path) -> Sent:
        """Read the record from the file; an empty one if there is no file. Raises StoreError if it is damaged."""
        try:
            return cls(path=path, **json.loads(path.read_bytes()))
        except FileNotFoundError:
            return cls(path=path)
        except (OSError, ValueError, TypeError) as cause:
            raise StoreError(f"cannot read {path} ({cause}); delete it to send the run again") from cause

    def save(self) -> None:
        """Write the file. Raises StoreError when the disk refuses."""
        names = ("id", "steps", "evaluations", "num_notes", "num_sent")
        write_json_atomic(self.path, {name: getattr(self, name) for name in names})


class Tail:
    """Reads the new lines of a file. A file that was replaced is read again from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = (0, 0)
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Complete lines since the last call; none if the file does not exist. Raises OSError or ValueError."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if self._file != (status.st_dev, status.st_ino) or status.st_size < self._offset:
                    self._file, self._offset = (status.st_dev, status.st_ino), 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class Sender:
    """Sends one run to one tracker."""

    def __init__(self, run: TrackedRun, tracker: Tracker, sent: Sent) -> None:
        self.run = run
        self._tracker = tracker
        self._sent = sent
        self._metrics = Tail(run.path / METRICS)
        self._events = Tail(run.path / EVENTS)
        self._num_events = 0

    def open(self) -> str:
        """Start or continue the tracker's run; returns its id. Raises what the tracker raises."""
        self._sent.id = self._tracker.open(self.run, self._sent.id)
        self._sent.save()
        return self._sent.id

    def send(self) -> None:
        """Send what is new and note it. Raises what the tracker raises."""
        before = self._sent.num_sent
        self._send_points()
        self._send_evaluations()
        self._send_notes()
        if self._sent.num_sent > before:
            self._tracker.flush()
            self._sent.save()

    def _send_points(self) -> None:
        for row in self._metrics.read():
            phase, step = row["phase"], row["step"]
            if step <= self._sent.steps.get(phase, -1):
                continue
            self._log(step, row["time"], {n: v for n, v in row.items() if n not in ("phase", "step", "time")})
            self._sent.steps[phase] = step

    def _send_evaluations(self) -> None:
        for summary in load_summaries(self.run.path):
            name, step = summary["name"], summary["step"]
            if name in self._sent.evaluations:
                continue
            time = (self.run.path / "evaluations" / f"{name}.summary.json").stat().st_mtime
            self._log(step, time, evaluation_values(summary))
            results = [
                (str(row["kind"]), str(row["n"]), format_success(row), f"{row['tool_calls']:.2f}")
                for row in summary["rows"]
            ]
            prefix = evaluation_prefix(name)
            self._show(
                f"{prefix}/results", step, time, ("kind", "tasks", "success [95% interval]", "tool calls"), results
            )
            if num_shown := self.run.trackers.transcripts:
                transcripts = [
                    (row["task"]["id"], describe_reward(row["reward"]), write_transcript(row))
                    for row in load_rows(self.run.path / "evaluations", name)[:num_shown]
                ]
                self._show(f"{prefix}/transcripts", step, time, ("task", "reward", "transcript"), transcripts)
            self._sent.evaluations.append(name)

    def _send_notes(self) -> None:
        events = self._events.read()
        start = max(0, self._sent.num_notes - self._num_events)
        self._num_events += len(events)
        if rows := [(event["kind"], event["text"]) for event in events[start:]]:
            self._show("notes", self._num_events, events[-1]["time"], ("kind", "text"), rows)
            self._sent.num_notes = self._num_events

    def _log(self, step: int, time: float, values: Mapping[str, Any]) -> None:
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        self._tracker.log(Point(number=self._sent.num_sent, step=step, time=time, values=numbers))
        self._sent.num_sent += 1

    def _show(
        self, name: str, step: int, time: float, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]
    ) -> None:
        self._tracker.show(
            Table(number=self._sent.num_sent, name=name, step=step, time=time, columns=columns, rows=tuple(rows))
        )
        self._sent.num_sent += 1


def evaluation_prefix(name: str) -> str:
    """`evaluate` of `heldout_000060`, `evaluate/search_off` of the control `heldout_000060_search_off`."""
    match = re.fullmatch(r"heldout_\d+_(.+)", name)
    return f"evaluate/{match[1]}" if match else "evaluate"


def evaluation_values(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an evaluation by name: `evaluate/all/success`, its interval `low` and `high`, the others, and the
    parts of the reward, `evaluate/all/reward_format`. Values that are not numbers are left out."""
    prefix = evaluation_prefix(summary["name"])
    values: dict[str, float] = {}
    for row in summary["rows"]:
        parts = {f"reward_{name}": value for name, value in row.get("parts", {}).items()}
        values |= {
            f"{prefix}/{row['kind']}/{name}": float(value)
            for name, value in {**row, **parts}.items()
            if isinstance(value, int | float)
        }
    return values


def describe_reward(reward: Mapping[str, Any]) -> str:
    """A stored reward as `1.25 (success 1, format 0.25)`, or why there is none."""
    if "invalid" in reward:
        return f"invalid: {reward['invalid']['reason']}"
    parts = ", ".join(f"{part['name']} {part['value']:g}" for part in reward["scored"]["parts"])
    return f"{reward['scored']['total']:g}" + (f" ({parts})" if parts else "")


def write_transcript(row: Mapping[str, Any]) -> str:
    """A stored trajectory as text: every message after its role, tool calls as `name(arguments)`."""
    messages = list(row["task"]["prompt"])
    for turn in row["turns"]:
        messages += [turn["message"], *turn["observations"]]
    lines: list[str] = []
    for message in messages:
        text = "".join(part["text"] for part in message["content"])
        calls = [f"→ {call['name']}({call['arguments']})" for call in message["tool_calls"]]
        thought = [f"(thinks) {message['reasoning']}"] if message["reasoning"] else []
        lines.append("\n".join([f"{message['role']}:", *thought, *([text] if text else []), *calls]))
    whole = "\n\n".join(lines)
    cut = len(whole) - MAX_TRANSCRIPT_CHARS
    return whole if cut <= 0 else f"{whole[:MAX_TRANSCRIPT_CHARS]}\n[{cut} more characters in the run folder]"
