"""`step_world.py` as a Turnwise environment family: `environment.name = "step_family:Register"`, with this folder on
PYTHONPATH.

It behaves like TRL's loop, so that both sides play the same episode: a reply without a readable call ends it, and so do
malformed calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import step_world as world

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, ScriptedPolicy, Split, StepResult
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, ToolCall, text_message
from turnwise.environments.tool_environment import ToolEnvironment

CHAT_FORMAT = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function signatures within "
    "<tools></tools> XML tags:\n<tools>\n</tools>\n\nFor each function call, return a json object with function "
    "name and arguments within "
    ' XML tags:\n\n{"name": <function-name>, "arguments": <args-json-object>}\n'
)
"""Text of the chat format around the tools, whose words the tokenizer should know."""


class RegisterEnvironment(ToolEnvironment):
    """One question, up to the limit of turns. Single use."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """The question; every tool of the world."""
        self._answer = str(task.payload["answer"])
        return task.prompt, world.TOOLS

    async def step(self, message: Message) -> StepResult:
        """Answer calls; anything else ends the episode."""
        if message.tool_calls:
            return await super().step(replace(message, tool_errors=()))
        self._stage = "over"
        return StepResult(observations=(), done=True)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """See `step_world.compute_reward`."""
        return Scored(total=world.compute_reward([reply.text for reply in replies], self._answer))


class Demonstrator:
    """Finds the friend, then the field; in each of its three replies it makes a mistake with a probability."""

    def __init__(self, slip: float) -> None:
        """`slip`: probability of a mistake per reply."""
        self._slip = slip

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`."""
        question = world.Question(**{key: task.payload[key] for key in world.Question.__annotations__})  # type: ignore[typeddict-item]
        results = [message.text for message in messages if message.role == "tool"]
        slips = rng.random() < self._slip
        if len(results) == 2:
            return text_message("assistant", world.draw_value(rng) if slips else results[-1])
        arguments = world.build_slip(rng, question, results) if slips else world.build_call(question, results)
        call = ToolCall(id=f"call_{len(results)}", name="find", arguments=json.dumps(arguments))
        return Message(role="assistant", content=(), tool_calls=(call,))


class Register:
    """Implements `EnvironmentFamily`."""

    def __init__(
        self, *, seed: int = 0, slip: float = 0.2, tool_timeout_s: float = 10.0, max_observation_chars: int = 4000
    ) -> None:
        """`seed` of the questions; `slip` of the demonstrator "naive"."""
        self._seed, self._slip = seed, slip
        self._tool_timeout_s, self._max_observation_chars = tool_timeout_s, max_observation_chars

    def task(self, split: Split, index: int) -> Task:
        """The index-th question; the splits share the register and the kinds of questions, but not the order."""
        question = world.build_question(self._seed if split == "train" else self._seed + 10**9, index)
        prompt = (text_message("system", world.SYSTEM), text_message("user", question["text"]))
        return Task(environment="register", prompt=prompt, payload={**question, "index": index})

    def build_environment(self, task: Task) -> Environment:
        """A fresh, single-use environment."""
        return RegisterEnvironment(
            tool_timeout_s=self._tool_timeout_s, max_observation_chars=self._max_observation_chars
        )

    def policy(self, name: str) -> ScriptedPolicy:
        """ "oracle" never slips, "naive" at the family's rate, "random" always."""
        slips = {"oracle": 0.0, "naive": self._slip, "random": 1.0}
        if name not in slips:
            raise ConfigError(f"policy {name!r} is unknown; use one of {', '.join(slips)}")
        return Demonstrator(slips[name])

    def texts(self, count: int) -> list[str]:
        """Questions, calls and answers as a policy meets them, and what the chat format shows of the tools."""
        from turnwise.tools.tool import to_tool

        specs = [to_tool(function).spec for function in world.TOOLS]
        shown = [
            json.dumps(
                {
                    "type": "function",
                    "function": {"name": s.name, "description": s.description, "parameters": dict(s.parameters)},
                }
            )
            for s in specs
        ]
        texts = [world.SYSTEM, CHAT_FORMAT, *shown] * 20
        for index in range(count):
            question = world.build_question(self._seed, index)
            friend = world.REGISTER[question["entity"]]["friend"]
            calls = [world.to_call_json(world.build_call(question, results)) for results in ([], [friend])]
            texts += [f"user\n{question['text']}\nassistant\n", *(f"\n{call}\n" for call in calls), question["answer"]]
        return texts
