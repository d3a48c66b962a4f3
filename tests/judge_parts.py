"""What a judge is built from where there is no run."""

from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.judging import Judge
from turnwise.judging.judge_kind import JudgeParts
from turnwise.runs.judges import refuse_model, refuse_policy


def refuse_judge(name: str) -> Judge:
    """Find another judge where there is none. Raises ConfigError."""
    raise ConfigError(f"there is no judge {name!r}")


def make_parts(options: Any, **changes: Any) -> JudgeParts:
    """The parts of the judge "grader", without models and other judges, with `changes`."""
    return JudgeParts(
        **{
            "name": "grader",
            "options": options,
            "max_concurrent": 2,
            "timeout_s": 20.0,
            "seed": 0,
            "load_model": refuse_model,
            "load_policy": refuse_policy,
            "follows_grammars": False,
            "find_judge": refuse_judge,
            **changes,
        }
    )
