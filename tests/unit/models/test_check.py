"""The check at start: which path a model takes, and faults planted in either path that it finds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from every_model import build_tiny
from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError
from turnwise.engines.check import check_steps
from turnwise.engines.paged.fused import FusedDecoder
from turnwise.models import attention, caches, check, rope
from turnwise.models.attention import Rules, register_attention
from turnwise.models.build import build_model
from turnwise.models.caches import Caches, State
from turnwise.models.check import choose_path
from turnwise.models.paths import ModelPath, find_path

register_attention()
FAST = ("qwen3", "mistral", "gemma2", "gemma3_text", "gpt_oss", "deepseek_v3", "cohere2")
GENERIC = {
    "qwen3_5_text": "Qwen3_5GatedDeltaNet",
    "lfm2": "Lfm2ShortConv",
    "bamba": "BambaMixer",
    "mamba": "MambaMixer",
    "bloom": "BloomAttention",
}


def check_all(name: str) -> ModelPath:
    """The path of a tiny model after both checks."""
    return find_path(check_steps(choose_path(build_tiny(name))))


@pytest.mark.parametrize("name", FAST)
def test_what_decoders_share_is_fast(name: str) -> None:
    path = check_all(name)
    assert path.kind == "fast", path
    assert set(path.gaps) == {"packed", "shared", "sampled"}
    assert max(path.gaps.values()) < 1e-4


@pytest.mark.parametrize("name", GENERIC)
def test_what_mixes_tokens_elsewhere_is_generic_and_the_reason_names_the_layer(name: str) -> None:
    path = check_all(name)
    assert path.kind == "generic"
    assert path.reason.startswith(GENERIC[name])
    assert path.pads
    assert path.steps
    assert path.merges
    assert max(path.gaps.values()) < 1e-4


@pytest.mark.parametrize("name", ["qwen3", "gemma2", "lfm2"])
def test_weights_limits_and_buffers_are_what_they_were(name: str) -> None:
    """The check lowers windows and raises small weights while it runs."""
    model, untouched = choose_path(build_tiny(name)), build_tiny(name)
    for ours, theirs in zip(model.state_dict().values(), untouched.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert model.config.to_dict() == untouched.config.to_dict() | {"dtype": model.config.to_dict()["dtype"]}
    assert [getattr(m, "sliding_window", 0) for m in model.modules()] == [
        getattr(m, "sliding_window", 0) for m in untouched.modules()
    ]


def test_a_layer_that_does_nothing_yet_is_seen() -> None:
    """Random weights of deviation 0.02 in a small model: a convolution changes the last digits only."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}  # type: ignore[dict-item]
    model = build_model("lfm2", sizes, vocab_size=97, seed=1)
    assert find_path(model).kind == "generic"


def test_a_model_whose_tokens_see_later_ones_is_refused() -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    with pytest.raises(ConfigError, match=r"not causal.*is_decoder=true"):
        build_model("bert", {**sizes, "is_decoder": False, "initializer_range": 0.2}, vocab_size=97, seed=1)


def test_numbers_that_are_not_finite_are_refused() -> None:
    model = build_tiny("qwen3")
    with torch.no_grad():
        model.get_input_embeddings().weight[:] = float("inf")
    with pytest.raises(ConfigError, match=r"Qwen3ForCausalLM computes numbers that are not finite"):
        choose_path(model)


# ------------------------------------------------------------------------------------------------ planted faults


def change_rules(monkeypatch: pytest.MonkeyPatch, change: Callable[[Rules], Rules]) -> None:
    """Let every layer attend by other rules than the model says."""
    monkeypatch.setattr(attention, "Rules", lambda *given: change(Rules(*given)))


def widen_window(monkeypatch: pytest.MonkeyPatch) -> None:
    change_rules(monkeypatch, lambda rules: replace(rules, window=rules.window and rules.window + 1))


def drop_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    change_rules(monkeypatch, lambda rules: replace(rules, sinks=None))


