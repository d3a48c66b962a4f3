"""What is sent to a tracker: everything once, also over resumed and redone runs. The tracker is a list."""

from pathlib import Path
from typing import Any

import pytest

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.config.shown import describe_recipe, read_shown
from turnwise.core.errors import StoreError
from turnwise.reporting.trackers.send import Sender, Sent, evaluation_prefix, evaluation_values, write_transcript
from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun
from turnwise.store.run_folder import RunFolder


class Listing:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.ids: list[str | None] = []
        self.sent: list[Point | Table] = []

    def open(self, run: TrackedRun, id: str | None) -> str:
        self.ids.append(id)
        return id or "first"

    def log(self, point: Point) -> None:
        self.sent.append(point)

    def show(self, table: Table) -> None:
        self.sent.append(table)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def points(self, name: str) -> list[tuple[int, Any]]:
        return [(p.step, p.values[name]) for p in self.sent if isinstance(p, Point) and name in p.values]


def make_run(path: Path) -> RunFolder:
    folder = RunFolder.create(path / "run")
    folder.write_json("config.json", dump_resolved(RunConfig()))
    return folder


def start(folder: RunFolder, tracker: Listing) -> Sender:
    recipe = read_shown(folder.path / "config.json")
    path = folder.path / "trackers" / "listing.json"
    sender = Sender(TrackedRun(path=folder.path, recipe=recipe), tracker, Sent.load(path))
    sender.open()
    return sender


def test_a_growing_run_is_sent_piece_by_piece_and_once(tmp_path: Path) -> None:
    folder, tracker = make_run(tmp_path), Listing()
    sender = start(folder, tracker)
    folder.append_metrics(1, "sft", {"sft/loss": 2.0})
    sender.send()
    sender.send()
    folder.append_metrics(1, "train", {"rollout/reward": 0.5, "train/entropy": float("nan")})
    sender.send()
    assert tracker.points("sft/loss") == [(1, 2.0)]
    assert tracker.points("rollout/reward") == [(1, 0.5)]
    assert tracker.points("train/entropy") == [], "what is not finite is left out"
    # The note "created", then the two points; the numbers count all of them.
    assert [each.number for each in tracker.sent] == [0, 1, 2]


def test_a_resumed_run_continues_with_the_same_id_and_redone_steps_are_not_sent_again(tmp_path: Path) -> None:
    folder, tracker = make_run(tmp_path), Listing()
    sender = start(folder, tracker)
    for step in (1, 2, 3):
        folder.append_metrics(step, "train", {"rollout/reward": float(step)})
    sender.send()
    # A crash after step 3; the checkpoint is that of step 1.
    folder.truncate(after_step=1)
    sender = start(folder, tracker)
    sender.send()
    for step in (2, 3, 4):
        folder.append_metrics(step, "train", {"rollout/reward": float(step)})
        sender.send()
    assert tracker.ids == [None, "first"]
    assert tracker.points("rollout/reward") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert [each.number for each in tracker.sent] == list(range(5))  # one note, four points


def test_a_tracker_that_was_behind_catches_up(tmp_path: Path) -> None:
    folder, tracker = make_run(tmp_path), Listing()
    for step in (1, 2):
        folder.append_metrics(step, "train", {"rollout/reward": float(step)})
    folder.append_event("parity", "fine")
    start(folder, tracker).send()
    assert tracker.points("rollout/reward") == [(1, 1.0), (2, 2.0)]
    [notes] = [each for each in tracker.sent if isinstance(each, Table)]
    assert notes.rows == (("created", ""), ("parity", "fine"))
    folder.append_event("alarm", "new")
    start(folder, tracker).send()
    last = tracker.sent[-1]
    assert isinstance(last, Table)
    assert last.rows == (("alarm", "new"),)


def test_a_line_that_is_being_written_waits_for_its_end(tmp_path: Path) -> None:
    folder, tracker = make_run(tmp_path), Listing()
    sender = start(folder, tracker)
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 1, "phase": "train", "time": 5.0, ')
        file.flush()
        sender.send()
        assert tracker.points("rollout/reward") == []
        file.write(b'"rollout/reward": 0.5}\n')
    sender.send()
    assert tracker.points("rollout/reward") == [(1, 0.5)]


