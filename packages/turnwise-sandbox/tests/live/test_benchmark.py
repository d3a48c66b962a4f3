"""`turnwise sandbox bench` where optional libraries are missing: it measures the rest and says what would add them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
missing = sys.argv[1].split()
sys.modules.update(dict.fromkeys(missing))
from turnwise_sandbox import benchmark, handles
handles.START = f"import sys; sys.modules.update(dict.fromkeys({missing})); " + handles.START
benchmark.WORKLOADS.pop("typical")
"""
"""A None in `sys.modules` makes importing that library fail, here and in every preloaded interpreter."""

MEASURE_ON_ONE = """
import asyncio, json
measured = asyncio.run(benchmark._measure_on_one(1, True, 0.01))
print(json.dumps({key: measured[key] for key in ("tests", "ratios", "skipped")}))
"""


def measure_without(missing: str) -> dict:
    """What the benchmark measures on one processor, as fast as it goes, without the libraries named."""
    source = str(Path(__file__).parents[2] / "src")
    code = f"import sys; sys.path.insert(0, {source!r})\n{WITHOUT}{MEASURE_ON_ONE}"
    command = [sys.executable, "-c", code, missing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_without_pytest_and_sympy_the_rest_is_measured_and_the_extra_named(sandbox):
    measured = measure_without("pytest sympy")
    assert list(measured["tests"]) == ["unittest"]
    assert list(measured["ratios"]["slot_vs_subprocess"]) == ["trivial", "numpy"]
    remedy = "not installed; pip install 'turnwise[math]'"
    assert measured["skipped"].items() >= {"pytest": remedy, "sympy": remedy}.items()


@pytest.mark.slow
def test_with_both_nothing_is_skipped(sandbox):
    measured = measure_without("")
    assert list(measured["tests"]) == ["unittest", "pytest"]
    assert list(measured["ratios"]["slot_vs_subprocess"]) == ["trivial", "numpy", "sympy"]
    assert not {"pytest", "sympy"} & set(measured["skipped"])
