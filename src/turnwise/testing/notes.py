"""A family of tasks that are read at a glance and learned within seconds: follow notes to a code.

    user        start amber                a note to begin with
    assistant   <search> amber </search>
    tool        see jade                   a note names another note ...
    assistant   <search> jade </search>
    tool        code 7                     ... or the code
    assistant   <answer> 7 </answer>

The scripted policy "naive" reads one note and answers with its last word. That is right if the first note has the code,
and demonstrates everything except following a name, which reinforcement learning has to find."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json import dumps
from random import Random

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, RewardPart, Scored, StopReason, Task, ToolCall, text_message
from turnwise.environments.tool_environment import ToolEnvironment

NAMES = ("amber", "birch", "coral", "delta", "ember", "fjord", "grove", "haven", "ivory", "jade", "kite", "lotus")
CODES = tuple("0123456789")
ANSWER = re.compile(r"<answer>\s*(\S*?)\s*</answer>")


class Notes(ToolEnvironment):
    """One episode; the reward is 1 for the code and 0 for anything else."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """The task's prompt, and the tool `search`."""
        self._task = task
        return task.prompt, [self.search]

    def search(self, query: str) -> str:
        """Read a note.

        Args:
            query: The name of the note.
        """
        return str(self._task.payload["notes"].get(query.strip(), "nothing"))

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Scored:
        """Judge the last reply."""
        answer = ANSWER.search(replies[-1].text) if replies else None
        right = float(answer is not None and answer[1] == self._task.payload["answer"])
        return Scored(total=right, parts=(RewardPart(name="success", value=right),))


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesPolicy:
    """Reads notes. It decides by what it sees, never by the payload."""

    follow: float
    """Probability of following a note that names another one, instead of answering with that name."""
    guess: bool = False
    """Answer with a random code instead of what the note says."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next search, or the answer."""
        text = messages[-1].text
        word = text.split()[-1]
        if len(messages) == 1 or (text.startswith("see ") and rng.random() < self.follow):
            call = ToolCall(id=f"call_{len(messages)}", name="search", arguments=dumps({"query": word}))
            return Message(role="assistant", content=(), tool_calls=(call,))
        return text_message("assistant", f"<answer> {rng.choice(CODES) if self.guess else word} </answer>")


class NotesFamily:
    """Implements `core.protocols.EnvironmentFamily`. A task is a pure function of split and index."""

    def __init__(self, *, linked: float = 0.7, tool_timeout_s: float = 10.0, max_observation_chars: int = 4000) -> None:
        """`linked` is the share of tasks whose first note names another note, which has the code; the other arguments
        are those of `ToolEnvironment`."""
        self._linked = linked
        self._limits = {"tool_timeout_s": tool_timeout_s, "max_observation_chars": max_observation_chars}

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; there is no end. Raises IndexError for a negative index."""
        if index < 0:
            raise IndexError(f"task {index} of {split}: the index must be at least 0")
        random = rng("notes", split, index)
        first, second = random.sample(NAMES, 2)
        code = random.choice(CODES)
        is_linked = random.random() < self._linked
        notes = {first: f"see {second}", second: f"code {code}"} if is_linked else {first: f"code {code}"}
        payload = {"notes": notes, "answer": code, "kind": "linked" if is_linked else "direct"}
        return Task(environment="notes", prompt=(text_message("user", f"start {first}"),), payload=payload)

    def build_environment(self, task: Task) -> Notes:
        """A fresh episode."""
        return Notes(**self._limits)  # type: ignore[arg-type]

    def policy(self, name: str) -> NotesPolicy:
        """The scripted policy "oracle", "naive" (see the module) or "random". Raises ConfigError naming these."""
        policies = {
            "oracle": NotesPolicy(follow=1.0),
            "naive": NotesPolicy(follow=0.1),
            "random": NotesPolicy(follow=0.5, guess=True),
        }
        if name not in policies:
            raise ConfigError(f"the notes family has no policy {name!r}; choose one of {', '.join(policies)}")
        return policies[name]

    def texts(self, count: int) -> list[str]:
        """`count` texts with every word that can occur in a prompt, a note or a reply."""
        words = [f" {word}" for word in ("see", "code", "nothing", *NAMES, *CODES)]
        return [f"start{words[index % len(words)]}" for index in range(count)]
