"""What goes wrong in an attempt at a repair, told from its commands and their outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.faults import GAVE_UP, TOOL_FAILURE, Fault
from turnwise.core.types import Task, Trajectory
from turnwise_worlds.repair.environment import NO_TESTS, OK, read_modules
from turnwise_worlds.repair.programs import LABELS

NEVER_TESTED = "never tested"
WRONG_FUNCTION = "wrong function"
WRONG_LINE = "wrong line"
NOT_USED = "opened and not repaired"
WRONG_CODE = "wrong code"
TAKEN_BACK = "took the repair back"
NOT_SUBMITTED = "repaired and not submitted"
TEST_EDITED = "test overwritten"
BROKE_ANOTHER = "broke another line"

NAMES: Mapping[str, str] = {
    NEVER_TESTED: "It edited a line that was right, and had never run the tests, which name the function that fails.",
    WRONG_FUNCTION: "It had run the tests, and edited a function that has no bug.",
    WRONG_LINE: "It edited another line of the function with the bug.",
    NOT_USED: "It opened the line with the bug, and left it as it was.",
    WRONG_CODE: "It edited the line with the bug, and what it wrote is wrong.",
    TAKEN_BACK: "It had repaired the bug, and a later edit took that back.",
    NOT_SUBMITTED: "The program was repaired when the attempt ended, and was not submitted.",
    TEST_EDITED: "It overwrote a test, which earns nothing.",
    BROKE_ANOTHER: "It repaired every bug, and broke a line that was right.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    turn: int
    words: tuple[str, ...]
    output: str


Place = tuple[str, int]
"""A function or test, and the index of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    turn: int
    place: Place
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Story:
    """The commands of an attempt, in order."""

    edits: tuple[_Edit, ...]
    opened: tuple[tuple[int, Place], ...]
    """Turn and line of everything that was shown."""
    tests: tuple[tuple[int, str], ...]
    """Turn and output of every run of the tests."""
    submitted: int | None
    """Turn of `submit`; None without it."""


def find_repair_fault(task: Task, trajectory: Trajectory) -> Fault | None:
    """Name what went wrong; None where nothing was edited before a limit ended the attempt."""
    story = _tell(list(_list_commands(trajectory)))
    several = bool(task.payload.get("other_bugs"))
    bugs = {
        (bug["function"], bug["line"]): bug["code"]
        for bug in (task.payload["bug"], *task.payload.get("other_bugs", ()))
    }
    pristine = _list_pristine(task)
    last = len(trajectory.turns) - 1
    if story.tests and all(output == NO_TESTS for _, output in story.tests):
        return Fault(name=TOOL_FAILURE, turn=story.tests[0][0], detail="the tests are switched off")
    if not story.edits:
        return _find_without_edits(story, set(bugs), last)
    kept = _keep(story.edits, several)
    tampered = next((edit for edit in kept.values() if edit.place not in pristine), None)
    if tampered is not None:
        return Fault(name=TEST_EDITED, turn=tampered.turn, detail=f"wrote {tampered.place[0]}")
    open_bugs = {place: code for place, code in bugs.items() if place not in kept or kept[place].code != code}
    if not open_bugs:
        broken = next(
            (edit for place, edit in kept.items() if place not in bugs and edit.code != pristine[place]), None
        )
        if broken is not None:
            return Fault(name=BROKE_ANOTHER, turn=broken.turn, detail=f"wrote {_describe(broken.place)}")
        return None if story.submitted is not None else Fault(name=NOT_SUBMITTED, turn=last)
    place, code = next(iter(open_bugs.items()))
    return _find_at(story, place, code, set(bugs))


def _find_without_edits(story: _Story, places: set[Place], last: int) -> Fault | None:
    if story.submitted is None:
        return None
    seen = next((turn for turn, place in story.opened if place in places), None)
    if seen is not None:
        return Fault(name=NOT_USED, turn=min(seen + 1, last), detail="submitted without an edit")
    return Fault(name=GAVE_UP, turn=story.submitted, detail="submitted without an edit")


