"""One episode of the expander: a formal question with its answer, three tools, one expansion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.core.errors import ToolFailure
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task
from turnwise.environments.search_qa.environment import format_documents
from turnwise.environments.search_qa.projection import Projection, evaluate
from turnwise.environments.tool_environment import ToolEnvironment, hash_calls
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise.rewards.guard import score_guarded
from turnwise_synthesis.shaper.scene import Scene
from turnwise_synthesis.shaper.verdict import Verdict, judge_expansion, read_expansion

MAX_MEMBERS = 12
"""Most entities that `summarise` lists."""


class ExpanderEnvironment(ToolEnvironment):
    """Tools `search`, `summarise` and `validate`; the answer is the expansion. Single use."""

    scores_from_records = True
    """The score follows from task and replies, so an audit can recompute it from the store."""

    def __init__(
        self,
        *,
        scene: Scene,
        query: Projection,
        answer: str,
        top_k: int,
        reward_timeout_s: float,
        tool_timeout_s: float,
        max_observation_chars: int,
    ) -> None:
        """`query` is the question to expand, `answer` its only answer; the others are as in `ExpanderArguments`."""
        super().__init__(tool_timeout_s=tool_timeout_s, max_observation_chars=max_observation_chars)
        self._scene, self._query, self._answer, self._top_k = scene, query, answer, top_k
        self._reward_timeout_s = reward_timeout_s
        self._task_id = ""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt and the tools."""
        self._task_id = task.id
        return task.prompt, (self.search, self.summarise, self.validate)

    def search(self, query: str) -> str:
        """Search the passages for those that share words with a query.

        Args:
            query: What to look for.
        """
        return format_documents(self._scene.retriever.search(query, self._top_k), "plain")

    def summarise(self, expression: str) -> str:
        """List the entities that a formal expression denotes, merged from all passages.

        Args:
            expression: A formal expression such as author^-1([Mira Tolen]).
        """
        query = read_expansion(expression, self._scene.graph)
        if isinstance(query, str):
            raise ToolFailure(query)
        members = sorted(evaluate(query, self._scene.graph))
        more = f" and {len(members) - MAX_MEMBERS} more" if len(members) > MAX_MEMBERS else ""
        return " | ".join(members[:MAX_MEMBERS]) + more if members else "nothing"

    def validate(self, expression: str) -> str:
        """Say whether a formal expression is a good expansion of the question, and what is wrong with it.

        Args:
            expression: The expansion.
        """
        return self._judge(expression).describe()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the last reply is an expansion with the same answer, without redundancy or shortcut, for which
        the searching solver needs more searches than before; else 0. Parts: see `Verdict.parts`.

        It is Invalid if judging fails or takes too long.
        """
        said = final_answer(AnswerCase(replies=replies, golds=(), stop=stop)) or ""
        parts: dict[str, float] = {}

        def judge() -> float:
            parts.update(self._judge(said).parts)
            return parts["success"]

        total = await score_guarded(judge, timeout_s=self._reward_timeout_s)
        return total if isinstance(total, Invalid) else Scored.of(total.total, parts)

    async def fork(self) -> ExpanderEnvironment:
        """See `ForkableEnvironment.fork`: the calls so far are the whole state."""
        return self.copy_episode()

    def state_hash(self) -> str:
        """Return 16 hexadecimal digits of the task and every tool call with its answer."""
        return hash_calls(self._task_id, self.tool_records)

    def _judge(self, text: str) -> Verdict:
        return judge_expansion(text, self._query, self._answer, self._scene, top_k=self._top_k)
