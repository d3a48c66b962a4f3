"""The vLLM processes of one engine: starts them, sends them new weights, and verifies what they hold."""

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
REMEDY = "use engine.kind='paged', which computes exactly what the trainer does"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Environment variables that vLLM sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights from which processes sample."""

    staged: Staged
    canary: Canary
    """The canary as scored by the trainer's model with these weights."""
    version: int
    seen: tuple[Canary, Mapping[str, Any]] | None = None
    """The canary with pictures, and its prompt as vLLM's processor takes it; None for a model that reads text."""


@dataclass(slots=True, kw_only=True)
class Guests:
    """The settings with which processes start, and the weights from which they sample."""

    model: str
    """Class name of the model, for error messages."""
    python: Path
    settings: Mapping[str, Any]
    """Settings that the guest reads first, without folders and `version`."""
    logs: Path
    """A folder for vLLM's output."""
    num_threads: int
    start_s: float
    silence_s: float
    host: Host
    base: Staged | None = None
    """The staged base of an adapter; None before it is staged, and if versions are whole models."""
    reloads: bool | None = None
    """Whether a running process takes over every weight of a new version; None before this was tried."""
    weights: Weights | None = None
    """The present weights; None before the first request and the first version."""

    async def start(self, name: str) -> Link:
        """Start a process on the staged weights. Raises EngineRefusal if vLLM cannot sample the model, EngineError if
        the process cannot start, has read other weights, or its canary is wrong.

        The first one starts on meaningless weights and loads the staged ones as it would a new version: any weight that
        keeps its old value shows in the canary. If one does, every version restarts the processes, because a trainer's
        step may move the canary by less than its bound."""
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
                link.end(f"was stopped: it cannot load new weights: {error}")
                self.reloads = False
            else:
                return await self._settle(name, link, weights)
            weights = self.weights
        return await self._settle(name, await self._start(name, weights, is_blank=False), weights)

    async def _start(self, name: str, weights: Weights, *, is_blank: bool) -> Link:
        """Start a process on these weights, or on meaningless ones."""
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
            raise EngineRefusal(f"vLLM cannot sample {self.model}: {error}; {REMEDY}") from error

    async def _settle(self, name: str, link: Link, weights: Weights) -> Link:
        """Return the process once it has verified the weights that it holds, or newer ones that arrived meanwhile."""
        try:
            for staged in (weights.staged,) if self.base is None else (self.base, weights.staged):
                check_sums(link, staged, await link.ask("sum", folder=str(await link.carry(staged.folder))))
            try:
                await _check_canaries(link, weights)
            except EngineError as error:
                raise EngineRefusal(
                    f"vLLM cannot sample {self.model} in its own implementation: {error}; {REMEDY}"
                ) from error
            # A version may have been adopted meanwhile without this process.
            while self.weights is not None and self.weights is not weights:
                if self.reloads is False:
                    link.end("was stopped: newer weights arrived while it was starting")
                    return await self.start(name)
                weights = self.weights
                folder = str(await link.carry(weights.staged.folder))
                check_sums(link, weights.staged, await link.ask("stage", folder=folder))
                await self.commit(link)
        except EngineError:
            link.end("was stopped: it does not compute with the weights that it was given")
            raise
        return link

    async def commit(self, link: Link, *, carries: bool = True) -> None:
        """Let a process load the staged weights. Raises EngineError if it fails or its canary is wrong.

        With `carries` the files are copied to where it runs; otherwise it has already received their content, under the
        name of their folder."""
        assert self.weights is not None
        if self.reloads is False:
            raise EngineError(f"a running vLLM process cannot load all new weights of {self.model}")
        weights = self.weights
        folder = await link.carry(weights.staged.folder) if carries else weights.staged.folder
        await link.ask("adopt", version=weights.version, folder=str(folder))
        await _check_canaries(link, weights)


async def _check_canaries(link: Link, weights: Weights) -> None:
    for canary, shown in ((weights.canary, None), *(() if weights.seen is None else (weights.seen,))):
        canary.check_scores(await link.ask("score", token_ids=list(canary.token_ids), shown=shown), link.name)


def check_sums(link: Link, staged: Staged, sums: Mapping[str, int]) -> None:
    """Raise EngineError naming the first tensor whose checksum in a process differs from the staged one."""
    tensor = find_difference(staged.file_sums, sums)
    if tensor is not None:
        raise EngineError(f"{link.name} read {tensor} with other values than the trainer wrote")
