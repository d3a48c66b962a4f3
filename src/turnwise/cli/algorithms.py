"""`turnwise algorithms`: list every credit method and loss, and explain why a trajectory was credited as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from turnwise.algorithms.credit import CreditMethod
    from turnwise.audit.explain import Explanation, TurnCredit

app = typer.Typer(
    help="List credit methods and losses; explain the credit of a trajectory.", invoke_without_command=True
)

REPLY_COLUMNS = 100
"""Maximum columns of a reply; a long reply takes more lines, so that the numbers beside it stay in sight."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def table(context: typer.Context, as_json: JsonOption = False) -> None:
    """List every credit method (`credit.method`) and loss (`loss.method`) with its options and aliases."""
    if context.invoked_subcommand is not None:
        return
    rows = read_tables()
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for title, of_kind in rows.items():
        _show_table(title, [_put_aliases_below_the_name(row) for row in of_kind])


def read_tables() -> dict[str, list[dict[str, Any]]]:
    """The tables as plain data: `credit` and `loss`."""
    from turnwise.algorithms.credit_table import CREDIT_METHODS
    from turnwise.algorithms.losses.table import LOSSES

    return {
        "credit": [
            {
                "name": m.name,
                "also called": list(m.aliases),
                "estimates": m.summary,
                "formula": m.formula,
                "paper": m.paper,
                "options": dict(m.defaults),
                "group of one": m.group_of_one,
                "constant group": m.constant_group,
                "needs": list(m.needs),
                "compares": m.compares,
                "samples": _list_sampled(m),
            }
            for m in CREDIT_METHODS.values()
        ],
        "loss": [
            {
                "name": m.name,
                "also called": list(m.aliases),
                "does": m.summary,
                "formula": m.formula,
                "paper": m.paper,
                "options": dict(m.defaults),
                "aggregation": m.default_aggregation,
                "ratio to": m.anchor,
            }
            for m in LOSSES.values()
        ],
    }


def _list_sampled(method: CreditMethod) -> list[str]:
    """The samples or scores that a credit method needs besides the attempts."""
    branches = {"none": [], "values": ["continuations"], "random": ["branches"], "entropy": ["branches"]}
    return [*branches[method.branches], *(name.replace("_", " ") for name in method.annotators)]


def _put_aliases_below_the_name(row: dict[str, Any]) -> dict[str, Any]:
    """The row with one column fewer, because a terminal has few columns."""
    columns = {key: value for key, value in row.items() if key != "also called"}
    return {**columns, "name": "\n".join([row["name"], *row["also called"]])}


def _show_table(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from turnwise.reporting.console import print_table

    shown = Table(title=f"{title}.method", title_justify="left", show_lines=True)
    for column in rows[0]:
        shown.add_column(column, overflow="fold", no_wrap=column == "name", ratio=3 if column == "formula" else None)
    for row in rows:
        shown.add_row(*(Text(_to_text(value)) for value in row.values()))
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
        list[str] | None, typer.Option("--method", help="A credit method; repeat to compare. The run's own when none.")
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
    print(f"{name}: {outcome}, ended by {explanation.stop}; rewards of its group: {rewards}")
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
        "advantage per sampled token: the mean over the turn, and its range where tokens differ; same state: turns of "
        "other members"
    )


def _to_cell(credit: TurnCredit | None) -> str:
    if credit is None:
        return "none"
    text = f"{credit.mean:+.4f}"
    return text if credit.high - credit.low < 1e-9 else f"{text}\n{credit.low:+.4f} to {credit.high:+.4f}"
