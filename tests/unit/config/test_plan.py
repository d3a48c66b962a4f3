"""The plan of tokens and memory, by hand and against a real model."""

from typing import Any

import pytest

from turnwise.config.plan import compute_plan
from turnwise.config.run import RunConfig

TINY = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "tie_word_embeddings": True,
}


def config(**sections: Any) -> RunConfig:
    return RunConfig.model_validate({"model": {"config": TINY}, "tokenizer": {"vocab_size": 100}, **sections})


def test_tokens_by_hand() -> None:
    plan = compute_plan(
        config(
            rollout={"tasks_per_step": 3, "group_size": 4, "max_tokens": 50, "max_turns": 2, "max_turn_tokens": 10},
            sft={"steps": 5, "num_demonstrations": 35},
            train={"steps": 2},
        )
    )
    assert plan.trajectories_per_step == 12  # 3 tasks x 4 members
    assert plan.max_tokens_per_step == 600  # 12 x 50
    assert plan.max_sampled_tokens_per_step == 240  # 12 x 2 turns x 10
    assert plan.demonstrations == 35
    assert plan.training_tasks == 41  # 35 + 2 steps x 3 tasks
    assert compute_plan(config(sft={"steps": 0})).demonstrations == 0


def test_memory_by_hand() -> None:
    # Embeddings 100 x 8 = 800, tied. A layer: q and o 2 x 8 x 16 = 256, k and v 2 x 8 x 8 = 128, MLP 3 x 8 x 16 = 384,
    # two norms 16: 784. Final norm 8. Together 800 + 2 x 784 + 8 = 2376.
    plan = compute_plan(config(engine={"max_concurrency": 3, "max_context": 10}))
    assert plan.parameters == 2376
    assert plan.training_bytes == 2376 * 4 * 4  # weights, gradients, two moments; 4 bytes each
    assert plan.cache_bytes == 2 * 2 * 2 * 4 * 4 * 3 * 10  # k and v, 2 layers, 2 heads of 4, 4 bytes, 3 slots of 10 tokens
    with_reference = compute_plan(config(loss={"kl": {"coefficient": 0.1}}))
    assert with_reference.training_bytes == 2376 * 4 * 5


def test_the_estimate_is_close_to_a_real_model() -> None:
    from turnwise.models.build import build_model

    for tied in (True, False):
        model = {**TINY, "tie_word_embeddings": tied}
        real = build_model("qwen3", model, vocab_size=100, seed=0).num_parameters()
        estimate = compute_plan(config(model={"config": model})).parameters
        assert estimate == pytest.approx(real, rel=0.02)  # the formula leaves out Qwen3's norms of queries and keys


def test_a_model_from_a_path_or_of_unknown_shape_is_unknown_not_zero() -> None:
    for model in ({"path": "somewhere"}, {"config": {"n_embd": 8}}):
        plan = compute_plan(config(model=model))
        assert (plan.parameters, plan.training_bytes, plan.cache_bytes) == (None, None, None)
        assert ("parameters", "unknown until the model is loaded") in plan.lines()
