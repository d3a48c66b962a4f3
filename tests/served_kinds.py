"""Small models of many kinds, for what other programs sample from them: windows shorter than the prompt, logits of one
to three nats, and sizes that vLLM's kernels take."""

from collections.abc import Mapping
from typing import Any

from every_model import draw_weights
from served_model import VOCAB
from transformers import PreTrainedModel

from turnwise.models.build import build_model
from turnwise.models.check import with_own_attention

WINDOW = 16
"""Tokens of a sliding window; the prompt is longer."""
PLAIN = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
}
HEADS = {**PLAIN, "head_dim": 32}
BOTH = ["sliding_attention", "full_attention"]
MIXED = ["linear_attention", "full_attention"]
DELTA = {
    **HEADS,
    "layer_types": MIXED,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
STATE = {
    **PLAIN,
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
    "mamba_expand": 2,
}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
NEMOTRON = {
    **HEADS,
    "num_hidden_layers": 3,
    "layers_block_type": ["linear_attention", "mlp", "full_attention"],
    "ssm_state_size": 16,
    "mamba_num_heads": 4,
    "mamba_head_dim": 32,
    "n_groups": 2,
    "chunk_size": 16,
}

KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "qwen3": ("qwen3", HEADS),
    "mistral, window": ("mistral", {**HEADS, "sliding_window": WINDOW}),
    "qwen3, window": (
        "qwen3",
        {**HEADS, "use_sliding_window": True, "sliding_window": WINDOW, "layer_types": BOTH, "max_window_layers": 0},
    ),
    "qwen3, window everywhere": (
        "qwen3",
        {**HEADS, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 0},
    ),
    "qwen3, window nowhere": (
        "qwen3",
        {**HEADS, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2},
    ),
    "qwen2, window": (
        "qwen2",
        {**PLAIN, "use_sliding_window": True, "sliding_window": WINDOW, "layer_types": BOTH, "max_window_layers": 0},
    ),
    "gemma2": (
        "gemma2",
        {
            **HEADS,
            "sliding_window": WINDOW,
            "layer_types": BOTH,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 1.0,
            "final_logit_softcapping": 4.0,
        },
    ),
    "gemma3_text": ("gemma3_text", {**HEADS, "sliding_window": WINDOW, "layer_types": BOTH}),
    "gpt_oss": (
        "gpt_oss",
        {**HEADS, "sliding_window": WINDOW, "layer_types": BOTH, **LOCAL_EXPERTS},
    ),
    "qwen3_moe": ("qwen3_moe", {**HEADS, **EXPERTS}),
    "lfm2": ("lfm2", {**PLAIN, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
    "qwen3_5_text": ("qwen3_5_text", DELTA),
    "qwen3_next": ("qwen3_next", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 32}),
    "qwen3_next, all experts": (
        "qwen3_next",
        {**DELTA, **EXPERTS, "num_experts_per_tok": 4, "shared_expert_intermediate_size": 32},
    ),
    "bamba": ("bamba", {**STATE, "attn_layer_indices": [1]}),
    "granitemoehybrid": (
        "granitemoehybrid",
        {**STATE, "layer_types": MIXED, **LOCAL_EXPERTS, "shared_intermediate_size": 64},
    ),
    "falcon_h1": ("falcon_h1", {**STATE, "mamba_d_ssm": 128}),
    "jamba": (
        "jamba",
        {
            **PLAIN,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "mamba_d_state": 16,
            "mamba_dt_rank": 8,
        },
    ),
    "mamba": ("mamba", {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 16, "time_step_rank": 8}),
    "mamba2": (
        "mamba2",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "state_size": 16,
            "num_heads": 4,
            "head_dim": 32,
            "n_groups": 2,
            "chunk_size": 16,
        },
    ),
    "nemotron_h": ("nemotron_h", NEMOTRON),
    "nemotron_h, no floor": (
        "nemotron_h",
        {**NEMOTRON, "time_step_min": 1e-12},
    ),
}
"""Model type and fields by name. Windows are shorter than `served_model.PROMPT`."""


def make_kind(name: str, dtype: str = "float32") -> PreTrainedModel:
    """The model of a name, by the path that it takes."""
    model_type, config = KINDS[name]
    model = build_model(model_type, config, vocab_size=VOCAB, seed=1, dtype=dtype)
    with with_own_attention(model):
        draw_weights(model, seed=1)
    return model