def _find_at(story: _Story, place: Place, code: str, places: set[Place]) -> Fault:
    """Name what went wrong with the bug at `place`, whose right code is `code`."""
    at_place = [edit for edit in story.edits if edit.place == place]
    right = next((edit for edit in at_place if edit.code == code), None)
    wanted = f"needed {_describe(place)}: {code}"
    if right is not None:
        later = next(edit for edit in story.edits if edit.turn > right.turn)
        return Fault(name=TAKEN_BACK, turn=later.turn, detail=f"wrote {_describe(later.place)}: {later.code}; {wanted}")
    if at_place:
        return Fault(name=WRONG_CODE, turn=at_place[0].turn, detail=f"wrote {at_place[0].code}; {wanted}")
    # Edits of other bugs are no mistake: what is told is the first that is of no bug.
    others = [edit for edit in story.edits if edit.place not in places]
    opened = next((turn for turn, each in story.opened if each == place), None)
    if opened is not None:
        after = next((edit.turn for edit in others if edit.turn > opened), None)
        turn = story.submitted if after is None else after
        return Fault(name=NOT_USED, turn=opened + 1 if turn is None else turn, detail=wanted)
    if not others:
        return Fault(name=GAVE_UP, turn=story.submitted, detail=f"submitted with a bug left; {wanted}")
    first = others[0]
    wrote = f"wrote {_describe(first.place)}: {first.code}; {wanted}"
    if not any(turn < first.turn for turn, _ in story.tests):
        return Fault(name=NEVER_TESTED, turn=first.turn, detail=wrote)
    if first.place[0] == place[0]:
        return Fault(name=WRONG_LINE, turn=first.turn, detail=wrote)
    return Fault(name=WRONG_FUNCTION, turn=first.turn, detail=wrote)


def _keep(edits: Sequence[_Edit], several: bool) -> dict[Place, _Edit]:
    """The edits that count in the end: the last one, or with several bugs the last one of each line."""
    return {edit.place: edit for edit in (edits if several else edits[-1:])}


def _describe(place: Place) -> str:
    return f"{place[0]} {LABELS[place[1]]}"


def _list_pristine(task: Task) -> dict[Place, str]:
    """The code of every line of the program, as the agent got it."""
    return {
        (function.name, index): " ".join(line.code)
        for functions in read_modules(task).values()
        for function in functions
        for index, line in enumerate(function.lines)
    }


def _list_commands(trajectory: Trajectory) -> Iterator[_Command]:
    for index, turn in enumerate(trajectory.turns):
        for record in turn.tool_records:
            try:
                text = str(json.loads(record.call.arguments)["command"])
            except (ValueError, TypeError, KeyError):
                continue
            if text.split():
                yield _Command(turn=index, words=tuple(text.split()), output=record.observation)


def _tell(commands: Sequence[_Command]) -> _Story:
    """Follow what is open and what was written; what was refused changes nothing."""
    edits: list[_Edit] = []
    opened: list[tuple[int, Place]] = []
    tests: list[tuple[int, str]] = []
    submitted, at = None, None
    for command in commands:
        match command.words:
            case ("test",):
                tests.append((command.turn, command.output))
            case ("view", name, label) if " | " in command.output and label in tuple(LABELS):
                at = (name, LABELS.index(label))
                opened.append((command.turn, at))
            case ("next",) if " | " in command.output and at is not None:
                at = (at[0], at[1] + 1)
                opened.append((command.turn, at))
            case ("set", *words) if words and command.output == OK and at is not None:
                edits.append(_Edit(turn=command.turn, place=at, code=" ".join(words)))
            case ("submit",):
                submitted = command.turn
    return _Story(edits=tuple(edits), opened=tuple(opened), tests=tuple(tests), submitted=submitted)
