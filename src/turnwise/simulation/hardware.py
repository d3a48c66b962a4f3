"""What engines and trainers take on GPUs, from a model's sizes and a GPU's data sheet: a roofline, not a measurement.

A decode step reads every weight once and every attended key and value; it computes two operations per weight and
sequence. A context costs two operations per weight and token, a training step six per weight and token, and two more
for each scoring pass. What GPUs reach of their data sheet is assumed (`Efficiency`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from turnwise.config.memory import BYTES, ModelShape, plan_memory
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.simulation.costs import Costs, EngineCosts, Placement
from turnwise.simulation.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The data sheet of one GPU."""

    flops: float
    """Dense bfloat16 operations per second."""
    memory: float
    """Bytes."""
    bandwidth: float
    """Bytes of memory per second."""
    link: float = 50e9
    """Bytes per second over the network to other GPUs: 400 Gbit/s."""


GPUS: Mapping[str, Gpu] = {
    "a100": Gpu(flops=312e12, memory=80e9, bandwidth=2.04e12, link=25e9),
    "h100": Gpu(flops=989e12, memory=80e9, bandwidth=3.35e12),
    "h800": Gpu(flops=989e12, memory=80e9, bandwidth=3.35e12),
    "h200": Gpu(flops=989e12, memory=141e9, bandwidth=4.8e12),
}
"""NVIDIA's SXM variants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The share of a data sheet that is reached, and what no data sheet says. Assumptions."""

    decoding: float = 0.6
    """Of the memory's bandwidth."""
    computing: float = 0.4
    """Of the operations, in training and over contexts."""
    step_s: float = 4e-3
    """Of every engine step: launching, scheduling, drawing tokens."""
    memory: float = 0.9
    """Of a GPU's memory that weights and cache may take."""
    publish_s: float = 1.0
    """Of every publication, besides moving the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs and who has them."""

    gpu: Gpu
    num_gpus: int
    engine_gpus: int = 1
    """GPUs of one engine."""
    trainer_gpus: int = 0
    """GPUs of the trainer alone; 0: all GPUs are the engines', and the trainer's in turn."""
    placement: Placement = "trajectory"
    efficiency: Efficiency = Efficiency()

    @property
    def is_colocated(self) -> bool:
        """Whether engines and trainer share GPUs."""
        return self.trainer_gpus == 0

    @property
    def num_engines(self) -> int:
        """Raises ConfigError where the GPUs are too few for one."""
        count = (self.num_gpus - self.trainer_gpus) // self.engine_gpus
        if count < 1:
            raise ConfigError(
                f"{self.num_gpus} GPUs less {self.trainer_gpus} of the trainer are too few for an engine of "
                f"{self.engine_gpus}; give more --gpus or fewer --trainer-gpus or --engine-gpus"
            )
        return count


