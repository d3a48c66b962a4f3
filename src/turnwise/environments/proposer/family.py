"""Proposers and solvers of search questions as an environment family: tasks, environments and policies."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Task, text_message
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.proposer.arguments import KINDS, SearchProposerArguments
from turnwise.environments.proposer.episode import ProposerEnvironment, Rules
from turnwise.environments.proposer.policies import SelfPlayPolicy, draw_chain
from turnwise.environments.proposer.search import (
    ASK,
    PROPOSE,
    Scene,
    SearchSubject,
    build_scene,
    find_question,
    propose_text,
)
from turnwise.environments.search_qa.environment import SearchEnvironment, format_documents
from turnwise.environments.search_qa.policies import (
    Conversation,
    NaivePolicy,
    OraclePolicy,
    RandomPolicy,
)
from turnwise.environments.search_qa.projection import to_text
from turnwise.environments.search_qa.retrieval import Retriever
from turnwise.environments.search_qa.wordings import noun_phrase
from turnwise.rewards.answers import REWARDS

CACHED_SCENES = 512
UNIFORM = dict.fromkeys(KINDS, 1.0)


class SearchProposer:
    """A proposer asks about an entity of a world, solvers search the world for the answer.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments. A training task names an entity to
    propose about; a held-out one brings a question, of one, two or three hops alike, and asks one solver.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `SearchProposerArguments`. Raises ConfigError naming argument and remedy."""
        self._chosen = chosen = read_arguments(SearchProposerArguments, arguments)
        self._prior = chosen.weights
        self._rules = Rules(pay=chosen.pay, num_solvers=chosen.solvers, max_replies=chosen.max_replies)
        self._scene = lru_cache(maxsize=CACHED_SCENES)(self._build_scene)
        self._subject = SearchSubject(scene=self._scene, build=self._build_solver)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no name.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        path = (self._chosen.seed, "proposer", split)
        shared = (*path, index // self._chosen.tasks_per_world)
        if split == "heldout" or (index < self._chosen.given_tasks and index % 4):
            kind = KINDS[index % len(KINDS)]
            world, query = find_question(split, (*shared, "world"), (*path, index, "question"), kind, self._scene)
            question = ASK.format(phrase=noun_phrase(query))
            payload = {"kind": kind, "query": to_text(query), "split": split, "world": world}
            return Task(environment="search_proposer", prompt=(text_message("user", question),), payload=payload)
        world = derive_seed(*shared)
        types = self._scene(split, world).world.types
        entity = rng(*path, index).choice(list(types))
        opening = PROPOSE.format(type=types[entity], entity=entity)
        payload = {"entity": entity, "type": types[entity], "split": split, "world": world}
        return Task(environment="search_proposer", prompt=(text_message("user", opening),), payload=payload)

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `ProposerEnvironment`."""
        return ProposerEnvironment(self._rules, self._subject, task)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy, by how it proposes and solves: "oracle" (uniform, right), "random" (uniform, at random),
        "naive" (the demonstrator: from the prior, one search), "prior" and "uniform", proposers that do not learn.
        Raises ConfigError naming these."""
        naive = NaivePolicy(self._chosen.naive_wander, repeats=False)
        return choose_policy(
            name,
            {
                "oracle": SelfPlayPolicy(UNIFORM, OraclePolicy()),
                "random": SelfPlayPolicy(UNIFORM, RandomPolicy()),
                "naive": SelfPlayPolicy(self._prior, naive),
                "prior": SelfPlayPolicy(self._prior, naive),
                "uniform": SelfPlayPolicy(UNIFORM, naive),
            },
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: openings, proposals, searches, results, answers."""
        texts: list[str] = []
        index = self._chosen.given_tasks
        while len(texts) < count:
            task = self.task("train", index)
            entity, random = task.payload["entity"], rng(self._chosen.seed, "proposer", "text", index)
            query = draw_chain(entity, task.payload["type"], 1 + index % len(KINDS), random)
            texts += [task.prompt[0].text, f" {propose_text(query)}"]
            texts += self._solve(task, ASK.format(phrase=noun_phrase(query)))
            index += 1
        return texts[:count]

    def _solve(self, task: Task, question: str) -> list[str]:
        oracle = self.policy("oracle")
        retriever = self._scene(task.payload["split"], task.payload["world"]).retriever
        texts, messages = [question], [text_message("user", question)]
        while (reply := oracle.reply(task, messages, Random(0))).tool_calls:
            query = Conversation.of([reply]).queries[0]
            results = format_documents(retriever.search(query, self._chosen.top_k), "plain")
            texts += [f"<search> {query} </search>", results]
            messages += [reply, text_message("tool", results, tool_call_id=reply.tool_calls[0].id, name="search")]
        return [*texts, reply.text]

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
