"""Reports on generated pages as an environment family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, Trajectory, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.search_qa.policies import write_search
from turnwise.environments.search_qa.retrieval import Retriever, WordRetriever
from turnwise.environments.search_qa.world import build_world
from turnwise_rewards.grounding.kind import read_report
from turnwise_rewards.grounding.ledger import Ledger
from turnwise_rewards.grounding.world.arguments import ReportArguments
from turnwise_rewards.grounding.world.attackers import ATTACKS, Attacker
from turnwise_rewards.grounding.world.environment import NOTHING_FOUND, ReportEnvironment
from turnwise_rewards.grounding.world.pages import RULES, Library, show_pages, write_library
from turnwise_rewards.grounding.world.policies import CitingPolicy, RandomPolicy
from turnwise_rewards.grounding.world.reports import asked_facts, name_fact, write_ledger

PROMPTS = {
    "short": "Report : {asked}\n",
    "full": (
        "Write a report with one line for each of these facts: {asked}. Search the pages, and open them where a search "
        "shows only titles. A line has the form\nauthor of Blue Lantern : Mira Tolen [doc 17]\nand cites a page that "
        "you have read and that says so. Where two pages disagree, {rule}. Every other line and every other citation "
        "counts against you. Give the report inside <answer> and </answer>.\n"
    ),
}
CACHED_LIBRARIES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    library: Library
    retriever: Retriever


class Report(GeneratedFamily[ReportArguments]):
    """Facts that are to be looked up and reported with their sources. Splits share no names."""

    name = "report"
    section = ReportArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._scene = lru_cache(maxsize=CACHED_LIBRARIES)(self._build_scene)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task: different facts of one world; splits are endless."""
        chosen = self._chosen
        random = rng(chosen.seed, "report", split, index)
        world = index // chosen.tasks_per_world
        facts = list(self._scene(split, world).library.truth)
        count = min(random.randint(chosen.min_claims, chosen.max_claims), len(facts))
        asked = random.sample(facts, count)
        prompt = PROMPTS[chosen.prompt].format(asked=" ; ".join(map(name_fact, asked)), rule=RULES[chosen.rule])
        payload = {"asked": [list(fact) for fact in asked], "split": split, "world": world}
        return (text_message("user", prompt),), payload

    def library(self, task: Task) -> Library:
        """Return the pages of a task's world."""
        return self._scene(task.payload["split"], task.payload["world"]).library

    def build_environment(self, task: Task) -> ReportEnvironment:
        """Build a fresh, single-use `ReportEnvironment`."""
        scene = self._scene(task.payload["split"], task.payload["world"])
        return ReportEnvironment(chosen=self._chosen, library=scene.library, retriever=scene.retriever)

    def ledger(self, task: Task, trajectory: Trajectory) -> Ledger:
        """Return the ledger of a stored episode, from its own tool records."""
        report, passages = read_report(trajectory)
        return write_ledger(report, passages, asked_facts(task), self.library(task).truth)

    def _build_scene(self, split: Split, number: int) -> _Scene:
        seed = derive_seed(self._chosen.seed, "report world", split, number)
        world = build_world(seed, split, self._chosen.num_entities, self._chosen.num_words)
        library = write_library(world, seed, self._chosen, self._chosen.rule)
        return _Scene(library=library, retriever=WordRetriever(library.passages()))

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return "oracle", "random", "naive" and the attackers, who change the oracle's report."""
        rule, opens = self._chosen.rule, self._chosen.show == "title"
        oracle = CitingPolicy(care=1.0, resolves=rule, opens=opens)
        return {
            "oracle": oracle,
            "random": RandomPolicy(),
            "naive": CitingPolicy(care=self._chosen.naive_care, resolves=None, opens=opens),
            **{name: Attacker(oracle, change) for name, change in ATTACKS.items()},
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompt, searches, pages and report of the oracle."""
        task = self.task("train", index)
        scene = self._scene("train", task.payload["world"])

        def search(query: str) -> str:
            found = scene.retriever.search(query, self._chosen.top_k)
            return show_pages([(page.id, page.text) for page in found]) or NOTHING_FOUND

        yield from (message.text for message in task.prompt)
        yield from write_search(
            CitingPolicy(care=1.0, resolves=self._chosen.rule, opens=False), task, task.prompt, search
        )
