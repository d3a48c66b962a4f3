"""`turnwise algorithms`: list credit methods, losses and samplers, and explain the credit of a trajectory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.core.errors import ConfigError
from turnwise.core.offers import list_offers

if TYPE_CHECKING:
    from turnwise.algorithms.credit import CreditMethod
    from turnwise.algorithms.losses.method import LossMethod
    from turnwise.audit.explain import Explanation, TurnCredit
    from turnwise.curriculum.sampler import SamplerKind

app = typer.Typer(
    help="List credit methods, losses and samplers; explain the credit of a trajectory.", invoke_without_command=True
)

REPLY_COLUMNS = 100
"""Maximum columns of a reply; a long reply takes more lines, so that the numbers beside it stay in sight."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def table(context: typer.Context, as_json: JsonOption = False) -> None:
    """List every credit method (`credit.method`), loss (`loss.method`) and sampler of tasks (`curriculum.sampler`) with
    its options and aliases, those of installed packages too."""
    if context.invoked_subcommand is not None:
        return
    rows = read_tables()
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for title, of_kind in rows.items():
        _show_table(title, [_put_below_the_name(row) for row in of_kind])


def read_tables() -> dict[str, list[dict[str, Any]]]:
    """The tables as plain data, `credit`, `loss` and `curriculum`: built-in rows, then what packages offer."""
    from turnwise.algorithms.credit_table import CREDIT_METHODS
    from turnwise.algorithms.losses.table import LOSSES
    from turnwise.building.credit import GROUP as CREDIT_GROUP
    from turnwise.building.credit import find_credit
    from turnwise.building.losses import GROUP as LOSS_GROUP
    from turnwise.building.losses import find_loss
    from turnwise.config.credit import CreditSection
    from turnwise.config.loss import LossSection
    from turnwise.curriculum.table import GROUP as SAMPLER_GROUP
    from turnwise.curriculum.table import SAMPLERS, find_sampler

    credit = [_describe_credit(method, "built in") for method in CREDIT_METHODS.values()]
    loss = [_describe_loss(method, "built in") for method in LOSSES.values()]
    credit += _read_offers(
        CREDIT_GROUP, lambda name, of: _describe_credit(find_credit(CreditSection(method=name)).method, of), "estimates"
    )
    loss += _read_offers(
        LOSS_GROUP, lambda name, of: _describe_loss(find_loss(LossSection(method=name)).method, of), "does"
    )
    curriculum = [_describe_sampler(kind, "built in") for kind in SAMPLERS.values()]
    curriculum += _read_offers(SAMPLER_GROUP, lambda name, of: _describe_sampler(find_sampler(name), of), "draws")
    return {"credit": credit, "loss": loss, "curriculum": curriculum}


def _describe_credit(method: CreditMethod, source: str) -> dict[str, Any]:
    return {
        "name": method.name,
        "of": source,
        "also called": list(method.aliases),
        "estimates": method.summary,
        "formula": method.formula,
        "paper": method.paper,
        "options": dict(method.defaults),
        "group of one": method.group_of_one,
        "constant group": method.constant_group,
        "needs": list(method.needs),
        "compares": method.compares,
        "samples": _list_sampled(method),
    }


def _describe_loss(method: LossMethod, source: str) -> dict[str, Any]:
    return {
        "name": method.name,
        "of": source,
        "also called": list(method.aliases),
        "does": method.summary,
        "formula": method.formula,
        "paper": method.paper,
        "options": dict(method.defaults),
        "aggregation": method.default_aggregation,
        "ratio to": method.anchor,
    }


def _describe_sampler(kind: SamplerKind, source: str) -> dict[str, Any]:
    return {
        "name": kind.name,
        "of": source,
        "draws": kind.summary,
        "formula": kind.formula,
        "paper": kind.paper,
        "options": {
            name: field.get_default(call_default_factory=True)
            for name, field in kind.options.model_fields.items()
            if not field.is_required()
        },
    }


