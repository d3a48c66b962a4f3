"""What a recipe will need, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.config.run import RunConfig

_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Upper bounds. None where the recipe does not say (a model loaded from a path)."""

    trajectories_per_step: int
    max_tokens_per_step: int
    """If every trajectory used its whole budget."""
    max_sampled_tokens_per_step: int
    demonstrations: int
    training_tasks: int
    """Demonstrations and RL tasks, all different."""
    parameters: int | None
    training_bytes: int | None
    """Weights, gradients and two AdamW moments, of the policy and of a separate critic; a reference copy where one is needed."""
    cache_bytes: int | None
    """Keys and values of all slots."""

    def lines(self) -> list[tuple[str, str]]:
        """Label and text of each entry, for the terminal."""
        return [
            ("trajectories per RL step", f"{self.trajectories_per_step:,}"),
            ("tokens per RL step, at most", f"{self.max_tokens_per_step:,}, of them sampled {self.max_sampled_tokens_per_step:,}"),
            ("training tasks", f"{self.training_tasks:,}, of them demonstrations {self.demonstrations:,}"),
            ("parameters", "unknown until the model is loaded" if self.parameters is None else f"about {self.parameters:,}"),
            ("weights, gradients, optimizer", _mib(self.training_bytes)),
            ("key-value cache", _mib(self.cache_bytes)),
        ]


def _mib(num_bytes: int | None) -> str:
    return "unknown until the model is loaded" if num_bytes is None else f"{num_bytes / 2**20:,.1f} MiB"


def compute_plan(config: RunConfig) -> Plan:
    """Bounds from the recipe alone; sizes by the formula of Llama-like decoders."""
    rollout, engine = config.rollout, config.engine
    trajectories = rollout.tasks_per_step * rollout.group_size
    demonstrations = config.sft.num_demonstrations if config.sft.steps else 0
    sizes = None if config.model.path else _sizes(config.model.config, config.tokenizer.vocab_size)
    item = _BYTES[config.model.dtype]
    needs_reference = config.loss.kl.coefficient or config.train.algorithm in ("dpo", "step_dpo")
    copies = 4 + (1 if needs_reference else 0) + (4 if config.critic.kind == "separate" else 0)
    return Plan(
        trajectories_per_step=trajectories,
        max_tokens_per_step=trajectories * rollout.max_tokens,
        max_sampled_tokens_per_step=trajectories * min(rollout.max_tokens, rollout.max_turns * rollout.max_turn_tokens),
        demonstrations=demonstrations,
        training_tasks=demonstrations + config.train.steps * rollout.tasks_per_step,
        parameters=None if sizes is None else sizes[0],
        training_bytes=None if sizes is None else sizes[0] * item * copies,
        cache_bytes=None if sizes is None else sizes[1] * item * engine.max_concurrency * engine.max_context,
    )


def _sizes(model: dict[str, Any], vocab_size: int) -> tuple[int, int] | None:
    """Parameters, and cached numbers per token; None when the table does not name the usual sizes."""
    try:
        hidden, layers, heads = model["hidden_size"], model["num_hidden_layers"], model["num_attention_heads"]
        intermediate = model["intermediate_size"]
    except KeyError:
        return None
    kv_heads = model.get("num_key_value_heads", heads)
    head_dim = model.get("head_dim", hidden // heads)
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    embeddings = vocab_size * hidden * (1 if model.get("tie_word_embeddings") else 2)
    return embeddings + layers * (attention + 3 * hidden * intermediate + 2 * hidden) + hidden, 2 * layers * kv_heads * head_dim
