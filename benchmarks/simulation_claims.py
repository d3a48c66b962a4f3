"""Simulate published speed-ups of two systems, and when asynchrony begins to pay, from assumptions: no GPU is used.

    python benchmarks/simulation_claims.py [areal] [seer] [latency] [scale]

"areal": what asynchronous schedules gain over synchronous ones if only long replies delay a batch. "seer": what
dividing rollouts, placing them anew, starting long groups first and drafting tokens gain within one synchronous
rollout. "latency": the ratio of every schedule to the synchronous one by the latency of tools. "scale": the same recipe
from 1 to 10,000 GPUs, with the seconds that the simulation took."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from turnwise.forecast.simulation.costs import Costs
from turnwise.forecast.simulation.hardware import GPUS, Cluster, balance_gpus, estimate_costs
from turnwise.forecast.simulation.outcome import Outcome
from turnwise.forecast.simulation.system import Schedule, SimulatedRun
from turnwise.forecast.simulation.work import AssumedWork, Spread, Work, divide
from turnwise.models.shape import ModelShape
from turnwise.rollout.gate import AdmissionRule

SMALL = ModelShape(
    vocab_size=151_936,
    hidden_size=1536,
    intermediate_size=8960,
    num_layers=28,
    num_heads=12,
    num_kv_heads=2,
    head_dim=128,
    tied=True,
)
"""A dense model of 1.5 billion parameters, with the sizes of Qwen2.5-1.5B."""
MIDDLE = replace(
    SMALL, hidden_size=3584, intermediate_size=18_944, num_heads=28, num_kv_heads=4, vocab_size=152_064, tied=False
)
"""A dense model of 7 billion parameters, with the sizes of Qwen2.5-7B."""


def schedule_of(batch: int, members: int, staleness: int, *, max_open: int | None = None) -> Schedule:
    """Batches of a number of groups, with as many open as the staleness allows."""
    rule = AdmissionRule(batch_groups=batch, max_staleness=staleness, max_open_groups=(staleness + 1) * batch)
    return Schedule(rule=rule, group_size=members, max_open=max_open)


def simulate(schedule: Schedule, costs: Costs, work: Work, steps: int) -> Outcome:
    """Simulate one run."""
    return SimulatedRun(schedule, costs, work, steps=steps).run()


def measure_rate(schedule: Schedule, costs: Costs, work: Work) -> tuple[float, Outcome]:
    """Trained trajectories per second in the middle half of a run. Batches may come in bursts of one more than the
    staleness, so two such bursts are measured, and one at either end is left out."""
    burst = schedule.rule.max_staleness + 1
    outcome = simulate(schedule, costs, work, steps=4 * burst)
    return outcome.steady_rate(burst), outcome


def show(*cells: object) -> None:
    """One line of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def reproduce_areal(batch: int = 64, members: int = 16) -> None:
    """Compare synchronous training on shared GPUs with asynchronous training on separate GPUs."""
    work = AssumedWork(
        prompt=1024, sampled=Spread(median=6000, p99=60_000), max_sampled=27_648, judge_s=1.0, likeness=0.5
    )
    show("model", "GPUs", "synchronous, shared GPUs", "overlap", "staleness 2", "staleness 4")
    show(*["---"] * 6)
    for name, shape, gpus in (("1.5B", SMALL, 32), ("7B", MIDDLE, 48)):
        cluster = Cluster(gpu=GPUS["h800"], num_gpus=gpus)
        shared = estimate_costs(shape, cluster, item=2, context=16_000)
        open_members = 2 * batch * members
        trainers = balance_gpus(shared, work, cluster, group_size=members, num_open=open_members)
        apart = estimate_costs(shape, replace(cluster, trainer_gpus=trainers), item=2, context=16_000)
        base = simulate(schedule_of(batch, members, 0), shared, work, steps=3).trajectories_per_s
        rates = []
        for staleness in (1, 2, 4):
            rates.append(measure_rate(schedule_of(batch, members, staleness), apart, work)[0] / base)
        show(name, f"{gpus} ({trainers} train)", f"{base:.2f}/s", *(f"{rate:.2f}x" for rate in rates))


