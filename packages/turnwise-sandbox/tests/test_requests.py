"""The choice of a program's interpreter."""

import pytest

from turnwise_sandbox.requests import choose_profile, is_installed
from turnwise_sandbox.types import Program


@pytest.mark.parametrize(
    ("code", "profile"),
    [
        ("print(1)", "std"),
        ("import random\nprint(random.random())", "std"),
        ("import numpy as np\nprint(np.ones(3))", "numpy"),
        ("import math, numpy as np\nprint(np.random.rand())", "numpy_random"),
        ("from numpy.random import default_rng", "numpy_random"),
        ("import numpy\nimport sympy", "sympy"),
        ("import unittest, numpy", "pytest"),
        (
            "import json, openai" if is_installed("openai") else "import json",
            "openai" if is_installed("openai") else "std",
        ),
        ("# import numpy", "std"),
        ("import numpylike", "std"),
    ],
)
def test_the_imports_of_a_program_choose_its_interpreter(code: str, profile: str) -> None:
    assert choose_profile(Program(code=code)) == profile


def test_its_files_count_too_and_a_named_profile_stands() -> None:
    files = {"a.py": b"import numpy\nnumpy.random", "a.txt": b"import sympy"}
    assert choose_profile(Program(code="import a", files=files)) == "numpy_random"
    assert choose_profile(Program(code="import a", files=files, profile="std")) == "std"
