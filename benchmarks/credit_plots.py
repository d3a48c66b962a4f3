"""Draw one picture per world of the credit laboratory. Only drawing imports matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLORS = ("#8fa6ee", "#4561b8", "#1c2c66")
"""Colours from the weakest policy to the strongest."""
CURVES = {
    "vine, exact values": "#9a9a9a",
    "turn_gae": "#1f7a5a",
    "gigpo, gamma 1": "#4561b8",
    "gigpo": "#8fa6ee",
    "multi_turn_grpo": "#b4581c",
    "grpo": "#14171a",
    "vine": "#b03a2e",
}


def draw_world(results: dict[str, Any], world: dict[str, Any], path: Path) -> None:
    """Draw correlation with the truth, tokens to the target and learning curves of one world into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    arms = [arm for arm in results["arms"] if arm["world"] == world["name"]]
    arms.sort(key=lambda arm: _order(arm, world), reverse=True)
    figure, (left, middle, right) = plt.subplots(
        1,
        3,
        figsize=(15, 1.8 + 0.24 * len(arms)),
        gridspec_kw={"width_ratios": [1.15, 1.15, 1.3]},
        layout="constrained",
    )
    qualities = results["settings"]["qualities"]
    colors = COLORS[-len(qualities) :]
    for row, arm in enumerate(arms):
        for color, measured in zip(colors, arm["quality"].values(), strict=True):
            if measured["correlation"]:
                mean, low, high = measured["correlation"]
                left.plot([low, high], [row, row], color=color, linewidth=1)
                left.plot([mean], [row], "o", color=color, markersize=4.5)
        for offset, color, marker, name in (
            (0.15, COLORS[1], "o", "small_step"),
            (-0.15, "#b4581c", "s", "tuned_step"),
        ):
            learning = arm[name]
            if learning["tokens_mean"]:
                mean, low, high = learning["tokens_mean"]
                middle.plot([low, high], [row + offset] * 2, color=color, linewidth=1)
                middle.plot([mean], [row + offset], marker, color=color, markersize=4.5, linestyle="none")
            else:
                share = f"{learning['num_reached']}/{len(learning['tokens'])}"
                middle.plot(
                    [world["token_budget"]], [row + offset], marker, color=color, markersize=4.5, fillstyle="none"
                )
                middle.annotate(
                    share,
                    (world["token_budget"], row + offset),
                    (5, -3),
                    textcoords="offset points",
                    fontsize=6,
                    color=color,
                )
    for axis in (left, middle):
        axis.set_yticks(range(len(arms)))
        axis.set_ylim(-0.7, len(arms) - 0.3)
        axis.grid(axis="both", color="#e3e4e0", linewidth=0.6)
        axis.set_axisbelow(True)
    left.set_yticklabels([arm["arm"] for arm in arms], fontsize=8)
    middle.set_yticklabels([])
    left.set_xlim(-0.15, 1.05)
    left.set_xlabel("correlation of a turn's advantage with the true one")
    dots = [_dot(plt, color, "o", f"{quality:.0%} success") for color, quality in zip(colors, qualities, strict=True)]
    left.legend(handles=dots, title="policy with", fontsize=8, title_fontsize=8, loc="center right")
    middle.set_xscale("log")
    means = [
        arm[name]["tokens_mean"][0] for arm in arms for name in ("small_step", "tuned_step") if arm[name]["tokens_mean"]
    ]
    middle.set_xlim(min([*means, world["token_budget"]]) / 2, world["token_budget"] * 1.8)
    middle.set_xlabel("sampled tokens until 90% success\n(hollow: seeds within the budget)", fontsize=9)
    handles = [_dot(plt, COLORS[1], "o", f"step {_rate(results)}"), _dot(plt, "#b4581c", "s", "tuned step")]
    middle.legend(handles=handles, fontsize=8, loc="upper right")
    _draw_curves(right, arms, world, _rate(results))
    figure.suptitle(f"{world['name']}: {world['summary']}", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_curves(axis: Any, arms: list[dict[str, Any]], world: dict[str, Any], rate: str) -> None:
    for name, color in CURVES.items():
        for arm in arms:
            if arm["arm"] == name:
                curve = arm["small_step"]["curve"]
                style = "--" if arm["is_limit"] else "-"
                axis.plot(curve["tokens"], curve["success"], style, color=color, linewidth=1.6, label=name)
    axis.axhline(0.9, color="#9a9a9a", linewidth=0.7, linestyle=":")
    axis.set_xscale("log")
    axis.set_xlim(world["token_budget"] / 1000, world["token_budget"])
    axis.set_ylim(0, 1.02)
    axis.grid(color="#e3e4e0", linewidth=0.6)
    axis.set_xlabel(f"sampled tokens, step {rate}")
    axis.set_ylabel("exact success probability, mean over seeds")
    axis.legend(fontsize=8, loc="upper left")


def _dot(plt: Any, color: str, marker: str, label: str) -> Any:
    return plt.Line2D([], [], color=color, marker=marker, linestyle="none", markersize=4.5, label=label)


def _rate(results: dict[str, Any]) -> str:
    return f"{results['settings']['learning_rates'][0]:g}"


def _order(arm: dict[str, Any], world: dict[str, Any]) -> float:
    learning = arm["small_step"]
    if learning["tokens_mean"]:
        return float(learning["tokens_mean"][0])
    finals = learning["final_success"]
    return float(world["token_budget"] * (2 + len(finals) - learning["num_reached"] - sum(finals) / len(finals)))
