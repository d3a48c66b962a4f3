"""Environments with little code: methods decorated with `tool` are the tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import MethodType
from typing import TypeVar

from turnwise.core.types import Message, Task
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.tools.tool import to_tool

Function = TypeVar("Function", bound=Callable[..., object])
_MARK = "_turnwise_tool"


def tool(function: Function) -> Function:
    """Mark a method of an `Environment` as a tool, or check a function that `setup` will return; returns it unchanged.

    Raises ConfigError at once if type hints or the docstring's `Args:` are missing, instead of when a run starts.
    """
    is_method = next(iter(inspect.signature(function).parameters), "") == "self"
    to_tool(MethodType(function, object()) if is_method else function)
    setattr(function, _MARK, True)
    return function


class Environment(ToolEnvironment):
    """A `ToolEnvironment` whose tools are its methods decorated with `tool`: define `score`, and `setup` if it keeps
    state.

    Your own `setup` ends with `return await super().setup(task, seed)`, or returns messages and tools itself.
    """

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """The task's prompt, and the methods decorated with `tool`, in the order of the class."""
        names = dict.fromkeys(name for kind in reversed(type(self).__mro__) for name in vars(kind))
        marked = [name for name in names if getattr(inspect.getattr_static(self, name, None), _MARK, False)]
        return task.prompt, [getattr(self, name) for name in marked]
