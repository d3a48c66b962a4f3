"""Draw line charts as inline SVG; the page's style sheet gives the colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeGuard

WIDTH, HEIGHT = 420, 200
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 26
"""Margins around the plot, in the units of the view box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line."""

    label: str
    points: tuple[tuple[float, float | None], ...]
    """`(x, y)` in order of x; a y of None leaves a gap."""
    dots: bool = False
    """Whether to mark every point and draw the line between them faintly, for few points."""

    @property
    def values(self) -> list[float]:
        """Every y that can be drawn: neither None nor infinite."""
        return [y for _, y in self.points if _is_drawn(y)]


def _is_drawn(y: float | None) -> TypeGuard[float]:
    return y is not None and math.isfinite(y)


def draw_chart(title: str, series: Sequence[Series], *, x_label: str, note: str = "") -> str:
    """Draw a figure with axes, grid, legend and each line's last value; "" if no series has a value. x counts steps, in
    whole numbers."""
    shown = [s for s in series if s.values]
    if not shown:
        return ""
    xs = [x for s in shown for x, _ in s.points]
    ys = [y for s in shown for y in s.values]
    x_ticks = compute_ticks(min(xs), max(xs), 5)
    y_ticks = compute_ticks(min(0.0, *ys), max(ys), 4)
    x_low, x_high = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(across, 1), round(down, 1)

    parts = []
    for tick in y_ticks:
        _, y = at(x_low, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 3.5}" text-anchor="end">{format_number(tick)}</text>')
    for tick in x_ticks:
        if x_low <= tick <= x_high and tick == int(tick):
            x, _ = at(tick, y_low)
            parts.append(f'<text x="{x}" y="{HEIGHT - 9}" text-anchor="middle">{format_number(tick)}</text>')
    for number, line in enumerate(shown, start=1):
        parts += _draw_line(line, number, at)
    legend = "".join(
        f'<span class="key k{number}">{escape(line.label)} <b>{format_number(line.values[-1])}</b></span>'
        for number, line in enumerate(shown, start=1)
    )
    caption = (
        f'<figcaption><b>{escape(title)}</b><span class="note">{escape(note)}</span></figcaption>'
        f'<div class="legend">{legend}</div>'
    )
    label = f"{title}: {', '.join(line.label for line in shown)} over {x_label}"
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    return f'<figure class="chart">{caption}{svg}<div class="axis">{escape(x_label)}</div></figure>'


def _draw_line(line: Series, number: int, at: Callable[[float, float], tuple[float, float]]) -> list[str]:
    """Draw the unbroken stretches of a line; a stretch of one point is a dot."""
    stretches: list[list[tuple[float, float]]] = [[]]
    for x, y in line.points:
        if not _is_drawn(y):
            stretches.append([])
        else:
            stretches[-1].append(at(x, y))
    parts = []
    for stretch in stretches:
        if len(stretch) > 1:
            path = " ".join(f"{x},{y}" for x, y in stretch)
            faint = " faint" if line.dots else ""
            parts.append(f'<polyline class="line s{number}{faint}" points="{path}"/>')
        if line.dots or len(stretch) == 1:
            parts += [f'<circle class="dot s{number}" cx="{x}" cy="{y}" r="3.2"/>' for x, y in stretch]
    return parts


def compute_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers, 1, 2, 2.5 or 5 times a power of ten apart, that cover `low` to `high`."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / count
    exponent = math.floor(math.log10(rough))
    power = 10.0**exponent
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 2 - exponent) for index in range(first, last + 1)]


def format_number(value: float) -> str:
    """Format briefly: `0.25`, `12`, `5.2k`, `1.3M`, `2e-05`."""
    size = abs(value)
    if size >= 999_950:
        return f"{value / 1e6:.3g}M"
    if size >= 10_000:
        return f"{value / 1e3:.3g}k"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"
