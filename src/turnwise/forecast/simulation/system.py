"""A run of the pipeline in simulated time: the gate decides, and members move through engines, tools and judges.

`Gate`, which admits groups and picks batches, and `start_order` are those of real runs; so is the order of events in
`pipeline.loop`: a group opens, its members run, it finishes or leaves, a batch trains, its weights are published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwise.core.occupancy import Occupancy
from turnwise.core.waiting import WaitsFor, describe_waits
from turnwise.forecast.simulation.agenda import Agenda
from turnwise.forecast.simulation.costs import Costs
from turnwise.forecast.simulation.engine import Reply
from turnwise.forecast.simulation.outcome import Outcome, SimulatedStep
from turnwise.forecast.simulation.pool import EnginePool
from turnwise.forecast.simulation.stations import Station
from turnwise.forecast.simulation.work import Turn, Work
from turnwise.rollout.gate import AdmissionRule, Batch, Gate
from turnwise.rollout.order import start_order

LATE_POLL_S = 0.1
"""Interval at which a real run checks whether an overdue group has enough finished members to be cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When groups start and when they train."""

    rule: AdmissionRule
    group_size: int
    overdraw: int = 0
    """Members started beyond `group_size`; the first to end are kept, the others are cut."""
    max_open: int | None = None
    """Members under way at once, including those that wait for tools; None means no limit."""


@dataclass(slots=True, eq=False)
class _Group:
    draw: int
    version: int
    num_unsettled: int
    members: list[_Member] = field(default_factory=list)
    num_ended: int = 0
    tokens: int = 0
    """Tokens of ended members, context included."""
    sampled: int = 0
    need: int | None = None
    is_given_up: bool = False


@dataclass(slots=True, eq=False)
class _Member:
    group: _Group
    member: int
    turns: Sequence[Turn]
    engine: int | None = None
    """The engine where it stays; None before it starts."""
    place: str = "a slot"
    """What it waits for; "" once it has ended."""
    turn: int = 0
    context: int = 0
    """Tokens so far."""
    version: int = 0
    """Version of the weights under which the context was last computed."""
    reply: Reply | None = None
    submitted_s: float = 0.0

    @property
    def draw(self) -> int:
        return self.group.draw


class SimulatedRun:
    """One run. `run` simulates it from start to end."""

    def __init__(self, schedule: Schedule, costs: Costs, work: Work, *, steps: int) -> None:
        self._schedule, self._costs, self._work, self._last_step = schedule, costs, work, steps
        self._rule = schedule.rule
        self._agenda = Agenda()
        self._pool = EnginePool(self._agenda, costs)
        self._tools = Station(self._agenda, costs.num_tools)
        self._judges = Station(self._agenda, costs.num_judges)
        self._gate = Gate(schedule.rule, version=0)
        self._trainer = Occupancy("unfinished", 0.0)
        self._version = 0
        self._taken_step = 0
        self._is_training = False
        self._open: dict[int, _Group] = {}
        self._storing: dict[int, _Group] = {}
        self._finished: dict[int, _Group] = {}
        self._waiting: list[_Member] = []
        self._num_running = 0
        self._next_draw = 0
        self._steps: list[SimulatedStep] = []
        self._wakes_at_s: float | None = None
        self._sampled_tokens = self._num_replies = self._dropped_groups = self._cut_members = 0
        self._engine_s = 0.0

    def run(self) -> Outcome:
        """Simulate until the last step is published. Raises RuntimeError naming who waits for whom if nothing moves."""
        self._move()
        while len(self._steps) < self._last_step:
            if not self._agenda.advance():
                raise RuntimeError(
                    f"the simulation is stuck at {self._agenda.now_s:g} s: {describe_waits(self.find_waits())}"
                )
        now_s = self._agenda.now_s
        return Outcome(
            seconds=now_s,
            steps=tuple(self._steps),
            engine=self._pool.seconds(now_s),
            trainer=self._trainer.seconds(now_s),
            sampled_tokens=self._sampled_tokens,
            num_replies=self._num_replies,
            engine_s=self._engine_s,
            dropped_groups=self._dropped_groups,
            cut_members=self._cut_members,
        )

    def find_waits(self) -> list[WaitsFor]:
        """The wait-for graph of this moment."""
        awaited = tuple(f"group {draw}" for draw in self._open)
        edges = [] if self._is_training else [WaitsFor("trainer", awaited, self._trainer.state)]
        for group in self._open.values():
            members = [member for member in group.members if member.place]
            names = tuple(f"member {group.draw}/{member.member}" for member in members)
            edges.append(WaitsFor(f"group {group.draw}", names, f"{group.num_ended} ended"))
            edges += [
                WaitsFor(name, (member.place,), f"turn {member.turn + 1} of {len(member.turns)}")
                for name, member in zip(names, members, strict=True)
            ]
        return edges

    # ---------------------------------------------------------------------------------------- groups and batches

    @property
    def _num_outstanding(self) -> int:
        return len(self._open) + len(self._storing) + len(self._finished)

    @property
    def _is_exhausted(self) -> bool:
        return self._num_outstanding >= (self._last_step - self._taken_step) * self._rule.batch_groups

    def _move(self) -> None:
        """Open groups that may open, then train if a batch is ready."""
        if not self._is_training or self._rule.max_staleness:
            self._open_groups()
        self._take_batch()

    def _open_groups(self) -> None:
        num_members = self._schedule.group_size + self._schedule.overdraw
        while not self._is_exhausted and self._gate.may_open():
            draw = self._next_draw
            self._next_draw += 1
            self._gate.open(draw)
            self._open[draw] = group = _Group(draw, self._version, num_members)
            group.members = [_Member(group, member, self._work(draw, member)) for member in range(num_members)]
            self._waiting += group.members
        self._fill()
        if self._is_exhausted and self._num_outstanding < self._rule.batch_groups:
            self._gate.close()

    def _take_batch(self) -> None:
        if self._is_training or self._taken_step >= self._last_step:
            return
        if len(self._finished) < min(self._rule.batch_groups, self._num_outstanding):
            self._become("unfinished")  # the gate's answer, which would cost it a sort of all outstanding groups
            return
        now_s = self._agenda.now_s
        ended = {draw: group.num_ended for draw, group in self._open.items()}
        for draw in self._gate.overdue(now_s, ended):
            group = self._open.get(draw) or self._storing[draw]
            group.is_given_up = self._rule.late == "drop"
            if draw in self._open:
                self._cut_rest(group)
        decision = self._gate.pick(now_s)
        if isinstance(decision, Batch):
            self._train(decision.draws)
        elif self._is_exhausted and not self._num_outstanding:
            self._train(())
        else:
            self._become(decision.reason)
            if decision.overdue_at_s is not None:
                self._wake_after(max(decision.overdue_at_s - now_s, LATE_POLL_S))

    def _wake_after(self, seconds: float) -> None:
        wakes_at_s = self._agenda.now_s + seconds
        if self._wakes_at_s is None or wakes_at_s < self._wakes_at_s:
            self._wakes_at_s = wakes_at_s
            self._agenda.after(seconds, self._wake)

    def _wake(self) -> None:
        self._wakes_at_s = None
        self._move()

    def _become(self, state: str) -> None:
        self._trainer.switch(state, self._agenda.now_s)

    # ---------------------------------------------------------------------------------------- the trainer

    def _train(self, draws: Sequence[int]) -> None:
        self._gate.train_begins(draws)
        self._gate.reopen()
        self._taken_step += 1
        self._is_training = True
        groups = [self._finished.pop(draw) for draw in draws]
        self._become("training")
        if self._costs.colocated:
            self._pool.set_training(True)
        seconds = self._costs.train_s + self._costs.train_token_s * sum(group.tokens for group in groups)
        self._agenda.after(seconds, lambda: self._publish(groups))
        if self._rule.max_staleness:
            self._open_groups()

    def _publish(self, groups: Sequence[_Group]) -> None:
        self._become("publishing")
        if self._costs.colocated:
            self._pool.set_training(False)
        self._pool.publish(self._version + 1, self._costs.publish_s)
        self._agenda.after(self._costs.publish_s, lambda: self._end_step(groups))

    def _end_step(self, groups: Sequence[_Group]) -> None:
        step = SimulatedStep(
            ended_s=self._agenda.now_s,
            ages=tuple(self._version - group.version for group in groups),
            trajectories=sum(group.num_ended for group in groups),
            tokens=sum(group.sampled for group in groups),
        )
        self._steps.append(step)
        self._version += 1
        self._gate.publish(self._version)
        self._become("after step")
        if self._rule.max_staleness:
            self._open_groups()
        self._agenda.after(self._costs.after_step_s, self._become_idle)

    def _become_idle(self) -> None:
        self._is_training = False
        self._become("unfinished")
        self._move()

    # ---------------------------------------------------------------------------------------- members

    def _fill(self) -> None:
        limit = self._schedule.max_open
        num_free = len(self._waiting) if limit is None else limit - self._num_running
        if num_free <= 0 or not self._waiting:
            return
        order = self._waiting
        if limit is not None:
            needs = {draw: float(group.need) for draw, group in self._open.items() if group.need is not None}
            order = start_order(self._waiting, needs)
        starting, self._waiting = order[:num_free], order[num_free:]
        self._num_running += len(starting)
        for member in starting:
            self._ask(member)

    def _ask(self, member: _Member) -> None:
        """Submit the member's next reply."""
        turn = member.turns[member.turn]
        member.engine = self._pool.place(member.engine, member.draw)
        engine = self._pool.engines[member.engine]
        # New weights invalidate the keys and values of everything before.
        is_cached = member.turn > 0 and member.version == engine.version
        member.context += turn.context
        member.version = engine.version
        member.place = f"engine {member.engine}"
        member.submitted_s = self._agenda.now_s
        computed = turn.context if is_cached else member.context
        member.reply = Reply(computed, member.context, turn.sampled, lambda: self._hear(member))
        engine.submit(member.reply)

    def _hear(self, member: _Member) -> None:
        """Handle the end of a reply; tools or the judge come next."""
        if not member.place:
            return  # it was cut at the same moment
        turn = member.turns[member.turn]
        member.reply = None
        member.context += turn.sampled
        self._sampled_tokens += turn.sampled
        self._num_replies += 1
        self._engine_s += self._agenda.now_s - member.submitted_s
        member.turn += 1
        is_last = member.turn == len(member.turns)
        member.place = "a judge" if is_last else "a tool"
        if turn.wait_s > 0:
            (self._judges if is_last else self._tools).serve(turn.wait_s, lambda: self._go_on(member))
        else:
            self._go_on(member)

    def _go_on(self, member: _Member) -> None:
        if not member.place:
            return  # it was cut meanwhile
        if member.turn < len(member.turns):
            self._ask(member)
            return
        group = member.group
        self._settle(member)
        group.num_ended += 1
        group.tokens += member.context
        sampled = sum(turn.sampled for turn in member.turns)
        group.sampled += sampled
        group.need = max(group.need or 0, sampled)
        if group.num_ended >= self._schedule.group_size:
            self._cut_rest(group)
        elif not group.num_unsettled:
            self._store(group)
        self._fill()

    def _settle(self, member: _Member) -> None:
        """Handle a running member that has ended or is cut."""
        member.place = ""
        member.group.num_unsettled -= 1
        self._num_running -= 1
        assert member.engine is not None
        self._pool.leave(member.engine)

    def _cut_rest(self, group: _Group) -> None:
        for member in group.members:
            if not member.place:
                continue
            self._cut_members += 1
            if member.engine is None:
                member.place = ""
                group.num_unsettled -= 1
                continue
            if member.reply is not None:
                self._pool.engines[member.engine].cancel(member.reply)
            self._settle(member)
        self._waiting = [member for member in self._waiting if member.group is not group]
        self._store(group)

    def _store(self, group: _Group) -> None:
        del self._open[group.draw]
        self._storing[group.draw] = group
        self._agenda.after(self._costs.finish_s, lambda: self._finish(group))

    def _finish(self, group: _Group) -> None:
        del self._storing[group.draw]
        if group.is_given_up or not group.num_ended:
            self._dropped_groups += 1
            self._gate.leave(group.draw)
        else:
            self._gate.finish(group.draw)
            self._finished[group.draw] = group
        self._move()
