"""The tables of docs/questions.md, and questions to read.

    python benchmarks/questions.py expand            strategies of expansion: flaws and effort
    python benchmarks/questions.py invert            hard to find, easy to check
    python benchmarks/questions.py fog               candidates that obfuscation leaves
    python benchmarks/questions.py budgets [--plot FILE]   scripted searchers against calls and votes
    python benchmarks/questions.py read --count 50   expanded and inverted questions

Everything here is scripted: no model is trained or asked, and a table takes less than a minute of one core."""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import mean

from turnwise.core.types import Scored, Task
from turnwise.environments.episodes import Played, play_episode
from turnwise.environments.search_qa.projection import Constant
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise_synthesis.browsecomp.calibration import read_confidence
from turnwise_synthesis.browsecomp.effort import Attempt, Point, rate_ways
from turnwise_synthesis.browsecomp.family import BrowseComp
from turnwise_synthesis.browsecomp.invert import Plan, invert_many
from turnwise_synthesis.browsecomp.measure import measure_worth
from turnwise_synthesis.runs.questions import expand_scene, invert_scene
from turnwise_synthesis.shaper.expand import STRATEGIES, grow_many
from turnwise_synthesis.shaper.flaws import Flaw, find_flaws
from turnwise_synthesis.shaper.obfuscation import count_candidates, obfuscate
from turnwise_synthesis.shaper.scene import Scene, build_world_scene
from turnwise_synthesis.shaper.verdict import count_searches

SEEDS = range(2)
PER_WORLD = 50
TOP_K, RECALL_K = 3, 5
NUM_TASKS = 100
KINDS = ("person", "place", "organisation", "work")
BUDGETS = (0, 1, 2, 3, 4, 6, 8, 12)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["expand", "invert", "fog", "budgets", "read"])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.table == "read":
        print(*list_questions(arguments.seed, arguments.count), sep="\n")
    elif arguments.table == "budgets":
        print(*list_budgets(arguments.plot), sep="\n")
    else:
        tables = {"expand": list_expansions, "invert": list_inversions, "fog": list_fog}
        print(*tables[arguments.table](), sep="\n")


def build_scenes(num_entities: int) -> list[Scene]:
    """Held-out worlds of the seeds."""
    return [
        build_world_scene("heldout", seed, num_entities=num_entities, num_words=64, num_distractors=0) for seed in SEEDS
    ]


def list_expansions() -> Iterator[str]:
    """Flaws and effort of every strategy, by layers."""
    flaw_names = " | ".join(flaw.value for flaw in Flaw)
    yield f"| strategy | layers | made of tried | {flaw_names} | solved | searches | ms each |"
    yield "|---" * (6 + len(Flaw)) + "|"
    scenes = build_scenes(120)
    for strategy in STRATEGIES:
        for layers in (1, 2, 3):
            tried, flaws, efforts, made_all = 0, Counter[Flaw](), list[int | None](), 0
            started = time.process_time()
            for seed, scene in zip(SEEDS, scenes, strict=True):
                made, outcomes = grow_many(
                    scene.graph, Random(seed), count=PER_WORLD, width=2, layers=layers, strategy=strategy
                )
                tried += sum(outcomes.values())
                made_all += len(made)
                for answer, query in made:
                    flaws.update({found.flaw for found in find_flaws(query, answer, scene, top_k=TOP_K)})
                    efforts.append(count_searches(query, answer, scene, top_k=TOP_K))
            spent = 1000 * (time.process_time() - started) / max(1, made_all)
            solved = [each for each in efforts if each is not None]
            shares = " | ".join(write_share(flaws[flaw], made_all) for flaw in Flaw)
            effort = f"{mean(solved):.1f}" if solved else "-"
            yield (
                f"| {strategy} | {layers} | {made_all} of {tried} | {shares} | {write_share(len(solved), made_all)} | "
                f"{effort} | {spent:.0f} |"
            )


def list_inversions() -> Iterator[str]:
    """Recall of one search, needless conditions, and the cost of finding and of checking."""
    yield "| entities | names | leaves | made of tried | recall@5 | needless | found | to find | to check | ms each |"
    yield "|---" * 10 + "|"
    for num_entities in (120, 400):
        scenes = build_scenes(num_entities)
        for plan in (Plan(distance=1), Plan(distance=2), Plan(distance=2, min_candidates=4)):
            started = time.process_time()
            questions, tried = [], 0
            for seed, scene in zip(SEEDS, scenes, strict=True):
                made, outcomes = invert_many(scene.graph, Random(seed), plan, count=PER_WORLD, kinds=KINDS)
                questions += [(each, scene) for each in made]
                tried += sum(outcomes.values())
            spent = 1000 * (time.process_time() - started) / max(1, len(questions))
            worth = measure_worth(questions, top_k=TOP_K, recall_k=RECALL_K)
            names = "neighbours" if plan.distance == 1 else "their neighbours"
            found = write_share(worth.found, worth.count)
            yield (
                f"| {num_entities} | {names} | {plan.min_candidates} | {len(questions)} of {tried} | "
                f"{write_share(worth.recalled, worth.count)} | {worth.needless} | {found} | "
                f"{worth.find_searches or 0:.1f} | {worth.check_searches or 0:.1f} | {spent:.0f} |"
            )


