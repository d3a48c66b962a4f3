"""The vLLM processes of one engine: how each is started, told of new weights, and made to prove them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.core.errors import EngineError
from turnwise.engines.vllm.launch import start_guest
from turnwise.engines.vllm.staging import Staged
from turnwise.engines.workers.link import Link

CANARY_BOUNDS = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.05}
"""Largest mean distance, in nats, between the two sides' log-probabilities of the canary, by dtype."""


@dataclass(slots=True, kw_only=True)
class Guests:
    """What processes are started with, and the weights that they sample from."""

    python: Path
    settings: Mapping[str, Any]
    """What the guest reads first, without `folder` and `version`."""
    logs: Path
    """A folder for what vLLM prints."""
    num_threads: int
    start_s: float
    silence_s: float
    staged: Staged | None = None
    """None before the first request and the first version."""
    version: int = 0

    async def start(self, name: str) -> Link:
        """A process on the staged weights. Raises EngineError where it cannot start, or its canary is wrong."""
        assert self.staged is not None
        link = await start_guest(
            name,
            python=self.python,
            settings={**self.settings, "folder": str(self.staged.folder), "version": self.version},
            log=self.logs / f"{name.replace(' ', '-')}.log",
            num_threads=self.num_threads,
            start_s=self.start_s,
            silence_s=self.silence_s,
        )
        try:
            await self._check_canary(link, self.staged)
        except EngineError:
            link.end("was ended: it computes with other weights than it was given")
            raise
        return link

    async def commit(self, link: Link) -> None:
        """Let a process load what is staged. Raises EngineError where it fails, or its canary is wrong."""
        assert self.staged is not None
        await link.ask("adopt", version=self.version, folder=str(self.staged.folder))
        await self._check_canary(link, self.staged)

    async def _check_canary(self, link: Link, staged: Staged) -> None:
        token_ids, expected = staged.canary
        scores = await link.ask("score", token_ids=list(token_ids))
        gap, bound = float(np.abs(np.asarray(scores) - np.asarray(expected)).mean()), CANARY_BOUNDS[staged.dtype]
        if not gap <= bound:
            raise EngineError(
                f"{link.name} scores the canary {gap:.2g} nats off on average, at most {bound:g} is rounding: it "
                "computes with other weights than it was given"
            )