def drop_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    change_rules(monkeypatch, lambda rules: replace(rules, softcap=None))


def take_the_neighbours_rope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "attach_rope", lambda model: None)


def swap_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packed weights of keys are those of values."""
    pack = FusedDecoder._pack_layer

    def swapped(self: FusedDecoder, layer: Any) -> Any:
        projections = layer.self_attn
        projections.k_proj, projections.v_proj = projections.v_proj, projections.k_proj
        try:
            return pack(self, layer)
        finally:
            projections.k_proj, projections.v_proj = projections.v_proj, projections.k_proj

    monkeypatch.setattr(FusedDecoder, "_pack_layer", swapped)


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("mistral", widen_window),
        ("gpt_oss", widen_window),
        ("gemma3_text", widen_window),
        ("gpt_oss", drop_sink),
        ("gemma2", drop_cap),
        ("llama", swap_tensors),
    ],
)
def test_a_fault_of_the_fast_path_is_found_before_anything_runs(
    name: str, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    path = check_all(name)
    assert path.kind == "generic"
    assert "nats" in path.reason


def test_a_rope_of_the_neighbour_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take_the_neighbours_rope(monkeypatch)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}}  # type: ignore[dict-item]
    model = build_model("llama", {**sizes, "max_position_embeddings": 64}, vocab_size=97, seed=1)
    assert find_path(model).kind == "generic"
    assert list(rope._list_ropes(model))


def keep_the_old_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation begins with what another one left."""
    begin = Caches.begin
    left: list[State] = []

    def begin_again(self: Caches, ids: torch.Tensor) -> tuple[torch.Tensor, State]:
        logits, state = begin(self, ids) if not left else self.extend(left[0], ids)
        left.append(state)
        return logits, State(state.batch, state.row, ids.shape[1])

    monkeypatch.setattr(Caches, "begin", begin_again)


def forget_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent and convolutional states are zero when rows are put together."""
    merge = caches._merge_values

    def blank(values: Any, states: Any) -> Any:
        merged = merge(values, states)
        return merged.zero_() if isinstance(merged, torch.Tensor) and merged.ndim > 1 else merged

    monkeypatch.setattr(caches, "_merge_values", blank)


def fill_up_on_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter conversations are filled up behind their tokens."""
    pad = torch.nn.functional.pad

    class Functional:
        @staticmethod
        def pad(tensor: torch.Tensor, sizes: tuple[int, int, int, int]) -> torch.Tensor:
            return pad(tensor, (0, 0, sizes[3], sizes[2]))

    monkeypatch.setattr(caches, "functional", Functional)


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5_text", "bamba"])
@pytest.mark.parametrize("plant", [keep_the_old_state, forget_the_state])
def test_a_fault_of_the_cache_is_found_and_the_cache_is_not_used(
    name: str, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    path = check_all(name)
    assert path.kind == "generic"
    assert not path.steps


def test_a_fault_of_rows_that_step_together_is_found_and_they_step_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    fill_up_on_the_right(monkeypatch)
    path = check_all("lfm2")
    assert path.steps
    assert not path.merges


@pytest.mark.parametrize("name", ["qwen3", "gemma2", "gpt_oss", "qwen3_moe", "lfm2", "qwen3_5_text"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_path_does_not_depend_on_the_format(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.float64 and name in ("gpt_oss", "qwen3_moe"):
        pytest.skip("transformers' grouped products of experts know no float64")
    path = find_path(check_steps(choose_path(build_tiny(name, dtype=dtype))))
    assert (path.kind == "generic") == (name in GENERIC)


@pytest.mark.parametrize(("name", "plant"), [("mistral", widen_window), ("gpt_oss", drop_sink), ("gemma2", drop_cap)])
def test_faults_are_found_in_bfloat16(
    name: str, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    model: PreTrainedModel = build_tiny(name, dtype=torch.bfloat16)
    assert find_path(choose_path(model)).kind == "generic"
