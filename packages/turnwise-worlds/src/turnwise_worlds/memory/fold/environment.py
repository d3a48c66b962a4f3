"""Sections to be read in a context that does not hold all of them, unless most are read in branches.

    main       question red blue next          branch
    branch0      section ... return            red redka blue none        on top of main's history
    main       red redka blue none next        read
    main       pinklo redmi ... answer         red redmi blue bluepe

Context folding (arXiv 2510.11967): a branch opens on top of the main context, so that it knows the question; the main
context continues without the branch and sees only its returned message. Their shared tokens are stored, sampled and
trained once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.episodes import AGENT, MAIN, Ask, Asked, EpisodeEnd, EpisodeSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.memory.chunks.stream import build_stream, parse_memory
from turnwise_worlds.memory.fold.arguments import FoldArguments
from turnwise_worlds.memory.words import NONE

READ, BRANCH = "read", "branch"
"""The main context's actions for the next section; any other reply is its answer."""
NEXT, RETURN, ANSWER = "next", "return", "answer"
"""The last word of an observation, which says what kind of reply is requested."""


def build_prompt(asked: Sequence[str]) -> tuple[Message, ...]:
    """Build the opening of the main context."""
    return (text_message("user", f" question {' '.join(asked)} {NEXT}"),)


class FoldEnvironment:
    """Implements `AskingEnvironment`. Everything random comes from the task's seed."""

    def __init__(self, chosen: FoldArguments) -> None:
        self.spec = EpisodeSpec(max_replies=2 * chosen.sections + 1, max_depth=1, can_replay=True)
        self._chosen = chosen
        self._asked: tuple[str, ...] = ()
        self._next = 0
        """The section to be read next."""
        self._branch: str | None = None
        """The open branch; None while the main context speaks."""
        self._answer = ""
        self._num_branches = 0
        self._overflowed = False

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask what to do with the first section."""
        chosen = self._chosen
        self._asked = tuple(task.payload["asked"])
        self._stream = build_stream(
            int(task.payload["seed"]), self._asked, num_chunks=chosen.sections, chunk_events=chosen.section_events
        )
        return Asked(asks=(Ask(messages=build_prompt(self._asked)),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept an action or the answer of the main context, or the message that a branch returns."""
        if conversation != (self._branch or MAIN):
            raise EnvironmentFault(f"FoldEnvironment got a reply in {conversation!r}, where it had not asked for one")
        said = extract_answer(reply.text) or ""
        if self._branch is not None:
            return self._take_return(said)
        if said not in (READ, BRANCH) or self._next == self._chosen.sections:
            self._answer = said
            return Asked(asks=())
        words = " ".join(self._stream.chunks[self._next])
        self._next += 1
        if said == READ:
            return self._go_on(words)
        self._branch = f"branch{self._next - 1}"
        self._num_branches += 1
        messages = (text_message("user", f" section {words} {RETURN}"),)
        return Asked(asks=(Ask(conversation=self._branch, messages=messages, caller=MAIN, inherits=True),))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return the share of right answers; "success" means that all are right, "branches" is the share of sections
        read in branches."""
        given = parse_memory(self._answer if end.stop is StopReason.DONE else "", self._asked)
        right = sum(given[slot] == word for slot, word in self._stream.answer.items())
        parts = {
            "success": right == len(self._asked),
            "overflow": self._overflowed,
            "branches": self._num_branches / self._chosen.sections,
        }
        return {AGENT: Scored.of(right / len(self._asked), parts)}

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _take_return(self, said: str) -> Asked:
        self._branch = None
        if len(said.split()) > self._chosen.max_return_words:
            self._overflowed = True
            return Asked(asks=())
        return self._go_on(NONE if self._chosen.memory == "erased" else said)

    def _go_on(self, observed: str) -> Asked:
        wanted = ANSWER if self._next == self._chosen.sections else NEXT
        return Asked(asks=(Ask(messages=(text_message("tool", f" {observed} {wanted}"),)),))
