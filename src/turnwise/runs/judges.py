"""From the recipe's `[judges.NAME]` to the judges of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.judges import JudgeSection
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import Engine, Renderer
from turnwise.core.seeds import derive_seed
from turnwise.environments.data_rows import load_file
from turnwise.judging.agreement import describe_agreement, measure_agreement
from turnwise.judging.judge_kind import JudgeParts, LoadModel, LoadPolicy
from turnwise.judging.limits import LimitedJudge
from turnwise.judging.table import build_judge, find_judge
from turnwise.questions.labels import read_labelled


def build_judges(
    config: RunConfig, load_model: LoadModel, load_policy: LoadPolicy, pictures: Pictures | None = None
) -> dict[str, LimitedJudge]:
    """The judges of a recipe, by name, with their limits; `pictures` is the run's store, if it has one.

    Raises ConfigError naming the judge for an unknown kind, an unknown option, a checkpoint that does not fit, an
    engine of which a run has only one, or judges that ask each other.
    """
    judges: dict[str, LimitedJudge] = {}
    engine = find_engine_kind(config.engine.kind)

    def build(name: str, asked_by: tuple[str, ...]) -> LimitedJudge:
        if name in judges:
            return judges[name]
        if name not in config.judges:
            raise ConfigError(f"judges.{asked_by[-1]} asks {name!r}, which is none of {', '.join(config.judges)}")
        if name in asked_by:
            raise ConfigError(f"judges.{name} asks itself, by {' -> '.join((*asked_by, name))}")
        section, asks, policies = config.judges[name], set[str](), []
        kind = find_judge(name, section)
        if kind.checkpoint and engine.one_policy:
            raise ConfigError(
                f"judges.{name}.kind={kind.name!r} with engine.kind={engine.name!r}: {engine.one_policy}; use "
                "judges.NAME.kind='api' with a server of its own"
            )

        def find_asked(other: str) -> LimitedJudge:
            judge = build(other, (*asked_by, name))
            asks.update({other}, judge.asks)
            return judge

        def find_policy() -> tuple[Engine, Renderer]:
            policies.append(load_policy())
            return policies[0]

        parts = JudgeParts(
            name=name,
            options=section.options,
            max_concurrent=section.max_concurrent,
            timeout_s=section.timeout_s,
            seed=derive_seed(config.run.seed, "judges"),
            load_model=load_model,
            load_policy=find_policy,
            follows_grammars=engine.follows_grammars,
            find_judge=find_asked,
            pictures=pictures,
        )
        judge = judges[name] = build_judge(section, kind, parts)
        judge.asks = frozenset(asks)
        judge.is_policy = bool(policies) or any(judges[other].is_policy for other in asks)
        return judge

    for name in config.judges:
        build(name, ())
    return {name: judges[name] for name in config.judges}


def refuse_model(path: str) -> tuple[Engine, Renderer]:
    """Load a judge's checkpoint where there is no run. Raises ConfigError."""
    raise ConfigError(f"the checkpoint {path!r} judges with the model's tokens, and nothing here has a model")


def refuse_policy() -> tuple[Engine, Renderer]:
    """Return the policy where there is no run. Raises ConfigError."""
    raise ConfigError("a judge is the policy, and nothing here has one")


def list_distant(judges: Mapping[str, LimitedJudge]) -> list[str]:
    """The judges that rollout processes ask the training process about: all but those that are the policy, which each
    process has itself."""
    return [name for name, judge in judges.items() if not judge.is_policy]


def list_near(judges: Mapping[str, LimitedJudge]) -> set[str]:
    """The judges that a rollout process builds: those that are the policy, and all that they ask."""
    near = {name for name, judge in judges.items() if judge.is_policy}
    return near.union(*(judges[name].asks for name in near))


def remember_costs(judges: Mapping[str, LimitedJudge], rows: Sequence[Mapping[str, Any]]) -> None:
    """Give every judge the money that it has cost by the metrics of a run's steps so far."""
    for name, judge in judges.items():
        judge.spent = math.fsum(row.get(f"judge/{name}_cost") or 0.0 for row in rows)


async def check_judges(
    judges: Mapping[str, LimitedJudge], sections: Mapping[str, JudgeSection] | None = None
) -> dict[str, str]:
    """Check every judge that can be checked before a run, and ask those with labels. Returns what was seen, by name;
    raises ConfigError with the remedy, and DataError for a wrong row of labels."""
    seen = {}
    for name, judge in judges.items():
        seen[name] = "its server answers" if await judge.check() else "built"
        section = (sections or {}).get(name)
        if section is not None and section.labels:
            seen[name] += f"; {await _check_labels(name, judge, section)}"
        elif section is not None and section.min_kappa is not None:
            raise ConfigError(f"judges.{name}.min_kappa={section.min_kappa:g} needs judges.{name}.labels; name a file")
    return seen


async def _check_labels(name: str, judge: LimitedJudge, section: JudgeSection) -> str:
    """The judge's agreement with its labels. Raises ConfigError if it is too small."""
    labelled = load_file(Path(section.labels), read_labelled).rows
    try:
        found = await measure_agreement(judge, labelled)
    except ConfigError as problem:
        raise ConfigError(f"judges.{name}.labels={section.labels!r}: {problem}") from None
    text = describe_agreement(found, section.labels)
    if section.min_kappa is not None and found.kappa < section.min_kappa:
        raise ConfigError(
            f"judge {name!r} agrees too little: {text}, below judges.{name}.min_kappa={section.min_kappa:g}; use a "
            "better judge or rubric, or lower it"
        )
    return text
