"""Compare the plan of a trainer's GPU with an estimate by hand, for models of 7 and 70 billion parameters.

    python benchmarks/clusters.py

Prints the table of docs/simulation.md. The estimate is the field's rule of thumb; the plan is `turnwise plan`'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOKENS, TRAINED = 16_384, 8_192
"""Tokens and trained tokens of a micro-batch: two trajectories of 8,192 tokens, half of them sampled."""
SIZES: Mapping[str, Mapping[str, Any]] = {
    "7B": {
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "tie_word_embeddings": False,
    },
    "70B": {
        "hidden_size": 8192,
        "intermediate_size": 28_672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
    },
}
"""Shapes of Qwen2.5-7B and Llama-3-70B."""
TYPES = {"7B": "qwen2", "70B": "llama"}
PARAMETERS = {"7B": 7_615_616_512, "70B": 70_553_706_496}
ENGINE_GPUS = {"7B": 1, "70B": 4}


def build_recipe(size: str, train: Mapping[str, Any] | None = None) -> Any:
    """A recipe for this model in bfloat16, with layers computed again for the backward pass, overridden by `train`."""
    from turnwise.config.run import RunConfig

    fixed = {"micro_batch_tokens": TOKENS, "recompute_activations": True, "shared_prefix": False}
    return RunConfig.model_validate(
        {
            "model": {"model_type": TYPES[size], "config": dict(SIZES[size]), "dtype": "bfloat16"},
            "rollout": {"max_tokens": 8192, "max_turns": 4, "max_turn_tokens": 1024},
            "train": {**fixed, **(train or {})},
        }
    )


def estimate(size: str, ranks: int) -> dict[str, float]:
    """Bytes of a trainer's GPU, estimated by hand."""
    sizes = SIZES[size]
    hidden, layers, vocab = sizes["hidden_size"], sizes["num_hidden_layers"], sizes["vocab_size"]
    outside = 2 * vocab * hidden  # embedding and output layer
    layer = (PARAMETERS[size] - outside) / layers
    return {
        # Weights 4, gradients 4, moments 8.
        "states": 16 * PARAMETERS[size] / ranks,
        # In bfloat16: embedding with output layer, and two layers; the gradient of the former, both as computed and as
        # accumulated.
        "gathered": 2 * outside + 2 * 2 * layer + (2 + 4) * outside,
        # The inputs of all layers, and one layer at 34 bytes per hidden number (arXiv 2205.05198, without scores).
        "activations": 2 * TOKENS * hidden * layers + 34 * TOKENS * hidden,
        # Log-probabilities, their gradient and one more, in float32, of a chunk of 2^26; and the output layer's
        # gradient of one chunk, in bfloat16, and of the earlier ones, in float32.
        "logits": 3 * 4 * min(TRAINED * vocab, 2**26) + (2 + 4) * vocab * hidden,
    }


def main() -> None:
    """Print the table."""
    from turnwise.building.forecasting import read_forecast_settings
    from turnwise.building.resolved import resolve
    from turnwise.building.sizes import measure_recipe
    from turnwise.forecast.memory import plan_rank
    from turnwise.forecast.simulation.hardware import GPUS, Cluster, estimate_costs, plan_traffic

    names = (
        "model, GPUs (number that train)",
        "states",
        "gathered",
        "activations",
        "logits",
        "by hand",
        "plan",
        "apart",
    )
    print(f"| {' | '.join((*names, 'traffic per micro-batch', 'computing', 'publication'))} |")
    print(f"|{'---|' * (len(names) + 3)}")
    for size in SIZES:
        config = build_recipe(size)
        resolved = resolve(config)
        settings, shapes = read_forecast_settings(resolved), measure_recipe(config, resolved.copies)
        assert shapes is not None
        for gpus in (64, 512):
            ranks = gpus // 2
            hand, plan = estimate(size, ranks), plan_rank(settings, shapes, num_ranks=ranks)
            planned = {
                "states": plan.states,
                "gathered": plan.gathered,
                "activations": plan.activations,
                "logits": plan.logits,
            }
            cluster = Cluster(
                gpu=GPUS["h100"],
                num_gpus=gpus,
                engine_gpus=ENGINE_GPUS[size],
                trainer_gpus=ranks,
                publication="files",
            )
            traffic = plan_traffic(shapes.policy, cluster, item=2)
            costs = estimate_costs(shapes.policy, cluster, item=2, context=8192)
            assert traffic is not None
            cells = [f"{hand[name] / 1e9:.1f}, {planned[name] / 1e9:.1f}" for name in hand]
            whole = sum(hand.values())
            print(
                f"| {size}, {gpus} ({ranks}) | {' | '.join(cells)} | {whole / 1e9:.1f} | {plan.peak / 1e9:.1f} | "
                f"{plan.peak / whole - 1:+.0%} | {(traffic.gathered + traffic.reduced) / 1e9:,.0f} GB, "
                f"{traffic.seconds:.1f} s | {costs.train_token_s * ranks * TOKENS:.1f} s | {costs.publish_s:,.0f} s |"
            )


if __name__ == "__main__":
    main()
