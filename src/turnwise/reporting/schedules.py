"""Predicted schedules as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def schedules_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line per schedule, from `simulation.plan.describe_prediction`.

    Trained trajectories and their sampled tokens per second, the ratio to the first line, mean and largest age; where
    the engines' time went (idle for tools, for admission, or for weights and a trainer on the same machine), and where
    the trainer's time went."""
    table = Table(title="predicted schedules, in their steady state")
    names = ["trained/s", "tokens/s", "ratio", "age", "engine busy", "tools", "admission", "other", "trainer busy"]
    has_hours, has_price = "gpu_hours_per_million" in rows[0], "price_per_million" in rows[0]
    names += ["GPU h per million"] * has_hours + ["price"] * has_price
    table.add_column("schedule", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        engine = row["engine"]
        busy, tools, admission = (engine.get(state, 0.0) for state in ("sampling", "tools", "admission"))
        cells = [
            row["schedule"],
            f"{row['trajectories_per_s']:,.2f}",
            f"{row['sampled_tokens_per_s']:,.0f}",
            f"{row['trajectories_per_s'] / rows[0]['trajectories_per_s']:.2f}",
            f"{row['mean_age']:.2f}, {row['max_age']}",
            *(f"{share:.0%}" for share in (busy, tools, admission, sum(engine.values()) - busy - tools - admission)),
            f"{row['trainer'].get('training', 0.0):.0%}",
        ]
        cells += [f"{row['gpu_hours_per_million']:,.1f}"] if has_hours else []
        cells += [f"{row['price_per_million']:,.0f}"] if has_price else []
        table.add_row(*cells)
    return table
