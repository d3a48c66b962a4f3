"""What the general rule of `every_model.shrink_config` cannot know: values that a configuration class needs.

Each row says why. Most give a class the layer kinds that its checkpoints mix and its defaults do not, or keep sizes
that depend on each other equal. Nothing here lists which models exist, or which of them work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WINDOW = 8
"""Tokens of every sliding window and chunk: sequences of 24 tokens cross it."""

BOTH = ["sliding_attention", "full_attention"]
CONV = ["conv", "full_attention"]
DENSE = ["dense", "sparse"]

SHARED = {"num_key_value_heads": 4, "attention_head_dim": 32}  # the layers of attention are twice as wide
GLOBAL_HEADS = {"global_head_dim": 32}  # no field, so that the rule of names does not see it

EXCEPTIONS: Mapping[str, Mapping[str, Any]] = {
    # Layer kinds that checkpoints have and the defaults do not.
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_offset": 0},
    "lfm2": {"layer_types": CONV},
    "lfm2_moe": {"layer_types": [*CONV, "conv"], "num_hidden_layers": 3},
    "recurrent_gemma": {"num_hidden_layers": 3},  # two recurrent layers, one of attention
    "cohere2_moe": {"layer_types": BOTH, "mlp_layer_types": DENSE, "first_k_dense_replace": None},
    "cohere_compass_text": {
        "layer_types": BOTH,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in BOTH},  # one for each
    },
    "inkling_text": {"mlp_layer_types": DENSE},
    "laguna": {
        "layer_types": BOTH,
        "mlp_layer_types": DENSE,
        "num_attention_heads_per_layer": [4, 4],
    },
    "mellum": {"layer_types": BOTH, "mlp_layer_types": DENSE},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "indexed_attention"], "mlp_layer_types": DENSE},
    "ministral": {"layer_types": BOTH},
    "glm_moe_dsa": {"indexer_types": ["full", "shared"]},
    "zaya": {"layer_types": ["hybrid", "hybrid_sliding"], "sliding_window": WINDOW},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "qwen4_exp_text": {  # the indexer of its attention layers, and n-gram embeddings in the first layer
        "indexer_n_heads": 16,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
        "ple_layer_ids": [1],
        "eos_token_id": 2,
        "ple_embed_dim": 64,
    },
    "dots3_note_text": {
        "swa_num_attention_heads": 4,  # of its window layers, and no fields
        "swa_num_key_value_heads": 4,
        "swa_q_lora_rank": 16,
        "swa_kv_lora_rank": 16,
        "swa_head_dim": 24,
        "swa_qk_nope_head_dim": 16,
        "swa_v_head_dim": 16,
        "sliding_window": WINDOW,
    },
    "dots3_note_vision_encoder": {"adapter_in_dim": 64, "adapter_out_dim": 64},
    "dots3_note_audio_encoder": {"adapter_input_size": 64, "adapter_out_dim": 64},
    "gemma3n_text": {  # the last two layers read keys and values of the first two
        "layer_types": [*BOTH, *BOTH],
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.95, 0.0, 0.95, 0.0],
    },
    "gemma4_text": {"layer_types": [*BOTH, *BOTH], "num_hidden_layers": 4, "num_kv_shared_layers": 2, **GLOBAL_HEADS},
    "gemma4_assistant": {
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_kv_shared_layers": 4}
    },
    "gemma4_unified_text": {"layer_types": BOTH, "num_hidden_layers": 2, **GLOBAL_HEADS},
    "deepseek_v4": {
        "layer_types": ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
        "mlp_layer_types": ["hash_moe", "moe", "moe"],
        "num_hidden_layers": 3,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    },
    "llama4_text": {
        "layer_types": ["chunked_attention", "chunked_attention", "full_attention", "full_attention"],
        "no_rope_layers": [1, 1, 0, 0],
        "num_hidden_layers": 4,
        "interleave_moe_layer_step": 2,
        "moe_layers": [1, 3],
    },
    # Sizes that depend on each other.
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_d_head": 16},  # = mamba_n_heads * mamba_d_head
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},  # num_heads * head_dim = expand * hidden_size
    "nemotron_h": {"n_groups": 2, "mamba_num_heads": 8, "mamba_head_dim": 16},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"], "num_hidden_layers": 3, **SHARED},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"], "num_hidden_layers": 3},
    "doge": {"keep_window_size": 2048},  # beyond it, which of a repeated word's equal values are kept is left to chance
    "longcat_flash": {"head_dim": 8},  # qk_rope_head_dim
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},  # checkpoints have both, the defaults neither
    "xmod": {"default_language": "en_XX"},  # or every call must name a language
    "xlstm": {"hidden_size": 128},  # half of it is rounded up to 64
    "reformer": {
        "is_decoder": True,  # or the class refuses to be built
        "axial_pos_shape": [8, 16],
        "axial_pos_embds_dim": [24, 40],
        "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8,
        "num_buckets": 4,
    },
}

LIMIT = 28
"""Tokens from which a rope changes: between the lengths of the sequences that tests compute."""
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [1.0 + i for i in range(8)],
    "original_max_position_embeddings": LIMIT,
}
WINDOWS = {"use_sliding_window": True, "layer_types": BOTH}

VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama dynamic": ("llama", {"max_position_embeddings": LIMIT, "rope_parameters": DYNAMIC}),
    "llama yarn": ("llama", {"max_position_embeddings": 64, "rope_parameters": YARN}),
    "phi3 longrope": ("phi3", {"original_max_position_embeddings": LIMIT, "rope_parameters": LONGROPE}),
    "mistral full": ("mistral", {"sliding_window": None}),
    "phi3 full": ("phi3", {"sliding_window": None}),
    "qwen2 window": ("qwen2", WINDOWS),
    "qwen3 window": ("qwen3", WINDOWS),
    "falcon alibi": ("falcon", {"alibi": True, "new_decoder_architecture": False}),
    "falcon new": ("falcon", {"new_decoder_architecture": True}),
    "mpt without alibi": ("mpt", {"attn_config": {"alibi": False}}),
    "gemma4_text experts": (
        "gemma4_text",
        {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64},
    ),
    "granitemoehybrid mamba": ("granitemoehybrid", {"layer_types": ["linear_attention"] * 2}),
    "bert decoder": ("bert", {"is_decoder": True}),
    "roberta decoder": ("roberta", {"is_decoder": True}),
}
"""Models that one class builds from other options, by a name of their own: a model type, and its fields."""

_WHOLE = "transformers passes its decoder the configuration of the whole model, which lacks the decoder's fields"

CANNOT_BE_BUILT: Mapping[str, str] = {
    "gemma3n": "its vision tower needs the package timm",
    "gemma4_assistant": "drafts for another model, and needs that model's hidden states, keys and values",
    "gemma4_unified_assistant": "drafts for another model, and needs that model's hidden states, keys and values",
    "musicgen": _WHOLE,
    "musicgen_melody": _WHOLE,
}
"""Why, by model type."""

ENCODER = ("every token sees all others", "is_decoder", True)

NOT_CAUSAL: Mapping[str, tuple[str, str | None, Any]] = {
    **dict.fromkeys(
        [
            *["bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert"],
            *["rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl"],
            "xmod",
        ],
        ENCODER,
    ),
    "xlm": ("every token sees all others", "causal", True),
    "xlnet": ("every token sees all others", "attn_type", "uni"),
    "cpmant": ("every token sees all others of its segment", None, None),
    "reformer": ("layers of kind 'lsh' sort the whole sequence by random hashes", "attn_layers", ["local", "local"]),
}
"""By model type: what it does, and the field and value with which it is causal."""

REFUSED: Mapping[str, str] = {"prophetnet": "what it predicts depends on how long the sequence is"}
"""Why a causal model is refused all the same, by name."""

FLOAT32_ONLY: Mapping[str, str] = {"xlstm": "its own arithmetic mixes formats, and fails in bfloat16 on a CPU"}
"""Why transformers cannot run a model in bfloat16, by name."""
