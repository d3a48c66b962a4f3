"""One episode of a plain class: its methods are the tools, its state determines the reward."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from PIL import Image

from turnwise.core.errors import ConfigError, EnvironmentFault, PictureError, ToolFailure, boundary
from turnwise.core.holding import named
from turnwise.core.messages import ImagePart, show_digest
from turnwise.core.returned import read_truth
from turnwise.core.threads import run_method
from turnwise.core.types import Message, Reward, StopReason, Task, ToolCall, ToolRecord
from turnwise.environments.classes.contract import Contract, read_messages, read_next
from turnwise.environments.classes.rows import PROMPT
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.pictures.pixels import to_pixels
from turnwise.pictures.rows import RowPictures, from_plain
from turnwise.rewards.guard import score_guarded
from turnwise.tools.text import clip, to_text


class ClassEnvironment(ToolEnvironment):
    """Plays one episode on its own object.

    The object is made, played, scored and closed in one thread, so it may hold objects bound to a thread (an SQLite
    connection, a browser); its `async` methods run on the event loop.

    Exceptions of a method are reported to the model, as in TRL, and recorded as the call's error. A method that exceeds
    `tool_timeout_s` makes the trajectory Invalid, and so does a reward that is missing or not a finite number.
    """

    def __init__(
        self, contract: Contract, pictures: RowPictures, *, tool_timeout_s: float, max_observation_chars: int
    ) -> None:
        """`pictures` are those of the family's rows; `tool_timeout_s` also limits the constructor, `reset`,
        `get_reward` and `_close`."""
        super().__init__(tool_timeout_s=tool_timeout_s, max_observation_chars=max_observation_chars)
        self._contract = contract
        self._pictures = pictures
        self._played: Any = None

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Build the object and open it with the task's row, whose pictures are Pillow images. The seed comes with the
        row and identifies the task; the argument `seed` is not used."""
        contract = self._contract
        if "question" in task.payload:  # set by `turnwise ask`, which changes a task's words
            raise EnvironmentFault(
                f"{contract.name} starts with what reset returns and cannot be asked another question"
            )
        self._played = await self._run(contract.build, f"{contract.name}()")
        row = from_plain(task.payload["row"], PROMPT, self._show)
        observation = await self._run(lambda: self._played.reset(**row), f"{contract.name}.reset")
        if not contract.has_reward and not hasattr(self._played, "reward"):
            raise ConfigError(
                f"class {contract.name} has neither a method get_reward nor, after reset, an attribute reward; "
                "define get_reward(self) -> float"
            )
        prompt = from_plain(task.payload["row"], PROMPT, self._pictures.find).get(PROMPT)
        messages = read_messages(prompt, observation, contract.name)
        if messages[-1].role == "assistant":
            raise EnvironmentFault(
                f"{contract.name} starts with a message from the assistant, but the model has to reply to it; end "
                "prompt, or what reset returns, with a user message"
            )
        return messages, [getattr(self._played, name) for name in contract.tools]

    def _show(self, part: ImagePart) -> Image.Image:
        """Return a picture of the row. Raises EnvironmentFault if none of the family's rows has it."""
        found = self._pictures.find(part)
        if found.pixels is None:
            raise EnvironmentFault(
                f"picture {show_digest(part.digest)} of the task is in no row of {self._contract.name}; play it with "
                "the rows that it was made from"
            )
        return Image.fromarray(to_pixels(found))

    async def _call(self, call: ToolCall) -> ToolRecord:
        try:
            record = await super()._call(call)
        except EnvironmentFault as fault:
            cause = fault.__cause__
            raised = to_text(f"{type(cause).__name__}: {cause}")
            # By convention, a ValueError is the model's mistake; a picture that cannot be read is the method's.
            is_told = isinstance(cause, ValueError) and not isinstance(cause, PictureError)
            observation, cut = clip(f"error: {to_text(str(cause)) if is_told else raised}", self._max_observation_chars)
            record = ToolRecord(
                call=call,
                observation=observation,
                error=observation,
                seconds=0.0,
                clipped_chars=cut,
                exception=None if is_told else clip(raised, self._max_observation_chars)[0],
            )
        done = getattr(self._played, "done", None)  # a method of that name is a tool
        self.done = done is not None and not callable(done) and read_truth(done, f"{self._contract.name}.done")
        return record

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the result of `get_reward`, or the attribute `reward`: a number, or a dict with "reward" and its
        parts."""
        name = f"{self._contract.name}.{'get_reward()' if self._contract.has_reward else 'reward'}"
        if self._contract.asks_judges:  # every judge has a deadline of its own
            return await score_guarded(partial(self._played.get_reward, judges=self.judges), None, where=name)
        read = self._played.get_reward if self._contract.has_reward else self._read_attribute
        return await score_guarded(read, self._tool_timeout_s, where=name, thread=self.thread)

    def _read_attribute(self) -> Any:
        return self._played.reward

    async def ask_oracle(self) -> tuple[str, dict[str, Any]] | str:
        """Return the next step that this episode's `_oracle` considers right. Raises EnvironmentFault if it cannot
        say."""
        step = await self._run(lambda: self._played._oracle(), f"{self._contract.name}._oracle")
        return read_next(step, self._contract)

    async def teardown(self) -> None:
        """Let `_close` free what the object holds, and drop the object in its own thread."""
        if self._played is None or self.thread.is_busy:  # a method that hangs was abandoned
            return
        if self._contract.has_close:
            await self._run(self._played._close, f"{self._contract.name}._close")
        await self.thread.run(self._let_go)

    def _let_go(self) -> None:
        self._tools.clear()
        self._played = None

    async def _run(self, method: Callable[[], Any], name: str) -> Any:
        """Return a method's result. Raises EnvironmentFault naming the method if it raises or exceeds its time."""
        timeout_s = self._tool_timeout_s
        deadline = asyncio.timeout(timeout_s)
        try:
            with boundary(EnvironmentFault, f"{name} failed"):
                async with deadline:
                    return await named(name, run_method(method, thread=self.thread))
        except ToolFailure as failure:  # reported to a model, where there is one
            raise EnvironmentFault(f"{name} failed: {failure}") from failure
        except EnvironmentFault as fault:
            if not deadline.expired():
                raise
            raise EnvironmentFault(
                f"{name} ran longer than {timeout_s:g} s; make it faster or raise environment.tool_timeout_s"
            ) from fault
