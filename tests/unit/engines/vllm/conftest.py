"""An interpreter with vLLM: the real one where TURNWISE_VLLM names it, else a stand-in that takes the same calls."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake_sdks"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The path of an interpreter whose vLLM is a stand-in with a fault; "" is none."""

    def make(fault: str = "") -> Path:
        python = tmp_path_factory.mktemp("interpreter") / "python"
        python.write_text(
            f'#!/bin/sh\nPYTHONPATH="{FAKE}" VLLM_FAULT="{fault}" OMP_NUM_THREADS=1 exec "{sys.executable}" "$@"\n'
        )
        python.chmod(0o755)
        return python

    return make


@pytest.fixture(scope="module")
def python(stand_in: Callable[[str], Path]) -> Path:
    """An interpreter whose vLLM works."""
    named = os.environ.get("TURNWISE_VLLM")
    return Path(named).absolute() if named else stand_in("")
