"""What a task asks for: a question, and the sections of the report with the facts that each has to state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from turnwise.core.types import Task
from turnwise.environments.search_qa.world import Fact
from turnwise_rewards.grounding.world.pages import Library
from turnwise_rewards.grounding.world.reports import name_fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report."""

    heading: str
    """Its subject."""
    asked: tuple[Fact, ...]
    """Facts about the subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """All sections of a report. The first fact of the first one is the question."""

    sections: tuple[Section, ...]

    @property
    def asked(self) -> tuple[Fact, ...]:
        """The facts of all sections."""
        return tuple(fact for section in self.sections for fact in section.asked)

    @property
    def question(self) -> Fact:
        """The fact whose object is the answer."""
        return self.sections[0].asked[0]

    def write(self) -> str:
        """Write the sections: `Blue Lantern : author , publisher ; Port Vessa : mayor`."""
        return " ; ".join(
            f"{section.heading} : {' , '.join(relation for relation, _ in section.asked)}" for section in self.sections
        )

    def to_payload(self) -> list[dict[str, Any]]:
        """Return the sections as JSON."""
        return [{"heading": each.heading, "asked": [list(fact) for fact in each.asked]} for each in self.sections]


def read_outline(task: Task) -> Outline:
    """Return the outline in a task's payload; without sections where the agent decides on them."""
    return Outline(
        sections=tuple(
            Section(heading=each["heading"], asked=tuple((relation, subject) for relation, subject in each["asked"]))
            for each in task.payload["sections"]
        )
    )


def draw_outline(library: Library, random: Random, *, num_sections: int, max_facts: int) -> Outline:
    """Draw subjects of a world, and for each at most `max_facts` of its facts; fewer sections in a smaller world."""
    by_subject: dict[str, list[Fact]] = {}
    for fact in library.truth:
        by_subject.setdefault(fact[1], []).append(fact)
    subjects = random.sample(list(by_subject), min(num_sections, len(by_subject)))
    return Outline(
        sections=tuple(
            Section(
                heading=subject,
                asked=tuple(random.sample(by_subject[subject], min(max_facts, len(by_subject[subject])))),
            )
            for subject in subjects
        )
    )


def list_names(facts: Sequence[Fact]) -> list[str]:
    """Return facts as they are asked for: `author of Blue Lantern`."""
    return [name_fact(fact) for fact in facts]
