"""A slice of `benchmarks/fuzz_calls.py`: nothing raises, no byte of an argument changes, schemas judge alike."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from turnwise.rendering.call_texts import CALL_TEXTS

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import fuzz_calls


@pytest.mark.parametrize("check", ["check_noise", "check_written", "check_schema"])
def test_random_replies_and_schemas(check: str) -> None:
    problems = [getattr(fuzz_calls, check)(random.Random(f"slice/{number}")) for number in range(150)]
    assert [problem for problem in problems if problem] == []


def test_the_fuzz_finds_a_changed_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    read = CALL_TEXTS["hermes"].read

    class Changed:
        write = staticmethod(CALL_TEXTS["hermes"].write)

        @staticmethod
        def read(text: str, first_id: int):
            return read(text.replace("é", "e").replace("\\u00e9", "e"), first_id)

    monkeypatch.setattr(fuzz_calls, "CALL_TEXTS", {"hermes": Changed})
    assert any(fuzz_calls.check_written(random.Random(f"slice/{number}")) for number in range(150))
