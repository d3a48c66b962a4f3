"""What each kind of engine can be told in `engine.options`, checked before a model is loaded."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError

CHECKOUT = Path(__file__).parents[3]
"""The folder that holds `src`, where Turnwise is installed from a checkout."""


class EngineOptions(Section):
    """Of any kind of engine."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Raise ConfigError for combinations that cannot work on `device`, "cpu" or "cuda"."""


class LocalOptions(EngineOptions):
    """Of engine.kind = "local"."""

    max_batch_tokens: int = Field(1024, ge=8)
    """Most tokens of one step; longer prompts are computed in chunks."""


class _PagedBase(LocalOptions):
    max_batch_tokens: int = Field(1024, ge=8)
    """Most tokens of one step; longer prompts are computed in chunks. On a CPU more only costs memory; a GPU wants 8192
    or so."""
    fused: bool = True
    """Packed weights where the model's family has them, a few millionths off the model's own modules; else the
    modules."""
    attention: Literal["gather", "flex"] = "gather"
    """"gather" copies the cache pages a step attends to; "flex" reads them in place with kernels that torch compiles
    for a GPU. On a CPU "flex" is slow. What is sampled is the same up to rounding."""
    max_draft_tokens: int = Field(0, ge=0, le=32)
    """Most tokens of a reply proposed at once from what the members of its group wrote; what is sampled stays the
    same."""


class PagedOptions(_PagedBase):
    """Of engine.kind = "paged"."""

    cuda_graphs: bool = False
    """With attention = "flex", fused = true and a GPU: steps that only decode are recorded once for every batch size
    and repeated, so that the GPU does not wait for Python; recorded anew when the weights change."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Graphs need "flex", packed weights and a GPU."""
        if self.cuda_graphs and (self.attention != "flex" or not self.fused):
            raise ConfigError(
                "engine.options.cuda_graphs=true records steps of attention='flex' and fused=true; here they are "
                f"{self.attention!r} and {str(self.fused).lower()}"
            )
        if self.cuda_graphs and device != "cuda":
            raise ConfigError(
                f"engine.options.cuda_graphs=true with a model on {device}: graphs are recorded on a GPU; use "
                "engine.options.cuda_graphs=false or model.device='cuda'"
            )


class WorkersOptions(_PagedBase):
    """Of engine.kind = "workers"."""

    num_workers: int = Field(2, ge=1)
    """Processes that sample, each on one thread and with its share of `engine.max_concurrency`; they read the weights
    from shared memory. What is sampled is what "paged" samples."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Workers are for the CPU and have one thread each."""
        if device != "cpu":
            raise ConfigError(
                f"engine.kind='workers' with a model on {device}: workers read the weights from memory that processes "
                "share, which is the CPU's; use engine.kind='paged' or model.device='cpu'"
            )
        if num_threads != 1:
            raise ConfigError(
                f"engine.kind='workers' with engine.num_threads={num_threads}: every worker has one thread; use "
                "engine.num_threads=1 and engine.options.num_workers"
            )


class VllmOptions(EngineOptions):
    """Of engine.kind = "vllm"."""

    python: str = Field("", validate_default=True)
    """The interpreter that has vLLM. Empty is what the environment variable TURNWISE_VLLM names, else the one that
    `make vllm` makes in the checkout of Turnwise, `.venv-vllm/bin/python`, whatever the current folder."""
    num_workers: int = Field(1, ge=1)
    """Processes, each with `engine.num_threads` threads and its share of `engine.max_concurrency`."""
    cache_mib: int = Field(512, ge=1)
    """Memory of each process for keys and values, in MiB."""
    block_size: int = Field(32, ge=1)
    """Tokens of a cache block; prefixes are found again in whole blocks. On a CPU a multiple of 32."""
    staging: str | None = None
    """Folder where weights are written for the processes to read; None is shared memory."""
    transport: Literal["files", "broadcast"] = "files"
    """How processes that run get a new version: they read these files, or are all sent it at once over gloo, which
    needs no folder that they share. The files remain for processes that start."""

    @field_validator("python")
    @classmethod
    def _find_python(cls, value: str) -> str:
        named = value or os.environ.get("TURNWISE_VLLM", "") or str(CHECKOUT / ".venv-vllm" / "bin" / "python")
        return str(Path(named).expanduser().absolute())

    def check(self, *, device: str, num_threads: int) -> None:
        """The interpreter must be there, and threads counted: vLLM's wait by spinning."""
        if not Path(self.python).is_file():
            raise ConfigError(
                f"engine.options.python={self.python!r} is no interpreter; make one with vLLM (`make vllm` makes "
                f"{str(CHECKOUT / '.venv-vllm')!r}), or name one by the environment variable TURNWISE_VLLM"
            )
        if num_threads < 1:
            raise ConfigError("engine.kind='vllm' with engine.num_threads=0: say how many, vLLM's threads spin")


class ServerOptions(EngineOptions):
    """Of engine.kind = "server"."""

    urls: list[str] = Field(min_length=1)
    """Of servers that run and are this run's alone: `http(s)://host:port`, or `unix:/path/of/socket`."""
    speaks: Literal["vllm", "sglang"] = "vllm"
    """What they are."""
    staging: str | None = None
    """Folder where weights are written, under one path for this process and the servers; None is shared memory of this
    machine."""
    timeout_s: float = Field(600.0, gt=0)
    """Most seconds that a server takes for one answer, and that a request waits for a server that is away."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Addresses must be some, each once."""
        for url in self.urls:
            if not url.startswith(("http://", "https://", "unix:/")) or "@" in url:
                raise ConfigError(
                    f"engine.options.urls has {url!r}; it must be http(s)://host:port or unix:/path/of/socket, and a "
                    "key is read from OPENAI_API_KEY"
                )
        if len(set(self.urls)) < len(self.urls):
            raise ConfigError(f"engine.options.urls names a server twice: {', '.join(self.urls)}")


Options = TypeVar("Options", bound=EngineOptions)


def read_options(kind: str, model: type[Options], options: Mapping[str, Any]) -> Options:
    """The checked options of an engine. Raises ConfigError naming the key, its value and what is expected, an unknown
    key with the nearest one that exists."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            nearest = difflib.get_close_matches(key, list(model.model_fields), n=1, cutoff=0.0)[0]
            raise ConfigError(
                f"engine.options.{key} is unknown to engine.kind={kind!r}; did you mean {nearest!r}?"
            ) from None
        expected = problem["msg"].replace("Input should be", "it must be", 1)
        raise ConfigError(f"engine.options.{key} is {problem['input']!r}; {expected}") from None
