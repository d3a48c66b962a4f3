"""Proposers and solvers of search questions as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.search_qa.environment import SearchEnvironment, format_documents
from turnwise.environments.search_qa.policies import NaivePolicy, OraclePolicy, RandomPolicy, write_search
from turnwise.environments.search_qa.projection import to_text
from turnwise.environments.search_qa.retrieval import Retriever
from turnwise.environments.search_qa.wordings import noun_phrase
from turnwise.rewards.answers import REWARDS
from turnwise_worlds.proposer.arguments import KINDS, SearchProposerArguments
from turnwise_worlds.proposer.episode import ProposerEnvironment
from turnwise_worlds.proposer.policies import SelfPlayPolicy, draw_chain
from turnwise_worlds.proposer.search import (
    ASK,
    PROPOSE,
    Scene,
    SearchSubject,
    build_scene,
    find_question,
    propose_text,
)

CACHED_SCENES = 512
UNIFORM = dict.fromkeys(KINDS, 1.0)


class SearchProposer(GeneratedFamily[SearchProposerArguments]):
    """A proposer asks about an entity of a world; solvers search the world for the answer.

    A training task names an entity to propose about; a held-out one brings a question of one, two or three hops,
    equally often, for one solver.
    """

    name = "search_proposer"
    section = SearchProposerArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._prior = self._chosen.weights
        self._scene = lru_cache(maxsize=CACHED_SCENES)(self._build_scene)
        self._subject = SearchSubject(scene=self._scene, build=self._build_solver, max_replies=self._chosen.max_replies)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no name."""
        path = (self._chosen.seed, "proposer", split)
        shared = (*path, index // self._chosen.tasks_per_world)
        if split == "heldout" or (index < self._chosen.given_tasks and index % 4):
            kind = KINDS[index % len(KINDS)]
            world, query = find_question(split, (*shared, "world"), (*path, index, "question"), kind, self._scene)
            question = ASK.format(phrase=noun_phrase(query))
            payload = {"kind": kind, "query": to_text(query), "split": split, "world": world}
            return (text_message("user", question),), payload
        world = derive_seed(*shared)
        types = self._scene(split, world).world.types
        entity = rng(*path, index).choice(list(types))
        opening = PROPOSE.format(type=types[entity], entity=entity)
        payload = {"entity": entity, "type": types[entity], "split": split, "world": world}
        return (text_message("user", opening),), payload

    def build_environment(self, task: Task) -> ProposerEnvironment:
        """Build a fresh, single-use `ProposerEnvironment`."""
        return ProposerEnvironment(self._chosen, self._subject, task)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies by name, with how they propose and solve: "oracle" (uniform, right), "random" (uniform,
        at random), "naive" (from the prior, one search); "prior" and "uniform" are proposers that do not learn."""
        naive = NaivePolicy(self._chosen.naive_wander, repeats=False)
        return {
            "oracle": SelfPlayPolicy(UNIFORM, OraclePolicy()),
            "random": SelfPlayPolicy(UNIFORM, RandomPolicy()),
            "naive": SelfPlayPolicy(self._prior, naive),
            "prior": SelfPlayPolicy(self._prior, naive),
            "uniform": SelfPlayPolicy(UNIFORM, naive),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the opening, proposal, searches, results and answer of a task that brings no question."""
        index += self._chosen.given_tasks
        task = self.task("train", index)
        random = rng(self._chosen.seed, "proposer", "text", index)
        query = draw_chain(task.payload["entity"], task.payload["type"], 1 + index % len(KINDS), random)
        yield task.prompt[0].text
        yield f" {propose_text(query)}"
        question = text_message("user", ASK.format(phrase=noun_phrase(query)))
        retriever = self._scene(task.payload["split"], task.payload["world"]).retriever
        yield question.text
        yield from write_search(
            self.policy("oracle"),
            task,
            [question],
            lambda query: format_documents(retriever.search(query, self._chosen.top_k), "plain"),
        )

    def _build_scene(self, split: Split, seed: int) -> Scene:
        return build_scene(split, seed, num_entities=self._chosen.num_entities, num_words=self._chosen.num_words)

    def _build_solver(self, retriever: Retriever) -> Environment:
        return SearchEnvironment(
            retriever=retriever,
            reward=REWARDS["exact_match"],
            top_k=self._chosen.top_k,
            document_format="plain",
            search="on",
            reward_timeout_s=self._chosen.reward_timeout_s,
            tool_timeout_s=self._chosen.tool_timeout_s,
            max_observation_chars=self._chosen.max_observation_chars,
        )
