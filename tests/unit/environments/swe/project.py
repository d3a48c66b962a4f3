"""A tiny package and its suite, with one bug, under two names."""

from __future__ import annotations

from dataclasses import replace

from turnwise.repositories.diffs import make_diff
from turnwise.repositories.instance import Instance

CORE = '''"""Small sums."""


def add(a, b):
    return a + b


def scale(values, factor):
    return [value * factor for value in values]


class Total:
    def __init__(self):
        self.value = 0

    def take(self, value):
        self.value = add(self.value, value)
        return self
'''
TESTS = """import pytest

from sums.core import Total, add, scale


@pytest.mark.parametrize("a", [1, 2])
def test_add(a):
    assert add(a, 1) == a + 1


def test_total():
    assert Total().take(2).take(3).value == 5


def test_scale():
    assert scale([1, 2], 3) == [3, 6]
"""
FILES = {
    "pyproject.toml": '[project]\nname = "sums"\nversion = "1.0"\n\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n',
    "src/sums/__init__.py": "from sums.core import add\n",
    "src/sums/core.py": CORE,
    "tests/test_core.py": TESTS,
    "tests/conftest.py": "",
}
ADDS = ("tests/test_core.py::test_add[1]", "tests/test_core.py::test_add[2]", "tests/test_core.py::test_total")
BUGGY = CORE.replace("return a + b", "return a - b")
INSTANCE = Instance(
    instance_id="sums-1",
    repository="sums==1.0",
    patch=make_diff({"src/sums/core.py": CORE.encode()}, {"src/sums/core.py": BUGGY.encode()}),
    fail_to_pass=ADDS,
    pass_to_pass=("tests/test_core.py::test_scale",),
    issue="Sums are wrong.",
)
OTHER = replace(INSTANCE, instance_id="other-1", repository="other==1.0", issue="Other sums are wrong.")
