"""`turnwise plan`: predict every schedule of a recipe, on this machine or on a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.recipe import split_recipe
from turnwise.core.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.config.run import RunConfig
    from turnwise.forecast.held import Shapes
    from turnwise.forecast.settings import ForecastSettings
    from turnwise.forecast.simulation.hardware import Cluster
    from turnwise.forecast.simulation.plan import Prediction
    from turnwise.forecast.simulation.work import Work

Pair = tuple[float, float]


def plan(
    recipe: Annotated[
        list[str] | None, typer.Argument(metavar="FILES... [a.b=value ...]", help="A recipe, as in `train`.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Stored run whose trajectories are the workload; without --gpus its times are also the costs."
        ),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Number of GPUs in the cluster.")] = None,
    gpu: Annotated[str, typer.Option(help="GPU type: a100, h100, h800 or h200.")] = "h100",
    engine_gpus: Annotated[int, typer.Option(min=1, help="GPUs per engine.")] = 1,
    trainer_gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs for the trainer; default: as many as it takes to keep up with the engines."),
    ] = None,
    sampled: Annotated[
        Pair | None, typer.Option(help="Sampled tokens per trajectory: median and 99th percentile.")
    ] = None,
    tool_seconds: Annotated[Pair, typer.Option(help="Seconds per tool call: median and 99th percentile.")] = (
        0.0,
        0.0,
    ),
    price: Annotated[float | None, typer.Option(min=0, help="Price of one GPU hour.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulate every schedule of a recipe: throughput, utilisation, staleness; on a cluster also memory and cost."""
    from turnwise.forecast.simulation.plan import describe_prediction
    from turnwise.reporting.console import print_table
    from turnwise.reporting.schedules import schedules_table

    if run is None and gpus is None:
        raise ConfigError("pass --gpus N to plan for a cluster, or --run RUN for the machine of a stored run")
    config = _read_config(recipe, run)
    if gpus is None:
        assert run is not None
        lines, predictions = _plan_machine(config, run)
    else:
        cluster = _read_cluster(gpus, gpu, engine_gpus, trainer_gpus)
        lines, predictions = _plan_cluster(config, cluster, run, sampled, tool_seconds, trainer_gpus is None)
    rows = [describe_prediction(each, num_gpus=gpus or 0, price=price) for each in predictions]
    if as_json:
        print(json.dumps({"plan": lines, "schedules": rows}, indent=1))
        return
    width = max(map(len, lines))
    for label, text in lines.items():
        print(f"{label:<{width}}  {text}")
    print_table(schedules_table(rows))


def _read_config(recipe: list[str] | None, run: Path | None) -> RunConfig:
    from turnwise.config.load import load_config, load_resolved

    files, overrides = split_recipe(recipe)
    if files:
        return load_config(files, overrides)
    if run is None:
        raise ConfigError("no recipe file given; for example `turnwise plan recipes/search_r1/tiny.toml --gpus 8`")
    return load_resolved(run / "config.json", overrides)


def _read_cluster(gpus: int, gpu: str, engine_gpus: int, trainer_gpus: int | None) -> Cluster:
    from turnwise.forecast.simulation.hardware import GPUS, Cluster

    if gpu not in GPUS:
        raise ConfigError(f"--gpu {gpu!r} is unknown; use one of {', '.join(GPUS)}")
    return Cluster(
        gpu=GPUS[gpu],
        num_gpus=gpus,
        engine_gpus=engine_gpus,
        trainer_gpus=trainer_gpus or 0,
        publication="files",
    )


def _plan_machine(config: RunConfig, run: Path) -> tuple[Mapping[str, str], Iterable[Prediction]]:
    """Predict the schedules on the machine of a stored run."""
    from turnwise.building.schedule import read_schedule
    from turnwise.config.load import load_resolved
    from turnwise.forecast.simulation.fit import fit_run
    from turnwise.forecast.simulation.plan import compare_schedules

    stored = load_resolved(run / "config.json")
    fitted = fit_run(run, read_schedule(stored), slots=stored.engine.max_concurrency)
    engine, costs = fitted.costs.engine, fitted.costs
    lines = {
        "engine": f"{engine.step_s * 1e3:.2f} ms per step, {engine.sequence_s * 1e6:.1f} µs per token, in {run.name}",
        "trainer": f"{costs.train_token_s * 1e6:.1f} µs per token, publication {costs.publish_s * 1e3:.1f} ms",
    }
    return lines, compare_schedules(read_schedule(config), fitted.work, together=None, apart=costs)


