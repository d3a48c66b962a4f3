"""The contract between a plain class and its environment, read from the class: that of TRL's `environment_factory`.

    reset(**row)        opens an episode; returns the first observation (text, a picture, parts of both, messages) or
                        None
    public methods      are tools, except `reset` and `get_reward`; they return text, a picture, a list of both, or JSON
    get_reward()        the reward, or {"reward": ..., its parts by name}; without it the attribute `reward` after the
                        last call. `async get_reward(judges)` may ask the run's judges (`core.judging.EpisodeJudges`)
    done                attribute; true ends the episode
    _oracle()           the right thing to do next: ("tool", {arguments}), or text that ends the episode
    _close()            frees what the object took; called at the end, whatever happened

The last three, and `judges`, are Turnwise's additions. A name that starts with an underscore is not a tool, here and in
TRL.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

from turnwise.core.errors import ConfigError, EnvironmentFault, PictureError, boundary
from turnwise.core.messages import join_texts
from turnwise.core.types import Message, Part, TextPart, ToolSpec, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.pictures.read import is_picture, read_picture
from turnwise.tools.tool import to_tool

RESERVED = ("reset", "get_reward")
"""Public methods that are not tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The members that one class offers."""

    build: Callable[[], Any]
    """The class, called without arguments for every episode."""
    name: str
    tools: Mapping[str, ToolSpec]
    """The methods that are tools, by name in alphabetical order."""
    takes_seed: bool
    """Whether `reset` takes `seed`, by name or among `**row`."""
    has_reward: bool
    """Whether `get_reward` exists; otherwise the attribute `reward` is read."""
    asks_judges: bool
    """Whether `get_reward` takes `judges`, by which it asks them."""
    has_oracle: bool
    has_close: bool
    """Whether `_close` exists."""


def is_plain_class(thing: object) -> bool:
    """Return whether this is a class with `reset` that is neither a Turnwise environment nor a family."""
    is_ours = isinstance(thing, type) and issubclass(thing, ToolEnvironment)
    return isinstance(thing, type) and hasattr(thing, "reset") and not (is_ours or hasattr(thing, "build_environment"))


def read_contract(plain: type) -> Contract:
    """Read what the class offers. Raises ConfigError if it has no tool, or its constructor or `reset` cannot be
    called."""
    functions = [name for name, _ in inspect.getmembers(plain, predicate=_is_method)]
    tools = {name: _read_spec(plain, name) for name in functions if name not in RESERVED and name[0] != "_"}
    if "reset" not in functions:
        raise ConfigError(f"class {plain.__name__} has no method reset; define reset(self, **row)")
    if not tools:
        raise ConfigError(
            f"class {plain.__name__} has no tool; add a public method with type hints and a Google-style docstring"
        )
    _check_constructor(plain)
    asks_judges = "get_reward" in functions and "judges" in inspect.signature(plain.get_reward).parameters  # type: ignore[attr-defined]
    if asks_judges and not inspect.iscoroutinefunction(plain.get_reward):  # type: ignore[attr-defined]
        raise ConfigError(
            f"class {plain.__name__}: get_reward takes judges, whose verdicts are awaited; write async def "
            "get_reward(self, judges)"
        )
    parameters = inspect.signature(plain.reset).parameters  # type: ignore[attr-defined]
    return Contract(
        build=plain,
        name=plain.__name__,
        tools=tools,
        takes_seed="seed" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()),
        has_reward="get_reward" in functions,
        asks_judges=asks_judges,
        has_oracle="_oracle" in functions,
        has_close="_close" in functions,
    )


def _is_method(member: object) -> bool:
    """Return whether a class's attribute is a method of any kind, including class methods and decorated ones."""
    is_wrapped = callable(member) and not isinstance(member, type) and hasattr(member, "__wrapped__")
    return inspect.isfunction(member) or inspect.ismethod(member) or is_wrapped


def _read_spec(plain: type, name: str) -> ToolSpec:
    """Return what the model is told about a method. Raises ConfigError naming class, method and what is missing."""
    function = getattr(plain, name)
    is_whole = isinstance(inspect.getattr_static(plain, name), staticmethod | classmethod)
    try:
        with boundary(ConfigError, f"class {plain.__name__}"):
            spec = to_tool(function if is_whole else MethodType(function, object())).spec
    except ConfigError as cause:
        raise ConfigError(
            f"class {plain.__name__}, method {name}: {cause} Start the name with an underscore if the method is not a "
            "tool"
        ) from None
    return spec


def _check_constructor(plain: type) -> None:
    try:
        inspect.signature(plain).bind()
    except TypeError as cause:
        raise ConfigError(
            f"class {plain.__name__} cannot be built without arguments ({cause}); add defaults to its parameters, or "
            "make them columns of the rows and parameters of reset"
        ) from None
    except ValueError:
        pass  # a class written in C has no signature; problems appear when it is built


