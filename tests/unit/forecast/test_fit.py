"""The micro-batch fits the machine: chosen, kept or refused, with numbers worked out by hand."""

from typing import Any

import pytest

from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.forecast import fit
from turnwise.forecast.held import read_shapes
from turnwise.forecast.memory import plan_memory

TINY = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "tie_word_embeddings": True,
}
LIBRARIES = 400 * 2**20


def fit_memory(recipe: RunConfig, *, memory_bytes: int) -> RunConfig:
    tokens = fit.fit_memory(read_forecast_settings(resolve(recipe)), memory_bytes=memory_bytes)
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"micro_batch_tokens": tokens})})


def make_config(*, micro_batch_tokens: int = 0, max_concurrency: int = 3, max_context: int = 10) -> RunConfig:
    """2376 float32 parameters (`test_plan.py` counts them), the plain engine, 20 of 50 tokens trained, none shared."""
    tree: dict[str, Any] = {
        "model": {"config": TINY},
        "tokenizer": {"vocab_size": 100},
        "engine": {"kind": "local", "max_concurrency": max_concurrency, "max_context": max_context},
        "rollout": {"max_tokens": 50, "max_turns": 2, "max_turn_tokens": 10},
        "train": {"micro_batch_tokens": micro_batch_tokens, "shared_prefix": False},
    }
    return RunConfig.model_validate(tree)


def training_peak(num_tokens: int) -> int:
    """Bytes of weights, two moments, gradients, a cache of 3 x 10 tokens of 128 bytes, and each token's arrays.

    A token of the micro-batch adds 2 layers of 224 numbers, and 0.4 rows of 100 logits 3.2 times, of 4 bytes, all
    small: 1.75 times.
    """
    return LIBRARIES + 4 * 2376 * 4 + 30 * 128 + int(1.75 * (2 * 224 + 0.4 * 100 * 3.2) * 4 * num_tokens)


def memory_for(num_bytes: int) -> int:
    """The size of a machine of which `num_bytes` are 80%, to the byte above."""
    return num_bytes * 5 // 4 + 2


@pytest.mark.parametrize(
    ("fitting", "chosen"),
    [
        (10_000, 9_984),  # 39 x 256 <= 10,000 < 40 x 256 = 10,240
        (9_984, 9_984),
        (9_983, 9_728),  # 38 x 256
        (10**6, 16_384),
    ],
)
def test_the_largest_micro_batch_that_fits_80_percent_is_chosen(fitting: int, chosen: int) -> None:
    memory = memory_for(training_peak(fitting))
    config = fit_memory(make_config(), memory_bytes=memory)
    assert config == make_config(micro_batch_tokens=chosen)
    assert fit_memory(config, memory_bytes=memory) == config


def test_a_value_of_the_recipe_may_fill_the_whole_memory_and_no_more() -> None:
    config = make_config(micro_batch_tokens=60_000)
    assert fit_memory(config, memory_bytes=training_peak(60_000) + 1) == config
    # 0.8 of this memory holds 10,000 tokens.
    memory = memory_for(training_peak(10_000))
    assert memory < training_peak(60_000)
    with pytest.raises(ConfigError, match=r"micro_batch_tokens=60000 does not fit.* use train.micro_batch_tokens=9984"):
        fit_memory(config, memory_bytes=memory)


def test_the_cache_is_part_of_the_budget() -> None:
    # With 256 tokens, sampling is the peak: three times the weights, 16 MiB of buffers, 1.3 times a step of 1024 tokens
    # of 96 numbers; and per conversation 100 cached tokens of 128 bytes and 1.3 times 6 rows of 100 logits.
    fixed = LIBRARIES + 3 * 2376 * 4 + 16 * 2**20 + int(1.3 * 1024 * 96 * 4)
    each = 100 * 128 + 13 * 6 * 100 * 4 // 10
    config = make_config(max_concurrency=100_000, max_context=100)
    with pytest.raises(ConfigError, match=r"even 256 needs 1\.9 GiB.* use engine\.max_concurrency=50 or less"):
        fit_memory(config, memory_bytes=memory_for(fixed + 50 * each + 10))
    fitting = make_config(max_concurrency=50, max_context=100)
    assert fit_memory(fitting, memory_bytes=memory_for(fixed + 50 * each + 10)).train.micro_batch_tokens > 0


def test_a_model_that_cannot_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"even 256 needs 0\.4 GiB.*of the 0\.2 GiB.*use a smaller model"):
        fit_memory(make_config(), memory_bytes=2**28)


def test_a_model_of_unknown_size_gets_the_most() -> None:
    config = RunConfig.model_validate({"model": {"path": "somewhere"}})
    assert fit_memory(config, memory_bytes=1).train.micro_batch_tokens == 16_384
    config = RunConfig.model_validate({"model": {"path": "somewhere"}, "train": {"micro_batch_tokens": 7}})
    assert fit_memory(config, memory_bytes=1) == config


def test_a_model_of_135_million_parameters_and_49_thousand_words_fits() -> None:
    # The sizes of SmolLM-135M. With 16384 tokens, a training step needs 30 GiB and more beside 11 GiB of cache.
    model = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    }
    config = RunConfig.model_validate({"model": {"config": model}, "tokenizer": {"vocab_size": 49152}})
    chosen = {gib: fit_memory(config, memory_bytes=gib * 2**30).train.micro_batch_tokens for gib in (24, 32, 64)}
    assert 0 < chosen[24] < chosen[32] < chosen[64] == 16_384
    with pytest.raises(ConfigError, match=r"16\.0 GiB of this machine \(cpu\); use engine\.max_concurrency=\d+ or"):
        fit_memory(config, memory_bytes=16 * 2**30)


def test_a_server_opens_as_many_conversations_as_fit_and_holds_no_trainer() -> None:
    settings = read_forecast_settings(resolve(make_config(max_concurrency=10)))

    def needed(count: int) -> int:
        # Weights, a cache of 10 tokens of 128 bytes per conversation, and what the plan says of sampling.
        one = read_forecast_settings(resolve(make_config(max_concurrency=count)))
        plan = plan_memory(one, shapes=read_shapes(one))
        assert plan is not None
        return LIBRARIES + 4 * 2376 + count * 10 * 128 + plan.sampling

    assert fit.fit_concurrency(settings, memory_bytes=memory_for(needed(5))) == 5
    assert fit.fit_concurrency(settings, memory_bytes=memory_for(needed(5)) - 200) == 4
    assert fit.fit_concurrency(settings, memory_bytes=memory_for(2 * needed(10))) == 10
    with pytest.raises(ConfigError, match=r"one conversation of 10 tokens needs .* lower --context"):
        fit.fit_concurrency(settings, memory_bytes=needed(1))
