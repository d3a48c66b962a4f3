"""An environment of pictures that a tiny model learns in seconds: say how bright the square is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.messages import ImagePart, Message, Part, TextPart, hash_pixels
from turnwise.core.protocols import Opening, Split, StepResult
from turnwise.core.types import Reward, Scored, StopReason, Task, text_message

NAMES = ("dark", "grey", "light", "white")


def paint(shade: int, side: int = 32) -> ImagePart:
    """A square of one shade of grey."""
    pixels = bytes([shade]) * (side * side * 3)
    return ImagePart(digest=hash_pixels(pixels, side, side), width=side, height=side, pixels=pixels, label=f"{shade}")


class ShadeEnvironment:
    """Asks about one picture, and, after a wrong answer, once more about the same picture beside a white one."""

    async def reset(self, task: Task, seed: int) -> Opening:
        """See `Environment.reset`."""
        self._right = f"<answer> {task.payload['name']} </answer>"
        self._pictures = task.prompt[0].images
        self._asked = 1
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`."""
        if message.text.strip() == self._right or self._asked > 1:
            return StepResult(observations=(), done=True)
        self._asked += 1
        shown: list[Part] = [TextPart(text="No , again :"), *self._pictures, paint(255)]
        return StepResult(observations=(Message(role="user", content=tuple(shown)),), done=False)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """See `Environment.score`."""
        return Scored.of(float(bool(replies) and replies[-1].text.strip() == self._right), {})

    async def close(self) -> None:
        """See `Environment.close`."""


class NaivePolicy:
    """Right one time in four, else a guess."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`."""
        name = task.payload["name"] if rng.random() < 0.25 else rng.choice(NAMES)
        return text_message("assistant", f"<answer> {name} </answer>")


class ShadeFamily:
    """Implements `EnvironmentFamily`. `pictures` is how often the opening shows the square."""

    def __init__(self, pictures: int = 1) -> None:
        self._pictures = pictures

    def task(self, split: Split, index: int) -> Task:
        """See `EnvironmentFamily.task`."""
        rng = Random(f"{split} {index}")
        name = rng.randrange(len(NAMES))
        square = paint(20 + 60 * name + rng.randrange(-15, 16))
        shown: list[Part] = [TextPart(text="Which shade ?"), *[square] * self._pictures]
        prompt = Message(role="user", content=tuple(shown))
        return Task(environment="shades", prompt=(prompt,), payload={"name": NAMES[name]})

    def build_environment(self, task: Task) -> ShadeEnvironment:
        """See `EnvironmentFamily.build_environment`."""
        return ShadeEnvironment()

    def policy(self, name: str) -> NaivePolicy:
        """See `EnvironmentFamily.policy`."""
        return NaivePolicy()

    def texts(self, count: int) -> Sequence[str]:
        """See `EnvironmentFamily.texts`."""
        answers = " ".join(f"<answer> {name} </answer>" for name in NAMES)
        return [f"Which shade ? No , again : {answers}"] * count
