"""The replies that an episode wants, in the order in which they were asked for, and the rules for every ask."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnwise.core.episodes import Ask, EpisodeEnd, EpisodeSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    role: str
    depth: int


@dataclass(slots=True, kw_only=True, eq=False)
class Wanted:
    """The outstanding asks of one episode. The player enters every ask, and every reply before the environment is
    told."""

    spec: EpisodeSpec
    where: str
    """Names the environment in errors."""
    asks: dict[str, Ask] = field(default_factory=dict)
    """Asks without a reply, by conversation, in the order in which they were made."""
    num_told: dict[str, int] = field(default_factory=dict)
    """Number of replies for every conversation that has any."""
    opened: dict[str, _Opened] = field(default_factory=dict)

    @property
    def num_replies(self) -> int:
        """Number of replies in all conversations."""
        return sum(self.num_told.values())

    def ask(self, ask: Ask) -> EpisodeEnd | None:
        """Enter an ask; returns why the episode is over if one of the environment's own limits forbids it, else None.

        Raises EnvironmentFault if the environment violates what it declared about its episodes.
        """
        known, spec = self.opened.get(ask.conversation), self.spec
        if spec.max_replies is not None and self.num_replies + len(self.asks) >= spec.max_replies:
            return EpisodeEnd(stop=StopReason.MAX_TURNS, conversation=ask.conversation)
        depth = 0
        if known is None and ask.caller is not None:
            if ask.caller not in self.opened:
                raise self.fault(ask, f"is called by conversation {ask.caller!r}, which was never opened")
            depth = self.opened[ask.caller].depth + 1
            if depth > spec.max_depth:
                return EpisodeEnd(stop=StopReason.MAX_DEPTH, conversation=ask.caller)
        self._check(ask, known)
        if known is None:
            self.opened[ask.conversation] = _Opened(role=ask.role, depth=depth)
        self.asks[ask.conversation] = ask
        return None

    def tell(self, conversation: str) -> Ask:
        """Enter the reply to a conversation's ask; returns that ask."""
        self.num_told[conversation] = self.num_told.get(conversation, 0) + 1
        return self.asks.pop(conversation)

    def fault(self, ask: Ask, text: str) -> EnvironmentFault:
        """Build the error that says what is wrong with an ask."""
        return EnvironmentFault(f"{self.where}: what it asks in conversation {ask.conversation!r} {text}")

    def _check(self, ask: Ask, known: _Opened | None) -> None:
        role = self.spec.role(ask.role)
        if role is None:
            raise self.fault(ask, f"is of role {ask.role!r}, which is not in the environment's spec")
        if known is not None and known.role != ask.role:
            raise self.fault(ask, f"is of role {ask.role!r}, but the conversation belongs to {known.role!r}")
        if ask.conversation in self.asks:
            raise self.fault(ask, "arrives before the conversation's last reply was told; ask one at a time")
        num_open = sum(other.role == ask.role for other in self.asks.values())
        if num_open >= role.max_open:
            raise self.fault(
                ask, f"asks for {num_open + 1} replies of role {ask.role!r} at once; the limit is {role.max_open}"
            )
        if known is None and ask.inherits:
            self._check_caller(ask)

    def _check_caller(self, ask: Ask) -> None:
        """Raise EnvironmentFault if a conversation cannot open on top of its caller's history."""
        caller = self.opened.get(ask.caller or "")
        if ask.caller is None or caller is None or caller.role != ask.role:
            raise self.fault(ask, f"inherits from {ask.caller!r}, which is not a conversation of role {ask.role!r}")
        if ask.caller in self.asks or not self.num_told.get(ask.caller):
            raise self.fault(
                ask, f"inherits from {ask.caller!r}, which is still waiting for a reply; ask for that later"
            )
