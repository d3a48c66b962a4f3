"""Tasksets of verifiers (v1): their prompts, their tools (called in this process), and their own rewards.

A reward gets a trace of the conversation, as in the package. Tasks that need a container, a runtime or a judge model
are refused by name when the run starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice
from random import Random
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, WithJsonSchema, create_model

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, boundary
from turnwise.core.packages import require_package
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.types import Message, Reward, RewardPart, Scored, StopReason, Task, ToolSpec
from turnwise.environments.arguments import FamilyArguments, check_index, choose_policy, read_arguments
from turnwise.environments.replies import answer_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.tools.tool import Tool
from turnwise_adapters.traces import build_trace, check_row, read_prompt


class VerifiersArguments(FamilyArguments):
    """Which taskset, and how its rows are split."""

    taskset: str
    """Id of the taskset: an importable module that exports one `Taskset` in `__all__`."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Fields of the taskset's own config."""
    max_tasks: int = Field(10_000, ge=2, le=10_000_000)
    """Most rows that are read; a taskset may be endless."""
    heldout_every: int = Field(4, ge=2)
    """Every row whose index is a multiple of this is held out."""


class VerifiersEnvironment(ToolEnvironment):
    """One task. Parts of the reward: `success`, the task's rewards by name, each unweighted, and its metrics."""

    def __init__(self, row: Any, toolsets: Sequence[Any], **limits: Any) -> None:
        """`row` is a task of the package; `toolsets` serve only this episode."""
        super().__init__(**limits)
        self._row = row
        self._toolsets = toolsets
        self._seen: list[Message] = []

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt and the tools, which keep the package's names."""
        from verifiers.v1.utils.decorators import discover_decorated

        for toolset in self._toolsets:
            await toolset.setup()
            await toolset.setup_task(self._row.data)
            for function in discover_decorated(toolset, "tool"):
                tool = build_tool(function, toolset.server_name)
                self._tools[tool.spec.name] = tool
        return task.prompt, ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Let the task score a trace of the prompt, the replies and the tools' answers."""
        trace = build_trace(self._row, replies, {r.call.id: r.observation for r in self.tool_records})
        if self._toolsets:
            trace.state = self._toolsets[-1].state
        with boundary(EnvironmentFault, f"scoring task {self._row.data.idx}"):
            await self._row.score(trace)
        rewards = {name: reward for name, reward in trace.rewards.items() if reward is not None}
        total = float(sum(reward.value for reward in rewards.values()))
        largest = sum(reward.weight for reward in rewards.values() if reward.weight > 0)
        values = {name: float(reward.score) for name, reward in rewards.items()}
        values |= {name: float(value) for name, value in trace.metrics.items() if value is not None}
        values.setdefault("success", float(total >= largest > 0))
        return Scored(total=total, parts=tuple(RewardPart(name=name, value=value) for name, value in values.items()))


def build_tool(function: Callable[..., object], server: str) -> Tool:
    """Convert a function of a toolset to a tool. As in the package's server, arguments are converted by its
    annotations: an object to a pydantic model, a text to a date. Refusals are reported to the model."""
    arguments_of = _read_signature(function)
    spec = _describe(function, server, arguments_of)

    @wraps(function)
    def call(**arguments: Any) -> object:
        try:
            read = arguments_of.model_validate(arguments)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise ToolFailure(f"{where} of {spec.name}: {problem['msg']}") from None
        return function(**{str(field.alias): getattr(read, name) for name, field in arguments_of.model_fields.items()})

    return Tool(spec=spec, function=call)


def _read_signature(function: Callable[..., object]) -> type[BaseModel]:
    """Build a pydantic model of a call's arguments. Its fields have generated names, so that no parameter hides a
    method of pydantic, and the parameters' names as aliases."""
    fields: dict[str, Any] = {}
    for place, parameter in enumerate(inspect.signature(function, eval_str=True).parameters.values()):
        is_bare, needed = parameter.annotation is parameter.empty, parameter.default is parameter.empty
        schema = [WithJsonSchema({"title": parameter.name, "type": "string"})] if is_bare else []
        annotation: Any = Annotated[(Any if is_bare else parameter.annotation, *schema, Field(alias=parameter.name))]
        fields[f"argument_{place}"] = (annotation, ... if needed else parameter.default)
    model: type[BaseModel] = create_model("Arguments", __config__=ConfigDict(arbitrary_types_allowed=True), **fields)
    return model


def _describe(function: Callable[..., object], server: str, arguments_of: type[BaseModel]) -> ToolSpec:
    """Return what the model is told: the name prefixed with the server's, the docstring, and a schema from the type
    hints."""
    schema = arguments_of.model_json_schema(by_alias=True)
    parameters = {"type": "object", "properties": schema.get("properties", {}), "required": schema.get("required", [])}
    if "$defs" in schema:
        parameters["$defs"] = schema["$defs"]  # targets of references in the properties
    name = getattr(function, "tool_name", None) or function.__name__
    description = inspect.getdoc(function) or name
    return ToolSpec(name=f"{server}_{name}" if server else name, description=description, parameters=parameters)


class Verifiers:
    """Implements `EnvironmentFamily`. There is no oracle: a taskset defines how to judge, not what to say."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `VerifiersArguments`. Raises ConfigError."""
        self._chosen = chosen = read_arguments(VerifiersArguments, arguments)
        require_package("verifiers", "0.4", "verifiers")
        from verifiers.v1.utils.loaders import taskset_class, taskset_config_type

        with boundary(ConfigError, f"verifiers cannot load the taskset {chosen.taskset!r}"):
            config = taskset_config_type(chosen.taskset)(id=chosen.taskset, **chosen.config)
            self._taskset = taskset_class(chosen.taskset)(config)
            rows = list(islice(self._taskset, chosen.max_tasks))
        held = rows[:: chosen.heldout_every]
        train = [row for at, row in enumerate(rows) if at % chosen.heldout_every]
        self._rows: dict[Split, list[Any]] = {"train": train, "heldout": held}
        for row in rows[:1]:
            check_row(row)

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of a split; "train" starts over after its last row, "heldout" ends with
        IndexError."""
        check_index(split, index)
        rows = self._rows[split]
        if not rows or (split == "heldout" and index >= len(rows)):
            raise IndexError(
                f"task {index} of split {split!r} does not exist: taskset {self._chosen.taskset!r} has {len(rows)} "
                "tasks"
            )
        place = index % len(rows)
        payload = {"kind": self._chosen.taskset, "split": split, "row": place}
        return Task(environment="verifiers", prompt=read_prompt(rows[place]), payload=payload)

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use environment with its own tool servers."""
        row = self._rows[task.payload["split"]][task.payload["row"]]
        toolsets = [*type(self._taskset).toolsets(self._taskset.config), *type(row).toolsets(row.config)]
        limits = {"tool_timeout_s": self._chosen.tool_timeout_s}
        return VerifiersEnvironment(row, toolsets, max_observation_chars=self._chosen.max_observation_chars, **limits)

    def policy(self, name: str) -> ScriptedPolicy:
        """Return the policy "random", which answers with a word of the prompt. Raises ConfigError for other names."""
        return choose_policy(name, {"random": _Parrot()})

    def texts(self, count: int) -> list[str]:
        """Return `count` prompts of training tasks."""
        return ["\n".join(message.text for message in self.task("train", at).prompt) for at in range(count)]


class _Parrot:
    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return answer_message(rng.choice(task.prompt[-1].text.split() or ["0"]))
