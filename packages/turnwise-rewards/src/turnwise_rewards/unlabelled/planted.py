"""Questions to which a policy gives answers of a known distribution, after a warm-up on noisy demonstrations.

A world in which rewards without labels can be measured: what most attempts say is right, or is wrong on purpose, and
how often is known in advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import Field, model_validator

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Opening, ScriptedPolicy, Split, StepResult
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.replies import answer_message
from turnwise.rewards.answers import extract_answer
from turnwise.rewards.normal_form import normalize_answer

FIRST = tuple(f"{first}{second}" for first in "bdfghklmnprstvwz" for second in "aeiou")
SECOND = ("one", "two", "three", "four", "five", "six", "seven", "eight")
NUM_FIRST = 8
"""First words per question, of so many that two questions seldom share one: what a policy learns about a question's
words changes little about others."""


class PlantedArguments(FamilyArguments):
    """The keyword arguments of the family `planted`.

    There are no tools, so the limits of tools are not read.
    """

    num_questions: int = Field(60, ge=1, le=10_000)
    """Number of different questions. Both splits have all of them, as in training at test time: what is held out is
    the answer."""
    right: Share = 0.55
    """Share of demonstrations with the right answer."""
    trap: Share = 0.0
    """Share of demonstrations with the question's one attractive wrong answer. The others give any other answer, with
    equal probability."""

    @model_validator(mode="after")
    def _check_shares(self) -> PlantedArguments:
        if self.right + self.trap > 1:
            raise ConfigError(f"right={self.right:g} and trap={self.trap:g} are more than 1 together; lower one")
        return self


@dataclass(frozen=True, slots=True)
class Question:
    """The right and the attractive wrong answer of one question, and the answers that are neither."""

    right: str
    trap: str
    others: tuple[str, ...]


class Planted(GeneratedFamily[PlantedArguments]):
    """Questions with two-word answers, asked again and again.

    The first words of the right and of the attractive answer occur in no other answer of the question, so that a policy
    which has said one of them is sure of the second word. After any other first word it is not.
    """

    name = "planted"
    section = PlantedArguments

    def question(self, number: int) -> Question:
        """Return what is right and what is wrong about a question."""
        random = rng(self._chosen.seed, "planted", number)
        right, trap, *rest = random.sample(FIRST, NUM_FIRST)
        others = tuple(f"{first} {second}" for first in rest for second in SECOND)
        return Question(f"{right} {random.choice(SECOND)}", f"{trap} {random.choice(SECOND)}", others)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Return a question. Raises IndexError past the last held-out one; training questions repeat."""
        count = self._chosen.num_questions
        if split == "heldout" and index >= count:
            raise IndexError(f"held-out question {index} does not exist: there are {count}")
        number = index % count
        payload = {"question": number, "answer": self.question(number).right, "split": split}
        return (text_message("user", f" item{number}"),), payload

    def build_environment(self, task: Task) -> PlantedEnvironment:
        """Build a fresh, single-use `PlantedEnvironment`."""
        return PlantedEnvironment(task.payload["answer"])

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive", the demonstrator that draws from the planted
        distribution."""
        chosen = self._chosen
        return {
            "oracle": PlantedPolicy(self, right=1.0, trap=0.0),
            "random": PlantedPolicy(self, right=0.0, trap=0.0),
            "naive": PlantedPolicy(self, right=chosen.right, trap=chosen.trap),
        }

    def sample_texts(self, index: int) -> Iterable[str]:
        """Return the prompt of a task and one of its answers."""
        task = self.task("train", index)
        other = rng(self._chosen.seed, "planted texts", index).choice(self.question(task.payload["question"]).others)
        return [task.prompt[0].text, f" {other}", f" {task.payload['answer']}"]


class PlantedEnvironment:
    """Implements `Environment`: one reply, which is right or wrong. Nothing is random."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the question."""
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """End with the first reply."""
        return StepResult(observations=(), done=True)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for the right answer, else 0, which is also the part `success`; `answered` is whether there is an
        answer."""
        said = extract_answer(replies[-1].text) if replies else None
        right = said is not None and normalize_answer(said) == normalize_answer(self._answer)
        return Scored.of(float(right), {"success": float(right), "answered": float(said is not None)})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""


class PlantedPolicy:
    """Gives the right answer and the attractive wrong one with given probabilities, otherwise any other answer."""

    def __init__(self, family: Planted, *, right: float, trap: float) -> None:
        self._family, self._right, self._trap = family, right, trap

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the reply."""
        question, drawn = self._family.question(task.payload["question"]), rng.random()
        if drawn < self._right:
            return answer_message(question.right)
        return answer_message(question.trap if drawn < self._right + self._trap else rng.choice(question.others))
