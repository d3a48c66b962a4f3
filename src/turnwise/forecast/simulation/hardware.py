"""Times of engines and trainers on GPUs, from a model's sizes and a GPU's data sheet: a roofline, not a measurement.

A decode step reads every weight once and every attended key and value; it computes two operations per weight and
sequence. A context costs two operations per weight and token, a training step six per weight and token, and two more
for each scoring pass. How much of their data sheet GPUs reach is assumed (`Efficiency`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from turnwise.core.errors import ConfigError
from turnwise.forecast.memory import RankMemory
from turnwise.forecast.simulation.costs import Costs, EngineCosts, Placement
from turnwise.forecast.simulation.work import Work
from turnwise.models.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The data sheet of one GPU."""

    flops: float
    """Dense bfloat16 operations per second."""
    memory: float
    """Bytes of memory."""
    bandwidth: float
    """Bytes of memory read or written per second."""
    link: float = 50e9
    """Bytes per second over the network to GPUs of other machines: 400 Gbit/s."""
    node_link: float = 450e9
    """Bytes per second in one direction to GPUs of the same machine: NVLink."""


GPUS: Mapping[str, Gpu] = {
    "a100": Gpu(flops=312e12, memory=80e9, bandwidth=2.04e12, link=25e9, node_link=300e9),
    "h100": Gpu(flops=989e12, memory=80e9, bandwidth=3.35e12),
    "h800": Gpu(flops=989e12, memory=80e9, bandwidth=3.35e12, node_link=200e9),
    "h200": Gpu(flops=989e12, memory=141e9, bandwidth=4.8e12),
}
"""NVIDIA's SXM variants."""
NODE_GPUS = 8
"""Number of GPUs in one machine."""
ROWS_RATE, SENT_RATE, FILES_RATE = 2.0e9, 0.29e9, 0.27e9
"""Bytes per second at which a version of the weights moves from ranks into the memory of the run's process, on the same
machine and from others, and from there through files into other processes: measured on two cores (docs/ranks.md,
docs/scale.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Assumptions: the share of a data sheet that is reached, and figures that are in no data sheet."""

    decoding: float = 0.6
    """Share of the memory's bandwidth in decoding."""
    computing: float = 0.4
    """Share of the operations per second, in training and over contexts."""
    step_s: float = 4e-3
    """Fixed seconds of every engine step: launching, scheduling, drawing tokens."""
    memory: float = 0.9
    """Share of a GPU's memory that weights and cache may take."""
    publish_s: float = 1.0
    """Fixed seconds of every publication, besides moving the weights."""
    linking: float = 0.8
    """Share of the links between GPUs, while ranks gather weights and add gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The GPUs and their division between engines and trainer."""

    gpu: Gpu
    num_gpus: int
    engine_gpus: int = 1
    """Number of GPUs per engine."""
    trainer_gpus: int = 0
    """GPUs of the trainer alone; 0: engines and trainer use all GPUs in turn."""
    placement: Placement = "trajectory"
    efficiency: Efficiency = Efficiency()
    publication: Literal["files", "network"] = "network"
    """How a version reaches the engines: by "files", as in Turnwise, through the memory of the run's process; or from
    GPU to GPU over the "network", as in other systems."""

    @property
    def num_ranks(self) -> int:
        """Number of GPUs that train together."""
        return self.num_gpus if self.is_colocated else self.trainer_gpus

    @property
    def is_colocated(self) -> bool:
        """Whether engines and trainer share GPUs."""
        return self.trainer_gpus == 0

    @property
    def num_engines(self) -> int:
        """Number of engines. Raises ConfigError if the GPUs are too few for one."""
        count = (self.num_gpus - self.trainer_gpus) // self.engine_gpus
        if count < 1:
            raise ConfigError(
                f"{self.num_gpus} GPUs minus {self.trainer_gpus} for the trainer are too few for an engine of "
                f"{self.engine_gpus}; raise --gpus, or lower --trainer-gpus or --engine-gpus"
            )
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Data that each rank's GPU receives for one micro-batch; it sends as much."""

    gathered: float
    """Bytes of weights: every layer is gathered for the forward pass and again for the backward pass."""
    reduced: float
    """Bytes of gradients, in float32."""
    seconds: float
    """Seconds over the slowest link between the ranks."""
    link: str
    """Name of that link."""


def plan_traffic(shape: ModelShape, cluster: Cluster, *, item: int) -> Traffic | None:
    """The traffic of ranks (fully sharded data parallel); None for one rank."""
    ranks, gpu = cluster.num_ranks, cluster.gpu
    if ranks == 1:
        return None
    others = shape.num_parameters * (ranks - 1) / ranks
    is_near = ranks <= NODE_GPUS
    rate = gpu.node_link if is_near else gpu.link
    name = f"{'NVLink' if is_near else 'the network'}, {rate / 1e9:g} GB/s per GPU"
    gathered, reduced = 2 * others * item, others * max(item, 4)
    seconds = (gathered + reduced) / (rate * cluster.efficiency.linking)
    return Traffic(gathered=gathered, reduced=reduced, seconds=seconds, link=name)


