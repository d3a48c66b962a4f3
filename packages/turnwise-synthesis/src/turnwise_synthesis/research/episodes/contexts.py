"""What episodes in several contexts share: one desk, and a reward of its records and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.checked import judge
from turnwise.core.episodes import AGENT, EpisodeEnd, EpisodeSpec
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Message, Reward
from turnwise_synthesis.research.desk import ResearchDesk


class ContextsAtDesk:
    """The part of an `AskingEnvironment` that does not depend on who leads."""

    spec = EpisodeSpec(can_replay=True)

    def __init__(self, desk: ResearchDesk) -> None:
        self._desk = desk
        self._answer: Message | None = None
        """The last reply, once there is one without a call."""

    def use_judges(self, judges: EpisodeJudges) -> None:
        """See `JudgedEnvironment`."""
        self._desk.use_judges(judges)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return the desk's reward of its records and the answer."""
        given = () if self._answer is None else (self._answer,)
        return {AGENT: await judge(self._desk, given, end.stop)}

    async def close(self) -> None:
        """Close the desk."""
        await self._desk.close()
