"""One episode of self-play: a proposer writes a problem, several solvers try it, and both are paid.

The proposer speaks once. Its proposal is checked by the subject, never by a model; a bad one ends the episode. A good
one opens one conversation per solver, all at the same time and with the same words, which never show the proposal. A
task that brings its own problem has no proposer and one solver: held-out evaluations measure what solvers have learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.protocols import Environment
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task
from turnwise.environments.proposer.pay import Flaw, Kind, Pay, score_flaw, score_proposal
from turnwise.rewards.answers import extract_answer

PROPOSER = "proposer"
UNTRIED = Scored(total=0.0)
"""The reward of a solver to whom nothing was given."""


def solver_name(number: int) -> str:
    """The role, and the conversation, of a solver."""
    return f"solver{number}"


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

    def read(self, task: Task, proposal: str) -> Problem | Flaw:
        """The problem that a proposal about a task denotes, or what is wrong with it. Total: any text is read."""
        ...

    def given(self, task: Task) -> Problem | None:
        """The problem that the task brings; None where one is to be proposed."""
        ...

    def build_solver(self, problem: Problem) -> Environment:
        """A fresh environment for one solver."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What does not change from episode to episode."""

    pay: Pay
    num_solvers: int
    max_replies: int
    """Most replies of one solver; one that has not answered by then has failed."""

    def build_spec(self, *, is_given: bool) -> EpisodeSpec:
        """The roles of an episode: the proposer with its solvers, or one solver where the problem is given."""
        solvers = [RoleSpec(name=solver_name(i), compare="episode") for i in range(1 if is_given else self.num_solvers)]
        roles = solvers if is_given else [RoleSpec(name=PROPOSER), *solvers]
        return EpisodeSpec(
            roles=tuple(roles), max_replies=len(solvers) * self.max_replies + len(roles) - len(solvers), can_replay=True
        )


class ProposerEnvironment:
    """Implements `AskingEnvironment`."""

    def __init__(self, rules: Rules, subject: Subject, task: Task) -> None:
        """`task` is the one that `begin` will be given."""
        self._rules, self._subject, self._task = rules, subject, task
        self._problem: Problem | None = subject.given(task)
        self._flaw: Flaw = "ill_formed"
        """Of the proposal, where there is no problem."""
        self._solvers: dict[str, Environment] = {}
        self._counts: dict[str, int] = {}
        self._seed = 0
        self.spec = rules.build_spec(is_given=self._problem is not None)

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for a proposal, or for solvers of the problem that the task brings."""
        self._seed = seed
        if self._problem is not None:
            return await self._open_solvers(self._problem)
        return Asked(asks=(Ask(role=PROPOSER, conversation=PROPOSER, messages=task.prompt),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Check the proposal, or let a solver act."""
        if conversation == PROPOSER:
            read = self._subject.read(self._task, extract_answer(reply.text) or "")
            if not isinstance(read, Problem):
                self._flaw = read
                return Asked(asks=())
            self._problem = read
            return await self._open_solvers(read)
        self._counts[conversation] += 1
        result = await self._solvers[conversation].step(reply)
        is_over = result.done or self._counts[conversation] == self._rules.max_replies
        ask = Ask(role=conversation, conversation=conversation, messages=result.observations)
        return Asked(
            asks=() if is_over else (ask,),
            observations=result.observations if is_over else (),
            tool_records=result.tool_records,
            scores=result.scores,
            signals=result.signals,
        )

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Every solver's own reward, and the proposer's from the share of them that succeed.

        Where one solver reaches a limit of the run the episode is over for all, and what the others have not answered
        counts as failed. A solver that could not be judged makes the episode Invalid.
        """
        names = [role.name for role in self.spec.roles if role.name != PROPOSER]
        rewards: dict[str, Reward] = {}
        for name in names:
            if name not in self._solvers:
                rewards[name] = UNTRIED
                continue
            is_cut = end.stop is not StopReason.DONE and end.conversation == name
            stop = end.stop if is_cut else StopReason.DONE
            rewards[name] = await self._solvers[name].score(replies.get(name, ()), stop)
        if len(names) == len(self.spec.roles):
            return rewards
        if self._problem is None:
            return {PROPOSER: score_flaw(self._flaw), **rewards}
        solved = [reward.part("success") or 0.0 for reward in rewards.values() if isinstance(reward, Scored)]
        if len(solved) < len(names):
            return {PROPOSER: Invalid(reason="a solver could not be judged", retryable=True), **rewards}
        rate = sum(solved) / len(solved)
        return {
            PROPOSER: score_proposal(self._rules.pay, self._problem.kind, rate, self._subject.kinds),
            **rewards,
        }

    async def close(self) -> None:
        """Close every solver's environment."""
        for environment in self._solvers.values():
            await environment.close()

    async def _open_solvers(self, problem: Problem) -> Asked:
        asks = []
        for role in self.spec.roles:
            if role.name == PROPOSER:
                continue
            environment = self._solvers[role.name] = self._subject.build_solver(problem)
            self._counts[role.name] = 0
            opening = await environment.reset(problem.task, self._seed)
            asks.append(Ask(role=role.name, conversation=role.name, messages=opening.messages, tools=opening.tools))
        return Asked(asks=tuple(asks))
