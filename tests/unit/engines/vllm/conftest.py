"""An interpreter with vLLM: the real one where TURNWISE_VLLM names it, else a stand-in that takes the same calls."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from vllm_engines import write_stand_in


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The path of an interpreter whose vLLM is a stand-in with a fault; "" is none."""

    def make(fault: str = "") -> Path:
        return write_stand_in(tmp_path_factory.mktemp("interpreter"), fault)

    return make


@pytest.fixture(scope="module")
def python(stand_in: Callable[[str], Path]) -> Path:
    """An interpreter whose vLLM works."""
    named = os.environ.get("TURNWISE_VLLM")
    return Path(named).absolute() if named else stand_in("")
