"""One episode with an API: the prompt, one reply, ToolRL's reward (arXiv 2504.13958).

The episode has a single step: the reply's calls are checked against the schemas and recorded. The gold calls are read
only for scoring; the recorded calls determine success, in whatever format the model wrote them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from turnwise.core.protocols import StepResult
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, RewardPart, StopReason, Task, ToolCall, ToolSpec, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.tool_rl import Call, compute_correctness, compute_tool_rl_reward
from turnwise.tools.tool import Tool
from turnwise_worlds.tool_calls.arguments import Prompt, SchemaSwitch, ToolCallsArguments
from turnwise_worlds.tool_calls.problems import Api
from turnwise_worlds.tool_calls.words import SLOTS

PROMPTS: Mapping[Prompt, str] = {
    "short": "{apis}Request : {request} .\n",
    "chat": (
        "Use the tools for the request below: make every call it takes, all in one reply, with the values the "
        "request gives. "
        "When a value that a call needs is missing, make no call and ask for it. When no tool fits, make no call "
        "and say so.\n\n"
        "Request : {request} .\n"
    ),
}
"""The first message. "short" writes the API, one tool with its parameters per line; "chat" is for models whose template
shows the tools."""


def build_prompt(prompt: Prompt, apis: Sequence[Api], request: str) -> tuple[Message, ...]:
    """Build the first message.

    A line of the API starts with a space, like a call in a reply: with a byte-level tokenizer a word without the space
    is a different token.
    """
    text = PROMPTS[prompt].format(apis="".join(f" {api.text}\n" for api in apis), request=request)
    return (text_message("user", text),)


def read_apis(task: Task) -> tuple[Api, ...]:
    """Return the API of a task."""
    return tuple(
        Api(
            name=api["name"],
            capability=api["capability"],
            parameters=tuple((name, slot) for name, slot in api["parameters"]),
        )
        for api in task.payload["apis"]
    )


def hide_names(apis: Sequence[Api], schema: SchemaSwitch, seed: int) -> tuple[Api, ...]:
    """Return the API as the switch shows it: no tool or parameter keeps its own name unless the switch is "on"."""
    if schema == "on":
        return tuple(apis)
    words = {name: word for api in apis for name, word in ((api.name, api.capability), *api.parameters)}
    numbers = [name.removeprefix(word) for name, word in words.items()]
    # Numbers differ within an API, so a rotation changes every one of them.
    shift = rng(seed, "shuffled").randrange(1, len(numbers))
    others = numbers[shift:] + numbers[:shift]
    shown = {
        name: f"{word}{number if schema == 'shuffled' else 0}"
        for (name, word), number in zip(words.items(), others, strict=True)
    }
    return tuple(
        replace(api, name=shown[api.name], parameters=tuple((shown[name], slot) for name, slot in api.parameters))
        for api in apis
    )


async def _accept(**arguments: object) -> str:
    """The answer of every API; it is unused, because the calls are the result."""
    return "accepted"


class OneReplyEnvironment(ToolEnvironment):
    """An episode of one reply, whose calls are recorded and judged. A subclass defines `setup` and `score`."""

    def __init__(self, chosen: ToolCallsArguments) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen = chosen
        self._task_id = ""
        self._reply: Message | None = None

    def show(self, task: Task, specs: Iterable[ToolSpec]) -> None:
        """Offer an API as schemas without functions, because the calls are the result."""
        self._task_id = task.id
        self._tools = {spec.name: Tool(spec=spec, function=_accept) for spec in specs}

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`.

        The first reply ends the episode; its calls are recorded with the errors that the schemas find.
        """
        result = await super().step(message)
        self._stage = "over"
        self._reply = message
        return replace(result, observations=(), done=True)

    def state_hash(self) -> str:
        """Return 16 hexadecimal digits of the episode's state: the task and the calls made. Equal states have equal
        hashes."""
        made = [(record.call.name, record.call.arguments) for record in self.tool_records]
        return hashlib.sha256(json.dumps([self._task_id, made]).encode()).hexdigest()[:16]


class ToolCallsEnvironment(OneReplyEnvironment):
    """An API, a request, one reply. Single use."""

    def __init__(self, chosen: ToolCallsArguments) -> None:
        super().__init__(chosen)
        self._gold: list[Call] = []
        self._missing: set[str] = set()

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt; the tools are the API's schemas, without functions."""
        self._gold = [(name, arguments) for name, arguments in task.payload["calls"]]
        apis = hide_names(read_apis(task), self._chosen.schema_, seed)
        self._missing = {task.payload["missing"]} - {None}
        self.show(task, (api.to_spec() for api in apis))
        return build_prompt(self._chosen.prompt, apis, task.payload["request"]), ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the reward with the parts `format`, `correctness`, `question` (their sum is the total) and `success`.

        A reply is well formed if it has only calls when calls are wanted, and only words when none is. `question` is
        ours, because ToolRL's correctness is 0 if no call is wanted: it is 1 for well-formed words that name exactly
        the missing slot, or no slot if none is missing because no tool fits. Success: the reply is well formed, and its
        calls are exactly the gold ones in any order, or else `question` is 1. A reply cut off by a limit counts as
        malformed, without calls.
        """
        reply = self._reply
        well_formed = False
        predicted: list[Call] | None = None
        if reply is not None and not reply.tool_errors:
            predicted = read_calls(reply.tool_calls)
            well_formed = (
                predicted is not None
                and bool(predicted) == bool(self._gold)
                and bool(reply.text.strip()) != bool(self._gold)
            )
        reward = compute_tool_rl_reward(
            predicted or None,
            self._gold,
            well_formed=well_formed,
            granularity=self._chosen.granularity,
            scale=self._chosen.scale,
        )
        if self._gold:
            question = 0.0
            success = well_formed and compute_correctness(predicted, self._gold, granularity="coarse", scale=1.0) == 1.0
        else:
            named = set(SLOTS).intersection(re.findall(r"\w+", reply.text)) if reply is not None else set()
            success = well_formed and named == self._missing
            question = float(success)
        parts = (
            *reward.parts,
            RewardPart(name="question", value=question),
            RewardPart(name="success", value=float(success)),
        )
        return replace(reward, total=reward.total + question, parts=parts)


def read_calls(calls: Sequence[ToolCall]) -> list[Call] | None:
    """Return the calls with their arguments parsed; None if a call's arguments are not a JSON object."""
    read: list[Call] = []
    for call in calls:
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return None
        if not isinstance(arguments, dict):
            return None
        read.append((call.name, arguments))
    return read
