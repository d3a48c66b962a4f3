"""One episode of a search question: the prompt, the search tool, the score.

The environment reads the gold answers only for scoring; the tool's results come from the passages alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal

from turnwise.core.seeds import rng
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.retrieval import Retriever
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.answers import AnswerCase, AnswerReward, exact_match, f1, final_answer, format_score
from turnwise.rewards.guard import score_guarded
from turnwise.rewards.normal_form import Normalize

SearchSwitch = Literal["on", "off", "shuffled"]
DocumentFormat = Literal["search_r1", "plain"]

SWITCHED_OFF = "search is switched off\n"
NOTHING_FOUND = "no passages found\n"
INVALID_REPLY = (
    "My last action was not valid. To search, I put a query between <search> and </search>; "
    "to answer, I put the answer between <answer> and </answer>. I try again.\n"
)


def format_documents(passages: Sequence[Passage], document_format: DocumentFormat) -> str:
    """Format search results for the model, one line each, or a line saying that there are none."""
    if not passages:
        return NOTHING_FOUND
    if document_format == "plain":
        return "".join(f"{passage.text}\n" for passage in passages)
    return "".join(
        f"Doc {number}(Title: {passage.title}) {passage.text}\n" for number, passage in enumerate(passages, start=1)
    )


class SearchEnvironment(ToolEnvironment):
    """A question, a search tool over one corpus, an answer. Single use."""

    scores_from_records = True
    """The score follows from task, replies and tool records, so an audit can recompute it from the store."""

    def __init__(
        self,
        *,
        retriever: Retriever,
        reward: AnswerReward,
        top_k: int,
        document_format: DocumentFormat,
        search: SearchSwitch,
        reward_timeout_s: float,
        tool_timeout_s: float,
        max_observation_chars: int,
        normalize: Normalize = "numbers",
    ) -> None:
        """`retriever` is the index for the task's searches; the other arguments are as in `SearchArguments`."""
        super().__init__(tool_timeout_s=tool_timeout_s, max_observation_chars=max_observation_chars)
        self._retriever = retriever
        self._reward = reward
        self._normalize: Normalize = normalize
        self._top_k = top_k
        self._document_format: DocumentFormat = document_format
        self._switch = search
        self._reward_timeout_s = reward_timeout_s
        self._seed = 0
        self._task_id = ""
        self._golds: tuple[str, ...] = ()

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt and the search tool."""
        self._seed = seed
        self._task_id = task.id
        self._golds = tuple(task.payload["answers"])
        return task.prompt, (self.search,)

    def search(self, query: str) -> str:
        """Search the corpus for passages that share words with a query.

        Args:
            query: What to look for.
        """
        if self._switch == "off":
            return SWITCHED_OFF
        passages: Sequence[Passage] = self._retriever.search(query, self._top_k)
        if self._switch == "shuffled":
            everything = self._retriever.passages
            random = rng(self._seed, "shuffled", len(self.tool_records), query)
            passages = random.sample(everything, min(self._top_k, len(everything)))
        return format_documents(passages, self._document_format)

    def invalid_reply(self, message: Message) -> Message:
        """Return a fixed text for a reply that neither searches nor answers, or what was wrong with its call."""
        if all(error.kind == "no_action" for error in message.tool_errors):
            return text_message("tool", INVALID_REPLY)
        return super().invalid_reply(message)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the reward, with parts `success` and `exact_match` (1 or 0), `f1` and `format`.

        It is Invalid if computing the reward fails.
        """
        case = AnswerCase(
            replies=tuple(replies),
            golds=self._golds,
            information=tuple(record.observation for record in self.tool_records),
            stop=stop,
            normalize=self._normalize,
        )
        total = await score_guarded(lambda: self._reward.compute(case), self._reward_timeout_s)
        if isinstance(total, Invalid):
            return total
        answer = final_answer(case)
        correct = 0.0 if answer is None else exact_match(answer, self._golds, self._normalize)
        parts = {
            "success": correct,
            "exact_match": correct,
            "f1": 0.0 if answer is None else f1(answer, self._golds, self._normalize),
            "format": format_score(case),
        }
        return Scored.of(total.total, parts)

    async def fork(self) -> SearchEnvironment:
        """See `ForkableEnvironment.fork`: the calls so far are the whole state; corpus and index do not change."""
        return self.copy_episode()

    def state_hash(self) -> str:
        """Return 16 hexadecimal digits of the episode's state: the task and every tool call with its answer.

        Equal states have equal hashes.
        """
        digest = hashlib.sha256(self._task_id.encode())
        for record in self.tool_records:
            for text in (record.call.name, record.call.arguments, record.observation):
                digest.update(len(text).to_bytes(8, "big") + text.encode(errors="surrogatepass"))
        return digest.hexdigest()[:16]
