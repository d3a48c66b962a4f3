"""The journal: every draw has one fate after any line, and impossible orders are named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import StoreError
from turnwise.core.types import DropReason
from turnwise.store.journal import JOURNAL, DrawRecord, Journal, JournalState, fold_journal, read_journal
from turnwise.store.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RunFolder.create(tmp_path / "run").path


def opening(draw: int, task: int, version: int, attempt: int = 0) -> DrawRecord:
    return DrawRecord(draw=draw, task_index=task, version=version, attempt=attempt)


def play(journal: Journal) -> None:
    """Draws 0 to 4: 0 and 2 train in step 1, 1 is dropped, 3 waits, 4 is open and was opened twice."""
    for draw in range(5):
        journal.opened(opening(draw, 10 + draw, draw // 3))
    for draw in (2, 0, 3):
        journal.finished(draw, f"digest{draw}")
    journal.taken(1, [2, 0])
    journal.trained(1, version=1, sums={"weight": 7})
    journal.dropped(1, DropReason.LATE, step=2)
    journal.opened(opening(4, 14, 1, 1))


def fates(state: JournalState) -> dict[int, str]:
    return {draw: record.fate for draw, record in state.draws.items()}


def test_a_journal_is_read_as_it_was_written(run: Path) -> None:
    journal = Journal(run)
    assert journal.state == read_journal(run), "of a run without a journal"
    play(journal)
    state = read_journal(run)
    assert state == journal.state
    assert fates(state) == {0: "taken", 1: "dropped", 2: "taken", 3: "waiting", 4: "open"}
    assert (state.next_draw, state.next_task) == (5, 15)
    assert state.taken == {1: (2, 0)}, "in the order in which they train"
    assert (state.trained[1].version, state.trained[1].sums) == (1, {"weight": 7})
    [waiting], [opened], [dropped] = state.waiting, state.open, state.dropped
    assert (waiting.draw, waiting.digest, waiting.version) == (3, "digest3", 1)
    assert (opened.draw, opened.task_index, opened.version, opened.attempt) == (4, 14, 1, 1)
    assert (dropped.draw, dropped.reason, dropped.step) == (1, DropReason.LATE, 2)


def test_a_rewind_takes_back_later_steps(run: Path) -> None:
    journal = Journal(run)
    play(journal)
    journal.finished(4, "digest4")
    journal.taken(2, [3])
    journal.trained(2, version=2, sums={})
    journal.dropped(4, DropReason.UNUSED, step=3)
    journal.rewound(1)
    state = read_journal(run)
    # Draw 1 never finished, so it is open again; draws 3 and 4 have their groups.
    assert fates(state) == {0: "taken", 1: "open", 2: "taken", 3: "waiting", 4: "waiting"}
    assert (list(state.taken), list(state.trained)) == ([1], [1])
    assert all((r.step, r.reason) == (None, None) for r in (*state.open, *state.waiting))
    journal.taken(2, [4, 3])
    assert read_journal(run).taken[2] == (4, 3)
    journal.rewound(0)
    assert fates(read_journal(run)) == {0: "waiting", 1: "open", 2: "waiting", 3: "waiting", 4: "waiting"}
    assert journal.state == read_journal(run)


def test_a_lost_group_may_be_rolled_out_again(run: Path) -> None:
    journal = Journal(run)
    journal.opened(opening(0, 0, 0))
    journal.finished(0, "digest")
    journal.opened(opening(0, 0, 2, 1))
    [record] = read_journal(run).open
    assert (record.digest, record.version, record.attempt) == (None, 2, 1)


Line = Callable[[Journal], None]
IMPOSSIBLE: list[tuple[Line, str]] = [
    (lambda j: j.opened(opening(6, 0, 0)), "draw 6 is opened after 5 draws; the next one is 5"),
    (lambda j: j.opened(opening(5, 0, 0, 1)), "opened for the first time with attempt 1"),
    (lambda j: j.opened(opening(5, -1, 0)), "all count from 0"),
    (
        lambda j: j.opened(opening(4, 14, 1, 1)),
        "draw 4 is opened with task 14 and attempt 1 after",
    ),
    (lambda j: j.opened(opening(4, 15, 1, 2)), "its task stays"),
    (
        lambda j: j.opened(opening(0, 10, 1, 1)),
        "draw 0 cannot be opened: it is taken by step 1",
    ),
    (lambda j: j.opened(opening(1, 11, 1, 1)), "it is dropped by step 2 as late"),
    (lambda j: j.finished(3, "x"), "draw 3 cannot finish with x: it is waiting"),
    (lambda j: j.finished(9, "x"), "draw 9 cannot finish with x: it was never opened"),
    (lambda j: j.taken(2, [4]), "draw 4 cannot be taken by step 2: it is open"),
    (lambda j: j.taken(2, [0]), "draw 0 cannot be taken by step 2: it is taken by step 1"),
    (lambda j: j.taken(2, [3, 3]), "step 2 takes a draw twice"),
    (lambda j: j.taken(1, [3]), "step 1 takes draws after step 1"),
    (lambda j: j.taken(3, [3]), "step 3 takes draws after step 1"),
    (lambda j: j.trained(2, version=2, sums={}), "step 2 is trained and took no draws"),
    (lambda j: j.trained(1, version=2, sums={}), "step 1 is trained after step 1"),
    (lambda j: j.dropped(0, DropReason.LATE, step=2), "draw 0 cannot be dropped .late, step 2.: it is taken by step 1"),
    (lambda j: j.dropped(1, DropReason.LATE, step=2), "it is dropped by step 2 as late"),
    (lambda j: j.rewound(2), "rewound to step 2, the last step is 1"),
]


@pytest.mark.parametrize("number", range(len(IMPOSSIBLE)))
def test_what_cannot_follow_is_refused_and_not_written(run: Path, number: int) -> None:
    journal = Journal(run)
    play(journal)
    before = (run / JOURNAL).read_bytes()
    append, words = IMPOSSIBLE[number]
    with pytest.raises(StoreError, match=rf"journal\.jsonl, line 13: .*{words}.*keeps the part that can be verified"):
        append(journal)
    assert (run / JOURNAL).read_bytes() == before
    journal.finished(4, "digest4")


def test_a_version_does_not_run_backwards(run: Path) -> None:
    journal = Journal(run)
    play(journal)
    journal.taken(2, [3])
    with pytest.raises(StoreError, match="step 2 leaves version 0 after version 1"):
        journal.trained(2, version=0, sums={})


@pytest.mark.parametrize(
    "line", ['{"kind": "forgotten"}', '{"kind": "opened", "draw": 5}', '{"kind": "dropped", "draw": 3, "reason": "x"}']
)
def test_a_line_that_is_none_is_named(run: Path, line: str) -> None:
    journal = Journal(run)
    play(journal)
    with (run / JOURNAL).open("a") as file:
        file.write(line + "\n")
    for read in (read_journal, Journal):
        with pytest.raises(StoreError, match=r"journal\.jsonl, line 13: .*keeps the part that can be verified"):
            read(run)


def test_a_line_that_was_removed_is_noticed(run: Path) -> None:
    play(Journal(run))
    lines = (run / JOURNAL).read_text().splitlines(keepends=True)
    # Opened, two finished and the taken line; what no later line contradicts cannot be noticed.
    for number in (0, 1, 2, 3, 4, 5, 6, 8):
        (run / JOURNAL).write_text("".join(lines[:number] + lines[number + 1 :]))
        with pytest.raises(StoreError):
            read_journal(run)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_line_torn_at_any_byte_is_cut(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    run = RunFolder.create(tmp_path_factory.mktemp("runs") / "run").path
    play(Journal(run))
    whole = (run / JOURNAL).read_bytes()
    size = data.draw(st.integers(0, len(whole)))
    (run / JOURNAL).write_bytes(whole[:size])
    rows = [json.loads(line) for line in whole[:size].split(b"\n")[:-1]]
    state = read_journal(run)
    assert state == fold_journal(rows, source=run)
    journal = Journal(run)
    assert journal.state == state
    journal.opened(opening(state.next_draw, 0, 0))
    assert read_journal(run) == journal.state
    assert len((run / JOURNAL).read_bytes().splitlines()) == len(rows) + 1


class Model:
    """The same rules written another way: draws move between sets, and a rewind plays the kept lines again."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def sets(self) -> dict[str, set[int]]:
        sets: dict[str, set[int]] = {name: set() for name in ("open", "waiting", "taken", "dropped")}
        for at, row in enumerate(self.rows):
            later = [other["step"] for other in self.rows[at + 1 :] if other["kind"] == "rewound"]
            if row["kind"] in ("taken", "trained", "dropped") and any(step < row["step"] for step in later):
                continue
            names = {"opened": "open", "finished": "waiting", "taken": "taken", "dropped": "dropped"}
            for draw in row["draws"] if row["kind"] == "taken" else [row["draw"]] if "draw" in row else []:
                for members in sets.values():
                    members.discard(draw)
                sets[names[row["kind"]]].add(draw)
        return sets


