"""The vLLM processes of one engine: how each is started, told of new weights, and made to prove them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import EngineError, EngineRefusal
from turnwise.engines.canary import Canary
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.programs import start_program
from turnwise.hosts.host import Host, Program
from turnwise.models.checksums import find_difference
from turnwise.models.staging import Staged

GUEST = Path(__file__).parent / "guest" / "turnwise_vllm.py"
REMEDY = "use engine.kind='paged', which samples what the trainer computes"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables of the environment that vLLM sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What processes sample from."""

    staged: Staged
    canary: Canary
    """What the trainer's model says with them."""
    version: int


@dataclass(slots=True, kw_only=True)
class Guests:
    """What processes are started with, and the weights that they sample from."""

    model: str
    """The class of the model, for errors."""
    python: Path
    settings: Mapping[str, Any]
    """What the guest reads first, without folders and `version`."""
    logs: Path
    """A folder for what vLLM prints."""
    num_threads: int
    start_s: float
    silence_s: float
    host: Host
    base: Staged | None = None
    """What the staged adapter is for; None before it was staged, and where versions are whole models."""
    reloads: bool | None = None
    """Whether a process that runs takes every weight of a new version; None before it was tried."""
    weights: Weights | None = None
    """None before the first request and the first version."""

    async def start(self, name: str) -> Link:
        """A process on the staged weights. Raises EngineRefusal where vLLM does not sample the model, EngineError where
        the process cannot start, read others, or its canary is wrong.

        The first one is started on weights of no meaning and takes the staged ones as it would a new version: what it
        then computes as it was would show in its canary. If it does, every version starts the processes anew, because
        a step of a trainer may move the canary by less than its bound."""
        assert self.weights is not None
        weights = self.weights
        if self.base is None and self.reloads is None:
            link = await self._start(name, weights, is_blank=True)
            try:
                weights = self.weights
                await self.commit(link)
                self.reloads = True
            except EngineError as error:
                if not link.is_open:
                    raise
                link.end(f"was ended: it does not take new weights: {error}")
                self.reloads = False
            else:
                return await self._settle(link, weights)
            weights = self.weights
        return await self._settle(await self._start(name, weights, is_blank=False), weights)

    async def _start(self, name: str, weights: Weights, *, is_blank: bool) -> Link:
        """A process on these weights, or on ones of no meaning."""
        folders = {"folder": weights.staged.folder}
        if self.base is not None:
            folders = {"folder": self.base.folder, "adapter": weights.staged.folder}
        program = Program(
            name=name,
            arguments=(str(self.python), str(GUEST)),
            environment={
                "OMP_NUM_THREADS": str(self.num_threads),
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "VLLM_NO_USAGE_STATS": "1",
                "HF_HUB_OFFLINE": "1",
            },
            inherits=KEPT,
            log=self.logs / f"{name.replace(' ', '-')}.log",
        )
        try:
            return await start_program(
                self.host,
                program,
                {**self.settings, "version": weights.version, "is_blank": is_blank},
                folders=folders,
                start_s=self.start_s,
                silence_s=self.silence_s,
            )
        except EngineRefusal as error:
            raise EngineRefusal(f"vLLM does not sample {self.model}: {error}; {REMEDY}") from error

    async def _settle(self, link: Link, weights: Weights) -> Link:
        """The process when it has proved the weights that it holds, or the ones that came meanwhile."""
        try:
            for staged in (weights.staged,) if self.base is None else (self.base, weights.staged):
                check_sums(link, staged, await link.ask("sum", folder=str(await link.carry(staged.folder))))
            try:
                await _check_canary(link, weights.canary)
            except EngineError as error:
                raise EngineRefusal(f"vLLM does not sample {self.model} as it is: {error}; {REMEDY}") from error
            while self.weights is not weights:  # a version was adopted meanwhile, without this process
                weights = self.weights
                folder = str(await link.carry(weights.staged.folder))
                check_sums(link, weights.staged, await link.ask("stage", folder=folder))
                await self.commit(link)
        except EngineError:
            link.end("was ended: it does not compute with the weights that it was given")
            raise
        return link

    async def commit(self, link: Link, *, carries: bool = True) -> None:
        """Let a process load what is staged. Raises EngineError where it fails, or its canary is wrong.

        `carries` takes the files to where it runs; else it was sent what they hold, under the name of their folder."""
        assert self.weights is not None
        if self.reloads is False:
            raise EngineError(f"a process of vLLM that runs does not take all new weights of {self.model}")
        weights = self.weights
        folder = await link.carry(weights.staged.folder) if carries else weights.staged.folder
        await link.ask("adopt", version=weights.version, folder=str(folder))
        await _check_canary(link, weights.canary)


async def _check_canary(link: Link, canary: Canary) -> None:
    canary.check_scores(await link.ask("score", token_ids=list(canary.token_ids)), link.name)


def check_sums(link: Link, staged: Staged, sums: Mapping[str, int]) -> None:
    """Raise EngineError naming the first tensor of which a process has another checksum than was staged."""
    tensor = find_difference(staged.file_sums, sums)
    if tensor is not None:
        raise EngineError(f"{link.name} read another {tensor} than the trainer wrote")
