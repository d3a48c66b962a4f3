"""One episode of self-play: a proposer writes a problem, several solvers try it, and both are paid.

The proposer speaks once. The subject, never a model, checks its proposal; a bad one ends the episode. A good one opens
one conversation per solver, all at the same time and with the same words, which never show the proposal. A task with
its own problem has no proposer and one solver: held-out evaluations measure what solvers have learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwise.core.checked import judge
from turnwise.core.episodes import MAIN, Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.protocols import Environment
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.proposer.arguments import ProposerArguments
from turnwise_worlds.proposer.pay import Flaw, Kind, score_flaw, score_proposal

PROPOSER = "proposer"
UNTRIED = Scored(total=0.0)
"""The reward of a solver that got no problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem for solvers."""

    kind: Kind
    task: Task
    """The task that opens a solver's environment; its prompt is all that a solver reads."""


class Subject(Protocol):
    """The subject of problems: reads proposals, and builds environments for solvers."""

    @property
    def kinds(self) -> Sequence[str]:
        """Names of every `Kind`."""
        ...

    @property
    def max_replies(self) -> int:
        """Most replies of one solver; a solver that has not answered by then has failed."""
        ...

    def read(self, task: Task, proposal: str) -> Problem | Flaw:
        """Return the problem that a proposal about a task denotes, or its flaw. Accepts any text."""
        ...

    def given(self, task: Task) -> Problem | None:
        """Return the problem that the task brings; None if one must be proposed."""
        ...

    def build_solver(self, problem: Problem) -> Environment:
        """Build a fresh environment for one solver."""
        ...


def build_spec(num_solvers: int, max_replies: int, *, is_given: bool) -> EpisodeSpec:
    """Build the roles of an episode: the proposer with its solvers, or one solver if the problem is given."""
    solvers = [RoleSpec(name=f"solver{i}", compare="episode") for i in range(1 if is_given else num_solvers)]
    roles = solvers if is_given else [RoleSpec(name=PROPOSER), *solvers]
    return EpisodeSpec(
        roles=tuple(roles), max_replies=len(solvers) * max_replies + len(roles) - len(solvers), can_replay=True
    )


@dataclass(slots=True, kw_only=True)
class _Solver:
    """One working solver."""

    role: str
    environment: Environment
    num_replies: int = 0


class ProposerEnvironment:
    """Implements `AskingEnvironment`.

    The conversation `MAIN` opens with the task's prompt: it is the proposal, or the solver of a problem that the task
    brings. Other conversations are named after their roles.
    """

    def __init__(self, chosen: ProposerArguments, subject: Subject, task: Task) -> None:
        """`task` must be the one passed to `begin`."""
        self._chosen, self._subject, self._task = chosen, subject, task
        self._problem: Problem | None = subject.given(task)
        self._flaw: Flaw = "ill_formed"
        """The proposal's flaw, if there is no problem."""
        self._solvers: dict[str, _Solver] = {}
        """Solvers by conversation."""
        self._seed = 0
        self._is_given = self._problem is not None
        self.spec = build_spec(chosen.solvers, subject.max_replies, is_given=self._is_given)

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for a proposal, or for solvers of the problem that the task brings."""
        self._seed = seed
        if self._problem is not None:
            return await self._open_solvers(self._problem)
        return Asked(asks=(Ask(role=PROPOSER, messages=task.prompt),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Check the proposal, or let a solver act. The result of a solver's last reply is not shown."""
        solver = self._solvers.get(conversation)
        if solver is None:
            read = self._subject.read(self._task, extract_answer(reply.text) or "")
            if not isinstance(read, Problem):
                self._flaw = read
                return Asked(asks=())
            self._problem = read
            return await self._open_solvers(read)
        solver.num_replies += 1
        result = await solver.environment.step(reply)
        is_over = result.done or solver.num_replies == self._subject.max_replies
        ask = Ask(role=solver.role, conversation=conversation, messages=result.observations)
        return Asked(
            asks=() if is_over else (ask,),
            tool_records=result.tool_records,
            scores=result.scores,
            signals=result.signals,
        )

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return every solver's own reward, and the proposer's, computed from the share of solvers that succeed.

        If one solver reaches a limit of the run, the episode is over for all, and missing answers count as failed. A
        solver that could not be judged makes the episode Invalid.
        """
        rewards: dict[str, Reward] = dict.fromkeys(self._solver_names, UNTRIED)
        for conversation, solver in self._solvers.items():
            stop = end.stop if conversation == end.conversation else StopReason.DONE
            rewards[solver.role] = await judge(solver.environment, replies.get(conversation, ()), stop)
        return rewards if self._is_given else {PROPOSER: self._pay(list(rewards.values())), **rewards}

    def _pay(self, rewards: Sequence[Reward]) -> Reward:
        """Compute the proposer's reward from those of its solvers."""
        if self._problem is None:
            return score_flaw(self._flaw)
        solved = [reward.part("success") or 0.0 for reward in rewards if isinstance(reward, Scored)]
        if len(solved) < len(rewards):
            return Invalid(reason="a solver could not be scored", retryable=True)
        return score_proposal(self._chosen.pay, self._problem.kind, sum(solved) / len(solved), self._subject.kinds)

    async def close(self) -> None:
        """Close every solver's environment."""
        for solver in self._solvers.values():
            await solver.environment.close()

    async def _open_solvers(self, problem: Problem) -> Asked:
        asks = []
        for role in self._solver_names:
            conversation = MAIN if self._is_given else role
            solver = _Solver(role=role, environment=self._subject.build_solver(problem))
            self._solvers[conversation] = solver
            opening = await solver.environment.reset(problem.task, self._seed)
            asks.append(Ask(role=role, conversation=conversation, messages=opening.messages, tools=opening.tools))
        return Asked(asks=tuple(asks))

    @property
    def _solver_names(self) -> list[str]:
        return [role.name for role in self.spec.roles if role.name != PROPOSER]