def test_an_evaluation_is_points_with_intervals_and_two_tables(finished_run: RunFolder, tmp_path: Path) -> None:
    tracker = Listing()
    recipe = describe_recipe(RunConfig.model_validate({"trackers": {"transcripts": 2}}))
    sender = Sender(TrackedRun(path=finished_run.path, recipe=recipe), tracker, Sent(path=tmp_path / "sent.json"))
    sender.open()
    sender.send()
    # before: 1hop 0.9 and 2hop 0.12, after: 0.9 and 0.94; all is their mean, the interval 0.05 to each side
    assert tracker.points("evaluate/all/success") == [(0, pytest.approx(0.51)), (60, pytest.approx(0.92))]
    assert tracker.points("evaluate/all/low") == [(0, pytest.approx(0.46)), (60, pytest.approx(0.87))]
    assert tracker.points("evaluate/search_off/2hop/success") == [(60, pytest.approx(0.02))]
    tables = {(each.name, each.step): each for each in tracker.sent if isinstance(each, Table)}
    assert tables["evaluate/results", 60].rows[-1] == ("all", "39", "92.0% [87.0,\u00a097.0]", "1.50")
    transcripts = tables["evaluate/transcripts", 60].rows
    assert [row[:2] for row in transcripts] == [
        ("task0", "0 (success 0, format 1)"),
        ("task1", "1 (success 1, format 1)"),
    ]
    assert "assistant:\n<answer> Velm </answer>" in transcripts[1][2]


def test_names_of_evaluations() -> None:
    assert evaluation_prefix("heldout_000060") == "evaluate"
    assert evaluation_prefix("heldout_000060_no_search") == "evaluate/no_search"
    values = evaluation_values({"name": "heldout_000001", "rows": [{"kind": "all", "n": 4, "recovered": None}]})
    assert values == {"evaluate/all/n": 4.0}


def test_a_transcript_shows_roles_calls_and_thoughts_and_is_cut() -> None:
    def message(role: str, text: str, **fields: object) -> dict:
        return {"role": role, "content": [{"text": text}], "reasoning": None, "tool_calls": [], **fields}

    reply = message("assistant", "", reasoning="hm", tool_calls=[{"id": "1", "name": "add", "arguments": '{"a": 1}'}])
    turn = {"message": reply, "observations": [message("tool", "2")]}
    row = {"task": {"prompt": [message("user", "1 + 1?")]}, "turns": [turn]}
    expected = 'user:\n1 + 1?\n\nassistant:\n(thinks) hm\n→ add({"a": 1})\n\ntool:\n2'
    assert write_transcript(row) == expected
    long = {"task": {"prompt": [message("user", "x" * 30_000)]}, "turns": []}
    # "user:\n" and 30,000 characters are 30,006; 20,000 stay.
    assert write_transcript(long).endswith("\n[10006 more characters in the run folder]")


def test_a_damaged_note_of_what_was_sent_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "wandb.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match=r"wandb.json .* delete it"):
        Sent.load(path)


def test_markdown_of_a_table_is_text() -> None:
    def table(*cells: str) -> str:
        row = tuple(cells)
        return Table(number=0, name="t", step=1, time=0.0, columns=("a", "b"), rows=(row,)).to_markdown()

    assert table("x|y", "1") == "| a | b |\n| --- | --- |\n| x\\|y | 1 |"
    assert table("x", "# h\n<b>") == "a: x\n\n    # h\n    <b>"


def test_parts_of_the_reward_are_values_and_what_is_no_number_is_left_out() -> None:
    row = {"kind": "all", "n": 4, "reward": 0.5, "parts": {"format": 1.0}, "pass_at": [{"k": 1}], "text": "words"}
    values = evaluation_values({"name": "heldout_000001", "rows": [row]})
    assert values == {"evaluate/all/n": 4.0, "evaluate/all/reward": 0.5, "evaluate/all/reward_format": 1.0}
