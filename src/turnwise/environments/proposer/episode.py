"""One episode of self-play: a proposer writes a problem, several solvers try it, and both are paid.

The proposer speaks once. Its proposal is checked by the subject, never by a model; a bad one ends the episode. A good
one opens one conversation per solver, all at the same time and with the same words, which never show the proposal. A
task that brings its own problem has no proposer and one solver: held-out evaluations measure what solvers have learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwise.core.checked import judge
from turnwise.core.episodes import MAIN, Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.protocols import Environment
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task
from turnwise.environments.proposer.arguments import ProposerArguments
from turnwise.environments.proposer.pay import Flaw, Kind, score_flaw, score_proposal
from turnwise.rewards.answers import extract_answer

PROPOSER = "proposer"
UNTRIED = Scored(total=0.0)
"""The reward of a solver to whom nothing was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem that solvers get."""

    kind: Kind
    task: Task
    """Opens a solver's environment; its prompt is all that a solver reads."""


class Subject(Protocol):
    """What problems are about: reads proposals, and gives solvers what they act in."""

    @property
    def kinds(self) -> Sequence[str]:
        """Names of every `Kind`."""
        ...

    @property
    def max_replies(self) -> int:
        """Most replies of one solver; one that has not answered by then has failed."""
        ...

    def read(self, task: Task, proposal: str) -> Problem | Flaw:
        """The problem that a proposal about a task denotes, or what is wrong with it. Total: any text is read."""
        ...

    def given(self, task: Task) -> Problem | None:
        """The problem that the task brings; None where one is to be proposed."""
        ...

    def build_solver(self, problem: Problem) -> Environment:
        """A fresh environment for one solver."""
        ...


def build_spec(num_solvers: int, max_replies: int, *, is_given: bool) -> EpisodeSpec:
    """The roles of an episode: the proposer with its solvers, or one solver where the problem is given."""
    solvers = [RoleSpec(name=f"solver{i}", compare="episode") for i in range(1 if is_given else num_solvers)]
    roles = solvers if is_given else [RoleSpec(name=PROPOSER), *solvers]
    return EpisodeSpec(
        roles=tuple(roles), max_replies=len(solvers) * max_replies + len(roles) - len(solvers), can_replay=True
    )


@dataclass(slots=True, kw_only=True)
class _Solver:
    """One solver at work."""

    role: str
    environment: Environment
    num_replies: int = 0


class ProposerEnvironment:
    """Implements `AskingEnvironment`.

    What opens with the task's prompt is the conversation `MAIN`: the proposal, or the solver of a problem that the task
    brings. Other conversations have the names of their roles.
    """

    def __init__(self, chosen: ProposerArguments, subject: Subject, task: Task) -> None:
        """`task` is the one that `begin` will be given."""
        self._chosen, self._subject, self._task = chosen, subject, task
        self._problem: Problem | None = subject.given(task)
        self._flaw: Flaw = "ill_formed"
        """Of the proposal, where there is no problem."""
        self._solvers: dict[str, _Solver] = {}
        """By conversation."""
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
        """Check the proposal, or let a solver act. What its last reply leads to is shown to nobody."""
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
        """Every solver's own reward, and the proposer's from the share of them that succeed.

        Where one solver reaches a limit of the run the episode is over for all, and what the others have not answered
        counts as failed. A solver that could not be judged makes the episode Invalid.
        """
        rewards: dict[str, Reward] = dict.fromkeys(self._solver_names, UNTRIED)
        for conversation, solver in self._solvers.items():
            stop = end.stop if conversation == end.conversation else StopReason.DONE
            rewards[solver.role] = await judge(solver.environment, replies.get(conversation, ()), stop)
        return rewards if self._is_given else {PROPOSER: self._pay(list(rewards.values())), **rewards}

    def _pay(self, rewards: Sequence[Reward]) -> Reward:
        """The proposer's reward from those of its solvers."""
        if self._problem is None:
            return score_flaw(self._flaw)
        solved = [reward.part("success") or 0.0 for reward in rewards if isinstance(reward, Scored)]
        if len(solved) < len(rewards):
            return Invalid(reason="a solver could not be judged", retryable=True)
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
