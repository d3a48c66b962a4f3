"""What a recipe says about the engine and about sampling reaches them."""

import asyncio
from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine
from turnwise.core.types import SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.engines.paged.generic import GenericRunner
from turnwise.engines.workers import WorkerEngine
from turnwise.rollout.attempt import Sampling
from turnwise.runs.build import build_policy_engine, build_system, load_frozen_engine

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=100",
]


def test_the_recipe_reaches_engine_and_sampling() -> None:
    settings = [
        *SMALL,
        "tokenizer.vocab_size=400",
        "evaluate.temperature=0.6",
        "evaluate.top_p=0.95",
        "evaluate.top_k=20",
    ]
    system = build_system(load_config([TINY], [*settings, "evaluate.min_p=0.05", "rollout.temperature=0.9"]))
    assert isinstance(system.engine.engine, PagedEngine)
    assert system.engine.engine.is_fused
    evaluating, training = system.worker("evaluate").sampling, system.worker("train").sampling
    assert evaluating == Sampling(temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, seed=evaluating.seed)
    assert training == Sampling(temperature=0.9, top_p=1.0, top_k=0, min_p=0.0, seed=training.seed)
    for override, kind in (("engine.kind='local'", LocalEngine), ("engine.options.fused=false", PagedEngine)):
        engine = build_policy_engine(load_config([TINY], [*settings, override]), system.model, system.tokenizer)
        assert isinstance(engine, kind)
        assert not getattr(engine, "is_fused", False)
    graphs = ["engine.options.attention='flex'", "engine.options.cuda_graphs=true"]
    with pytest.raises(ConfigError, match=r"cuda_graphs=true with a model on cpu: graphs need a GPU"):
        build_policy_engine(load_config([TINY], [*settings, *graphs]), system.model, system.tokenizer)
    several = load_config([TINY], [*settings, "engine.kind=workers", "engine.options.num_workers=2"])
    workers = build_policy_engine(several, system.model, system.tokenizer)
    assert isinstance(workers, WorkerEngine)
    assert workers.is_fused
    assert workers.worker_pids() == []  # they start with the first request


def test_a_model_whose_attention_is_not_turnwises_is_sampled_through_its_own_cache() -> None:
    system = build_system(load_config([TINY], [*SMALL, "tokenizer.vocab_size=400"]))
    system.model.set_attn_implementation("eager")
    engine = build_policy_engine(system.config, system.model, system.tokenizer)
    assert isinstance(engine, PagedEngine)
    assert isinstance(engine._runner, GenericRunner)


def test_a_frozen_role_samples_from_its_own_checkpoint_and_reads_the_runs_tokens(tmp_path: Path) -> None:
    config = load_config([TINY], [*SMALL, "tokenizer.vocab_size=400"])
    other = load_config([TINY], [*SMALL, "tokenizer.vocab_size=400", "run.seed=1"])
    system, frozen = build_system(config), build_system(other)
    frozen.model.save_pretrained(tmp_path)
    frozen.tokenizer.save_pretrained(tmp_path)

    async def score(engine: Engine) -> float:
        params = SamplingParams(max_tokens=4, temperature=1.0, seed=3)
        try:
            completion = await engine.generate(to_ids([5, 6, 7]), params, session=Session("a", "b"))
        finally:
            await engine.close()
        return float(completion.logprobs[0])

    loaded = asyncio.run(score(load_frozen_engine(config, tmp_path, system.tokenizer)))
    assert loaded == pytest.approx(asyncio.run(score(frozen.engine)), abs=1e-5)
    assert loaded != pytest.approx(asyncio.run(score(system.engine)), abs=1e-3)
    smaller = build_system(load_config([TINY], [*SMALL, "tokenizer.vocab_size=300"])).tokenizer
    with pytest.raises(ConfigError, match="has other tokens than this run's"):
        load_frozen_engine(config, tmp_path, smaller)