def estimate_costs(
    shape: ModelShape,
    cluster: Cluster,
    *,
    item: int,
    context: int,
    num_scorings: int = 0,
    micro_batch_tokens: int | None = None,
) -> Costs:
    """The costs of a system on GPUs.

    Args:
        shape: the policy's sizes.
        cluster: the GPUs.
        item: bytes of a weight.
        context: tokens of a trajectory at its end; an engine has as many slots as trajectories of this length fit into
            its memory.
        num_scorings: passes over all tokens before a step (old policy, reference).
        micro_batch_tokens: tokens that a rank computes between two exchanges with the others, which overlap with
            computation; None leaves exchanges out.

    Raises:
        ConfigError: the weights and one trajectory do not fit into an engine's GPUs.
    """
    gpu, reached, ways = cluster.gpu, cluster.efficiency, cluster.engine_gpus
    weights = shape.num_parameters * item
    cached = shape.num_cached * item
    slots = int((ways * gpu.memory * reached.memory - weights) // (cached * context))
    if slots < 1:
        raise ConfigError(
            f"an engine of {ways} GPUs with {gpu.memory / 1000000000.0:g} GB each cannot hold "
            f"{weights / 1000000000.0:.1f} GB of weights and one trajectory of {context:,} tokens; raise --engine-gpus"
        )
    token_s = 2 * shape.num_linear / (ways * gpu.flops * reached.computing)
    attention = 4 * shape.num_layers * shape.num_heads * shape.head_dim * context / 2
    trained = (6 + 2 * num_scorings) * (shape.num_linear + attention / 2)
    token_train_s = trained / (gpu.flops * reached.computing)
    traffic = plan_traffic(shape, cluster, item=item)
    if micro_batch_tokens is not None and traffic is not None:
        token_train_s = max(token_train_s, traffic.seconds / micro_batch_tokens)
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
        train_token_s=token_train_s / cluster.num_ranks,
        publish_s=reached.publish_s + _move(weights, cluster),
        colocated=cluster.is_colocated,
    )


def balance_gpus(costs: Costs, work: Work, cluster: Cluster, *, group_size: int, num_open: int, draws: int = 8) -> int:
    """Choose the number of trainer GPUs for which the slower of trainer and engines is fastest, by rates without any
    waiting.

    Args:
        costs: the costs with shared GPUs.
        work: the trajectories, of which `draws` groups are used.
        cluster: the GPUs; the trainer's share is to be found.
        group_size: members of a group.
        num_open: trajectories under way, shared among the engines.
        draws: number of groups to use.
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
class GpuMemory:
    """Bytes of GPU memory by purpose."""

    trainer: RankMemory
    engine: float
    """Weights divided over the engine's GPUs, and the cache for the trajectories that the recipe has under way."""


def plan_gpus(
    trainer: RankMemory, shape: ModelShape, cluster: Cluster, *, item: int, context: int, num_open: int
) -> GpuMemory:
    """Memory of a trainer's GPU, planned by `plan_rank`, and of an engine's GPU.

    `item` is the size of a number in bytes. `num_open` trajectories of at most `context` tokens are under way.
    """
    slots = -(-num_open // cluster.num_engines)
    cache = slots * (context * shape.num_cached * item + shape.num_kept * max(item, 4))
    return GpuMemory(
        trainer=trainer,
        engine=(shape.num_parameters * item + cache) / cluster.engine_gpus,
    )


def _move(weights: float, cluster: Cluster) -> float:
    """Seconds from trained weights to engines that hold them."""
    if cluster.publication == "network":
        return weights / cluster.gpu.link
    if cluster.num_gpus == 1:
        return 0.0  # the engine samples from the trainer's own weights
    rows = 0.0
    if cluster.num_ranks > 1:
        rows = weights / (ROWS_RATE if cluster.num_ranks <= NODE_GPUS else SENT_RATE)
    return rows + weights / FILES_RATE


def describe_today(cluster: Cluster) -> str:
    """Describe which part of such a cluster a run can use with today's Turnwise (docs/engines.md, docs/ranks.md,
    docs/scale.md)."""
    ranks, missing, untried = cluster.num_ranks, [], []
    if ranks > NODE_GPUS:
        missing.append(f"a trainer of {ranks:,} GPUs (ranks use those of one machine, {NODE_GPUS} here)")
    elif ranks > 1:
        untried.append(f"a trainer of {ranks} GPUs (NCCL is wired, and has run on no GPU)")
    if cluster.engine_gpus > 1:
        missing.append(f"engines of {cluster.engine_gpus} GPUs but as servers that you start (engine.kind='server')")
    if cluster.num_engines > 1:
        untried.append(f"{cluster.num_engines:,} engines on GPUs (as vLLM's processes or servers)")
    parts = [f"not there: {'; '.join(missing)}"] if missing else []
    parts += [f"not tried on GPUs: {'; '.join(untried)}"] if untried else []
    return ". ".join(parts) or "all of it: one GPU trains and samples"
