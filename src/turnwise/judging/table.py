"""The table of built-in judges, and what `judges.NAME.kind` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from turnwise.config.engine_kinds.kind import read_options
from turnwise.config.judges import JudgeSection
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.offers import find_row
from turnwise.core.threads import run_method
from turnwise.core.verdicts import Question
from turnwise.judging.api import API
from turnwise.judging.engine import FROZEN, POLICY
from turnwise.judging.judge_kind import JudgeKind, JudgeParts
from turnwise.judging.limits import LimitedJudge, Prices
from turnwise.judging.panel import DEBATE, ENSEMBLE

JUDGES: dict[str, JudgeKind] = {kind.name: kind for kind in (API, FROZEN, POLICY, ENSEMBLE, DEBATE)}
"""Every built-in judge by name."""
GROUP = "turnwise.judges"
"""Entry-point group in which an installed package names its judges."""


class FunctionJudge:
    """Implements `Judge` with a plain function of a question and the options, sync or `async`."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function, self._options = function, options

    async def judge(self, question: Question) -> Any:
        """Return what the function returns: a verdict or a number. Raises what it raises."""
        return await run_method(partial(self._function, **self._options), question)

    async def close(self) -> None:
        """Do nothing: nothing is held."""


def find_judge(name: str, section: JudgeSection) -> JudgeKind:
    """Return the row that `judges.NAME.kind` names; a function becomes a row. Raises ConfigError, with the remedy, for
    one that leads nowhere or to something else."""

    def wrap(function: Callable[..., Any]) -> JudgeKind:
        return JudgeKind(name=section.kind, summary="", build=lambda parts: FunctionJudge(function, parts.options))

    return find_row(f"judges.{name}.kind", section.kind, JudgeKind, group=GROUP, built_in=JUDGES, wrap=wrap)


def list_checkpoints(judges: Mapping[str, JudgeSection]) -> list[str]:
    """Return the checkpoints that judges hold, for the plan of memory; options are not checked yet."""
    paths = []
    for name, section in judges.items():
        kind = find_judge(name, section)
        path = section.options.get(kind.checkpoint) if kind.checkpoint else None
        paths += [path] if isinstance(path, str) else []
    return paths


def build_judge(section: JudgeSection, kind: JudgeKind, parts: JudgeParts) -> LimitedJudge:
    """Build a judge with its limits. `parts.options` is the recipe's table. Raises ConfigError for an unknown option or
    a wrong value."""
    where = f"judges.{parts.name}"
    prices = Prices(prompt_price=section.prompt_price, reply_price=section.reply_price, budget=section.budget)
    if prices.budget is not None and not prices.prompt_price and not prices.reply_price:
        raise ConfigError(
            f"{where}.budget={prices.budget:g} needs {where}.prompt_price or {where}.reply_price; set one"
        )
    if kind.options is not None:
        parts = replace(parts, options=read_options(kind.name, kind.options, parts.options, where=where))
    with boundary(ConfigError, f"{where}.kind={kind.name!r} cannot be built"):
        judge = kind.build(parts)
    return LimitedJudge(
        judge,
        name=parts.name,
        max_concurrent=section.max_concurrent,
        timeout_s=section.timeout_s,
        max_retries=section.max_retries,
        seed=parts.seed,
        cache=section.cache,
        prices=prices,
    )
