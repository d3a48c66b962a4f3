"""Writes the facts of a world as passages, with distractors in between, and reads sentences back as facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.seeds import rng
from turnwise.environments.search_qa.names import EntityType, choose_names
from turnwise.environments.search_qa.wordings import Style
from turnwise.environments.search_qa.world import RELATIONS, RELATIONS_OF, Fact, World

_PHRASINGS = (
    "The {relation} of {subject} is {object}.",
    "{object} is the {relation} of {subject}.",
    "{subject} has {object} as its {relation}.",
    "According to the records, the {relation} of {subject} is {object}.",
)
_VERBS = {
    "birthplace": "{subject} was born in the town of {object}.",
    "employer": "{subject} has a desk and works for {object}.",
    "mentor": "{subject} learned the whole trade from {object}.",
    "author": "{subject} is a book that was written by {object}.",
    "publisher": "{subject} came out in print at {object}.",
    "setting": "{subject} tells a story that happens in {object}.",
    "headquarters": "{subject} is run from a building in {object}.",
    "founder": "{subject} was started long ago by {object}.",
    "owner": "{subject} is a firm that belongs to {object}.",
    "mayor": "{subject} is a town that is governed by {object}.",
    "twin": "{subject} is the sister town of {object}.",
}
_RETELLINGS = {
    "birthplace": "{object} is where {subject} was born and grew up.",
    "employer": "{object} pays the wages of {subject}.",
    "mentor": "{object} took {subject} on as an apprentice.",
    "author": "{object} wrote {subject} in a single winter.",
    "publisher": "{object} brought {subject} to the bookshops.",
    "setting": "Readers of {subject} spend the whole story in {object}.",
    "headquarters": "The people of {subject} go to work in {object}.",
    "founder": "{object} set up {subject} with borrowed money.",
    "owner": "{object} bought {subject} and still holds it.",
    "mayor": "The voters of {subject} made {object} their head.",
    "twin": "{subject} and its sister town {object} exchange gifts.",
}
NUM_PHRASINGS = len(_PHRASINGS) + 1
"""Number of sentences that can state one fact; the last one omits the relation's noun."""
_NOISE = (
    "{first} was mentioned once in a letter about {second}.",
    "A visitor compared {first} with {second} last spring.",
    "Nothing is known that connects {first} with {second}.",
    "{first} and {second} appear on the same old map.",
)


@dataclass(frozen=True, slots=True)
class Passage:
    """One document of a corpus."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The passages, and which of them states each fact."""

    passages: tuple[Passage, ...]
    evidence: Mapping[Fact, int]
    """(relation, subject) -> index of the passage that states it; empty for a user's own corpus."""


def write_corpus(worlds: Sequence[World], *, seed: int, style: Style, num_distractors: int) -> Corpus:
    """Write one corpus for some worlds: a passage per fact and `num_distractors` others, shuffled.

    A distractor states a fact about names that are in no world but share words with real ones, or something useless
    about two real ones. Every name in a passage belongs to the split of its world. Pure.
    """
    random = rng(seed, "corpus")
    entries: list[tuple[Fact | None, str, str]] = []
    for number, world in enumerate(worlds):
        for fact, target in world.facts.items():
            entries.append((fact, fact[1], state(fact, target, random, style)))
        share = num_distractors // len(worlds) + (number < num_distractors % len(worlds))
        entries += [(None, title, text) for title, text in _distractors(world, share, random, style)]
    random.shuffle(entries)
    return Corpus(
        passages=tuple(Passage(f"p{index}", title, text) for index, (_, title, text) in enumerate(entries)),
        evidence={fact: index for index, (fact, _, _) in enumerate(entries) if fact is not None},
    )


def state(fact: Fact, target: str, random: Random, style: Style) -> str:
    """Write one sentence for a fact, which `read_fact` understands."""
    if style.wording == "natural":
        return random.choice((_VERBS, _RETELLINGS))[fact[0]].format(subject=fact[1], object=target)
    num_phrasings = style.num_phrasings
    number = random.randrange(num_phrasings) if num_phrasings > 1 else 0
    template = _PHRASINGS[number] if number < len(_PHRASINGS) else _VERBS[fact[0]]
    return template.format(relation=fact[0], subject=fact[1], object=target)


def _distractors(world: World, count: int, random: Random, style: Style) -> list[tuple[str, str]]:
    """Write (title, text) of passages that answer nothing: three in four are about names that resemble a real one."""
    used = set(world.types)
    kinds: tuple[EntityType, ...] = ("person", "place", "organisation", "work")
    each = max(2, count // 4) if count else 0
    strangers = {kind: choose_names(kind, each, world.split, random, used, world.num_words) for kind in kinds}
    passages = []
    for number in range(count):
        if number % 4 == 3:
            first, second = random.sample(world.entities, 2)
            passages.append((first, random.choice(_NOISE).format(first=first, second=second)))
            continue
        kind = kinds[number % 4 if number % 8 < 4 else 3 - number % 4]
        relation = random.choice(RELATIONS_OF[kind])
        subject, target = random.choice(strangers[kind]), random.choice(strangers[RELATIONS[relation][1]])
        passages.append((subject, state((relation, subject), target, random, style)))
    return passages


def _patterns() -> list[tuple[str | None, re.Pattern[str]]]:
    """Return a relation (None: the sentence names it) and a pattern for every phrasing."""
    names = "|".join(RELATIONS)
    fields = {"relation": f"(?P<relation>{names})", "subject": "(?P<subject>.+?)", "object": "(?P<object>.+?)"}
    escaped = [(None, re.escape(text)) for text in reversed(_PHRASINGS)] + [
        (name, re.escape(text)) for texts in (_VERBS, _RETELLINGS) for name, text in texts.items()
    ]
    patterns: list[tuple[str | None, re.Pattern[str]]] = []
    for relation, text in escaped:
        for field, group in fields.items():
            text = text.replace(re.escape("{" + field + "}"), group)
        patterns.append((relation, re.compile(text)))
    return patterns


_PATTERNS = _patterns()


def read_fact(sentence: str) -> tuple[str, str, str] | None:
    """Return (relation, subject, object) of the fact that a sentence states, None if it states none.

    This is the inverse of `state`.
    """
    for relation, pattern in _PATTERNS:
        match = pattern.fullmatch(sentence)
        if match:
            return relation or match["relation"], match["subject"], match["object"]
    return None