def _read_offers(group: str, describe: Callable[[str, str], dict[str, Any]], summary: str) -> list[dict[str, Any]]:
    """A row per name that packages offer in a group; one that cannot be used says why in the column `summary`."""
    owners: dict[str, list[str]] = {}
    for offer in list_offers(group):
        owners.setdefault(offer.name, []).append(offer.package)
    rows = []
    for name, packages in owners.items():
        source = " and ".join(packages)
        try:
            rows.append(describe(name, source))
        except ConfigError as cause:
            rows.append({"name": name, "of": source, summary: str(cause)})
    return rows


def _list_sampled(method: CreditMethod) -> list[str]:
    """The samples or scores that a credit method needs besides the attempts."""
    branches = {"none": [], "values": ["continuations"], "random": ["branches"], "entropy": ["branches"]}
    return [*branches[method.branches], *(name.replace("_", " ") for name in method.annotators)]


def _put_below_the_name(row: dict[str, Any]) -> dict[str, Any]:
    """The row with aliases and package in the column of the name: the terminal has few columns."""
    columns = {key: value for key, value in row.items() if key not in ("also called", "of")}
    owner = [] if row["of"] == "built in" else [f"(of {row['of']})"]
    return {**columns, "name": "\n".join([row["name"], *row.get("also called", []), *owner])}


def _show_table(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from turnwise.reporting.console import print_table

    option = "sampler" if title == "curriculum" else "method"
    shown = Table(title=f"{title}.{option}", title_justify="left", show_lines=True)
    for column in rows[0]:
        shown.add_column(column, overflow="fold", no_wrap=column == "name", ratio=3 if column == "formula" else None)
    for row in rows:
        shown.add_row(*(Text(_to_text(row.get(column, ""))) for column in rows[0]))
    print_table(shown)


def _to_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key}={_to_text(item)}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    trajectory: Annotated[str, typer.Argument(metavar="TRAJECTORY", help="Draw and member, such as 57/0.")],
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="Credit method; repeat to compare several. Default: the run's method."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show, turn by turn, the advantage a trajectory got and what other methods would have given it."""
    from turnwise.runs.explain import explain_trajectory

    explanation = explain_trajectory(run, trajectory, method or [])
    if as_json:
        print(json.dumps(asdict(explanation), indent=1, ensure_ascii=False))
        return
    _show_explanation(trajectory, explanation)


def _show_explanation(name: str, explanation: Explanation) -> None:
    from rich.table import Table
    from rich.text import Text

    from turnwise.reporting.console import print_table
    from turnwise.reporting.transcript import clean_for_terminal

    rewards = ", ".join("invalid" if reward is None else f"{reward:g}" for reward in explanation.group_rewards)
    outcome = "could not be scored" if explanation.reward is None else f"reward {explanation.reward:g}"
    print(clean_for_terminal(explanation.prompt))
    print(f"{name}: {outcome}, ended with {explanation.stop}; rewards of its group: {rewards}")
    shown = Table()
    shown.add_column("turn", justify="right")
    shown.add_column("reply", overflow="fold", ratio=1, max_width=REPLY_COLUMNS)
    for column in ("tokens", "reward", "same state"):
        shown.add_column(column, justify="right")
    for column in explanation.columns:
        shown.add_column(Text(column), justify="right")
    for index, turn in enumerate(explanation.turns):
        numbers = [str(turn.num_tokens), f"{turn.reward:g}", "-" if turn.state is None else str(turn.twins)]
        label = (
            str(index)
            if turn.parent == (index - 1 if index else None)
            else f"{index} after {'start' if turn.parent is None else turn.parent}"
        )
        shown.add_row(
            f"{label}\n{turn.ends}".strip(),
            Text(clean_for_terminal(turn.text)),
            *numbers,
            *(_to_cell(turn.credit[column]) for column in explanation.columns),
        )
    print_table(shown)
    print(
        "advantage per sampled token: the mean over the turn, and its range if tokens differ; same state: turns of "
        "other members"
    )


def _to_cell(credit: TurnCredit | None) -> str:
    if credit is None:
        return "none"
    text = f"{credit.mean:+.4f}"
    return text if credit.high - credit.low < 1e-9 else f"{text}\n{credit.low:+.4f} to {credit.high:+.4f}"