def reproduce_seer(groups: int = 100, members: int = 8) -> None:
    """Simulate one synchronous rollout on 8 engines of 1 GPU."""
    work = AssumedWork(prompt=512, sampled=Spread(median=9000, p99=60_000), max_sampled=65_536, likeness=0.8)
    cluster = Cluster(gpu=GPUS["h800"], num_gpus=8)
    costs = replace(estimate_costs(MIDDLE, cluster, item=2, context=16_000), train_token_s=0.0, publish_s=0.0)
    slots = (costs.engine.slots or 1) * costs.num_engines
    pieces = divide(work, 4096)
    # Drafts from the group's earlier replies: two tokens per step if a step is bound by memory.
    drafted = replace(costs.engine, step_s=costs.engine.step_s / 1.6, attended_s=costs.engine.attended_s / 1.6)
    arms: Mapping[str, tuple[Schedule, Costs, Work]] = {
        "groups stay on one engine": (schedule_of(groups, members, 0), replace(costs, placement="group"), work),
        "trajectories go wherever there is room": (schedule_of(groups, members, 0), costs, work),
        "split, reassigned every 4,096 tokens": (
            schedule_of(groups, members, 0),
            replace(costs, placement="turn"),
            pieces,
        ),
        "also with long groups first": (
            schedule_of(groups, members, 0, max_open=slots),
            replace(costs, placement="turn"),
            pieces,
        ),
        "and 1.6 tokens per step by drafts": (
            schedule_of(groups, members, 0, max_open=slots),
            replace(costs, placement="turn", engine=drafted),
            pieces,
        ),
    }
    show("rollout", "seconds", "throughput", "engines busy")
    show(*["---"] * 4)
    first = 0.0
    for name, (schedule, system, each) in arms.items():
        outcome = simulate(schedule, system, each, steps=1)
        first = first or outcome.seconds
        busy = outcome.share(outcome.engine, "sampling")
        show(name, f"{outcome.seconds:,.0f}", f"{first / outcome.seconds:.2f}x", f"{busy:.0%}")


def sweep_latency() -> None:
    """Increase the latency of tools, with a 99th percentile of 8 times the median, on 16 GPUs."""
    cluster = Cluster(gpu=GPUS["h100"], num_gpus=16)
    show("tool: median s", "overlap", "staleness 2", "staleness 4", "engine busy: synchronous", "staleness 4")
    show(*["---"] * 6)
    for median in (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0):
        work = AssumedWork(
            prompt=1000,
            sampled=Spread(median=2000, p99=4000),
            turns=5,
            observation=300,
            tool_s=Spread(median=median, p99=8 * median),
        )
        shared = estimate_costs(MIDDLE, cluster, item=2, context=8000)
        trainers = balance_gpus(shared, work, cluster, group_size=8, num_open=512)
        apart = estimate_costs(MIDDLE, replace(cluster, trainer_gpus=trainers), item=2, context=8000)
        base = simulate(schedule_of(32, 8, 0), shared, work, steps=4)
        cells, busy = [], 0.0
        for staleness in (1, 2, 4):
            rate, outcome = measure_rate(schedule_of(32, 8, staleness), apart, work)
            cells.append(f"{rate / base.trajectories_per_s:.2f}x")
            busy = outcome.share(outcome.engine, "sampling")
        show(f"{median:g}", *cells, f"{base.share(base.engine, 'sampling'):.0%}", f"{busy:.0%}")


def sweep_scale() -> None:
    """Staleness 1 from one engine and trainer to 10,000 GPUs, with a batch that grows with them."""
    work = AssumedWork(
        prompt=1000,
        sampled=Spread(median=2000, p99=8000),
        turns=4,
        observation=300,
        tool_s=Spread(median=1.0, p99=10.0),
    )
    show("GPUs", "groups of 8 per batch", "trained/s", "engine busy", "trainer busy", "simulated in")
    show(*["---"] * 6)
    for gpus in (2, 10, 100, 1000, 10_000):
        began = time.perf_counter()
        batch = max(4, gpus // 8)
        cluster = Cluster(gpu=GPUS["h100"], num_gpus=gpus)
        shared = estimate_costs(MIDDLE, cluster, item=2, context=8000)
        trainers = balance_gpus(shared, work, cluster, group_size=8, num_open=16 * batch)
        apart = estimate_costs(MIDDLE, replace(cluster, trainer_gpus=trainers), item=2, context=8000)
        rate, outcome = measure_rate(schedule_of(batch, 8, 1), apart, work)
        busy, training = outcome.share(outcome.engine, "sampling"), outcome.share(outcome.trainer, "training")
        seconds = f"{time.perf_counter() - began:.1f} s"
        show(
            f"{gpus:,} ({trainers:,} train)",
            f"{batch:,}",
            f"{rate:,.1f}",
            f"{busy:.0%}",
            f"{training:.0%}",
            seconds,
        )


PARTS = {"areal": reproduce_areal, "seer": reproduce_seer, "latency": sweep_latency, "scale": sweep_scale}


def main() -> None:
    """Print the tables that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    for part in iterate(parser.parse_args().parts):
        print(f"\n{part}\n")
        PARTS[part]()


def iterate(parts: list[str]) -> Iterator[str]:
    """Yield the lines of the parts, in the order of `PARTS`."""
    return (part for part in PARTS if part in parts)


if __name__ == "__main__":
    main()
