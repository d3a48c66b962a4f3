"""Inverted questions as an environment family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.environment import format_documents
from turnwise.environments.search_qa.policies import write_search
from turnwise.environments.search_qa.projection import to_text
from turnwise.rewards.answers import REWARDS
from turnwise_synthesis.browsecomp.arguments import KINDS, BrowseCompArguments, Prompt
from turnwise_synthesis.browsecomp.environment import BudgetedSearch
from turnwise_synthesis.browsecomp.invert import Inverted, invert
from turnwise_synthesis.browsecomp.policies import NaiveSearcher, OracleSearcher, RandomSearcher
from turnwise_synthesis.shaper.verdict import count_searches
from turnwise_synthesis.shaper.wordings import write_compact, write_question

CACHED_SCENES = 512
MAX_WORLDS = 50
"""Number of worlds to try until one has a question of the wanted kind."""
PROMPTS: dict[Prompt, str] = {
    "short": "{question}\n",
    "explained": (
        "Find the one thing that fits all conditions. Search as often as you need, and check the candidates; then give "
        "its name inside <answer> and </answer>. {question}\n"
    ),
    "confidence": (
        "Find the one thing that fits all conditions. Search as often as you need, and check the candidates; then end "
        "with a line 'Confidence: N%', from 0% to 100%, for how sure you are, and the name inside <answer> and "
        "</answer>. {question}\n"
    ),
}


class BrowseComp(GeneratedFamily[BrowseCompArguments]):
    """Questions with several conditions that one entity alone satisfies, answered by searching."""

    name = "browsecomp"
    section = BrowseCompArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._kinds = self._chosen.weights
        self._scene = lru_cache(maxsize=CACHED_SCENES)(self._chosen.build_scene)
        self._questions = lru_cache(maxsize=len(KINDS) * CACHED_SCENES)(self._find_questions)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a question; splits are endless and share no name.

        Raises ConfigError if no world has a question of the drawn kind.
        """
        path = (self._chosen.seed, "browsecomp", split)
        kind = rng(*path, index, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        for attempt in range(MAX_WORLDS):
            world = derive_seed(*path, "world", index // self._chosen.tasks_per_world, attempt)
            questions = self._questions(kind, split, world)
            if questions:
                found = questions[index % self._chosen.tasks_per_world % len(questions)]
                assert found.query is not None
                compact = self._chosen.wording == "compact"
                text = (
                    write_compact(found.query)
                    if compact
                    else write_question(found.query, self._scene(split, world).graph)
                )
                payload = {
                    "kind": kind,
                    "question": text,
                    "query": to_text(found.query),
                    "answers": [found.answer],
                    "candidates": list(found.candidates),
                    "split": split,
                    "world": world,
                }
                return (text_message("user", PROMPTS[self._chosen.prompt].format(question=text)),), payload
        raise ConfigError(
            f"kinds has {kind!r}, but no such question was found in {MAX_WORLDS} worlds; raise "
            f"num_entities={self._chosen.num_entities} or max_effort={self._chosen.max_effort}, or lower "
            f"min_candidates={self._chosen.min_candidates}"
        )

    def _find_questions(self, kind: str, split: Split, world: int) -> tuple[Inverted, ...]:
        """Return the questions of a world that the searching solver answers within `max_effort` searches, about
        distinct entities in random order, at most one for each task of the world."""
        scene, random = self._scene(split, world), rng(world, "entities", kind)
        entities = [entity for entity, type_ in scene.graph.types.items() if type_ in self._chosen.answers]
        questions: list[Inverted] = []
        for entity in random.sample(entities, len(entities)):
            if len(questions) == self._chosen.tasks_per_world:
                break
            found = invert(entity, scene.graph, random, self._chosen.plan(kind))
            if found.query is None:
                continue
            effort = count_searches(found.query, entity, scene, top_k=self._chosen.top_k)
            if effort is not None and effort <= self._chosen.max_effort:
                questions.append(found)
        return tuple(questions)

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use `BudgetedSearch` over the task's passages."""
        chosen = self._chosen
        return BudgetedSearch(
            max_searches=chosen.max_searches,
            retriever=self._scene(task.payload["split"], task.payload["world"]).retriever,
            reward=REWARDS["exact_match"],
            top_k=chosen.top_k,
            document_format="plain",
            search=chosen.search,
            reward_timeout_s=chosen.reward_timeout_s,
            tool_timeout_s=chosen.tool_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
        )

    def gold_answer(self, task: Task) -> str:
        """Return the answer."""
        return str(task.payload["answers"][0])

    def answer_reply(self, task: Task, answer: str) -> Message:
        """Return the reply to the task that states only this answer; "" leaves its place empty."""
        return answer_message(answer)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        return {
            "oracle": OracleSearcher(),
            "random": RandomSearcher(),
            "naive": NaiveSearcher(self._chosen.naive_wander),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompts, tagged searches, results and answers."""
        task = self.task("train", index)
        retriever = self._scene(task.payload["split"], task.payload["world"]).retriever
        yield from (message.text for message in task.prompt)
        yield from write_search(
            self.policy("oracle"),
            task,
            task.prompt,
            lambda query: format_documents(retriever.search(query, self._chosen.top_k), "plain"),
        )
