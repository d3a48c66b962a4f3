"""The vLLM processes of one engine: how each is started, told of new weights, and made to prove them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import EngineError
from turnwise.engines.canary import Canary
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.programs import start_program
from turnwise.hosts.host import Host, Program
from turnwise.models.checksums import find_difference
from turnwise.models.staging import Staged

GUEST = Path(__file__).parent / "guest" / "turnwise_vllm.py"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables of the environment that vLLM sees."""


@dataclass(slots=True, kw_only=True)
class Guests:
    """What processes are started with, and the weights that they sample from."""

    python: Path
    settings: Mapping[str, Any]
    """What the guest reads first, without folders and `version`."""
    logs: Path
    """A folder for what vLLM prints."""
    num_threads: int
    start_s: float
    silence_s: float
    host: Host
    carries: bool = True
    """Whether a new version's files are taken to where processes run; else they were sent what the files hold."""
    base: Staged | None = None
    """What the staged adapter is for; None before it was staged, and where versions are whole models."""
    staged: Staged | None = None
    """None before the first request and the first version."""
    canary: Canary | None = None
    """What the trainer's model says with the staged weights."""
    version: int = 0

    async def start(self, name: str) -> Link:
        """A process on the staged weights. Raises EngineError where it cannot start, read others, or its canary is
        wrong."""
        assert self.staged is not None
        folders = {"folder": self.staged.folder}
        if self.base is not None:
            folders = {"folder": self.base.folder, "adapter": self.staged.folder}
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
        link = await start_program(
            self.host,
            program,
            {**self.settings, "version": self.version},
            folders=folders,
            start_s=self.start_s,
            silence_s=self.silence_s,
        )
        try:
            for staged in (self.base, self.staged) if self.base is not None else ():
                check_sums(link, staged, await link.ask("sum", folder=str(await link.carry(staged.folder))))
            await self._check_canary(link)
        except EngineError:
            link.end("was ended: it computes with other weights than it was given")
            raise
        return link

    async def commit(self, link: Link) -> None:
        """Let a process load what is staged. Raises EngineError where it fails, or its canary is wrong."""
        assert self.staged is not None
        folder = await link.carry(self.staged.folder) if self.carries else self.staged.folder
        await link.ask("adopt", version=self.version, folder=str(folder))
        await self._check_canary(link)

    async def _check_canary(self, link: Link) -> None:
        assert self.canary is not None
        self.canary.check_scores(await link.ask("score", token_ids=list(self.canary.token_ids)), link.name)


def check_sums(link: Link, staged: Staged, sums: Mapping[str, int]) -> None:
    """Raise EngineError naming the first tensor of which a process has another checksum than was staged."""
    tensor = find_difference(staged.file_sums, sums)
    if tensor is not None:
        raise EngineError(f"{link.name} read another {tensor} than the trainer wrote")
