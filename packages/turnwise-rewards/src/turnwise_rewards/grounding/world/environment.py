"""One episode: a few facts are asked for, pages are searched and opened, and a report answers line by line.

Report : author of Blue Lantern ; mayor of Port Vessa ; owner of Thorne Press
<search> author of Blue Lantern </search>
1987 register : The author of Blue Lantern is Mira Tolen [doc 17]
1971 rumour : The author of Blue Lantern is Orin Vale [doc 4]
...
<answer> author of Blue Lantern : Mira Tolen [doc 17]
mayor of Port Vessa : Lena Marsh [doc 8]
owner of Thorne Press : Sela Drake [doc 31] </answer>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.core.errors import ToolFailure
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, StopReason, Task
from turnwise.environments.search_qa.retrieval import Retriever
from turnwise.environments.search_qa.world import Fact
from turnwise.environments.tool_environment import ToolEnvironment, hash_calls
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise_rewards.grounding.citations import normalize_id
from turnwise_rewards.grounding.ledger import Stated
from turnwise_rewards.grounding.passages import read_passages
from turnwise_rewards.grounding.reward import compute_grounding
from turnwise_rewards.grounding.world.arguments import ReportArguments
from turnwise_rewards.grounding.world.pages import Library, show_pages
from turnwise_rewards.grounding.world.reports import asked_facts, read_line, write_ledger

NOTHING_FOUND = "no pages found\n"


class ReportEnvironment(ToolEnvironment):
    """A few questions, tools to search and open pages, a report. Single use."""

    scores_from_records = True
    """The score follows from task, replies and tool records."""

    def __init__(self, *, chosen: ReportArguments, library: Library, retriever: Retriever) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen, self._library, self._retriever = chosen, library, retriever
        self._pages = {page.id: page for page in library.pages}
        self._asked: tuple[Fact, ...] = ()

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt and the tools."""
        self._task_id = task.id
        self._asked = tuple(asked_facts(task))
        self._shown = {page.id: page.text for page in self._library.pages}
        if self._chosen.search == "shuffled":
            others = [page.text for page in self._library.pages if page.fact not in self._asked]
            random = rng(seed, "shuffled")
            self._shown = {name: random.choice(others) for name in self._shown}
        return task.prompt, (self.search, self.open) if self._chosen.show == "title" else (self.search,)

    def search(self, query: str) -> str:
        """Search the pages for words.

        Args:
            query: What to look for.
        """
        if self._chosen.search == "off":
            return NOTHING_FOUND
        found = self._retriever.search(query, self._chosen.top_k)
        if self._chosen.show == "title":
            return show_pages([(page.id, page.title) for page in found]) or NOTHING_FOUND
        return show_pages([(page.id, self._shown[page.id]) for page in found]) or NOTHING_FOUND

    def open(self, page: str) -> str:
        """Show a page.

        Args:
            page: The number of the page, such as 17.
        """
        name = normalize_id(page)
        if name not in self._shown or self._chosen.search == "off":
            raise ToolFailure(f"there is no page {page[:50]!r}; open one that a search has named")
        return show_pages([(name, self._shown[name])])

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the reward of the ledger of the report, which is the last reply's answer.

        Parts: `success` (`ReportArguments.measure`); `answered`, the share of right answers whatever they cite;
        `resolved`, the share of supported claims among disputed facts, left out if none was asked; those of the
        ledger."""
        report = final_answer(AnswerCase(replies=tuple(replies), golds=(), stop=stop)) or ""
        ledger = write_ledger(report, read_passages(self.tool_records), self._asked, self._library.truth)
        truth = {fact: self._library.truth[fact] for fact in self._asked}
        stated = [read_line(entry.claim) for entry in ledger.entries]
        answers = {fact: {each[1] for each in stated if each is not None and each[0] == fact} for fact in truth}
        supported = {
            each for each, entry in zip(stated, ledger.entries, strict=True) if entry.stated is Stated.SUPPORTED
        }
        resolved = [(fact, truth[fact]) in supported for fact in truth if fact in self._library.disputed]
        answered = sum(answers[fact] == {value} for fact, value in truth.items()) / len(truth)
        success = {
            "all": ledger.recall == 1 and ledger.num_bad == 0,
            "citations": ledger.citation_precision >= 0.5,
            "answers": answered == 1,
            "contradictions": all(resolved),
        }[self._chosen.measure]
        parts = {"success": float(success), "answered": answered, **ledger.parts()}
        if resolved:
            parts["resolved"] = sum(resolved) / len(resolved)
        return Scored.of(compute_grounding(ledger, self._chosen.weights), parts)

    async def fork(self) -> ReportEnvironment:
        """See `ForkableEnvironment.fork`: the calls so far are the whole state."""
        return self.copy_episode()

    def state_hash(self) -> str:
        """Return a hash of the task and every call with its answer."""
        return hash_calls(self._task_id, self.tool_records)
