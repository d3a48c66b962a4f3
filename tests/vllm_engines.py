"""Opening a vLLM engine of a test, and asking it."""

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from served_model import decode
from transformers import PreTrainedModel

from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.vllm import VllmEngine

FAKE = Path(__file__).parent / "unit" / "engines" / "vllm" / "fake_sdks"
StandIn = Callable[[str], Path]


def write_stand_in(folder: Path, fault: str = "") -> Path:
    """Write an interpreter whose vLLM is a stand-in with a fault; "" is none."""
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{FAKE}" VLLM_FAULT="{fault}" OMP_NUM_THREADS=1 exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


@asynccontextmanager
async def open_engine(model: PreTrainedModel, python: Path, **options: Any) -> AsyncIterator[VllmEngine]:
    settings = {"num_workers": 1, "max_concurrency": 8, "max_context": 128, "cache_mib": 64, **options}
    engine = VllmEngine(model, python=python, decode=decode, **settings)
    try:
        yield engine
    finally:
        await engine.close()


async def ask(engine: VllmEngine, prompt: Sequence[int], *, name: str = "0", **params: Any) -> Completion:
    settings = SamplingParams(**{"max_tokens": 12, **params})
    return await engine.generate(to_ids(prompt), settings, session=Session("g", name))
