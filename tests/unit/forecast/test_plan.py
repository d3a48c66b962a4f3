"""The plan of tokens and memory, by hand and against a real model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnwise.algorithms.credit import Branches
from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.config.run import RunConfig
from turnwise.forecast import memory as memory_plans
from turnwise.forecast import plan as plans
from turnwise.forecast.memory import MemoryPlan
from turnwise.forecast.plan import Plan
from turnwise.forecast.sampling_memory import PACKED_FAMILIES
from turnwise.models.shape import read_policy_shape

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


def plan_memory(recipe: RunConfig, *, device: str = "cpu") -> MemoryPlan | None:
    return memory_plans.plan_memory(read_forecast_settings(resolve(recipe)), device=device)


def compute_plan(recipe: RunConfig, *, branches: Branches = "none") -> Plan:
    return plans.compute_plan(read_forecast_settings(replace(resolve(recipe), branches=branches)))


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


def test_an_adapter_by_hand() -> None:
    # Rank 3. A layer: q 8 + 16, k and v 8 + 8 each, o 16 + 8, gate, up and down 8 + 16 each: 152; two layers: 912.
    def plan(**lora: Any) -> Plan:
        model = {"config": TINY, "dtype": "bfloat16", "lora": {"rank": 3, **lora}}
        return compute_plan(config(model=model, loss={"kl": {"coefficient": 0.1}}))

    everywhere = plan()
    assert (everywhere.parameters, everywhere.trained) == (2376 + 912, 912)
    assert ("parameters", "about 3,288, of them trained 912") in everywhere.lines()
    memory = everywhere.memory
    assert memory is not None
    assert memory.weights == 2376 * 2 + 2 * 912 * 4  # a model in bfloat16, two adapters in float32
    assert memory.optimizer == 3 * 912 * 4
    assert memory.gradients == 912 * 4
    assert memory.packed == 2 * 768 * 2  # every matrix of both layers, with the adapter merged into it
    # q and v alone: 24 + 16 = 40 per layer.
    assert plan(target_modules=["q_proj", "v_proj"]).trained == 2 * 3 * 40
    # The output layer: 8 + 100.
    assert plan(target_modules=["lm_head"]).trained == 3 * 108


def test_an_adapter_on_disk_is_counted_by_its_own_sizes(tmp_path: Path) -> None:
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"r": 5, "target_modules": ["model.layers.0.self_attn.q_proj"]}))
    model = {"config": TINY, "lora": {"path": str(tmp_path)}}
    assert compute_plan(config(model=model)).trained == 2 * 5 * 24
    file.unlink()
    assert compute_plan(config(model=model)).trained == 2 * 16 * 152


def test_memory_by_hand() -> None:
    # Embeddings 100 x 8 = 800, tied. A layer: q and o 2 x 8 x 16 = 256, k and v 2 x 8 x 8 = 128, MLP 3 x 8 x 16 = 384,
    # two norms 16: 784. Final norm 8. Together 800 + 2 x 784 + 8 = 2376.
    plan = compute_plan(config(engine={"kind": "local", "max_concurrency": 3, "max_context": 10}))
    assert plan.parameters == 2376
    memory = plan.memory
    assert memory is not None
    assert memory.weights == 2376 * 4
    assert memory.optimizer == 2376 * 4 * 3  # gradients and two moments
    assert memory.cache == 2 * 2 * 2 * 4 * 4 * 3 * 10  # k and v, 2 layers, 2 heads of 4, 4 bytes, 3 slots of 10 tokens
    assert memory.packed == 0
    # Sampling holds no gradients, training holds no logits of sampled rows.
    assert memory.peak == memory.cache + 3 * 2376 * 4 + max(memory.sampling, 2376 * 4 + memory.training)
    paged = plan_memory(config(engine={"max_concurrency": 3, "max_context": 10}))
    assert paged is not None
    assert paged.cache == 2 * 2 * 2 * 4 * 4 * (3 + 1) * 32  # a page of 32 tokens each, and the blank one
    assert paged.packed == (2 * 768 + 800) * 4  # matrices of both layers and the output layer
    assert paged.libraries == 0
    workers = plan_memory(
        config(engine={"kind": "workers", "max_concurrency": 3, "max_context": 10, "options": {"num_workers": 2}})
    )
    assert workers is not None
    assert (
        workers.cache == 2 * 2 * 2 * 4 * 4 * 2 * (2 + 1) * 32
    )  # two workers with 3 / 2 pages, rounded up, and a blank one
    assert workers.packed == 2 * paged.packed
    assert workers.libraries == 2 * 260 * 2**20
    # The trainer cannot reuse what workers, other processes, took for sampling.
    assert (
        workers.peak
        == workers.libraries + workers.cache + workers.packed + workers.sampling + 4 * 2376 * 4 + workers.training
    )
    with_reference = plan_memory(config(loss={"kl": {"coefficient": 0.1}}))
    assert with_reference is not None
    assert with_reference.weights == 2 * 2376 * 4
    with_critic = plan_memory(config(critic={"kind": "separate"}, credit={"method": "gae"}))
    assert with_critic is not None
    # A head of 8 + 1 numbers. Two moments of both models; their gradients are never there together.
    assert with_critic.weights == (2 * 2376 + 9) * 4
    assert with_critic.optimizer == 2 * (2 * 2376 + 9) * 4 + with_critic.gradients
    assert with_critic.gradients == (2376 + 9) * 4


def test_memory_of_other_programs_by_hand() -> None:
    """Of a model of 2,376 numbers, as above."""

    def plan(**sections: Any) -> MemoryPlan:
        memory = plan_memory(config(**sections))
        assert memory is not None
        return memory

    limits = {"max_concurrency": 4, "max_context": 10}
    paged = plan(engine=limits)
    vllm = plan(engine={**limits, "kind": "vllm", "options": {"num_workers": 2, "cache_mib": 100}})
    assert (vllm.packed, vllm.cache) == (0, 2 * 100 * 2**20)
    assert vllm.weights == (1 + 2) * 2376 * 4
    assert vllm.libraries == 2 * 600 * 2**20
    server = plan(engine={**limits, "kind": "server"})
    assert (server.packed, server.cache, server.libraries) == (0, 0, 0)
    players = plan(engine=limits, rollout={"num_workers": 2})
    half = plan(engine={**limits, "max_concurrency": 2})
    assert players.weights == (1 + 2) * 2376 * 4
    assert players.cache == paged.cache + 2 * half.cache
    assert players.packed == 3 * paged.packed
    assert players.libraries == 2 * 950 * 2**20
    assert players.sampling == paged.sampling + 2 * half.sampling
    assert players.training == paged.training


def test_rows_that_are_offloaded_take_none_of_a_gpu() -> None:
    """Of a model of 2,376 numbers: the copy that engines sample from stays there."""
    train, critic = {"ranks": 2, "offload_to_cpu": True}, {"critic": {"kind": "separate"}, "credit": {"method": "gae"}}
    away, on_cpu = (plan_memory(config(train=train, **critic), device=d) for d in ("cuda", "cpu"))
    assert away is not None
    assert on_cpu is not None
    assert (away.weights, away.optimizer, away.gradients) == (2376 * 4, 0, 0)
    # The policy, its rows and the critic's, which has a head of 9 numbers; moments of both, gradients of the larger.
    assert on_cpu.weights == (3 * 2376 + 9) * 4
    assert on_cpu.optimizer == (2 * (2 * 2376 + 9) + 2376 + 9) * 4


def test_memory_on_a_gpu_by_hand() -> None:
    engine = {"max_concurrency": 3, "max_context": 10}
    for dtype, item in (("float32", 4), ("bfloat16", 2)):
        cpu, gpu = (
            plan_memory(config(engine=engine, model={"config": TINY, "dtype": dtype}), device=device)
            for device in ("cpu", "cuda")
        )
        assert cpu is not None
        assert gpu is not None
        assert (gpu.weights, gpu.optimizer, gpu.cache) == (cpu.weights, cpu.optimizer, cpu.cache)
        # Nothing is packed. A layer's queries, keys and values are one matrix of 8 x (4 + 2 x 2) x 4 = 256, gate and up
        # one of 256.
        assert gpu.packed == 2 * 512 * item
        assert cpu.packed == (2 * 512 * item if dtype == "bfloat16" else (2 * 768 + 800) * item)
        # 30 tokens of 48 + 64 or 3 x 8 x 4 = 96 numbers: 80 = 2 x 8 + 4 x 16 against 96; 3 rows of 100 logits six
        # times; gathered pages.
        assert gpu.sampling == 30 * 96 * item + 6 * 3 * 100 * 4 + 2**26 * item
        assert gpu.training < cpu.training  # nothing is held by the C library
        flex = plan_memory(
            config(engine={**engine, "options": {"attention": "flex"}}, model={"config": TINY, "dtype": dtype}),
            device="cuda",
        )
        assert flex is not None
        # Nothing is gathered; three sequences, rounded up to 4, look up each of 3 + 1 pages with 4 bytes.
        assert flex.sampling == gpu.sampling - 2**26 * item + 4 * 4 * 4
        graphs = {**engine, "options": {"attention": "flex", "cuda_graphs": True}}
        recorded = plan_memory(config(engine=graphs, model={"config": TINY, "dtype": dtype}), device="cuda")
        assert recorded is not None
        # One page more, in the cache and in the tables; logits of 4 rows twice (4 + 2 + 1 < 2 x 4), and what a step of
        # 4 needs.
        assert recorded.cache == flex.cache * 5 // 4
        assert recorded.sampling == flex.sampling + 4 * 4 + 4 * (2 * 100 + 96) * item
    modules = plan_memory(config(engine={**engine, "options": {"fused": False}}), device="cuda")
    assert modules is not None
    assert modules.packed == 0


def test_the_gathered_pages_are_the_engines() -> None:
    from turnwise.engines.paged.attention import GPU_GATHER_ELEMENTS
    from turnwise.forecast.sampling_memory import GATHERED

    assert GATHERED == GPU_GATHER_ELEMENTS


def test_a_training_step_by_hand() -> None:
    rollout = {"max_tokens": 50, "max_turns": 2, "max_turn_tokens": 10, "group_size": 4}

    def training(**train: Any) -> int:
        memory = plan_memory(config(rollout=rollout, train=train))
        assert memory is not None
        return memory.training

    # A layer keeps 6 x 8 hidden, 5 x 16 query, 4 x 8 key and value, 4 x 16 MLP = 224 numbers per token; two layers, 200
    # tokens. 20 of 50 tokens are trained: 80 rows of 100 logits, 3.2 times. All are small, so 1.75 times; 4 bytes.
    alone = training(micro_batch_tokens=200, shared_prefix=False)
    assert alone == pytest.approx(1.75 * (2 * 224 * 200 * 4 + 80 * 100 * 4 * 3.2), abs=1)
    # 2,000,000 tokens: arrays of 8 numbers per token are 64 MB, all of them large. Of 800,000 x 100 logits half exist
    # at once, 160 MB, with an output layer's gradient of 100 x 8 twice, which is small.
    large = training(micro_batch_tokens=2_000_000, shared_prefix=False)
    assert large == pytest.approx(
        2 * 224 * 2_000_000 * 4 + 400_000 * 100 * 4 * 3.2 + (1 + 2 * 0.75) * 2 * 100 * 8 * 4, abs=1
    )
    # Shared: four members compute 30 + 4 x 20 = 110 tokens, of which 80 are trained, and attend to 200: 2 + 2 x 20/11
    # arrays of 8.
    shared = training(micro_batch_tokens=200)
    per_layer = 6 * 8 + 5 * 16 + (2 + 2 * 20 / 11) * 8 + 4 * 16
    assert shared == pytest.approx(1.75 * (2 * per_layer * 200 * 4 + 200 * 80 / 110 * 100 * 4 * 3.2), abs=1)


def test_the_chunks_of_logits_are_the_trainers() -> None:
    from turnwise.forecast import activations
    from turnwise.models import head

    assert activations.CHUNK_NUMBERS == head.CHUNK_NUMBERS


def test_the_packed_families_are_the_engines() -> None:
    from turnwise.engines.paged.fused import FAMILIES

    assert set(PACKED_FAMILIES) == set(FAMILIES)


def test_the_estimate_is_close_to_a_real_model() -> None:
    from turnwise.models.build import build_model

    for tied in (True, False):
        model = {**TINY, "tie_word_embeddings": tied}
        real = build_model("qwen3", model, vocab_size=100, seed=0).num_parameters()
        estimate = compute_plan(config(model={"config": model})).parameters
        assert estimate == pytest.approx(real, rel=0.02)  # the formula leaves out Qwen3's norms of queries and keys


def test_a_mixture_by_hand() -> None:
    """Per layer 6 x 4 x 2 x (2 + 1) = 144 of attention, 6 x 4 = 24 of the router and 3 x 6 x 5 = 90 of an expert, of
    which a token takes 2 of 4; 10 x 6 = 60 of the embedding, and norms of 5 x 6 = 30."""
    from turnwise.models.build import build_model

    model = {"hidden_size": 6, "intermediate_size": 5, "num_hidden_layers": 2, "num_attention_heads": 2}
    model |= {"num_key_value_heads": 1, "head_dim": 4, "tie_word_embeddings": True}
    model |= {"num_local_experts": 4, "num_experts_per_tok": 2}
    recipe = config(model={"model_type": "mixtral", "config": model}, tokenizer={"vocab_size": 10})
    shape = read_policy_shape(recipe.model, vocab_size=recipe.tokenizer.vocab_size)
    assert shape is not None
    assert shape.num_linear == 2 * (144 + 24 + 2 * 90) + 60
    assert shape.num_parameters == 2 * (144 + 24 + 4 * 90) + 60 + 30
    assert shape.num_parameters == build_model("mixtral", model, vocab_size=10, seed=0).num_parameters()
    assert shape.list_saved_arrays(1.0, 4)[-1] == (4 * 2 * 2, 5, 4)


def test_a_model_from_a_path_or_of_unknown_shape_is_unknown_not_zero() -> None:
    for model in ({"path": "somewhere"}, {"config": {"n_embd": 8}}):
        plan = compute_plan(config(model=model))
        assert (plan.parameters, plan.memory) == (None, None)
        assert ("parameters", "unknown until the model is loaded") in plan.lines()
        assert ("memory", "unknown until the model is loaded") in plan.lines()


def test_a_model_from_a_path_is_read_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "vocab_size": 100, "model_type": "qwen3"}))
    assert plan_memory(config(model={"path": str(tmp_path)})) == plan_memory(config())


@pytest.mark.parametrize(
    ("branches", "per_attempt"), [("values", 4 * 2), ("random", 3 * 5), ("entropy", 3), ("none", 0)]
)
def test_branches_by_hand(branches: Branches, per_attempt: int) -> None:
    rollout = {"tasks_per_step": 3, "group_size": 4, "max_tokens": 50, "max_turns": 2, "max_turn_tokens": 10}
    branching = {"num_continuations": 4, "num_branches": 3, "num_rounds": 5}
    plan = compute_plan(config(rollout=rollout, credit={"branching": branching}), branches=branches)
    assert plan.trajectories_per_step == 12
    assert plan.branches_per_step == 12 * per_attempt
    assert plan.max_tokens_per_step == 12 * (1 + per_attempt) * 50
    assert plan.max_sampled_tokens_per_step == 12 * (1 + per_attempt) * 20
    assert ("branches" in dict(plan.lines())["trajectories per RL step"]) == bool(per_attempt)
