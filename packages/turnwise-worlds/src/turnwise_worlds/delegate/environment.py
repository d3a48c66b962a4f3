"""One question: a planner asks searchers, each of which starts with only a sub-question, and sees only their answers.

What a searcher reads is lost when it ends: the planner's context holds only its sub-questions and the answers, however
many passages were read for them. A searcher may ask further searchers, up to a maximum depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turnwise.core.episodes import MAIN, Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Message, Reward, Task, ToolSpec, text_message
from turnwise.environments.search_qa.environment import SearchEnvironment
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise.tools.text import clip
from turnwise_worlds.delegate.arguments import DelegateArguments

PLANNER, SEARCHER = "planner", "searcher"
ASK = "ask"
"""Name of the tool that calls a searcher."""
NO_ANSWER = "no answer"
"""What the caller sees if a searcher's answer is empty."""


def build_prompt(query: str) -> tuple[Message, ...]:
    """Build the opening of a searcher's conversation."""
    return (text_message("user", f"Find {query}\n"),)


class Agent(ToolEnvironment):
    """One agent's tools: ask, and search if it is a searcher. Knows who waits for its answer."""

    def __init__(self, name: str, role: str, search: SearchEnvironment, chosen: DelegateArguments) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self.name, self.role, self.search = name, role, search
        self.caller: tuple[Agent, int] | None = None
        """The agent that asked it, and the index of its answer in `caller.observations`; None for the planner."""
        self.asked: list[str] = []
        """Sub-questions asked by the present reply."""
        self.observations: list[Message] = []
        """Observations from its last reply, as far as they are known."""
        self.num_waiting = 0
        """Number of answers that it waits for."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the task's prompt and the role's tools."""
        await self.search.setup(task, seed)
        return task.prompt, (self.search.search, self.ask) if self.role == SEARCHER else (self.ask,)

    async def ask(self, query: str) -> str:
        """Have a searcher find something out. It knows nothing but the question.

        Args:
            query: What to find out.
        """
        self.asked.append(query)
        return "a searcher is asked"

    async def score(self, replies: Sequence[Message], stop: object) -> Reward:
        """Not called: the episode is scored as a whole."""
        raise EnvironmentFault("a single agent of the family delegate is not scored; score the episode")

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the agent is offered."""
        return tuple(tool.spec for tool in self._tools.values())


class DelegateEnvironment:
    """Implements `AskingEnvironment`. Only the search's control is random."""

    def __init__(
        self,
        chosen: DelegateArguments,
        build_search: Callable[[], SearchEnvironment],
        swap: Callable[[int], str] | None,
    ) -> None:
        """`build_search` builds the task's search, one for each agent; `swap` returns the replacement of the n-th
        answer, None if answers are kept. As many searchers may work at once as the budget of replies allows."""
        self.spec = EpisodeSpec(
            roles=(RoleSpec(name=PLANNER), RoleSpec(name=SEARCHER, max_open=chosen.max_replies)),
            max_replies=chosen.max_replies,
            max_depth=chosen.max_depth,
            can_replay=True,
        )
        self._chosen, self._build_search, self._swap = chosen, build_search, swap
        self._agents: dict[str, Agent] = {}
        self._num_answers = 0

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask the planner."""
        self._task, self._seed = task, seed
        planner = await self._add(MAIN, PLANNER)
        return Asked(asks=(Ask(messages=task.prompt, role=PLANNER, tools=planner.tools),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Process an agent's call or answer; an answer goes to the agent that asked."""
        if conversation not in self._agents:
            raise EnvironmentFault(
                f"DelegateEnvironment got a reply in {conversation!r}, where it had not asked for one"
            )
        agent = self._agents[conversation]
        result = await agent.step(reply)
        if result.done:
            return Asked(asks=self._deliver(agent, reply))
        agent.observations = list(result.observations)
        places = [i for i, record in enumerate(result.tool_records) if record.call.name == ASK and not record.error]
        asks = [await self._call(agent, query, place) for query, place in zip(agent.asked, places, strict=True)]
        agent.asked, agent.num_waiting = [], len(asks)
        # A searcher's answer is not known yet: its call has no record.
        records = tuple(record for i, record in enumerate(result.tool_records) if i not in places)
        return Asked(asks=tuple(asks) or (_go_on(agent),), tool_records=records)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return the search world's reward for the planner's answer, for both roles."""
        reward = await self._agents[MAIN].search.score(replies.get(MAIN, ()), end.stop)
        return {PLANNER: reward, SEARCHER: reward}

    async def close(self) -> None:
        """Close the agents' environments."""
        for agent in self._agents.values():
            await agent.close()

    async def _add(self, name: str, role: str) -> Agent:
        agent = self._agents[name] = Agent(name, role, self._build_search(), self._chosen)
        await agent.reset(self._task, self._seed)
        return agent

    async def _call(self, caller: Agent, query: str, place: int) -> Ask:
        searcher = await self._add(f"{SEARCHER}{len(self._agents)}", SEARCHER)
        searcher.caller = caller, place
        return Ask(
            messages=build_prompt(query),
            role=SEARCHER,
            conversation=searcher.name,
            tools=searcher.tools,
            caller=caller.name,
        )

    def _deliver(self, agent: Agent, reply: Message) -> tuple[Ask, ...]:
        """Deliver an answer to the agent that asked, which continues once it waits for no other."""
        if agent.caller is None:
            return ()
        caller, place = agent.caller
        self._num_answers += 1
        case = AnswerCase(replies=(reply,), golds=())
        answer = final_answer(case) if self._swap is None else self._swap(self._num_answers)
        text, _ = clip(answer or NO_ANSWER, self._chosen.max_observation_chars)
        asked = caller.observations[place]
        caller.observations[place] = text_message("tool", text, tool_call_id=asked.tool_call_id, name=ASK)
        caller.num_waiting -= 1
        return () if caller.num_waiting else (_go_on(caller),)


def _go_on(agent: Agent) -> Ask:
    return Ask(messages=tuple(agent.observations), role=agent.role, conversation=agent.name)
