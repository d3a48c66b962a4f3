"""Research on generated worlds as an environment family. Splits share no names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, ToolRecord, Trajectory, text_message
from turnwise.environments.episodes import play_episode, run_apart
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.search_qa.retrieval import Retriever, WordRetriever
from turnwise.environments.search_qa.world import build_world
from turnwise_rewards.grounding.world.arguments import Rule
from turnwise_rewards.grounding.world.pages import Library, write_library
from turnwise_rewards.grounding.world.reports import name_fact
from turnwise_synthesis.research.checked import CheckedReport
from turnwise_synthesis.research.desk import ResearchDesk
from turnwise_synthesis.research.episodes.free import FreeResearch
from turnwise_synthesis.research.episodes.led import LedResearch, list_led_records
from turnwise_synthesis.research.outline import Outline, draw_outline, read_outline
from turnwise_synthesis.research.world.arguments import WorldArguments
from turnwise_synthesis.research.world.asking import read_question
from turnwise_synthesis.research.world.attackers import ATTACKS, Attacker
from turnwise_synthesis.research.world.policies import CarefulPolicy, RandomPolicy
from turnwise_synthesis.research.world.prompts import write_prompt
from turnwise_synthesis.research.world.sources import WorldSources, check_world_report

CACHED_LIBRARIES = 512
MAX_TURNS = 1000
"""Most replies of a context; the oracle needs few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    library: Library
    retriever: Retriever
    rule: Rule


class WorldResearch(GeneratedFamily[WorldArguments]):
    """Subjects of a world to research, with a report in a section per subject."""

    name = "research"
    section = WorldArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._scene = lru_cache(maxsize=CACHED_LIBRARIES)(self._build_scene)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task: subjects of one world and facts about each; splits are endless."""
        chosen = self._chosen
        random = rng(chosen.seed, "research", split, index)
        world = index // chosen.tasks_per_world
        scene = self._scene(split, world)
        count = random.randint(chosen.min_sections, chosen.max_sections)
        outline = draw_outline(scene.library, random, num_sections=count, max_facts=chosen.max_facts)
        return self._write(outline, split, world)

    def ask(self, question: str, index: int) -> Task:
        """Return a task that asks a reader's question in the world of a held-out task. Raises DataError for what that
        world does not have."""
        world = index // self._chosen.tasks_per_world
        outline = read_question(question, self._scene("heldout", world).library)
        prompt, payload = self._write(outline, "heldout", world)
        return Task(environment=self.name, prompt=prompt, payload=payload)

    def _write(self, outline: Outline, split: Split, world: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        scene = self._scene(split, world)
        payload = {
            "question": name_fact(outline.question),
            "answers": [scene.library.truth[outline.question]],
            "sections": outline.to_payload(),
            "rule": scene.rule,
            "split": split,
            "world": world,
        }
        return (text_message("user", write_prompt(outline, scene.rule, self._chosen.style)),), payload

    def library(self, task: Task) -> Library:
        """Return the pages of a task's world."""
        return self._scene(task.payload["split"], task.payload["world"]).library

    def build_environment(self, task: Task) -> AskingEnvironment:
        """Build a fresh, single-use environment of the chosen style."""
        chosen = self._chosen
        scene = self._scene(task.payload["split"], task.payload["world"])
        sources = WorldSources(chosen=chosen, library=scene.library, retriever=scene.retriever)
        desk = ResearchDesk(
            sources, tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars
        )
        has_memory = chosen.memory == "kept"
        if chosen.style == "terse":
            return LedResearch(desk, has_memory=has_memory)
        return FreeResearch(
            desk, has_memory=has_memory, window_words=chosen.window_words, max_contexts=chosen.max_contexts
        )

    def records(self, task: Task, trajectory: Trajectory) -> list[ToolRecord]:
        """Return all calls of a stored episode in order, its notes and sections among them."""
        if self._chosen.style == "terse":
            return list_led_records(read_outline(task), trajectory)
        return [record for turn in trajectory.turns for record in turn.tool_records]

    def check(self, task: Task, records: Sequence[ToolRecord]) -> CheckedReport:
        """Check the report in the tool records of an episode."""
        return check_world_report(self._chosen, self.library(task), read_outline(task), records)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return "oracle", "random", "naive" and the attackers, who change the oracle's sections."""
        opens = self._chosen.show == "title"
        oracle = CarefulPolicy(care=1.0, resolves=True, opens=opens)
        return {
            "oracle": oracle,
            "random": RandomPolicy(),
            "naive": CarefulPolicy(care=self._chosen.naive_care, resolves=False, opens=opens),
            **{name: Attacker(oracle, attack) for name, attack in ATTACKS.items()},
        }

    def texts(self, count: int) -> list[str]:
        """Return `count` texts of training tasks played by the oracle: what contexts show, and replies."""
        return run_apart(self._play(count))

    async def _play(self, count: int) -> list[str]:
        oracle, texts, index = self.policy("oracle"), list[str](), 0
        while len(texts) < count:
            played = await play_episode(self, self.task("train", index), oracle, seed=0, max_turns=MAX_TURNS)
            for ask, reply in zip(played.asks, played.replies, strict=True):
                texts += [message.text for message in ask.messages]
                texts += [reply.text, *(call.arguments for call in reply.tool_calls)]
            index += 1
        return [text for text in texts if text][:count]

    def _build_scene(self, split: Split, number: int) -> _Scene:
        chosen = self._chosen
        seed = derive_seed(chosen.seed, "research world", split, number)
        rules: list[Rule] = ["later", "trusted"]
        rule = rng(seed, "rule").choice(rules) if chosen.rule == "either" else chosen.rule
        world = build_world(seed, split, chosen.num_entities, chosen.num_words)
        library = write_library(world, seed, chosen, rule)
        return _Scene(library=library, retriever=WordRetriever(library.passages()), rule=rule)
