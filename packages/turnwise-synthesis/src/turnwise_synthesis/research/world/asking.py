"""A reader's own question in a generated world: facts or subjects, such as `author of Blue Lantern ; Port Vessa`."""

from __future__ import annotations

from turnwise.core.errors import DataError
from turnwise.environments.search_qa.world import RELATIONS, Fact
from turnwise_rewards.grounding.world.pages import Library
from turnwise_rewards.grounding.world.reports import name_fact
from turnwise_synthesis.research.outline import Outline, Section

NUM_NAMED = 5
"""Subjects that an error names."""


def read_question(question: str, library: Library) -> Outline:
    """Return the outline that a question asks for: a section per subject, with the facts named of it, or all that the
    world has where only the subject is named. Raises DataError for what the world does not have."""
    by_subject: dict[str, list[Fact]] = {}
    for fact in library.truth:
        by_subject.setdefault(fact[1].casefold(), []).append(fact)
    wanted: dict[str, list[Fact]] = {}
    for item in filter(None, (part.strip(" ?.\n") for part in question.split(";"))):
        relation, _, subject = item.partition(" of ")
        relation = relation.removeprefix("the ").casefold()
        if relation not in RELATIONS:
            relation, subject = "", item
        facts = [fact for fact in by_subject.get(subject.casefold(), []) if relation in ("", fact[0])]
        if not facts:
            names = "; ".join(list(dict.fromkeys(fact[1] for fact in library.truth))[:NUM_NAMED])
            raise DataError(
                f"no page of this world states {item!r}; ask about its subjects, such as {names}, about facts, such as "
                f"{name_fact(next(iter(library.truth)))}, choose another world with --task, or give passages of your "
                "own with --corpus"
            )
        wanted.setdefault(facts[0][1], []).extend(fact for fact in facts if fact not in wanted.get(facts[0][1], []))
    if not wanted:
        raise DataError(f"the question {question!r} names nothing; write facts or subjects, separated by ';'")
    return Outline(sections=tuple(Section(heading=subject, asked=tuple(facts)) for subject, facts in wanted.items()))
