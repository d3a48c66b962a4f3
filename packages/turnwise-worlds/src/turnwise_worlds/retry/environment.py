"""One call with two attempts: if the first fails, a reflection says why, and the second attempt sees only the
reflection.

Reflect, retry, reward (arXiv 2505.24726): after a failure the policy writes a reflection and tries again with it in
view; if that succeeds, only the reflection is rewarded. Attempts and reflections are two roles here, so that a recipe
says which of them learns. Every reply has its own conversation: the retry knows about the failure only what the
reflection says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.retry.arguments import RetryArguments
from turnwise_worlds.retry.conventions import KEEP, OFFSETS, build_call, spell

PLAYER, REFLECTOR = "player", "reflector"
FIRST, REFLECTION, RETRY = "first", "reflection", "retry"
"""The conversations, in order."""
UNKNOWN = "none"
"""The note of an attempt without one, and the example if only a bit is revealed."""
SPEC = EpisodeSpec(
    roles=(RoleSpec(name=PLAYER), RoleSpec(name=REFLECTOR)),
    max_replies=3,
    can_replay=True,
)


def build_attempt(letters: str, note: str) -> tuple[Message, ...]:
    """Build the opening of an attempt."""
    return (text_message("user", f" call {spell(letters)} note {note} send"),)


def build_reflection(letters: str, sent: str, example: str) -> tuple[Message, ...]:
    """Build the opening of a reflection."""
    return (text_message("user", f" call {spell(letters)} failed {sent} example {example} why"),)


class RetryEnvironment:
    """Implements `AskingEnvironment`. Everything random comes from the task's seed."""

    spec = SPEC

    def __init__(self, chosen: RetryArguments) -> None:
        self._chosen = chosen
        self._wanted = FIRST
        """The conversation whose reply is requested."""
        self._note = UNKNOWN
        self._first = self._success = self._overflowed = False

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for the first attempt."""
        self._seed = int(task.payload["seed"])
        self._call = build_call(self._seed, held_out=bool(task.payload["held_out"]))
        return self._ask(PLAYER, build_attempt(self._call.letters, UNKNOWN))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept an attempt, or the reflection on it."""
        if conversation != self._wanted:
            raise EnvironmentFault(f"RetryEnvironment got a reply in {conversation!r}, not in {self._wanted!r}")
        said = " ".join((extract_answer(reply.text) or "").split())
        if conversation == REFLECTION:
            return self._reflect(said)
        self._success = said == spell(self._call.answer)
        if conversation == RETRY:
            return Asked(asks=())
        self._first = self._success
        if self._first or self._chosen.attempts == 1:
            return Asked(asks=())
        self._wanted = REFLECTION
        example = self._call.example if self._chosen.feedback == "example" else UNKNOWN
        return self._ask(REFLECTOR, build_reflection(self._call.letters, said, example))

    def _reflect(self, said: str) -> Asked:
        if len(said.split()) > self._chosen.max_reflection_words:
            self._overflowed = True
            return Asked(asks=())
        self._note = said or UNKNOWN
        if self._chosen.reflection == "none":
            self._note = UNKNOWN
        elif self._chosen.reflection == "shuffled":
            self._note = rng(self._seed, "shuffled").choice([name for name in OFFSETS if name != KEEP])
        self._wanted = RETRY
        return self._ask(PLAYER, build_attempt(self._call.letters, self._note))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return 1 for both roles if the last attempt is right."""
        parts = {"success": self._success, "first": self._first, "overflow": self._overflowed}
        reward = Scored.of(float(self._success), parts)
        return {PLAYER: reward, REFLECTOR: reward}

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def state_hash(self) -> str:
        """Return a hash that is equal if the call, the next request and the note are equal."""
        return f"{self._seed}/{self._wanted}/{self._note}"

    def _ask(self, role: str, messages: tuple[Message, ...]) -> Asked:
        return Asked(asks=(Ask(role=role, conversation=self._wanted, messages=messages),))
