"""Labelled questions as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.types import Message, Task, text_message
from turnwise.core.verdicts import Form
from turnwise.environments.file_splits import FromFiles, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.labels.arguments import LabelsArguments
from turnwise.environments.labels.environment import LabelsEnvironment
from turnwise.questions.labels import BAD, GOOD, read_labelled, read_question
from turnwise.questions.prompts import write_prompt


class Labels(FromFiles, GeneratedFamily[LabelsArguments]):
    """Questions as judges of kind "frozen" and "policy" read them, and their labels: a checkpoint of a run on them is
    such a judge."""

    name = "labels"
    section = LabelsArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises DataError too, for files that cannot be read."""
        super().__init__(**arguments)
        chosen = self._chosen
        self._rows = load_splits(
            {"train": chosen.train_path, "heldout": chosen.heldout_path},
            _keep_row,
            chosen.seed,
            max_bad_rows=chosen.max_bad_rows,
            asks=lambda row: {**row, "label": None},
        )
        self._files = self._rows

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Return the prompt of a row. Raises IndexError past the last held-out row."""
        row = self._rows.row(split, index)
        labelled = read_labelled(row)
        prompt = write_prompt(labelled.question, max_chars=self._chosen.max_chars)
        asked = {name: value for name, value in row.items() if name != "label"}
        return (text_message("user", prompt),), {"asked": asked, "label": labelled.label}

    def build_environment(self, task: Task) -> LabelsEnvironment:
        """Build a fresh, single-use `LabelsEnvironment`."""
        return LabelsEnvironment(read_form(task), task.payload["label"])

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        return {
            "oracle": LabelPolicy(skill=1.0),
            "random": LabelPolicy(skill=0.0),
            "naive": LabelPolicy(skill=self._chosen.naive_skill),
        }

    def sample_texts(self, index: int) -> Iterable[str]:
        """Return the prompt of a task and every verdict on it."""
        task = self.task("train", index)
        form = read_form(task)
        return [task.prompt[0].text, *(write_verdict(form, label) for label in list_labels(form))]


class LabelPolicy:
    """Gives the right verdict with a probability, and otherwise any."""

    def __init__(self, *, skill: float) -> None:
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the reply."""
        form = read_form(task)
        label = task.payload["label"] if rng.random() < self._skill else rng.choice(list_labels(form))
        return text_message("assistant", write_verdict(form, label))


def read_form(task: Task) -> Form:
    """Return the form of a task's question."""
    return read_question(task.payload["asked"]).form


def list_labels(form: Form) -> list[str]:
    """Return every label that a question of this form may have."""
    words = form.marks[0].words if len(form.marks) == 1 else ()
    return [word for word, _ in words] or [GOOD, BAD]


def write_verdict(form: Form, label: str) -> str:
    """Return the lines of a verdict with this label."""
    lines = []
    for mark in form.marks:
        is_high = (label == GOOD) == (mark.weight > 0)
        ordered = sorted(mark.words, key=lambda word: word[1])
        value = ordered[-1 if is_high else 0][0] if ordered else str(int(is_high))
        named = label if label in dict(mark.words) else value
        lines.append(f"{mark.name}: {named}")
    return "\n".join(lines)


def _keep_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row, if it is one."""
    read_labelled(row)
    return row
