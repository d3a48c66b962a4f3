"""Names what went wrong in an attempt: by its family where that has a name, else by how the attempt ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from turnwise.core.faults import FORMAT, GAVE_UP, LIMIT, REPEATED, SHARED, TOOL_FAILURE, Fault, FaultFinder
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import FinishReason, Invalid, Task, ToolRecord, Trajectory
from turnwise.environments.mixture import MixedFamily
from turnwise.rewards.answers import extract_answer

OTHER = "ended otherwise"
"""The name of an attempt that nothing here names; its detail says how it ended, and such attempts are clustered."""
NOT_KNOWN = frozenset({"", "unknown", "stuck", "none", "i don't know", "i do not know", "no answer", "not known"})
"""Answers that say that there is none."""
NUM_WORDS = 6
"""Words of a text that a cluster is called by."""


def find_family(family: EnvironmentFamily, task: Task) -> EnvironmentFamily:
    """Return the family of a task: of a mixture, the one that made it. Raises ConfigError if none did."""
    return family.family_of(task) if isinstance(family, MixedFamily) else family


def list_names(family: EnvironmentFamily, tasks: Sequence[Task]) -> dict[str, str]:
    """Return every name that attempts at these tasks may get, and what it means."""
    owners = {id(owner): owner for owner in (find_family(family, task) for task in tasks)}
    own = [dict(owner.fault_names) for owner in owners.values() if isinstance(owner, FaultFinder)]
    return {name: about for names in (*own, SHARED) for name, about in names.items()}


def name_fault(family: EnvironmentFamily, task: Task, trajectory: Trajectory) -> Fault:
    """Name what went wrong in an attempt that did not succeed. The first of these that applies counts:

    1. it could not be scored, or its last call raised: tool failure;
    2. what its family says (`FaultFinder`), unless 3 or 4 began before that;
    3. its last reply was cut off: limit;
    4. its last reply is neither a call nor an answer: format, from the first of such replies in a row;
    5. a limit ended it, after calls that had had the same answer before (`find_repetition`): repeated itself; after
       others: limit;
    6. it ended the attempt with an answer that says that it has none, or with nothing: gave up;
    7. `OTHER`.
    """
    turns, last = trajectory.turns, len(trajectory.turns) - 1
    if isinstance(trajectory.reward, Invalid) or trajectory.stop.is_error:
        reason = trajectory.reward.reason if isinstance(trajectory.reward, Invalid) else trajectory.error or ""
        return Fault(name=TOOL_FAILURE, turn=last if turns else None, detail=reason)
    if not turns:
        return Fault(name=OTHER, turn=None, detail="without a reply")
    records = [(index, record) for index, turn in enumerate(turns) for record in turn.tool_records]
    if records and records[-1][1].exception is not None:
        index, record = records[-1]
        return Fault(name=TOOL_FAILURE, turn=index, detail=f"{record.call.name} raised {record.exception}")
    broken = _name_broken(trajectory)
    told = _ask_family(family, task, trajectory)
    if told is not None and (broken is None or _comes_before(told, broken)):
        return told
    if broken is not None:
        return broken
    if trajectory.stop.is_truncated:
        again = find_repetition([record for _, record in records])
        if again is not None:
            record = records[again][1]
            return Fault(name=REPEATED, turn=records[again][0], detail=f"{_show_call(record)} again")
        return Fault(name=LIMIT, turn=last, detail=trajectory.stop.value)
    reply = turns[-1].message
    answer = extract_answer(reply.text)
    said = reply.text if answer is None else answer
    if not reply.tool_calls and said.strip().strip(".").casefold() in NOT_KNOWN:
        return Fault(name=GAVE_UP, turn=last, detail=f"answered {said.strip()!r}")
    return Fault(name=OTHER, turn=last, detail=describe_end(trajectory))


def _ask_family(family: EnvironmentFamily, task: Task, trajectory: Trajectory) -> Fault | None:
    owner = find_family(family, task)
    if not isinstance(owner, FaultFinder) or len(trajectory.conversations) > 1:
        return None
    return owner.find_fault(task, trajectory)


def _comes_before(told: Fault, broken: Fault) -> bool:
    return told.turn is not None and broken.turn is not None and told.turn < broken.turn


def _name_broken(trajectory: Trajectory) -> Fault | None:
    """Name a last reply that was cut off, or is neither a call nor an answer; None if it is whole."""
    last = trajectory.turns[-1]
    if last.completion.finish_reason is FinishReason.LENGTH:
        return Fault(name=LIMIT, turn=len(trajectory.turns) - 1, detail="the last reply was cut off")
    return _name_malformed(trajectory) if last.message.tool_errors and not last.message.tool_calls else None


def _name_malformed(trajectory: Trajectory) -> Fault:
    turns = trajectory.turns
    first = len(turns) - 1
    while first and turns[first - 1].message.tool_errors and not turns[first - 1].message.tool_calls:
        first -= 1
    kinds = Counter(error.kind for turn in turns[first:] for error in turn.message.tool_errors)
    raw = turns[first].message.tool_errors[0].raw
    return Fault(name=FORMAT, turn=first, detail=f"{kinds.most_common(1)[0][0]}: {_shorten(raw)!r}")


def find_repetition(records: Sequence[ToolRecord]) -> int | None:
    """Return the place of the first call of a loop; None if there is none.

    A call repeats if an equal one had the same answer before. It is a loop if the last two calls repeat, or half of all
    do. One repeated call is none: who opens three pages one after the other goes back to the same list each time.
    """
    seen: set[tuple[str, str, str]] = set()
    repeats = []
    for record in records:
        key = (record.call.name, record.call.arguments, record.shown)
        repeats.append(key in seen)
        seen.add(key)
    is_loop = all(repeats[-2:]) or 2 * sum(repeats) >= len(repeats)
    if sum(repeats) < 2 or not is_loop:
        return None
    first = len(repeats)
    while first and repeats[first - 1]:
        first -= 1
    return first if len(repeats) - first >= 2 else repeats.index(True)


def describe_end(trajectory: Trajectory) -> str:
    """Describe how an attempt ended, so that attempts that ended alike read alike: why it stopped, the last call or
    what the last reply was, and the kind of the last answer of a tool. Numbers are written as #."""
    if not trajectory.turns:
        return f"{trajectory.stop.value}, without a reply"
    last = trajectory.turns[-1]
    if last.tool_records:
        what = f"call of {last.tool_records[-1].call.name}"
    elif last.message.tool_calls:
        what = f"call of {last.message.tool_calls[-1].name}"
    else:
        what = "answer" if extract_answer(last.message.text) is not None else "text"
    records = [record for turn in trajectory.turns for record in turn.tool_records]
    answered = ""
    if records:
        error = records[-1].error
        answered = (
            f", last tool answer {'an error: ' if error is not None else ''}{plain(error or records[-1].shown)!r}"
        )
    return f"{trajectory.stop.value} with a {what}{answered}"


def plain(text: str) -> str:
    """Return the first words of a text, lower case, its numbers as #."""
    return " ".join(re.sub(r"\d+", "#", text.casefold()).split()[:NUM_WORDS])


def cluster(details: Mapping[int, str], *, most: int = 8) -> dict[int, str]:
    """Return the cluster of every attempt without a name, by its place.

    Attempts that ended alike (`describe_end`) are one cluster. The `most` largest keep their description, ties in
    alphabetical order; an attempt of a smaller one joins those that read alike up to the first comma.
    The result does not depend on the order of the attempts.
    """
    sizes = Counter(details.values())
    kept = {text for text, count in sorted(sizes.items(), key=lambda each: (-each[1], each[0]))[:most] if count > 1}
    return {
        place: f"{OTHER}: {text if text in kept else text.split(', ')[0]}" for place, text in sorted(details.items())
    }


def _show_call(record: ToolRecord) -> str:
    return f"{record.call.name} {_shorten(record.call.arguments)}"


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
