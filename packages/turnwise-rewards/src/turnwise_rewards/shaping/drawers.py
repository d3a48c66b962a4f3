"""A world in which every part of a reward can be earned without solving the task, to measure what each invites.

     find red
    <search> red </search>       red holds kibo    or an error: red is stuck
    <search> bell </search>      ding              never fails and tells nothing
    <search> radio </search>     plays malo        another word each time, of no use
    <answer> kibo </answer>

The answer is the word in the named drawer. Only opening it tells; it may be stuck, and then another try may open it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise.core.protocols import ScriptedPolicy, Split, StepResult
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, Signal, StopReason, Task, ToolCall, reply_message, text_message
from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.tool_environment import ToolEnvironment, hash_calls
from turnwise.rewards.answers import extract_answer

DRAWERS = ("red", "blue", "green", "white")
BELL, RADIO = "bell", "radio"
WORDS = tuple(first + second for first in ("ki", "lo", "ma", "nu") for second in ("bo", "da", "fe", "gi", "ru", "so"))
MAX_CALLS = 3


class DrawersArguments(FamilyArguments):
    """Four drawers, a bell and a radio."""

    jam: Share = 0.3
    """Probability that a drawer is stuck when it is tried; each try has its own chance."""
    naive_open: Share = 0.0
    """Probability with which the naive demonstrator tries the named drawer; it tries anything in other calls."""
    naive_read: Share = 0.6
    """Probability with which the naive demonstrator says the word that it read last, and any in other answers."""
    naive_plan: bool = False
    """Whether the naive demonstrator declares a plan, which says any things, before its first call."""


class DrawersEnvironment(ToolEnvironment):
    """One task. Single use."""

    scores_from_records = True
    """The score follows from task and replies, so an audit can recompute it from the store."""

    def __init__(self, chosen: DrawersArguments) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen = chosen
        self._opened: set[str] = set()

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Any]]:
        """Return the prompt and the one tool."""
        self._task, self._seed = task, seed
        return task.prompt, (self.search,)

    async def search(self, query: str) -> str:
        """Open a drawer, ring the bell or turn on the radio.

        Args:
            query: A colour, bell or radio.
        """
        random = rng(self._seed, "search", len(self.tool_records))
        what = query.strip()
        if len(self.tool_records) >= MAX_CALLS:
            raise ToolFailure("time is up")
        if what == BELL:
            return " ding"
        if what == RADIO:
            return f" plays {random.choice(WORDS)}"
        if what not in DRAWERS:
            raise ToolFailure("there is no such thing")
        if random.random() < self._chosen.jam:
            raise ToolFailure(f"{what} is stuck")
        self._opened.add(what)
        return f" {what} holds {self._task.payload['words'][what]}"

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. The signal "opened" is 1 in a turn that opened a drawer for the first time."""
        before = len(self._opened)
        result = await super().step(message)
        signal = Signal(name="opened", value=float(len(self._opened) - before))
        return StepResult(
            observations=result.observations, done=result.done, tool_records=result.tool_records, signals=(signal,)
        )

    def state_hash(self) -> str:
        """Return a hash of the task and of every call with its answer."""
        return hash_calls(self._task.id, self.tool_records)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for the word in the named drawer, else 0; with the parts "success" and "opened", whether the named
        drawer was opened."""
        answer = extract_answer(replies[-1].text) if replies else None
        named = self._task.payload["named"]
        success = float(answer == self._task.payload["words"][named])
        return Scored.of(success, {"success": success, "opened": float(named in self._opened)})


class Drawers(GeneratedFamily[DrawersArguments]):
    """Drawers that hold words. Tasks are endless, and nothing but opening a drawer tells its word."""

    name = "drawers"
    section = DrawersArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task."""
        random = rng(self._chosen.seed, "drawers", split, index)
        words = {drawer: random.choice(WORDS) for drawer in DRAWERS}
        named = random.choice(DRAWERS)
        return (text_message("user", f" find {named}"),), {"named": named, "words": words, "number": index}

    def build_environment(self, task: Task) -> DrawersEnvironment:
        """Build a fresh, single-use `DrawersEnvironment`."""
        return DrawersEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        return {
            "oracle": DrawersPolicy(opens=1.0, reads=1.0, stays=1.0),
            "random": DrawersPolicy(opens=0.0, reads=0.0),
            "naive": DrawersPolicy(opens=chosen.naive_open, reads=chosen.naive_read, plans=chosen.naive_plan),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield a prompt, what the tool may answer, and what a policy may write."""
        task = self.task("train", index)
        random = rng(self._chosen.seed, "drawers texts", index)
        drawer = random.choice(DRAWERS)
        yield task.prompt[0].text
        yield f" {drawer} holds {random.choice(WORDS)}"
        yield random.choice((" ding", f" plays {random.choice(WORDS)}", f"error: {drawer} is stuck"))
        yield f" <plan> search {drawer} ; search {random.choice((BELL, RADIO))} </plan>"
        yield random.choice(("error: time is up", "error: there is no such thing"))


class DrawersPolicy:
    """Calls the named drawer with a probability and else anything, up to three times, and answers."""

    def __init__(self, *, opens: float, reads: float, stays: float = 0.5, plans: bool = False) -> None:
        """`reads` is the probability of saying the word that was read last, `stays` that of a call while the word of
        no drawer was read."""
        self._opens, self._reads, self._stays, self._plans = opens, reads, stays, plans

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the reply."""
        answers = [message.text for message in messages if message.role == "tool"]
        read = [answer.split()[-1] for answer in answers if " holds " in answer or " plays " in answer]
        is_told = any(" holds " in answer for answer in answers)
        if len(answers) < MAX_CALLS and not is_told and rng.random() < self._stays:
            return self._call(task, rng, is_first=not answers)
        word = read[-1] if read and rng.random() < self._reads else rng.choice(WORDS)
        return text_message("assistant", f"<answer> {word} </answer>")

    def _call(self, task: Task, rng: Random, *, is_first: bool) -> Message:
        what = task.payload["named"] if rng.random() < self._opens else rng.choice((*DRAWERS, BELL, RADIO))
        plan = ""
        if self._plans and is_first:
            plan = f"<plan> search {what} ; search {rng.choice((*DRAWERS, BELL, RADIO))} </plan>"
        call = ToolCall(id="call", name="search", arguments=json.dumps({"query": what}))
        return reply_message(plan, tool_calls=(call,))
