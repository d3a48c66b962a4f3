"""What held-out tasks share with training tasks: whole tasks, names, runs of words, templates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
GRAM = 8
"""Words of a run (GPT-3's n-gram overlap used 8 to 13: arXiv 2005.14165, appendix C)."""
COMMON = 0.1
"""Share of held-out prompts above which a run of words or a name is part of every task's wording, and says nothing."""
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_NAME = re.compile(r"\"[^\"\n]{1,60}\"|(?<![.!?:\n] )(?<!^)\b[A-Z][\w'\u2019-]*(?: [A-Z][\w'\u2019-]*)*", re.MULTILINE)
_FILLED = re.compile(r"\"[^\"\n]{1,60}\"|\b[A-Z][\w'\u2019-]*(?: [A-Z][\w'\u2019-]*)*|-?\d+(?:[.,]\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A task as far as overlap looks at it."""

    prompt: str
    content: str
    """All of the payload but the split's name: equal prompts with another content are other tasks."""
    gold: str
    """The gold answer; empty if the family names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Shares of held-out tasks, between 0 and 1, over `heldout` tasks and `train` tasks."""

    heldout: int
    train: int
    same_task: float
    """Prompt and content of a training task."""
    looked_up: float | None
    """Right answers of a table that has memorised the most frequent gold answer to each training prompt; None without
    gold answers."""
    same_prompt: float
    """The prompt of a training task, whatever the answer."""
    same_names: float | None
    """Share of the different names and gold answers of held-out tasks that training prompts or answers have; None if
    there are none."""
    same_grams: float | None
    """At least one run of `GRAM` words that a training prompt has and that is not the wording of every task; None if no
    prompt has one of its own."""
    same_template: float
    """The prompt of a training task but for names, quoted texts and numbers."""
    templates: int
    """Number of different prompts of held-out tasks but for names, quoted texts and numbers."""


def compare_tasks(heldout: Sequence[Asked], train: Sequence[Asked]) -> Overlap:
    """Compare held-out tasks with training tasks. Raises ValueError without a held-out task."""
    if not heldout:
        raise ValueError("no held-out task to compare")
    tasks = {(task.prompt, task.content) for task in train}
    answers = memorise(train)
    golden = [task for task in heldout if task.gold]
    prompts, forms = {task.prompt for task in train}, {find_template(task.prompt) for task in train}
    names = set().union(*_drop_common([find_names(task) for task in heldout]))
    known = set().union(*(find_names(task) for task in train))
    grams = _drop_common([find_grams(task.prompt) for task in heldout])
    own = [each for each in grams if each]
    seen = set().union(*(find_grams(task.prompt) for task in train)) if own else set()
    return Overlap(
        heldout=len(heldout),
        train=len(train),
        same_task=_share(heldout, lambda task: (task.prompt, task.content) in tasks),
        looked_up=_share(heldout, lambda task: answers.get(task.prompt) == task.gold) if golden else None,
        same_prompt=_share(heldout, lambda task: task.prompt in prompts),
        same_names=len(names & known) / len(names) if names else None,
        same_grams=sum(bool(each & seen) for each in own) / len(heldout) if own else None,
        same_template=_share(heldout, lambda task: find_template(task.prompt) in forms),
        templates=len({find_template(task.prompt) for task in heldout}),
    )


def memorise(train: Sequence[Asked]) -> dict[str, str]:
    """Return the most frequent gold answer to each training prompt, of equally frequent ones the first; prompts without
    a gold answer are not there."""
    counts: dict[str, Counter[str]] = {}
    for task in train:
        if task.gold:
            counts.setdefault(task.prompt, Counter())[task.gold] += 1
    return {prompt: answers.most_common(1)[0][0] for prompt, answers in counts.items()}


def find_names(task: Asked) -> set[str]:
    """Return the names of a task: its gold answer, quoted texts, and runs of capitalised words within sentences."""
    found = {match.strip('"').casefold() for match in _NAME.findall(task.prompt)}
    return found | ({task.gold.casefold()} if task.gold else set())


def find_grams(text: str) -> set[tuple[str, ...]]:
    """Return every run of `GRAM` words; all words of a shorter text."""
    words = [word.casefold() for word in _WORD.findall(text)]
    return {tuple(words[start : start + GRAM]) for start in range(max(1, len(words) - GRAM + 1))} if words else set()


def find_template(text: str) -> str:
    """Return the text with a mark for each name, quoted text and number."""
    return _FILLED.sub("_", text)


def _drop_common(sets: Sequence[set[T]]) -> list[set[T]]:
    counts = Counter(item for each in sets for item in each)
    most = max(1, COMMON * len(sets))
    return [{item for item in each if counts[item] <= most} for each in sets]


def _share(tasks: Iterable[Asked], holds: Callable[[Asked], bool]) -> float:
    values = [holds(task) for task in tasks]
    return sum(values) / len(values)