@st.composite
def journals(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Lines of a valid journal, each chosen among what may come next."""
    model = Model()
    num_draws = last_taken = last_trained = 0
    for _ in range(draw(st.integers(0, 25))):
        sets = model.sets()
        choices = ["opened", "taken"]
        choices += ["again", "dropped"] if sets["open"] | sets["waiting"] else []
        choices += ["finished"] if sets["open"] else []
        choices += ["trained"] if last_trained < last_taken else []
        choices += ["rewound"] if last_taken else []
        match draw(st.sampled_from(choices)):
            case "opened":
                row = {
                    "kind": "opened",
                    "draw": num_draws,
                    "task": num_draws % 3,
                    "version": last_trained,
                    "attempt": 0,
                }
                num_draws += 1
            case "again":
                index = draw(st.sampled_from(sorted(sets["open"] | sets["waiting"])))
                row = {"kind": "opened", "draw": index, "task": index % 3, "version": last_trained}
                row["attempt"] = sum(r["kind"] == "opened" and r["draw"] == index for r in model.rows)
            case "finished":
                row = {"kind": "finished", "draw": draw(st.sampled_from(sorted(sets["open"]))), "digest": "d"}
            case "dropped":
                index = draw(st.sampled_from(sorted(sets["open"] | sets["waiting"])))
                row = {"kind": "dropped", "draw": index, "reason": "late", "step": last_taken + 1}
            case "taken":
                last_taken += 1
                ready = sorted(sets["waiting"])
                chosen = draw(st.lists(st.sampled_from(ready), unique=True, max_size=2)) if ready else []
                row = {"kind": "taken", "step": last_taken, "draws": chosen}
            case "trained":
                last_trained += 1
                row = {"kind": "trained", "step": last_trained, "version": last_trained, "sums": {}}
            case _:
                step = draw(st.integers(0, last_taken))
                last_taken, last_trained = step, min(step, last_trained)
                row = {"kind": "rewound", "step": step}
        model.rows.append(row)
    return model.rows


@settings(max_examples=150, deadline=None)
@given(rows=journals())
def test_every_opened_draw_has_one_fate_after_any_prefix(rows: list[dict[str, Any]]) -> None:
    for size in range(len(rows) + 1):
        state = fold_journal(rows[:size], source=Path("journal.jsonl"))
        model = Model()
        model.rows = rows[:size]
        for fate, draws in model.sets().items():
            assert {draw for draw, fate_of_draw in fates(state).items() if fate_of_draw == fate} == draws
        opened = {row["draw"] for row in rows[:size] if row["kind"] == "opened"}
        assert set(state.draws) == opened == set(range(state.next_draw))
        in_steps = [draw for draws in state.taken.values() for draw in draws]
        assert len(in_steps) == len(set(in_steps))
        assert {draw for draw, record in state.draws.items() if record.fate == "taken"} == set(in_steps)
        assert all(
            record.step is not None and draw in state.taken[record.step]
            for draw, record in state.draws.items()
            if record.fate == "taken"
        )
        assert set(state.trained) <= set(state.taken)
        assert all(
            (record.digest is None) == (record.fate == "open") or record.fate == "dropped"
            for record in state.draws.values()
        )
