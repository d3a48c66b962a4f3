"""Draw the section of report.html on the curriculum: what was drawn, and what it earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.reporting.charts import Series, draw_chart
from turnwise.reporting.style import NUM_COLOURS

CHARTS = (
    ("pool_share_", "Draws by pool", "Share of a step's groups that were drawn from it."),
    ("pool_reward_", "Reward by pool", "Mean over groups, as curriculum.metric says; none where none was drawn."),
    ("kind_share_", "Draws by kind", "Share of a step's groups."),
    ("kind_reward_", "Reward by kind", "Mean over groups, as curriculum.metric says; none where none was drawn."),
    ("chance_", "Chances of kinds", "With which the sampler draws each of them next."),
    ("tasks_", "Tasks the sampler remembers", "By pool."),
)
"""Start of the metrics' names behind "curriculum/", title and note."""


def draw_curriculum(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Draw one chart for each thing that the sampler reports; "" for a run that draws its tasks in order."""
    rows = [row for row in metrics if row["phase"] == "train"]
    charts = []
    for start, title, note in CHARTS:
        prefix = f"curriculum/{start}"
        names = sorted({name for row in rows for name in row if name.startswith(prefix)})
        is_share = start.endswith("_share_")
        for first in range(0, len(names), NUM_COLOURS):
            lines = [
                Series(
                    label=name.removeprefix(prefix),
                    points=tuple((row["step"], row.get(name, 0.0 if is_share else None)) for row in rows),
                )
                for name in names[first : first + NUM_COLOURS]
            ]
            charts.append(draw_chart(title, lines, x_label="RL step", note=note))
    return "".join(charts)
