"""`turnwise rewards explain RUN TRAJECTORY`: show what each part of a reward gave, and what would have changed it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnwise_rewards.runs.explain import ExplainedReward, ExplainedTerm


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished or running.")],
    trajectory: Annotated[str, typer.Argument(metavar="TRAJECTORY", help="Draw and member, such as 57/0.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what each part of a trajectory's reward gave, and what would have changed it; needs no model."""
    from turnwise.reporting.transcript import clean_for_terminal
    from turnwise_rewards.runs.explain import explain_rewards

    explained = explain_rewards(run, trajectory)
    if as_json:
        print(json.dumps([asdict(each) for each in explained], indent=1, ensure_ascii=False))
        return
    for each in explained:
        for line in describe(each):
            print(clean_for_terminal(line))


def describe(reward: ExplainedReward) -> Iterator[str]:
    """The reward as lines, from what the environment gave to what credit compares."""
    yield f"{reward.trajectory}, ended with {reward.stop}"
    if reward.invalid:
        yield f"the reward is Invalid and trains nothing: {reward.invalid}"
        return
    parts = ", ".join(f"{name} {value:g}" for name, value in reward.parts.items())
    yield f"environment  {reward.total:g}" + (f"  ({parts})" if parts else "")
    if not reward.terms:
        yield "the recipe has no [rewards], so the environment's reward is credited"
    width = max((len(term.name) for term in reward.terms), default=0)
    for term in reward.terms:
        yield f"{term.name:<{width}}  {_describe_term(term)}"
    if reward.terms:
        yield f"{'sum':<{width}}  {reward.credited:+.3g}"
    if reward.shaping:
        yield f"credit.shaping ({', '.join(reward.shaping)}) makes it {reward.shaped:g}"
    yield f"its group is credited {_list_values(reward.group_credited)}"
    if reward.shaping:
        yield f"after credit.shaping {_list_values(reward.group_shaped)}"


def _describe_term(term: ExplainedTerm) -> str:
    cap = "" if term.cap is None else f", cap {term.cap:g}"
    line = f"{term.contribution:+.3g} = {term.weight:g} x {term.value:.3g}{cap}; {term.reason}"
    if term.difference is not None:
        line += f"; {term.change} {term.difference:+.3g}"
    return line


def _list_values(values: Sequence[float | None]) -> str:
    return ", ".join("invalid" if value is None else f"{value:.3g}" for value in values)
