"""Run the credit laboratory: every credit method in worlds whose true advantages are known, as JSON on standard output.

    python benchmarks/credit.py [--quick] [--seeds N] [--worlds ...] [--methods ...] [--workers N]
                                [--tables FILE] [--plots DIR]
    python benchmarks/credit.py --read RESULTS.json --tables FILE --plots DIR

Per method and world: the correlation of its advantages with the true ones and the quality of its gradient, under fixed
policies of three qualities; and the sampled tokens until the policy succeeds nine times in ten. `--tables` writes the
Markdown tables of docs/credit.md, `--plots` one picture per world (needs matplotlib). `--read` draws from earlier
results instead of measuring."""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from credit_plots import draw_world

sys.path.insert(0, str(Path(__file__).parent.parent))  # `laboratory` is not installed

from laboratory.arms import ARMS
from laboratory.experiment import QUICK, Settings, describe_world, run_arm
from laboratory.worlds import WORLDS


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute; the numbers say little")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--methods", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--plots", type=Path)
    arguments = parser.parse_args()
    settings = QUICK if arguments.quick else Settings()
    if arguments.seeds:
        settings = replace(settings, num_seeds=arguments.seeds)
    if arguments.read:
        results = json.loads(arguments.read.read_text(encoding="utf-8"))
    else:
        results = measure(settings, arguments.worlds, arguments.methods, arguments.workers)
        print(json.dumps(results, indent=1))
    if arguments.tables:
        arguments.tables.write_text(
            "\n\n".join(to_markdown(results, world) for world in results["worlds"]) + "\n", encoding="utf-8"
        )
    for world in results["worlds"] if arguments.plots else []:
        draw_world(results, world, arguments.plots / f"credit_{world['name']}.png")


def measure(settings: Settings, worlds: list[str], methods: list[str], num_workers: int) -> dict[str, Any]:
    """All results as plain data."""
    started = time.perf_counter()
    jobs = [(world, method, settings) for world in worlds for method in methods]
    if num_workers > 1:
        with ProcessPoolExecutor(num_workers) as pool:
            arms = list(pool.map(_run_job, jobs))
    else:
        arms = [_run_job(job) for job in jobs]
    return {
        "settings": asdict(settings),
        "seconds": time.perf_counter() - started,
        "num_workers": num_workers,
        "worlds": [describe_world(WORLDS[name](), settings) for name in worlds],
        "arms": arms,
    }


def _run_job(job: tuple[str, str, Settings]) -> dict[str, Any]:
    world, method, settings = job
    started = time.perf_counter()
    result = run_arm(WORLDS[world](), ARMS[method], settings)
    print(f"{world}: {method} ({time.perf_counter() - started:.1f} s)", file=sys.stderr)
    return result


def to_markdown(results: dict[str, Any], world: dict[str, Any]) -> str:
    """The table of one world, ordered by tokens with the small step."""
    arms = [arm for arm in results["arms"] if arm["world"] == world["name"]]
    qualities = [str(quality) for quality in results["settings"]["qualities"]]
    middle = qualities[len(qualities) // 2]
    grpo = next((arm["quality"][middle]["noise"] for arm in arms if arm["arm"] == "grpo"), None)
    heads = [f"r at {float(quality):.0%}" for quality in qualities]
    small = results["settings"]["learning_rates"][0]
    lines = [
        f"### {world['name']}: {world['summary']}",
        "",
        f"![{world['name']}](credit_{world['name']}.png)",
        "",
        f"{world['num_states']} states, {world['num_actions']} actions, at most {world['max_turns']} turns; the "
        f"uniform policy succeeds with probability {world['success_at_start']:.3f}, the best with "
        f"{world['best_success']:.3f}; budget {world['token_budget'] / 1000:,.0f}k tokens.",
        "",
        f"| method | {' | '.join(heads)} | cosine | cosine, large batch | variance | tokens to 90%, step {small:g} | "
        "tokens to 90%, tuned | step |",
        "|" + "---|" * (len(heads) + 7),
    ]
    for arm in sorted(arms, key=lambda arm: rank(arm["small_step"])):
        quality = arm["quality"][middle]
        name = f"*{arm['arm']}*" if arm["is_limit"] else arm["arm"]
        noise = "-" if quality["noise"] is None or not grpo else f"{quality['noise'] / grpo:.2f}"
        cells = [
            name,
            *(interval(arm["quality"][key]["correlation"]) for key in qualities),
            interval(quality["cosine"]),
        ]
        cells += ["-" if quality["bias_cosine"] is None else f"{quality['bias_cosine'][0]:.2f}", noise]
        cells += [cost(arm["small_step"]), cost(arm["tuned_step"]), f"{arm['tuned_step']['learning_rate']:g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rank(learning: dict[str, Any]) -> tuple[int, float]:
    """Sort key: methods that always reached the target by tokens, then others by how often, then by how far they
    got."""
    if learning["tokens_mean"]:
        return 0, learning["tokens_mean"][0]
    finals = learning["final_success"]
    return len(finals) - learning["num_reached"], 1 - sum(finals) / len(finals)


def interval(bounds: list[float] | None) -> str:
    """Format as `0.27 ± 0.02`."""
    return "-" if bounds is None else f"{bounds[0]:.2f} ± {bounds[2] - bounds[0]:.2f}"


def cost(learning: dict[str, Any]) -> str:
    """Format as `54k [48k, 61k]`, or as how many seeds reached the target and the mean final success of the others."""
    if learning["tokens_mean"]:
        mean, low, high = (to_thousands(value) for value in learning["tokens_mean"])
        return f"{mean} [{low}, {high}]"
    missed = [final for final, tokens in zip(learning["final_success"], learning["tokens"], strict=True) if not tokens]
    return f"{learning['num_reached']}/{len(learning['tokens'])}, else at {sum(missed) / len(missed):.2f}"


def to_thousands(tokens: float) -> str:
    """Format as `5.4k`, `54k`."""
    return f"{tokens / 1000:.1f}k" if tokens < 9950 else f"{tokens / 1000:.0f}k"


if __name__ == "__main__":
    main()
