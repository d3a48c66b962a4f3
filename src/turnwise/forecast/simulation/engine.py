"""An engine that samples for many sequences at once: processor sharing, one event per reply instead of one per token.

All sequences of an engine advance together, one token per step, so one number V locates each: the tokens that a
sequence present from the start would have sampled. A reply of k tokens that starts at V ends at V + k, whoever joins or
leaves. While n sequences attend to R tokens together, R grows by n per step, so that dV steps take

    t = (step_s + sequence_s n + attended_s R) dV + attended_s n dV^2 / 2,

which is solved for dV exactly.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from turnwise.core.occupancy import Occupancy
from turnwise.forecast.simulation.agenda import Agenda
from turnwise.forecast.simulation.costs import EngineCosts


@dataclass(slots=True, eq=False)
class Reply:
    """A reply to be sampled."""

    computed: int
    """Tokens of context to compute first."""
    context: int
    """Tokens of context that it attends to, including those."""
    sampled: int
    done: Callable[[], None]
    start: float = 0.0
    """V at its start."""
    state: str = field(default="waiting")
    """"waiting" for a slot, "active" or "ended"."""


class SimulatedEngine:
    """One engine. The caller keeps `num_members`, the number of trajectories that stay here."""

    def __init__(self, agenda: Agenda, costs: EngineCosts) -> None:
        self._agenda = agenda
        self._costs = costs
        self.version = 0
        self.num_members = 0
        self.is_training = False
        """Whether the trainer uses the engine's machine."""
        self.occupancy = Occupancy("admission", agenda.now_s)
        """"sampling" is busy. Idle: "weights" are being published; "training" by a trainer on the same machine; "tools"
        if members that stay here wait for a tool or a judge; "admission" if there is no member to sample for."""
        self._position = 0.0  # V
        self._attended = 0.0  # R
        self._stall_s = 0.0  # seconds of contexts to compute and weights to load, before anything is sampled
        self._at_s = agenda.now_s
        self._num_active = 0
        self._ends: list[tuple[float, int, Reply]] = []
        self._queue: deque[Reply] = deque()
        self._num_replies = 0
        self._alarm = 0
        self._publishing_until_s = 0.0

    def submit(self, reply: Reply) -> None:
        """Sample a reply, as soon as there is a slot."""
        self._catch_up()
        self._queue.append(reply)
        self._fill()
        self.refresh()

    def cancel(self, reply: Reply) -> None:
        """End a reply where it is, without telling the caller; a reply that has ended is left alone."""
        self._catch_up()
        if reply.state == "waiting":
            self._queue.remove(reply)
        elif reply.state == "active":
            self._leave(reply)
        reply.state = "ended"
        self._fill()
        self.refresh()

    def publish(self, version: int, seconds: float) -> None:
        """Load weights; replies under way continue under them, with their contexts computed again."""
        self._catch_up()
        self.version = version
        self._stall_s += seconds + self._costs.context_s * self._attended
        self._publishing_until_s = self._agenda.now_s + seconds
        self._agenda.after(seconds, self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Record the present state and the time when the next reply ends."""
        self._catch_up()
        now_s = self._agenda.now_s
        if self.is_training:
            state = "training"
        elif now_s < self._publishing_until_s:
            state = "weights"
        elif self._num_active:
            state = "sampling"
        else:
            state = "tools" if self.num_members else "admission"
        if state != self.occupancy.state:
            self.occupancy.switch(state, now_s)
        while self._ends and self._ends[0][2].state == "ended":
            heapq.heappop(self._ends)
        self._alarm += 1
        if self._ends and not self.is_training:
            alarm = self._alarm
            self._agenda.after(self._seconds_until(self._ends[0][0]), lambda: self._end_replies(alarm))

    def _seconds_until(self, position: float) -> float:
        costs, steps = self._costs, max(0.0, position - self._position)
        n = self._num_active
        step_s = costs.step_s + costs.sequence_s * n + costs.attended_s * self._attended
        return self._stall_s + step_s * steps + costs.attended_s * n * steps * steps / 2

    def _catch_up(self) -> None:
        """Advance V and R to the present."""
        elapsed = self._agenda.now_s - self._at_s
        self._at_s = self._agenda.now_s
        if self.is_training or elapsed <= 0:
            return
        stalled = min(self._stall_s, elapsed)
        self._stall_s -= stalled
        elapsed -= stalled
        n, costs = self._num_active, self._costs
        if not n or elapsed <= 0:
            return
        step_s = costs.step_s + costs.sequence_s * n + costs.attended_s * self._attended
        growth = costs.attended_s * n
        steps = 2 * elapsed / (step_s + math.sqrt(step_s * step_s + 2 * growth * elapsed))
        self._position += steps
        self._attended += n * steps

    def _end_replies(self, alarm: int) -> None:
        if alarm != self._alarm:
            return  # something came or went since this event was added
        self._catch_up()
        ended: list[Reply] = []
        # Rounding may leave the head of the queue a hair short of its end.
        self._position = max(self._position, self._ends[0][0])
        while self._ends and self._ends[0][0] <= self._position + 1e-9:
            reply = heapq.heappop(self._ends)[2]
            if reply.state == "active":
                self._leave(reply)
                reply.state = "ended"
                ended.append(reply)
        self._fill()
        for reply in ended:
            reply.done()
        self.refresh()

    def _fill(self) -> None:
        slots = self._costs.slots
        while self._queue and (slots is None or self._num_active < slots):
            reply = self._queue.popleft()
            reply.state, reply.start = "active", self._position
            self._stall_s += self._costs.context_s * reply.computed
            self._num_active += 1
            self._attended += reply.context
            self._num_replies += 1
            heapq.heappush(self._ends, (self._position + max(1, reply.sampled), self._num_replies, reply))

    def _leave(self, reply: Reply) -> None:
        self._num_active -= 1
        self._attended = max(0.0, self._attended - reply.context - (self._position - reply.start))
        if not self._num_active:
            self._attended = 0.0
