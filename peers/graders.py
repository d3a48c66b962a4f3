"""Asks graders of others: one JSON object with `grader`, `answer` and `gold` per line in, one number per line out. Runs
in .venv-peers only; `benchmarks/graders.py` starts it.

A grader that raises answers 0.0, as those who call it do.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import math_verify
from torchmetrics.functional.text.squad import squad
from verl.utils.reward_score import math_reward, prime_math, search_r1_like_qa_em

Grader = Callable[[str, str], float]
"""An answer and a gold answer to a score in [0, 1]."""


def load_file(package: str, path: str) -> ModuleType:
    """A module by its file, without importing the package around it: lm-eval's would want all it can evaluate with."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.submodule_search_locations
    spec = importlib.util.spec_from_file_location(path, f"{found.submodule_search_locations[0]}/{path}")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DROP: Any = load_file("lm_eval", "tasks/drop/utils.py")


def ask_squad(answer: str, gold: str, metric: str) -> float:
    """SQuAD's metric by name."""
    asked = squad(
        [{"prediction_text": answer, "id": "0"}], [{"answers": {"answer_start": [0], "text": [gold]}, "id": "0"}]
    )
    return float(asked[metric]) / 100


def ask_math_verify(answer: str, gold: str) -> float:
    """math-verify alone, as its readme calls it."""
    expected, written = (math_verify.parse(f"\\boxed{{{text}}}") for text in (gold, answer))
    return float(math_verify.verify(expected, written))


GRADERS: dict[str, Grader] = {
    "squad_exact_match": lambda answer, gold: ask_squad(answer, gold, "exact_match"),
    "squad_f1": lambda answer, gold: ask_squad(answer, gold, "f1"),
    "search_r1_exact_match": lambda answer, gold: float(search_r1_like_qa_em.em_check(answer, [gold])),
    "drop_exact_match": lambda answer, gold: float(DROP.get_metrics(answer, gold)[0]),
    "drop_f1": lambda answer, gold: float(DROP.get_metrics(answer, gold)[1]),
    "math_verify": ask_math_verify,
    "math_is_equiv": lambda answer, gold: float(math_reward.is_equiv(answer, gold)),
    "prime_math": lambda answer, gold: float(prime_math.compute_score(f"\\boxed{{{answer}}}", gold)[0]),
}


def grade(request: dict[str, str]) -> float:
    """One answer's score."""
    score = 0.0
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(Exception):
        score = GRADERS[request["grader"]](request["answer"], request["gold"])
    return score


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        print(grade(json.loads(line)), flush=True)
