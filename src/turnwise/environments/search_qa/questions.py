"""Questions about a world, each composed from a formal query: wording, gold answers and evidence passages.

Chains are nested noun phrases with the inner relation next to the entity ("the birthplace of the author of Blue
Lantern"), so that every search a question needs is "relation of name".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from turnwise.environments.search_qa.corpus import Corpus, read_fact, state
from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union, evaluate
from turnwise.environments.search_qa.wordings import Style, innermost_phrase, natural_question, noun_phrase
from turnwise.environments.search_qa.world import RELATIONS_OF, Fact, World

UNKNOWN = "unknown"
"""The gold answer of a question whose fact does not exist."""
MAX_TRIES = 200
_CHAIN = ("What is {phrase} ?", "Can you tell me {phrase} ?", "Find {phrase} .", "I would like to know {phrase} .")
_STATED = ("Given that {fact} , what is {phrase} ?", "We know that {fact} . So what is {phrase} ?")
_INTERSECTION = ("What has the {first} and the {second} ?", "Which one has the {first} and also the {second} ?")
_UNION = ("Name one : {first} or {second} ?", "Tell me either {first} or {second} .")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question about one world."""

    kind: str
    """A key of `KINDS`."""
    text: str
    query: Projection
    """Its formal query; the empty set stands for "unknown"."""
    answers: tuple[str, ...]
    """All accepted answers, sorted; at least one."""
    evidence: tuple[str, ...]
    """Ids of the passages that state the facts, in the order in which they are needed; empty if there are none."""


def build_question(kind: str, world: World, corpus: Corpus, random: Random, style: Style) -> Question | None:
    """Build a random question of one kind (a key of `KINDS`), worded in this style.

    Returns None if `MAX_TRIES` draws found no such question in this world.
    """
    for _ in range(MAX_TRIES):
        question = KINDS[kind](world, corpus, random, style)
        if question is not None:
            return question
    return None


def stated_fact(text: str) -> tuple[str, str, str] | None:
    """Return (relation, subject, object) of the fact that a question itself states, None if it states none."""
    for opening in ("Given that ", "We know that "):
        if text.startswith(opening):
            stated = text.removeprefix(opening).partition(" , " if " , " in text else " . ")[0]
            return read_fact(stated[0].upper() + stated[1:] + ".")
    sentence, dot, question = text.partition(". ")
    return read_fact(f"{sentence}.") if dot and question else None


def _pick(templates: tuple[str, ...], random: Random, style: Style) -> str:
    return templates[random.randrange(min(style.num_phrasings, len(templates)))]


def _ask(query: Project, random: Random, style: Style) -> str:
    """Write the question for a chain."""
    if style.wording == "natural":
        return natural_question(query)
    return _pick(_CHAIN, random, style).format(phrase=noun_phrase(query))


def _evidence(facts: list[Fact], corpus: Corpus) -> tuple[str, ...]:
    return tuple(corpus.passages[corpus.evidence[fact]].id for fact in facts)


def _chain(kind: str, num_hops: int) -> Callable[[World, Corpus, Random, Style], Question | None]:
    def build(world: World, corpus: Corpus, random: Random, style: Style) -> Question | None:
        facts = [random.choice(world.fact_keys)]
        names = [facts[0][1], world.facts[facts[0]]]
        query = Project(facts[0][0], Constant(names[0]))
        for _ in range(num_hops - 1):
            fact = (random.choice(RELATIONS_OF[world.types[names[-1]]]), names[-1])
            if fact not in world.facts:
                return None
            facts.append(fact)
            names.append(world.facts[fact])
            query = Project(fact[0], query)
        last_passage = corpus.passages[corpus.evidence[facts[-1]]]
        if len(set(names)) < len(names) or (num_hops > 1 and names[0] in f"{last_passage.title} {last_passage.text}"):
            return None
        text = _ask(query, random, style)
        return Question(kind=kind, text=text, query=query, answers=(names[-1],), evidence=_evidence(facts, corpus))

    return build


def _no_search(world: World, corpus: Corpus, random: Random, style: Style) -> Question | None:
    fact = random.choice(world.fact_keys)
    query = Project(fact[0], Constant(fact[1]))
    if style.wording == "natural":
        text = f"{state(fact, world.facts[fact], random, style)} {natural_question(query)}"
    else:
        stated = f"{noun_phrase(query)} is {world.facts[fact]}"
        text = _pick(_STATED, random, style).format(fact=stated, phrase=noun_phrase(query))
    return Question(
        kind="no_search", text=text, query=query, answers=(world.facts[fact],), evidence=_evidence([fact], corpus)
    )


def _unanswerable(world: World, corpus: Corpus, random: Random, style: Style) -> Question | None:
    subject = random.choice(world.entities)
    relation = random.choice(RELATIONS_OF[world.types[subject]])
    if (relation, subject) in world.facts:
        return None
    query = Project(relation, Constant(subject))
    text = _ask(query, random, style)
    return Question(kind="unanswerable", text=text, query=query, answers=(UNKNOWN,), evidence=())


def _intersection(world: World, corpus: Corpus, random: Random, style: Style) -> Question | None:
    """Build a question with one answer, although each half has several: at most three, so that a short result list can
    hold them.

    Its passages name their relations, because only these make them findable backwards, from the object.
    """
    answer = random.choice(world.entities)
    relations = random.sample(RELATIONS_OF[world.types[answer]], 2)
    facts = [(relation, answer) for relation in relations]
    if not all(fact in world.facts and 2 <= len(world.subjects[fact[0], world.facts[fact]]) <= 3 for fact in facts):
        return None
    first, second = (Project(relation, Constant(world.facts[relation, answer]), inverse=True) for relation in relations)
    query = Intersection((first, second))
    if evaluate(query, world) != {answer} or any(
        fact[0] not in corpus.passages[corpus.evidence[fact]].text for fact in facts
    ):
        return None
    text = _pick(_INTERSECTION, random, style).format(first=innermost_phrase(first), second=innermost_phrase(second))
    return Question(kind="intersection", text=text, query=query, answers=(answer,), evidence=_evidence(facts, corpus))


def _union(world: World, corpus: Corpus, random: Random, style: Style) -> Question | None:
    relation, subject = random.choice(world.fact_keys)
    other = random.choice(world.entities)
    if other == subject or (relation, other) not in world.facts:
        return None
    query = Project(relation, Union((Constant(subject), Constant(other))))
    facts = [(relation, subject), (relation, other)]
    first, second = (noun_phrase(Project(relation, Constant(name))) for name in (subject, other))
    text = _pick(_UNION, random, style).format(first=first, second=second)
    answers = tuple(sorted(evaluate(query, world)))
    return Question(kind="union", text=text, query=query, answers=answers, evidence=_evidence(facts, corpus))


KINDS: dict[str, Callable[[World, Corpus, Random, Style], Question | None]] = {
    "no_search": _no_search,
    "1hop": _chain("1hop", 1),
    "2hop": _chain("2hop", 2),
    "3hop": _chain("3hop", 3),
    "intersection": _intersection,
    "union": _union,
    "unanswerable": _unanswerable,
}
"""Kinds of questions: each builder makes one attempt and returns None when its draw does not qualify."""
WITHOUT_SEARCH = ("no_search", "unanswerable")
"""Kinds that can be answered correctly without the search tool."""
