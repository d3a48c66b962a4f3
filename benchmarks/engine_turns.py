"""Measure the cost of each further turn of a conversation: a plot, and JSON on standard output.

    python benchmarks/engine_turns.py [--turns 50] [--size 2M] [--limit-s 240] [--plot FILE] [--only NAME ...]

The multi-turn work of `engine.py` (64 trajectories in groups of 8, 300-token system prompt, replies of 24 tokens,
observations of 32), once per contender after a short warm-up. Processor seconds of the contender's processes are read
after every turn; a contender that has used `--limit-s` stops there, and the JSON says after how many turns. One thread
each, one contender at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from itertools import pairwise
from pathlib import Path

import torch
from engine import (
    GROUP_SIZE,
    GROUPS,
    NAMES,
    SIZES,
    Contender,
    Missing,
    Prompts,
    contenders,
    multi_turn,
    multi_turn_context,
    start_peers,
)

COLORS = {"paged": "#4561b8", "generate": "#14171a", "vllm": "#1f7a5a", "vllm_http": "#b4581c", "slots": "#9a9a9a"}
LABELS = {
    "paged": "Turnwise",
    "generate": "generate, whole history",
    "vllm": "vLLM, library",
    "vllm_http": "vLLM, HTTP",
    "slots": "slots",
}


class _LimitReached(Exception):
    """Raised when a contender has used up its time."""


def measure_turns(size: str, turns: int, entry: Contender, limit_s: float) -> list[float]:
    """Processor seconds from the start to the end of each turn; shorter than `turns` if the limit came first. Raises
    Missing."""
    multi_turn(size, 2)(entry.turn, 0)
    entry.finish()
    start, ends = entry.processor_s(), []

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        replies = entry.turn(prompts, new_tokens)
        ends.append(entry.processor_s() - start)
        if ends[-1] > limit_s:
            raise _LimitReached
        return replies

    with contextlib.suppress(_LimitReached):
        multi_turn(size, turns)(turn, 1)
    entry.finish()
    return ends


def draw(seconds_per_turn: dict[str, list[float]], path: Path) -> None:
    """Draw processor seconds over turns."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (total, each) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name, ends in seconds_per_turn.items():
        numbers = range(1, len(ends) + 1)
        label = LABELS.get(name, name)
        total.plot(numbers, ends, color=COLORS.get(name), label=label)
        each.plot(
            numbers, [b - a for a, b in zip([0.0, *ends], ends, strict=False)], color=COLORS.get(name), label=label
        )
    # A peer with quadratic growth may leave the axis, so that ours stays readable.
    ours = seconds_per_turn["paged"]
    for axis, highest in ((total, ours[-1]), (each, max(b - a for a, b in pairwise(ours)))):
        axis.set_ylim(0, min(4 * highest, axis.get_ylim()[1]))
    for axis, name in ((total, "processor seconds up to the end of a turn"), (each, "processor seconds of a turn")):
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("turn")
        axis.grid(color="#e3e4e0", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    total.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--size", default="2M", choices=sorted(SIZES))
    parser.add_argument("--limit-s", type=float, default=240.0)
    parser.add_argument("--plot", type=Path)
    parser.add_argument(
        "--only", nargs="*", default=["generate", "vllm", "vllm_http"], choices=NAMES, help="beside paged"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    context = multi_turn_context(options.turns)
    names = ["paged", *options.only]
    peers, missing = start_peers(options.size, GROUPS * GROUP_SIZE, context, names)
    seconds_per_turn: dict[str, list[float]] = {}
    try:
        for name in names:
            entry = peers.get(name) or contenders(options.size, GROUPS * GROUP_SIZE, context, [name]).get(name)
            if entry is None:
                continue
            try:
                seconds_per_turn[name] = measure_turns(options.size, options.turns, entry, options.limit_s)
            except Missing as cause:
                missing[name] = str(cause)
                continue
            print(
                f"{name}: {len(seconds_per_turn[name])} turns, {seconds_per_turn[name][-1]:.1f} processor seconds",
                file=sys.stderr,
                flush=True,
            )
    finally:
        for peer in peers.values():
            peer.close()
    if options.plot is not None:
        draw(seconds_per_turn, options.plot)
    print(json.dumps({"size": options.size, "processor_s_after_turn": seconds_per_turn, "missing": missing}, indent=1))


if __name__ == "__main__":
    main()
