"""A package of a few functions with its tests, and what they enter, written down by hand."""

from pathlib import Path

import pytest

from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.repository import Baseline, Repository

SOURCE = '''"""Small."""


def clamp(value, low, high):
    """Keep a value in a range."""
    if value < low:
        return low
    if value > high and value != low:
        return high
    return value


def total(values, start=0):
    result = start
    for value in values:
        result += value * 1
    return result


def make_adder(number):
    def add(value):
        return value + number

    return add


add_two = make_adder(2)


class Counter:
    step = 1

    def __init__(self):
        self.count = 0

    def up(self):
        self.count += self.step
        return self.count


def countdown(number):
    while number > 0:
        number -= 1
    return number
'''
HELPERS = """def mean(values):
    if values:
        return sum(values) / len(values)
    return None
"""
TESTS = """from calc import Counter, add_two, clamp, countdown, make_adder, total
from calc.helpers import mean


def test_low():
    assert clamp(1, 2, 3) == 2


def test_high():
    value = 4
    assert clamp(value, 2, 3) == 3


def test_inside():
    assert clamp(2, 1, 3) == 2


def test_total():
    assert total([1, 2]) == 3


def test_total_from():
    assert total([1, 2], 3) == 6


def test_made():
    assert add_two(1) == 3


def test_make():
    assert make_adder(3)(1) == 4


def test_counter():
    assert Counter().up() == 1


def test_countdown():
    assert countdown(3) == 0


def test_mean():
    assert mean([1, 3]) == 2


def test_nothing():
    assert True
"""
FILES = {"calc/__init__.py": SOURCE, "calc/helpers.py": HELPERS, "tests/test_calc.py": TESTS}
ENTERED = {
    "low": ["clamp"],
    "high": ["clamp"],
    "inside": ["clamp"],
    "total": ["total"],
    "total_from": ["total"],
    "made": ["make_adder.<locals>.add"],
    "make": ["make_adder", "make_adder.<locals>.add"],
    "counter": ["Counter.__init__", "Counter.up"],
    "countdown": ["countdown"],
    "nothing": [],
}


def test_id(name: str) -> str:
    return f"tests/test_calc.py::test_{name}"


test_id.__test__ = False  # type: ignore[attr-defined]


def write_repository(root: Path) -> Repository:
    """The package on disk, with its baseline."""
    for path, text in FILES.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    entered = {
        test_id(name): frozenset(f"calc/__init__.py::{item}" for item in items) for name, items in ENTERED.items()
    }
    entered[test_id("mean")] = frozenset({"calc/helpers.py::mean"})
    return Repository(
        name="calc",
        version="1.0",
        digest="",
        root=root,
        site_packages=Path(pytest.__file__).parent.parent,
        source_folders=("calc",),
        test_files=("tests/test_calc.py",),
        baseline=Baseline(
            outcomes={test: Outcome(status="passed") for test in entered},
            durations=dict.fromkeys(entered, 0.001),
            entered=entered,
        ),
    )
