"""Engines that sample from the trainer's very parameters: nothing is copied, and nothing may be sampled during a
step."""

from __future__ import annotations

import time
from collections.abc import Mapping

from turnwise.core.batch import Receipt
from turnwise.core.protocols import Interrupt, WeightTarget
from turnwise.sync.publication import EngineGroup


class SharedParameters:
    """Implements `core.protocols.WeightSync`.

    The parameters change in place during the trainer's step. So take a step only while no request is open, or between
    `hold` and `publish`.
    """

    def __init__(
        self, engines: Mapping[str, WeightTarget], *, interrupt: Interrupt = "finish", deadline_s: float = 600.0
    ) -> None:
        """`engines` by their names in error messages. `interrupt` says what `hold` does to unfinished replies;
        `deadline_s` bounds each wait for the engines' answers."""
        self._engines = EngineGroup(engines, deadline_s=deadline_s)
        self._interrupt = interrupt
        self._version = 0
        self._num_restarted = 0
        self._is_held = False

    async def hold(self) -> None:
        """Stop sampling before the trainer's step. Raises EngineError if an engine does not stop; then all continue."""
        if not self._is_held:
            self._num_restarted += await self._engines.pause(self._interrupt, self._version)
            self._is_held = True

    async def let_go(self) -> None:
        """Continue sampling after a step that left the weights unchanged."""
        if self._is_held:
            self._is_held = False
            await self._engines.resume(self._version)

    async def publish(self, version: int) -> Receipt:
        """See `WeightSync.publish`. Without `hold`, raises EngineError if requests are open: some of their tokens may
        have been sampled from half-changed weights. After an error, held engines stay held."""
        began = time.monotonic()
        sums = await self._engines.adopt(version)
        self._version = version
        await self.let_go()
        num_restarted, self._num_restarted = self._num_restarted, 0
        return Receipt(version=version, sums=sums, seconds=time.monotonic() - began, num_restarted=num_restarted)
