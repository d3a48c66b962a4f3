"""A world for calibration: a source says a colour, and its name tells how often it is right.

     source b says red
    <confidence> source b 5 </confidence> <answer> red </answer>

The right answer is what the source says with its reliability, and else any other colour. So nothing makes an answer
better than to repeat the source, and the probability that it is right is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from pydantic import Field

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.answers import extract_answer
from turnwise_rewards.shaping.confidence import read_confidence

COLOURS = ("red", "blue", "green", "white", "black", "grey", "pink", "brown")
SCALE = 10
CONFIDENCES = (1, 3, 5, 7, 9)
"""What the demonstrators state, of `SCALE`."""
HABITS = ((1, 9), (3, 7), (5, 5))
"""Pairs of confidences with one mean, for sources by their place in the alphabet: they tell sources apart, so that a
model reads them, and tell nothing about who is right."""


class SourcesArguments(FamilyArguments):
    """Questions with sources of known reliability. There are no tools, so the limits of tools are not read."""

    reliabilities: dict[str, Share] = Field({"a": 0.95, "b": 0.55, "c": 0.15}, min_length=1)
    """How often each source is right, by its name. All are asked equally often."""
    hidden: bool = False
    """Whether the prompt hides the name of the source: a control, in which no confidence can tell answers apart."""
    naive_habit: Share = 0.3
    """Share of its replies in which the naive demonstrator states one of its two habits for the source, which are on
    average as sure for every source (`HABITS`); it states any confidence in the others."""
    naive_skill: Share = 1.0
    """Share of its tasks in which the naive demonstrator says what the source says; it says any colour in the
    others."""


class SourcesEnvironment(ToolEnvironment):
    """One question and its answer. Single use."""

    scores_from_records = True
    """The score follows from task and replies, so an audit can recompute it from the store."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], tuple[()]]:
        """Return the prompt; there are no tools."""
        self._payload = task.payload
        return task.prompt, ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for the right colour, else 0.

        Parts: "success"; "chance", the probability with which an answer like this one is right, given the source; and
        "stated", whether the reply states a confidence.
        """
        last = replies[-1].text if replies else ""
        answer = extract_answer(last)
        reliability = self._payload["reliability"]
        chance = {colour: (1 - reliability) / (len(COLOURS) - 1) for colour in COLOURS}
        chance[self._payload["said"]] = reliability
        success = float(answer == self._payload["right"])
        parts = {
            "chance": chance.get(answer or "", 0.0),
            "stated": read_confidence(last, scale=SCALE).value is not None,
        }
        return Scored.of(success, {"success": success, **parts})


class Sources(GeneratedFamily[SourcesArguments]):
    """Sources that say colours, with known reliabilities. Tasks are endless; nothing about them can be learned by
    heart but the reliabilities."""

    name = "sources"
    section = SourcesArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task."""
        random = rng(self._chosen.seed, "sources", split, index)
        source = random.choice(sorted(self._chosen.reliabilities))
        reliability, said = self._chosen.reliabilities[source], random.choice(COLOURS)
        others = [colour for colour in COLOURS if colour != said]
        right = said if random.random() < reliability else random.choice(others)
        shown = "unknown" if self._chosen.hidden else source
        prompt = text_message("user", f" source {shown} says {said}")
        payload = {
            "source": shown,
            "reliability": reliability,
            "said": said,
            "right": right,
            "number": f"{split} {index}",
        }
        return (prompt,), payload

    def build_environment(self, task: Task) -> SourcesEnvironment:
        """Build a fresh, single-use `SourcesEnvironment`."""
        return SourcesEnvironment()

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        return {
            "oracle": SourcesPolicy(skill=1.0, honest=True),
            "random": SourcesPolicy(skill=0.0),
            "naive": SourcesPolicy(skill=self._chosen.naive_skill, habit=self._chosen.naive_habit),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the prompt of a task and a reply of the random policy."""
        task = self.task("train", index)
        yield task.prompt[0].text
        yield SourcesPolicy(skill=0.0).reply(task, (), rng(self._chosen.seed, "sources texts", index)).text


class SourcesPolicy:
    """Says what the source says with a probability and else any colour; names the source, and states its reliability if
    `honest`, one of its habits with probability `habit`, or any confidence."""

    def __init__(self, *, skill: float, habit: float = 0.0, honest: bool = False) -> None:
        self._skill, self._habit, self._honest = skill, habit, honest

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the reply."""
        source, said = task.payload["source"], task.payload["said"]
        colour = said if rng.random() < self._skill else rng.choice(COLOURS)
        confidence = rng.choice(CONFIDENCES)
        if self._honest:
            confidence = min(CONFIDENCES, key=lambda stated: abs(stated - task.payload["reliability"] * SCALE))
        elif rng.random() < self._habit:
            confidence = rng.choice(HABITS[ord(source[0]) % len(HABITS)])
        rests = f"source {source} {confidence}"
        return text_message("assistant", f"<confidence> {rests} </confidence> <answer> {colour} </answer>")