def list_fog() -> Iterator[str]:
    """Mean candidates and bits that each operator leaves of one entity."""
    yield "| operator | applies to | mean candidates | fog, bits |"
    yield "|---|---|---|---|"
    for scene in build_scenes(400)[:1]:
        for operator in ("first", "initial", "type", "decade"):
            vague = [obfuscate(Constant(entity), operator, scene.graph) for entity in scene.graph.entities]
            counts = [count_candidates(each, scene.graph) for each in vague if each is not None]
            bits = mean(map(math.log2, counts))
            yield f"| {operator} | {len(counts)} of {len(vague)} | {mean(counts):.1f} | {bits:.2f} |"


def list_budgets(plot: Path | None) -> Iterator[str]:
    """Success of scripted searchers against the calls allowed, and of votes among the naive one's attempts."""
    rows: dict[str, list[tuple[int, float, float, float]]] = {"oracle": [], "naive": []}
    family = BrowseComp()
    tasks = [family.task("heldout", index) for index in range(NUM_TASKS)]
    for budget in BUDGETS:
        limited = BrowseComp(max_searches=budget)
        for name, found in rows.items():
            rewards = [play(limited, name, task, number).reward for number, task in enumerate(tasks)]
            right = sum(isinstance(reward, Scored) and reward.total == 1.0 for reward in rewards)
            found.append((budget, right / NUM_TASKS, *compute_wilson_interval(right, NUM_TASKS)))
    yield "| searches allowed | " + " | ".join(rows) + " |"
    yield "|---" * (1 + len(rows)) + "|"
    for number, budget in enumerate(BUDGETS):
        cells = [f"{share:.2f} [{low:.2f}, {high:.2f}]" for _, share, low, high in (rows[n][number] for n in rows)]
        yield f"| {budget} | {' | '.join(cells)} |"
    attempts = [[to_attempt(family, task, number, seed) for seed in range(16)] for number, task in enumerate(tasks)]
    points = rate_ways(attempts)
    yield ""
    yield from list_ways(points)
    if plot is not None:
        draw(plot, rows, points)


def list_ways(points: Sequence[Point]) -> Iterator[str]:
    """A table of ways to choose by number of attempts."""
    sizes = sorted({point.attempts for point in points})
    yield "| of n attempts | " + " | ".join(map(str, sizes)) + " |"
    yield "|---" * (1 + len(sizes)) + "|"
    for way in dict.fromkeys(point.way for point in points):
        cells = [f"{p.success:.2f} [{p.low:.2f}, {p.high:.2f}]" for p in points if p.way == way]
        yield f"| {way} | {' | '.join(cells)} |"


def to_attempt(family: BrowseComp, task: Task, number: int, seed: int) -> Attempt:
    """An attempt of the naive searcher."""
    played = play(family, "naive", task, 1000 * seed + number)
    last = played.replies[-1].text
    return Attempt(
        answer=last,
        is_right=isinstance(played.reward, Scored) and played.reward.total == 1.0,
        stated=read_confidence(last),
        searches=len(played.replies) - 1,
    )


def play(family: BrowseComp, policy: str, task: Task, seed: int) -> Played:
    """One episode."""
    return asyncio.run(play_episode(family, task, family.policy(policy), seed=seed, max_turns=40))


def list_questions(seed: int, count: int) -> Iterator[str]:
    """Expanded and inverted questions, with what was dropped."""
    for name, scene in (("expanded", 120), ("inverted", 400)):
        world = build_world_scene("heldout", seed, num_entities=scene, num_words=64, num_distractors=0)
        if name == "expanded":
            rows, counts = expand_scene(
                world, seed=seed, count=count, width=2, layers=2, strategy="layer", top_k=TOP_K, keep_flawed=False
            )
        else:
            rows, counts = invert_scene(world, seed=seed, count=count, plan=Plan(distance=2), top_k=RECALL_K)
        yield f"{name}: {', '.join(f'{key} {value}' for key, value in counts.items()).replace('_', ' ')}"
        for number, row in enumerate(rows, 1):
            yield f"{number:>3} {row['question']}  = {row['answers'][0]}"


def write_share(count: int, total: int) -> str:
    """A share with its Wilson interval."""
    low, high = compute_wilson_interval(count, total)
    return f"{count / max(1, total):.2f} [{low:.2f}, {high:.2f}]"


def draw(path: Path, rows: dict[str, list[tuple[int, float, float, float]]], points: Sequence[Point]) -> None:
    """Draw success against calls, and against the searches of n attempts."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for name, found in rows.items():
        left.plot([row[0] for row in found], [row[1] for row in found], marker="o", label=name)
        left.fill_between([r[0] for r in found], [r[2] for r in found], [r[3] for r in found], alpha=0.15)
    left.set(xlabel="searches allowed", ylabel="success", ylim=(0, 1.02), title="one attempt")
    left.legend()
    for way in dict.fromkeys(point.way for point in points):
        mine = [point for point in points if point.way == way]
        right.plot([point.searches for point in mine], [point.success for point in mine], marker=".", label=way)
    right.set(xlabel="searches of all attempts", title="n attempts of the naive searcher")
    right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
