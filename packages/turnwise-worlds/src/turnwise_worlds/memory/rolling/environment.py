"""An agent that acts in a window: when its context is full it writes a note, and a fresh context starts from the note.

    part0    question, note none     search, passages, write    the note
    part1    question, note          search, passages, write    the next note
    part2    question, note          the answer

MEM1 (arXiv 2506.15841) and ReSum (arXiv 2509.13313). Each part is a separate root of one trajectory, so that its
log-probabilities are exactly the sampler's, unlike those of MEM1's flat row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwise.core.checked import judge
from turnwise.core.episodes import AGENT, Ask, Asked, EpisodeEnd, EpisodeSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, Opening
from turnwise.core.types import Message, Reward, RewardPart, Scored, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.memory.rolling.arguments import RollingArguments
from turnwise_worlds.memory.words import NONE

WRITE = " write"
"""The request for a note, after the last observation that the window holds."""


def build_prompt(question: Message, note: str) -> tuple[Message, ...]:
    """Build the opening of a part."""
    return (text_message("user", f"{question.text.strip()} note {note} act"),)


def read_note(opening: Message) -> str:
    """Return the note in the opening of a part."""
    return opening.text.rpartition(" note ")[2].removesuffix(" act")


class RollingEnvironment:
    """Implements `AskingEnvironment` over an `Environment`, whose actions and score it uses."""

    def __init__(self, inner: Environment, chosen: RollingArguments) -> None:
        """`inner` must open with one message."""
        self.spec = EpisodeSpec(can_replay=True)
        self._inner, self._chosen = inner, chosen
        self._opening = Opening(messages=(), tools=())
        self._part = 0
        self._words = 0
        """Words in the present context."""
        self._is_full = False
        """Whether a note is requested."""
        self._note = NONE
        self._overflowed = False
        self._actions: list[Message] = []
        """All replies that acted."""

    async def begin(self, task: Task, seed: int) -> Asked:
        """Open the first part."""
        self._opening = await self._inner.reset(task, seed)
        return self._ask_part()

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept an action or a note."""
        if conversation != f"part{self._part}":
            raise EnvironmentFault(
                f"RollingEnvironment got a reply in {conversation!r}, where it had not asked for one"
            )
        if self._is_full:
            return self._take_note(extract_answer(reply.text) or NONE)
        self._actions.append(reply)
        result = await self._inner.step(reply)
        observations = result.observations
        self._count(reply, *observations)
        self._is_full = self._words > self._chosen.window_words
        messages = (*observations, text_message("user", WRITE)) if self._is_full else observations
        ask = Ask(conversation=conversation, messages=messages)
        return Asked(
            asks=() if result.done else (ask,),
            observations=observations if result.done else (),
            tool_records=result.tool_records,
            scores=result.scores,
            signals=result.signals,
        )

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return the inner environment's score of the actions, with the part `overflow`."""
        reward = await judge(self._inner, self._actions, end.stop)
        if isinstance(reward, Scored):
            overflow = RewardPart(name="overflow", value=float(self._overflowed))
            reward = replace(reward, parts=(*reward.parts, overflow))
        return {AGENT: reward}

    async def close(self) -> None:
        """Close the inner environment."""
        await self._inner.close()

    def _take_note(self, note: str) -> Asked:
        if len(note.split()) > self._chosen.max_note_words:
            self._overflowed = True
            return Asked(asks=())
        self._note, self._is_full, self._words = note, False, 0
        self._part += 1
        return self._ask_part() if self._part < self._chosen.max_parts else Asked(asks=())

    def _ask_part(self) -> Asked:
        [question] = self._opening.messages
        prompt = build_prompt(question, NONE if self._chosen.memory == "erased" else self._note)
        self._count(*prompt)
        return Asked(asks=(Ask(conversation=f"part{self._part}", messages=prompt, tools=self._opening.tools),))

    def _count(self, *messages: Message) -> None:
        texts = [text for message in messages for text in (message.text, *(c.arguments for c in message.tool_calls))]
        self._words += sum(len(text.split()) for text in texts)
