"""The expander as an environment family: an agent that turns a formal question into a harder one with the same
answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.search_qa.projection import Projection, parse, to_text
from turnwise_synthesis.shaper.arguments import ExpanderArguments, Prompt
from turnwise_synthesis.shaper.environment import ExpanderEnvironment
from turnwise_synthesis.shaper.expand import expand, grow
from turnwise_synthesis.shaper.policies import NaiveExpander, OracleExpander, RandomExpander
from turnwise_synthesis.shaper.scene import Scene
from turnwise_synthesis.shaper.verdict import judge_expansion

CACHED_SCENES = 64
MAX_ENTITIES = 40
"""Entities of one world that are tried until one has a question with an expansion."""
MAX_WORLDS = 20
PROMPTS: dict[Prompt, str] = {
    "short": "Expand: {question} = {answer}\n",
    "explained": (
        "A formal question denotes a set of entities: author([X]) is the author of X, author^-1([Y]) is everything "
        "whose author is Y, ( a & b ) is what is in both, ( a | b ) what is in either. Replace every entity in "
        "brackets by a formal question whose only answer it is, so that the whole question has the same answer and "
        "takes more searches. Search for what the passages say, list with summarise what an expression denotes, and "
        "validate your expansion. Then give it inside <answer> and </answer>.\nQuestion: {question}\nIts answer: "
        "{answer}\n"
    ),
}


class Expander(GeneratedFamily[ExpanderArguments]):
    """Formal questions that are to be expanded."""

    name = "expander"
    section = ExpanderArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._scene = lru_cache(maxsize=CACHED_SCENES)(self._chosen.build_scene)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a question that has a good expansion; splits are endless and share no name.

        Raises ConfigError if no world has one.
        """
        for attempt in range(MAX_WORLDS):
            world = derive_seed(self._chosen.seed, "expander", split, index // self._chosen.tasks_per_world, attempt)
            random = rng(self._chosen.seed, "expander", split, index, attempt)
            scene = self._scene(split, world)
            for entity in random.sample(scene.graph.entities, min(MAX_ENTITIES, len(scene.graph.entities))):
                query = self._find_question(entity, scene, random.getrandbits(32))
                if query is not None:
                    question = to_text(query)
                    opening = PROMPTS[self._chosen.prompt].format(question=question, answer=entity)
                    payload = {"question": question, "answer": entity, "split": split, "world": world}
                    return (text_message("user", opening),), payload
        raise ConfigError(
            f"no world has a question with an expansion; raise num_entities={self._chosen.num_entities} or lower "
            f"layers={self._chosen.layers}"
        )

    def _find_question(self, entity: str, scene: Scene, seed: int) -> Projection | None:
        """Return a question about an entity that code can expand well; None if there is none."""
        chosen = self._chosen
        random = rng(seed, "question")
        query = grow(entity, scene.graph, random, width=chosen.width, layers=chosen.layers, strategy="layer").query
        if query is None:
            return None
        expanded = expand(query, entity, scene.graph, random, "layer", chosen.layers).query
        if expanded is None:
            return None
        verdict = judge_expansion(to_text(expanded), query, entity, scene, top_k=chosen.top_k)
        return query if verdict.parts["success"] else None

    def build_environment(self, task: Task) -> ExpanderEnvironment:
        """Build a fresh, single-use `ExpanderEnvironment`."""
        return ExpanderEnvironment(
            scene=self._scene(task.payload["split"], task.payload["world"]),
            query=parse(task.payload["question"]),
            answer=task.payload["answer"],
            top_k=self._chosen.top_k,
            reward_timeout_s=self._chosen.reward_timeout_s,
            tool_timeout_s=self._chosen.tool_timeout_s,
            max_observation_chars=self._chosen.max_observation_chars,
        )

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        return {"oracle": OracleExpander(), "random": RandomExpander(), "naive": NaiveExpander()}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the prompt, the naive search with its result, and an expansion."""
        task = self.task("train", index)
        scene = self._scene(task.payload["split"], task.payload["world"])
        yield from (message.text for message in task.prompt)
        query, answer = parse(task.payload["question"]), task.payload["answer"]
        yield from (passage.text for passage in scene.retriever.search(answer, self._chosen.top_k))
        expanded = expand(query, answer, scene.graph, rng(index, "text"), "layer", self._chosen.layers).query
        yield f"<answer> {to_text(query if expanded is None else expanded)} </answer>"
