"""vLLM in processes of its own interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions, Footprint, read_count
from turnwise.config.lora import VLLM_RANKS
from turnwise.core.errors import ConfigError

CHECKOUT = Path(__file__).parents[4]
"""The folder that holds `src`, where Turnwise is installed from a checkout."""


class VllmOptions(EngineOptions):
    """Options of engine.kind = "vllm"."""

    python: str = Field("", validate_default=True)
    """Interpreter with vLLM installed. Empty means the one named by the environment variable TURNWISE_VLLM, else the
    one that `make vllm` creates in Turnwise's checkout, `.venv-vllm/bin/python`, whatever the current folder."""
    num_workers: int = Field(1, ge=1)
    """Processes, each with `engine.num_threads` threads and its share of `engine.max_concurrency`."""
    cache_mib: int = Field(512, ge=1)
    """Memory per process for keys and values, in MiB."""
    block_size: int = Field(32, ge=1)
    """Tokens per cache block; prefixes are reused in whole blocks. On a CPU a multiple of 32."""
    staging: str | None = None
    """Folder to write weights to for the processes; None is shared memory."""
    transport: Literal["files", "broadcast"] = "files"
    """How running processes receive a new version: they read these files, or all receive it at once over gloo, which
    needs no shared folder. The files remain for processes that start later."""

    @field_validator("python")
    @classmethod
    def _find_python(cls, value: str) -> str:
        named = value or os.environ.get("TURNWISE_VLLM", "") or str(CHECKOUT / ".venv-vllm" / "bin" / "python")
        return str(Path(named).expanduser().absolute())

    def check(self, *, device: str, num_threads: int) -> None:
        """The interpreter must be there, and threads counted: vLLM's wait by spinning."""
        if not Path(self.python).is_file():
            raise ConfigError(
                f"engine.options.python={self.python!r} is not an interpreter; create one with vLLM (`make vllm` "
                f"creates {str(CHECKOUT / '.venv-vllm')!r}), or name one in the environment variable TURNWISE_VLLM"
            )
        if num_threads < 1:
            raise ConfigError("engine.kind='vllm' with engine.num_threads=0: set a number, because vLLM's threads spin")


def predict_guests(options: Mapping[str, Any]) -> Footprint:
    """The footprint of its processes, each with weights and a cache."""
    return Footprint(
        num_guests=read_count(options.get("num_workers"), 1),
        guest_cache_bytes=read_count(options.get("cache_mib"), 512) << 20,
        is_staged=options.get("staging") is None,
    )


VLLM = EngineKind(
    name="vllm",
    options=VllmOptions,
    records_experts=False,
    follows_grammars=False,
    reads_images=True,
    max_adapter_rank=VLLM_RANKS[-1],
    has_weights_outside=True,
    predict=predict_guests,
)