def estimate_costs(shape: ModelShape, cluster: Cluster, *, item: int, context: int, num_scorings: int = 0) -> Costs:
    """The costs of a system on GPUs.

    Args:
        shape: the policy's sizes.
        cluster: the GPUs.
        item: bytes of a weight.
        context: tokens of a trajectory at its end; an engine has slots for as many of them as its memory holds.
        num_scorings: passes over all tokens before a step (old policy, reference).

    Raises:
        ConfigError: an engine's GPUs do not hold the weights and one trajectory.
    """
    gpu, reached, ways = cluster.gpu, cluster.efficiency, cluster.engine_gpus
    weights = shape.num_parameters * item
    cached = shape.num_cached * item
    slots = int((ways * gpu.memory * reached.memory - weights) // (cached * context))
    if slots < 1:
        raise ConfigError(
            f"an engine of {ways} GPUs with {gpu.memory / 1e9:g} GB does not hold {weights / 1e9:.1f} GB of weights "
            f"and one trajectory of {context:,} tokens; raise --engine-gpus"
        )
    token_s = 2 * shape.num_linear / (ways * gpu.flops * reached.computing)
    attention = 4 * shape.num_layers * shape.num_heads * shape.head_dim * context / 2
    trained = (6 + 2 * num_scorings) * (shape.num_linear + attention / 2)
    trainers = cluster.num_gpus if cluster.is_colocated else cluster.trainer_gpus
    return Costs(
        engine=EngineCosts(
            step_s=weights / (ways * gpu.bandwidth * reached.decoding) + reached.step_s,
            sequence_s=token_s,
            attended_s=cached / (ways * gpu.bandwidth * reached.decoding),
            context_s=token_s,
            slots=slots,
        ),
        num_engines=cluster.num_engines,
        placement=cluster.placement,
        train_token_s=trained / (trainers * gpu.flops * reached.computing),
        publish_s=reached.publish_s + weights / gpu.link,
        colocated=cluster.is_colocated,
    )


def balance_gpus(costs: Costs, work: Work, cluster: Cluster, *, group_size: int, num_open: int, draws: int = 8) -> int:
    """GPUs of the trainer with which the slower of trainer and engines is fastest, by rates that nothing delays.

    Args:
        costs: those of shared GPUs.
        work: of which `draws` groups are looked at.
        cluster: the GPUs; the trainer's share is what is sought.
        group_size: members of a group.
        num_open: trajectories under way, which the engines share.
        draws: groups to look at.
    """
    members = [work(draw, member) for draw in range(draws) for member in range(group_size)]
    sampled = sum(turn.sampled for turns in members for turn in turns) / len(members)
    context = sum(turn.context for turns in members for turn in turns) / len(members)
    engine = costs.engine

    def compute_rate(num_engines: int) -> float:
        """Trajectories per second of the slower side."""
        n = max(1.0, min(num_open / num_engines, engine.slots or math.inf))
        # A sequence attends, on average, to its context and half of what it samples.
        token_s = engine.step_s / n + engine.sequence_s + engine.attended_s * (context + sampled / 2)
        trainers = cluster.num_gpus - num_engines * cluster.engine_gpus
        trainer_s = (sampled + context) * costs.train_token_s * cluster.num_gpus / trainers
        return min(num_engines / (sampled * token_s + context * engine.context_s), 1 / trainer_s)

    most = (cluster.num_gpus - 1) // cluster.engine_gpus
    if most < 1:
        raise ConfigError(f"{cluster.num_gpus} GPUs are too few for a trainer and an engine of {cluster.engine_gpus}")
    best = max(range(1, most + 1), key=compute_rate)
    return cluster.num_gpus - best * cluster.engine_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes on one GPU."""

    trainer: float
    """Weights, gradients and moments divided over the trainer's GPUs, and what a micro-batch adds on each."""
    engine: float
    """Weights divided over the engine's GPUs, and the cache of as many trajectories as the recipe has under way."""


def plan_ranks(config: RunConfig, shape: ModelShape, cluster: Cluster, *, num_open: int) -> RankMemory | None:
    """Memory by rank; None if the recipe's sizes are unknown.

    Weights, gradients and moments have the recipe's dtype, as on one machine, and are divided evenly (fully sharded
    data parallel). `num_open` trajectories of at most `rollout.max_tokens` are under way.
    """
    memory = plan_memory(config, device="cuda")
    if memory is None:
        return None
    item = BYTES[config.model.dtype]
    trainers = cluster.num_gpus if cluster.is_colocated else cluster.trainer_gpus
    copies = memory.weights + memory.optimizer
    slots = -(-num_open // cluster.num_engines)
    cache = slots * config.rollout.max_tokens * shape.num_cached * item
    return RankMemory(
        trainer=copies / trainers + memory.training,
        engine=(shape.num_parameters * item + cache) / cluster.engine_gpus,
    )


def count_scorings(config: RunConfig) -> int:
    """Passes over all tokens that a recipe's step needs besides its own."""
    return (config.loss.recompute_old is True) + bool(config.loss.kl.coefficient)
