"""How a relation is worded: by the formal noun ("the author of Blue Lantern") or in natural language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union

Wording = Literal["formal", "natural"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How facts and questions are worded."""

    wording: Wording = "formal"
    num_phrasings: int = 1
    """How many of the formal phrasings are used; natural facts have two, natural questions one."""


_NATURAL = {
    "birthplace": ("Where was {of} born?", "the town where {of} was born"),
    "employer": ("Who does {of} work for?", "the organisation that {of} works for"),
    "mentor": ("Who taught {of} the trade?", "the person who taught {of} the trade"),
    "author": ("Who wrote {of}?", "the person who wrote {of}"),
    "publisher": ("Who published {of}?", "the organisation that published {of}"),
    "setting": ("Where does {of} take place?", "the town where {of} takes place"),
    "headquarters": ("Where is {of} based?", "the town where {of} is based"),
    "founder": ("Who founded {of}?", "the person who founded {of}"),
    "owner": ("Who owns {of}?", "the owner of {of}"),
    "mayor": ("Who governs {of}?", "the person who governs {of}"),
    "twin": ("Which is the sister town of {of}?", "the sister town of {of}"),
}
"""Relation -> (question, noun phrase)."""


def noun_phrase(query: Projection, wording: Wording = "formal") -> str:
    """Write a chain in words: "the birthplace of the author of Blue Lantern", or "the town where the person who wrote
    Blue Lantern was born". Raises ValueError for a query that is not a chain of forward projections."""
    match query:
        case Constant(entity):
            return entity
        case Project(relation, of, False) if wording == "formal":
            return f"the {relation} of {noun_phrase(of)}"
        case Project(relation, of, False):
            return _NATURAL[relation][1].format(of=noun_phrase(of, wording))
    raise ValueError(f"{query} is not a chain of forward projections")


def natural_question(query: Project) -> str:
    """Write a chain as a natural question: "Where was the person who wrote Blue Lantern born?"."""
    return _NATURAL[query.relation][0].format(of=noun_phrase(query.of, "natural"))


def innermost_phrase(query: Projection, wording: Wording = "formal") -> str:
    """Return the part of a question next to its first entity, for the first search.

    A formal phrase has no article, a natural one is a question; an inverse relation is always formal.
    """
    match query:
        case Constant(entity):
            return entity
        case Project(relation, Constant(entity), inverse):
            if wording == "natural" and not inverse:
                return natural_question(query)
            return f"{relation} {entity}" if inverse else f"{relation} of {entity}"
        case Project(relation, Union(parts), False):
            return innermost_phrase(Project(relation, parts[0]), wording)
        case Project(_, of, _):
            return innermost_phrase(of, wording)
        case Intersection(parts) | Union(parts):
            return innermost_phrase(parts[0], wording)


def list_relations(query: Projection) -> list[str]:
    """Return the relations of a query, outermost first."""
    match query:
        case Constant():
            return []
        case Project(relation, of, _):
            return [relation, *list_relations(of)]
        case Intersection(parts) | Union(parts):
            return [relation for part in parts for relation in list_relations(part)]
