"""The tiny models that other tests run on: none is missing, each has every layer kind, and its effects are visible."""

import dataclasses
from typing import Any

import pytest
import torch
from every_model import (
    END_OF_WORDS,
    FIRST_WORD,
    VOCAB_SIZE,
    build_tiny,
    draw_words,
    list_model_types,
    list_names,
    shrink_config,
    why_no_causal_model,
    why_not_built,
)
from huggingface_hub.errors import StrictDataclassError
from model_exceptions import CANNOT_BE_BUILT, EXCEPTIONS, NOT_CAUSAL, VARIANTS, WINDOW
from model_measures import FAILURES
from model_slice import mark_names
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

LENGTH = 24
BUILT = [name for name in list_names() if why_not_built(name) is None]
KINDS = ("layer_types", "mlp_layer_types", "layers_block_type", "indexer_types", "attention_layers", "attn_layers")


def logits_of(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids[None], use_cache=False).logits[0]


def another_word(ids: torch.Tensor) -> torch.Tensor:
    """Other words than these."""
    return (ids - FIRST_WORD + 7) % (END_OF_WORDS - FIRST_WORD) + FIRST_WORD


def kinds_of(config: PreTrainedConfig) -> set[str]:
    """Layer kinds of a configuration's text part."""
    text = config.get_text_config(decoder=True)
    return {f"{name}: {kind}" for name in KINDS for kind in getattr(text, name, None) or []}


def test_every_configuration_of_the_auto_class_is_in_the_list() -> None:
    listed = {CONFIG_MAPPING[model_type] for model_type in list_model_types()}
    own = {each for each in AutoModelForCausalLM._model_mapping if each.__module__.startswith("transformers.")}
    assert listed == own  # a model folder that brings code adds to the class for the rest of the process
    assert len(list_model_types()) > 150


def test_exceptions_and_variants_are_of_model_types_that_exist() -> None:
    assert CANNOT_BE_BUILT.keys() | NOT_CAUSAL.keys() <= set(list_model_types())
    assert {model_type for model_type, _ in VARIANTS.values()} <= set(list_model_types())
    assert not VARIANTS.keys() & set(list_model_types())
    inner = {"dots3_note_audio_encoder", "dots3_note_vision_encoder"}  # parts of a configuration, and no models
    assert EXCEPTIONS.keys() <= {*CONFIG_MAPPING, *inner}


@pytest.mark.parametrize("name", list(CANNOT_BE_BUILT))
def test_what_is_said_not_to_be_built_is_not(name: str) -> None:
    with pytest.raises(FAILURES):
        build_tiny(name)


def test_each_layer_kind_of_the_defaults_is_in_the_tiny_model() -> None:
    missing = {}
    for name in BUILT:
        try:
            whole = CONFIG_MAPPING[VARIANTS.get(name, (name, {}))[0]]()
        except StrictDataclassError:
            continue  # defaults that contradict each other
        if name not in VARIANTS and (lost := kinds_of(whole) - kinds_of(shrink_config(name))):
            missing[name] = lost
    assert missing == {}


def test_windows_and_chunks_are_shorter_than_the_sequences() -> None:
    def long_windows(config: Any) -> list[str]:
        fields = {field.name: vars(config).get(field.name) for field in dataclasses.fields(config)}
        words = ("sliding_window", "window_size", "attention_window_size", "local_attention", "attention_chunk_size")
        return [name for name in words if isinstance(fields.get(name), int) and fields[name] > WINDOW]

    found = {name: long_windows(shrink_config(name).get_text_config(decoder=True)) for name in BUILT}
    assert {name: windows for name, windows in found.items() if windows} == {}


@pytest.mark.parametrize("name", mark_names(BUILT))
def test_a_tiny_model_says_what_its_inputs_change(name: str) -> None:
    model = build_tiny(name)
    ids = draw_words(LENGTH)
    logits = logits_of(model, ids)
    assert logits.shape == (LENGTH, VOCAB_SIZE)
    assert torch.isfinite(logits).all()
    assert 0.9 < float(logits.std()) < 3.5
    earlier = ids.clone()
    earlier[:-1] = another_word(earlier[:-1])
    assert float((logits_of(model, earlier)[-1] - logits[-1]).abs().max()) > 0.02


@pytest.mark.parametrize("name", mark_names(BUILT))
def test_a_model_is_causal_unless_it_is_said_not_to_be(name: str) -> None:
    model = build_tiny(name)
    ids = draw_words(LENGTH)
    later = ids.clone()
    later[-1] = another_word(later[-1])
    change = float((logits_of(model, later)[:-1] - logits_of(model, ids)[:-1]).abs().max())
    assert (change > 1e-4) == (why_no_causal_model(shrink_config(name)) is not None)


def test_weights_follow_from_the_seed_alone() -> None:
    torch.manual_seed(5)
    first = build_tiny("gpt_oss", seed=3).state_dict()
    torch.manual_seed(6)
    second, other = build_tiny("gpt_oss", seed=3).state_dict(), build_tiny("gpt_oss", seed=4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_why_no_causal_model_says_what_makes_it_one() -> None:
    assert why_no_causal_model(shrink_config("qwen3")) is None
    reason = why_no_causal_model(shrink_config("bert"))
    assert reason is not None
    assert "is_decoder=True" in reason
    assert why_no_causal_model(shrink_config("bert decoder")) is None
