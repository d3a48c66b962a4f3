"""Questions over the search world as proposals: formal expressions that an evaluator answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Task, text_message
from turnwise.environments.search_qa.corpus import Corpus, write_corpus
from turnwise.environments.search_qa.projection import Constant, Project, Projection, evaluate, parse, to_text
from turnwise.environments.search_qa.questions import build_question
from turnwise.environments.search_qa.retrieval import Retriever, WordRetriever
from turnwise.environments.search_qa.wordings import Style, noun_phrase
from turnwise.environments.search_qa.world import RELATIONS, World, build_world
from turnwise_worlds.proposer.arguments import KINDS
from turnwise_worlds.proposer.episode import Problem
from turnwise_worlds.proposer.pay import Flaw, Kind

STYLE = Style()
MAX_HOPS = len(KINDS)
MAX_WORLDS = 50
"""Number of worlds to try until one has a question of the wanted kind."""
_NUMBERS = {relation: number for number, relation in enumerate(RELATIONS, start=1)}
_CHAIN = re.compile(r"(?P<relations>(?:\w+\s+)*)\[(?P<entity>[^\[\]]*)\]")
PROPOSE = "Propose about the {type} {entity}\n"
ASK = "Question: What is {phrase} ?\n"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A world with its corpus."""

    world: World
    corpus: Corpus

    @cached_property
    def retriever(self) -> Retriever:
        """The index over the passages, built on first use."""
        return WordRetriever(self.corpus.passages)


def build_scene(split: Split, seed: int, *, num_entities: int, num_words: int) -> Scene:
    """Build the scene of a seed. Pure."""
    world = build_world(seed, split, num_entities, num_words)
    return Scene(world=world, corpus=write_corpus([world], seed=seed, style=STYLE, num_distractors=0))


def propose_text(query: Projection) -> str:
    """Write a chain as the model does, in prefix notation, which needs no closing brackets: `birthplace author [ Blue
    Lantern ]`. Raises ValueError for a query that is not a chain of forward projections."""
    chain = list_chain(query)
    if chain is None:
        raise ValueError(f"{query} is not a chain of forward projections")
    entity, relations = chain
    return " ".join([*reversed(relations), f"[ {entity} ]"])


def read_expression(text: str) -> Projection | None:
    """Parse the expression that a text denotes, in prefix notation or in the notation of `parse`; None if it denotes
    none.

    Spaces around names are ignored.
    """
    chain = _CHAIN.fullmatch(text)
    if chain is not None:
        query: Projection = Constant(chain["entity"].strip())
        for relation in reversed(chain["relations"].split()):
            query = Project(relation, query)
        return query
    try:
        return _strip(parse(text))
    except (ValueError, RecursionError):
        return None


def _strip(query: Projection) -> Projection:
    match query:
        case Constant(entity):
            return Constant(entity.strip())
        case Project(relation, of, inverse):
            return Project(relation, _strip(of), inverse)
        case _:
            return type(query)(tuple(_strip(part) for part in query.parts))


def list_chain(query: Projection) -> tuple[str, tuple[str, ...]] | None:
    """Return the entity and the relations of a chain of forward projections, innermost first; None for any other
    query."""
    relations: list[str] = []
    while isinstance(query, Project) and not query.inverse:
        relations.append(query.relation)
        query = query.of
    return (query.entity, tuple(reversed(relations))) if isinstance(query, Constant) else None


def judge(query: Projection | None, scene: Scene) -> Flaw | None:
    """Return the flaw of a question; None if it has none.

    The evaluator determines the answer. `ill_formed`: not an expression, an unknown relation, one that does not apply
    to its subject's type, more than `MAX_HOPS` hops, or not a chain (only chains have a wording). `unsolvable`: no
    answer. `ambiguous`: several answers. `trivial`: no hop, a repeated entity, or a last passage that names the first
    entity, so that one search is enough.
    """
    if query is None:
        return "ill_formed"
    chain, world = list_chain(query), scene.world
    if chain is None:
        answers = evaluate(query, world)
        return "unsolvable" if not answers else "ambiguous" if len(answers) > 1 else "ill_formed"
    entity, relations = chain
    if len(relations) > MAX_HOPS or any(relation not in RELATIONS for relation in relations):
        return "ill_formed"
    kind, names = world.types.get(entity), [entity]
    for relation in relations:
        if kind is not None and RELATIONS[relation][0] != kind:
            return "ill_formed"
        kind = RELATIONS[relation][1]
    for relation in relations:
        if (relation, names[-1]) not in world.facts:
            return "unsolvable"
        names.append(world.facts[relation, names[-1]])
    if entity not in world.types:
        return "unsolvable"
    if not relations or len(set(names)) < len(names):
        return "trivial"
    last = scene.corpus.passages[scene.corpus.evidence[relations[-1], names[-2]]]
    return "trivial" if len(relations) > 1 and entity in f"{last.title} {last.text}" else None


@dataclass(frozen=True, kw_only=True)
class SearchSubject:
    """Implements `Subject`."""

    scene: Callable[[Split, int], Scene]
    build: Callable[[Retriever], Environment]
    """Builds the environment in which a solver acts."""
    max_replies: int
    kinds: tuple[str, ...] = KINDS

    def read(self, task: Task, proposal: str) -> Problem | Flaw:
        """Return the question that an expression denotes in the task's world."""
        split, seed = task.payload["split"], task.payload["world"]
        query, scene = read_expression(proposal), self.scene(split, seed)
        flaw = judge(query, scene)
        if flaw is not None:
            return flaw
        assert query is not None, "what is no expression is ill-formed"
        return build_problem(query, scene, split, seed)

    def given(self, task: Task) -> Problem | None:
        """Return the question of a held-out task."""
        text = task.payload.get("query")
        if text is None:
            return None
        split, seed = task.payload["split"], task.payload["world"]
        return build_problem(parse(text), self.scene(split, seed), split, seed)

    def build_solver(self, problem: Problem) -> Environment:
        """Build a search environment over the problem's world."""
        payload = problem.task.payload
        return self.build(self.scene(payload["split"], payload["world"]).retriever)


def build_problem(query: Projection, scene: Scene, split: Split, seed: int) -> Problem:
    """Return a flawless question as a problem for solvers. Raises ValueError for a query that is not a chain."""
    chain = list_chain(query)
    if chain is None:
        raise ValueError(f"{to_text(query)} is not a chain of forward projections")
    _, relations = chain
    number = 0
    for relation in relations:
        number = number * (len(_NUMBERS) + 1) + _NUMBERS[relation]
    question = ASK.format(phrase=noun_phrase(query))
    payload = {"answers": sorted(evaluate(query, scene.world)), "split": split, "world": seed}
    return Problem(
        kind=Kind(name=KINDS[len(relations) - 1], number=number),
        task=Task(environment="search_proposer", prompt=(text_message("user", question),), payload=payload),
    )


def find_question(
    split: Split,
    world: tuple[int | str, ...],
    path: tuple[int | str, ...],
    kind: str,
    scenes: Callable[[Split, int], Scene],
) -> tuple[int, Projection]:
    """Draw the world and the query of a question of a kind, under two seed paths. Raises ConfigError if there is
    none."""
    for attempt in range(MAX_WORLDS):
        seed = derive_seed(*world, attempt)
        scene = scenes(split, seed)
        question = build_question(kind, scene.world, scene.corpus, rng(*path, attempt), STYLE)
        if question is not None:
            return seed, question.query
    raise ConfigError(f"no {kind} question was found in {MAX_WORLDS} worlds; raise num_entities")
