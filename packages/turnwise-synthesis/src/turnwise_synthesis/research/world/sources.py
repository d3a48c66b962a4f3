"""The pages of one generated world."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.errors import ToolFailure
from turnwise.core.judging import EpisodeJudges
from turnwise.core.seeds import rng
from turnwise.core.types import Reward, Scored, Task, ToolRecord
from turnwise.environments.search_qa.retrieval import Retriever
from turnwise.rewards.answers import exact_match
from turnwise_rewards.grounding.citations import normalize_id
from turnwise_rewards.grounding.world.pages import Library, show_pages
from turnwise_synthesis.research.checked import CheckedReport, check_report
from turnwise_synthesis.research.desk import NOTHING_FOUND, describe_episode, find_passages, list_sections
from turnwise_synthesis.research.outline import Outline, read_outline
from turnwise_synthesis.research.reward import compute_research
from turnwise_synthesis.research.world.arguments import WorldArguments


class WorldSources:
    """Implements `Sources`."""

    def __init__(self, *, chosen: WorldArguments, library: Library, retriever: Retriever) -> None:
        self._chosen, self._library, self._retriever = chosen, library, retriever
        self._outline = Outline(sections=())
        self._texts = {page.id: page.text for page in library.pages}
        self._seed = 0

    @property
    def has_titles(self) -> bool:
        """See `Sources`."""
        return self._chosen.show == "title"

    def begin(self, task: Task, seed: int) -> None:
        """See `Sources`."""
        self._outline, self._seed = read_outline(task), seed
        if self._chosen.search == "shuffled":
            asked = set(self._outline.asked)
            others = [page.text for page in self._library.pages if page.fact not in asked]
            random = rng(seed, "shuffled")
            self._texts = {name: random.choice(others) for name in self._texts}

    def search(self, query: str) -> str:
        """See `Sources`."""
        if self._chosen.search == "off":
            return NOTHING_FOUND
        found = self._retriever.search(query, self._chosen.top_k)
        shown = [(page.id, page.title if self.has_titles else self._texts[page.id]) for page in found]
        return show_pages(shown) or NOTHING_FOUND

    def open(self, page: str) -> str:
        """See `Sources`."""
        name = normalize_id(page)
        if name not in self._texts or self._chosen.search == "off":
            raise ToolFailure(f"there is no page {page[:50]!r}; open one that a search has named")
        return show_pages([(name, self._texts[name])])

    async def score(self, records: Sequence[ToolRecord], answer: str | None, judges: EpisodeJudges) -> Reward:
        """Return the reward. Parts: those of `CheckedReport` and `describe_episode`; `success`: answer and every claim
        are right, every contradiction is named and nothing is bad."""
        report = check_world_report(self._chosen, self._library, self._outline, records, seed=self._seed)
        is_right = answer is not None and bool(exact_match(answer, [self._library.truth[self._outline.question]]))
        total = compute_research(report, self._chosen.weights, is_right=is_right, max_words=self._chosen.max_words)
        is_whole = report.covered == 1 and report.precision == 1 and report.named in (None, 1)
        parts = {
            "success": float(is_right and is_whole),
            **describe_episode(records, is_right=is_right),
            **report.parts(),
        }
        return Scored.of(total, parts)


def check_world_report(
    chosen: WorldArguments, library: Library, outline: Outline, records: Sequence[ToolRecord], *, seed: int = 0
) -> CheckedReport:
    """Check the report in an episode's tool records against the pages that its searches returned."""
    return check_report(
        list_sections(records),
        find_passages(records),
        outline.asked,
        library.truth,
        sorted(library.disputed),
        limits=chosen.limits_of(len(outline.asked)),
        shuffle=rng(seed, "citations") if chosen.citations == "shuffled" else None,
    )