def _plan_cluster(
    config: RunConfig, cluster: Cluster, run: Path | None, sampled: Pair | None, tool_s: Pair, is_balanced: bool
) -> tuple[Mapping[str, str], Iterable[Prediction]]:
    """Predict the schedules on a cluster; `is_balanced` chooses the number of trainer GPUs."""
    from turnwise.building.forecasting import read_forecast_settings
    from turnwise.building.resolved import resolve
    from turnwise.building.schedule import read_schedule
    from turnwise.building.sizes import measure_recipe
    from turnwise.forecast.activations import MAX_MICRO_BATCH_TOKENS
    from turnwise.forecast.held import BYTES
    from turnwise.forecast.simulation.fit import read_work
    from turnwise.forecast.simulation.hardware import balance_gpus, estimate_costs
    from turnwise.forecast.simulation.plan import compare_schedules
    from turnwise.forecast.timing import count_scorings

    resolved = resolve(config)
    shapes = measure_recipe(config, resolved.copies)
    if shapes is None:
        raise ConfigError(
            "the model's sizes are unknown; use a model that is stored on this machine, or set model.config"
        )
    shape = shapes.policy
    work: Work = _assume_work(config, sampled, tool_s) if run is None else read_work(run)
    known = {"item": BYTES[config.model.dtype], "context": config.rollout.max_tokens}
    known["num_scorings"] = count_scorings(config.loss)
    known["micro_batch_tokens"] = config.train.micro_batch_tokens or MAX_MICRO_BATCH_TOKENS
    shared = replace(cluster, trainer_gpus=0)
    together = estimate_costs(shape, shared, **known)
    base = replace(read_schedule(config), max_open=config.rollout.max_open or None)
    if is_balanced:
        members = config.rollout.group_size
        num_open = 2 * members * config.rollout.tasks_per_step  # as in the first asynchronous schedule
        chosen = balance_gpus(together, work, cluster, group_size=members, num_open=num_open)
        cluster = replace(cluster, trainer_gpus=chosen)
    apart = estimate_costs(shape, cluster, **known)
    lines = _describe_cluster(read_forecast_settings(resolved), shapes, cluster)
    return lines, compare_schedules(base, work, together=together, apart=apart)


def _assume_work(config: RunConfig, sampled: Pair | None, tool_s: Pair) -> Work:
    from turnwise.forecast.simulation.work import AssumedWork, Spread

    rollout = config.rollout
    most = min(rollout.max_tokens - 1, rollout.max_turns * rollout.max_turn_tokens)
    median, p99 = sampled or (most / 4, float(most))
    context = max(1, rollout.max_tokens - most)
    observation = context // (2 * rollout.max_turns)
    try:
        return AssumedWork(
            prompt=context - observation * (rollout.max_turns - 1),
            sampled=Spread(median=median, p99=p99),
            turns=rollout.max_turns,
            observation=observation,
            tool_s=Spread(median=tool_s[0], p99=tool_s[1]),
            max_sampled=most,
            seed=config.run.seed,
        )
    except ValueError as error:
        raise ConfigError(f"--sampled or --tool-seconds: {error}") from error


def _describe_cluster(settings: ForecastSettings, shapes: Shapes, cluster: Cluster) -> dict[str, str]:
    from turnwise.forecast.held import BYTES
    from turnwise.forecast.memory import plan_rank
    from turnwise.forecast.simulation.hardware import describe_today, plan_gpus, plan_traffic

    rollout, shape = settings.rollout, shapes.policy
    num_open = rollout.max_open or rollout.tasks_per_step * rollout.group_size
    # Trained weights are divided evenly over the trainer's GPUs (fully sharded), whatever train.ranks says.
    trainer = plan_rank(settings, shapes, num_ranks=cluster.num_ranks)
    item, context = BYTES[settings.model.dtype], rollout.max_tokens
    memory = plan_gpus(trainer, shape, cluster, item=item, context=context, num_open=num_open)
    rank = memory.trainer
    parts = {
        "states": rank.states,
        "one layer": rank.gathered,
        "activations": rank.activations,
        "logits": rank.logits,
    }
    lines = {
        "parameters": f"about {shape.num_parameters:,}",
        "GPUs": f"{cluster.num_gpus:,}: {cluster.num_engines:,} engines of {cluster.engine_gpus}, trainer "
        f"{cluster.trainer_gpus:,}",
        "runs today": describe_today(cluster),
        "memory of a trainer's GPU": _describe_memory(
            rank.peak,
            cluster,
            "lower train.micro_batch_tokens, set train.recompute_activations, or more --trainer-gpus",
        ),
        "of it": ", ".join(f"{name} {size / 1e9:,.1f}" for name, size in parts.items() if size),
        "memory of an engine's GPU": _describe_memory(
            memory.engine, cluster, "its cache holds fewer trajectories and the others wait"
        ),
    }
    traffic = plan_traffic(shape, cluster, item=item)
    if traffic is not None:
        lines["traffic of a rank"] = (
            f"{traffic.gathered / 1e9:,.1f} GB of weights and {traffic.reduced / 1e9:,.1f} GB of gradients per "
            f"micro-batch, {traffic.seconds:,.2f} s over {traffic.link}, while it computes"
        )
    return lines


def _describe_memory(num_bytes: float, cluster: Cluster, remedy: str) -> str:
    text = f"{num_bytes / 1e9:,.1f} of {cluster.gpu.memory / 1e9:,.0f} GB"
    return text if num_bytes <= cluster.gpu.memory * cluster.efficiency.memory else f"{text}: too much, {remedy}"