def check_row(contract: Contract, row: Mapping[str, Any]) -> None:
    """Raise ConfigError if `reset` does not accept the columns of a row, naming what is missing or unknown."""
    reset = contract.build.reset  # type: ignore[attr-defined]
    try:
        inspect.signature(reset).bind(None, **row)
    except TypeError as cause:
        raise ConfigError(
            f"{contract.name}.reset does not accept the columns {sorted(row) or 'of a row without any'} ({cause}); add "
            "them to the rows, or add these parameters or **row to reset"
        ) from None


def read_messages(prompt: object, observation: object, where: str) -> tuple[Message, ...]:
    """Read the first messages of an episode: those of the row's column "prompt", then what `reset` returned.

    As in TRL, returned text, and parts with pictures, are appended to the last message; after an assistant message they
    become a user message. Returned messages follow the prompt's. Raises EnvironmentFault if either is something else,
    or if there is nothing to see at all.
    """
    messages = [text_message("user", prompt)] if isinstance(prompt, str) else _read_list(prompt, f"prompt of {where}")
    if isinstance(observation, Sequence) and not isinstance(observation, str) and _have(observation, "role"):
        messages += _read_list(observation, f"{where}.reset")
    elif observation is not None:
        content = read_content(observation, f"{where}.reset")
        last = messages.pop() if messages and messages[-1].role != "assistant" else text_message("user", "")
        messages.append(Message(role=last.role, content=join_texts((*last.content, *content))))
    if not any(message.text or message.images for message in messages):
        raise EnvironmentFault(
            f"{where}.reset returned {observation!r:.100} and the row has no prompt, so the model would see no text; "
            'return the first observation, or add a column "prompt" to the rows'
        )
    return tuple(messages)


def _read_list(messages: object, where: str) -> list[Message]:
    if messages is None:
        return []
    roles = ("system", "user", "assistant")
    if not isinstance(messages, Sequence) or not _have(messages, "role", "content"):
        raise EnvironmentFault(f'{where} is {messages!r:.200}; use text, or messages {{"role", "content"}}')
    for message in messages:
        if message["role"] not in roles:
            raise EnvironmentFault(f"{where} has a message of role {message['role']!r}; use one of {', '.join(roles)}")
        if message.get("tool_calls"):
            raise EnvironmentFault(f"{where} has a message with tool calls, which it would lose; write them as text")
        if message["content"] is None:
            raise EnvironmentFault(f"{where} has a message without text; add content, or leave the message out")
    return [Message(role=message["role"], content=read_content(message["content"], where)) for message in messages]


def _have(items: Sequence[Any], *keys: str) -> bool:
    return bool(items) and all(isinstance(item, Mapping) and all(key in item for key in keys) for item in items)


def read_content(content: object, where: str) -> tuple[Part, ...]:
    """Return the parts of a message, adjacent texts joined: of a text, a picture, or a list of both, each as such or as
    a dict with "type". Raises EnvironmentFault for anything else."""
    if isinstance(content, str):
        return (TextPart(text=content),)
    items = list(content) if isinstance(content, list | tuple) else [content]
    parts: list[Part] = []
    for index, item in enumerate(items):
        if is_picture(item):
            try:
                parts.append(read_picture(item, where=f"{where}: part {index} of its content"))
            except PictureError as problem:
                raise EnvironmentFault(str(problem)) from problem
        elif isinstance(item, str) and isinstance(content, list | tuple):
            parts.append(TextPart(text=item))
        elif isinstance(item, Mapping) and item.get("type") == "text" and "text" in item:
            parts.append(TextPart(text=str(item["text"])))
        elif isinstance(item, Mapping) and "type" in item and isinstance(content, list | tuple):
            raise EnvironmentFault(f"{where} has a part of type {item['type']!s:.80}; use text and images")
        else:
            raise EnvironmentFault(
                f"{where} returned {content!r:.200}; return text, parts of text and images, messages, or None"
            )
    return join_texts(parts)


def read_next(step: object, contract: Contract) -> tuple[str, dict[str, Any]] | str:
    """Read what `_oracle` returned: a call, or the text that ends the episode. Raises EnvironmentFault for anything
    else."""
    if isinstance(step, str):
        return step
    match step:
        case (str(name), dict(arguments)) if name in contract.tools:
            return name, arguments
    raise EnvironmentFault(
        f'{contract.name}._oracle() returned {step!r:.200}; return ("{min(contract.tools)}", {{arguments}}), or text '
        f"that ends the episode; the tools are {', '.join(contract.tools)}"
    )
