"""Predict what a recipe needs, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.forecast.held import Shapes, count_trained, read_shapes
from turnwise.forecast.memory import LIBRARY_BYTES, MemoryPlan, plan_memory
from turnwise.forecast.settings import ForecastSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Upper bounds; None if the sizes of the model are unknown."""

    trajectories_per_step: int
    branches_per_step: int
    """Further trajectories that credit samples from intermediate states."""
    max_tokens_per_step: int
    """Tokens if every trajectory uses its whole budget."""
    max_sampled_tokens_per_step: int
    micro_batch_tokens: int
    """0 if it is not chosen yet."""
    document_tokens: int
    """Tokens of continual pre-training."""
    demonstrations: int
    training_tasks: int
    """Tasks of demonstrations and of RL, all different."""
    parameters: int | None
    """Of the policy, an adapter's among them."""
    trained: int | None
    """Of these, trained ones."""
    memory: MemoryPlan | None

    def lines(self) -> list[tuple[str, str]]:
        """Label and text of each line for the terminal."""
        branches = f", and at most {self.branches_per_step:,} branches of them" if self.branches_per_step else ""
        return [
            ("trajectories per RL step", f"{self.trajectories_per_step:,}{branches}"),
            (
                "tokens per RL step, at most",
                f"{self.max_tokens_per_step:,}, of them sampled {self.max_sampled_tokens_per_step:,}",
            ),
            *(
                [("tokens of continual pre-training, at most", f"{self.document_tokens:,}")]
                if self.document_tokens
                else []
            ),
            ("tokens per micro-batch, at most", f"{self.micro_batch_tokens:,}"),
            ("training tasks", f"{self.training_tasks:,}, of them demonstrations {self.demonstrations:,}"),
            ("parameters", self._describe_parameters()),
            *self.memory_lines(),
        ]

    def _describe_parameters(self) -> str:
        if self.parameters is None or self.trained is None:
            return UNKNOWN
        trained = f", of them trained {self.trained:,}" if self.trained != self.parameters else ""
        return f"about {self.parameters:,}{trained}"

    def memory_lines(self) -> list[tuple[str, str]]:
        """The lines about memory; the last one is the peak."""
        memory = self.memory
        if memory is None:
            return [("memory", UNKNOWN)]
        return [
            *((f"weights: {name}", _mib(size)) for name, size in memory.models),
            ("gradients, optimizer", _mib(memory.optimizer)),
            ("copied weights of the engine", _mib(memory.packed)),
            ("key-value cache", _mib(memory.cache)),
            *([("weights staged as files", _mib(memory.staged))] if memory.staged else []),
            *([("libraries of other processes", _mib(memory.libraries))] if memory.libraries else []),
            ("further, while sampling", _mib(memory.sampling)),
            ("further, while training", _mib(memory.training)),
            *([("further, while publishing", _mib(memory.publishing))] if memory.publishing else []),
            ("peak of engine and trainer", f"{_mib(memory.peak)}, and about {_mib(LIBRARY_BYTES)} of libraries"),
        ]


UNKNOWN = "unknown until the model is loaded"


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"


def compute_plan(
    settings: ForecastSettings,
    *,
    shapes: Shapes | None = None,
    device: str = "cpu",
) -> Plan:
    """Compute the bounds from the recipe alone, and memory on `device` ("cpu" or "cuda").

    `shapes` are the sizes of the run's models; None reads the models' own config.json."""
    rollout = settings.rollout
    trajectories = rollout.tasks_per_step * rollout.group_size
    num_branches = trajectories * settings.branches_per_attempt
    sampled = min(rollout.max_tokens, rollout.max_turns * rollout.max_turn_tokens)
    shapes = shapes or read_shapes(settings)
    shape = None if shapes is None else shapes.policy
    has_adapter = settings.model.lora is not None
    trained = 0 if shape is None else count_trained(settings, shape)
    return Plan(
        trajectories_per_step=trajectories,
        branches_per_step=num_branches,
        max_tokens_per_step=(trajectories + num_branches) * rollout.max_tokens,
        max_sampled_tokens_per_step=(trajectories + num_branches) * sampled,
        micro_batch_tokens=settings.train.micro_batch_tokens,
        document_tokens=settings.document_tokens,
        demonstrations=settings.num_demonstrations,
        training_tasks=settings.num_demonstrations + settings.train.steps * rollout.tasks_per_step,
        parameters=None if shape is None else shape.num_parameters + (trained if has_adapter else 0),
        trained=None if shape is None else trained,
        memory=plan_memory(settings, shapes=shapes, device=device),
    )
