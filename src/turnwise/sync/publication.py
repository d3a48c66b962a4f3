"""What every kind of publication shares: engines stop, adopt a version, prove what they hold, and continue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from turnwise.core.batch import Receipt
from turnwise.core.errors import EngineError, boundary
from turnwise.core.protocols import Interrupt, WeightTarget
from turnwise.models.checksums import find_difference

T = TypeVar("T")


def check_receipt(receipt: Receipt, sums: Mapping[str, int], version: int) -> None:
    """Raise EngineError unless the engines hold `version` with the trainer's checksums `sums`, naming the first tensor
    that differs."""
    if receipt.version != version:
        raise EngineError(f"the engines acknowledged version {receipt.version}, but the trainer published {version}")
    name = find_difference(sums, receipt.sums)
    if name is None:
        return
    if name not in receipt.sums:
        raise EngineError(f"the engines have no tensor {name} in version {version}")
    if name not in sums:
        raise EngineError(f"the engines have {name} in version {version}, a tensor that the trainer does not have")
    raise EngineError(f"the values of {name} in version {version} differ between the engines and the trainer")


class EngineGroup:
    """The engines of one run."""

    def __init__(self, engines: Mapping[str, WeightTarget], *, deadline_s: float) -> None:
        """`engines` by their names in error messages; `deadline_s` for each answer of all of them."""
        if not engines:
            raise ValueError("no engine to publish weights to; pass at least one")
        self._engines = dict(engines)
        self._deadline_s = deadline_s

    async def pause(self, interrupt: Interrupt, version: int) -> int:
        """Stop every engine. Returns the number of sampled tokens thrown away. After an error all engines continue."""
        try:
            return sum((await self._ask("stop for", version, lambda engine: engine.pause(interrupt))).values())
        except BaseException:
            with contextlib.suppress(EngineError):
                await self.resume(version)
            raise

    async def adopt(self, version: int) -> Mapping[str, int]:
        """Return the checksums on which all engines agree. Raises EngineError if one serves another version or other
        weights."""
        answers = await self._ask("adopt", version, lambda engine: engine.adopt(version))
        first_name, first = next(iter(answers.items()))
        for name, sums in answers.items():
            serves = self._engines[name].version
            if serves != version:
                raise EngineError(f"engine {name!r} serves version {serves} after being told to adopt {version}")
            tensor = find_difference(first, sums)
            if tensor is not None:
                raise EngineError(f"engines {name!r} and {first_name!r} differ in {tensor} in version {version}")
        return first

    async def resume(self, version: int) -> None:
        """Let every engine continue."""
        await self._ask("go on with", version, lambda engine: engine.resume())

    async def _ask(self, what: str, version: int, question: Callable[[WeightTarget], Awaitable[T]]) -> dict[str, T]:
        """Return the answer of every engine, by name."""

        async def ask(name: str, engine: WeightTarget) -> T:
            message = f"engine {name!r} cannot {what} version {version}"
            try:
                with boundary(EngineError, type(engine).__name__):
                    return await question(engine)
            except EngineError as error:
                raise EngineError(f"{message}: {error}") from error

        tasks = {name: asyncio.create_task(ask(name, engine)) for name, engine in self._engines.items()}
        try:
            _, late = await asyncio.wait(tasks.values(), timeout=self._deadline_s)
        finally:
            for task in tasks.values():
                task.cancel()
        for name, task in tasks.items():
            if task in late:
                raise EngineError(f"engine {name!r} did not {what} version {version} within {self._deadline_s:g} s")
            if (error := task.exception()) is not None:
                raise error
        return {name: task.result() for name, task in tasks.items()}
