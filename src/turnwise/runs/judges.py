"""From the recipe's `[judges.NAME]` to the judges of a run."""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine, Renderer
from turnwise.core.seeds import derive_seed
from turnwise.judging.judge_kind import JudgeParts, LoadModel
from turnwise.judging.limits import LimitedJudge
from turnwise.judging.table import build_judge, find_judge


def build_judges(config: RunConfig, load_model: LoadModel) -> dict[str, LimitedJudge]:
    """The judges of a recipe, by name, with their limits. Raises ConfigError naming the judge for an unknown kind, an
    unknown option, a checkpoint that does not fit, or an engine of which a run has only one."""
    judges: dict[str, LimitedJudge] = {}
    for name, section in config.judges.items():
        kind = find_judge(name, section)
        engine = find_engine_kind(config.engine.kind)
        if kind.checkpoint and engine.one_policy:
            raise ConfigError(
                f"judges.{name}.kind={kind.name!r} with engine.kind={engine.name!r}: {engine.one_policy}; use "
                "judges.NAME.kind='api' with a server of its own"
            )
        parts = JudgeParts(
            name=name,
            options=section.options,
            max_concurrent=section.max_concurrent,
            timeout_s=section.timeout_s,
            seed=derive_seed(config.run.seed, "judges"),
            load_model=load_model,
        )
        judges[name] = build_judge(section, kind, parts)
    return judges


def refuse_model(path: str) -> tuple[Engine, Renderer]:
    """Load a judge's checkpoint where there is no run. Raises ConfigError."""
    raise ConfigError(f"the checkpoint {path!r} judges with the model's tokens, and nothing here has a model")


async def check_judges(judges: Mapping[str, LimitedJudge]) -> dict[str, str]:
    """Check every judge that can be checked before a run. Returns what was seen, by name; raises ConfigError with the
    remedy."""
    seen = {}
    for name, judge in judges.items():
        seen[name] = "its server answers" if await judge.check() else "built"
    return seen
