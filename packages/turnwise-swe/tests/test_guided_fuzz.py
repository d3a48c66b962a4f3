"""The checks of `benchmarks/fuzz_guided.py` without Atheris: right inputs pass, broken readers fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from turnwise.rewards import math_spelling
from turnwise_swe.repositories import diffs

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import fuzz_guided


@pytest.mark.parametrize("target", fuzz_guided.PACKAGES)
def test_the_first_inputs_of_a_target_pass(tmp_path: Path, target: str) -> None:
    check, seeds = fuzz_guided.build_target(target, tmp_path)
    assert len(seeds) >= 3
    for seed in (*seeds, b"", b"\xff\x00", *(seed[: len(seed) // 2] for seed in seeds)):
        assert check(seed) == ""


def test_a_broken_reader_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, seeds = fuzz_guided.build_target("answers", tmp_path)
    monkeypatch.setattr(math_spelling, "decide", lambda answer, gold: False)
    assert check(seeds[0]) == "an answer is wrong by itself"
    check, _ = fuzz_guided.build_target("diffs", tmp_path)
    monkeypatch.setattr(diffs, "quote_path", lambda path: path)
    quoted = b'--- "a/x\\ty"\n+++ "b/x\\ty"\n@@ -1 +1 @@\n-a\n+b\n'
    assert check(quoted) == "reversed three times it is not what it is reversed once"


def test_findings_keep_the_shortest_input_of_a_place(tmp_path: Path) -> None:
    findings = fuzz_guided.Findings(tmp_path / "found.json")
    for data in (b"abc", b"a", b"ab"):
        findings.keep("ValueError at x.py:1", data)
    findings.time(0.5, b"abc")
    findings.time(0.001, bytes(1000))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failures"] == {"ValueError at x.py:1": {"bytes": 1, "input": "YQ=="}}
    assert found["slowest"] == {"seconds": 0.5, "bytes": 3}
    # 0.001 s / 1000 bytes = 1 microsecond; three bytes are too few to tell.
    assert found["slowest_per_byte"] == {"microseconds": 1.0, "bytes": 1000}
