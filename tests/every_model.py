"""Every causal language model that the installed transformers can build, tiny, with weights whose effects are visible.

The list comes from transformers itself. A configuration is made small by the *names* of its fields, so that a model of
a later version needs no line here; `model_exceptions.py` holds what names cannot say.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from model_exceptions import CANNOT_BE_BUILT, EXCEPTIONS, NOT_CAUSAL, VARIANTS, WINDOW
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCAB_SIZE = 97
FIRST_WORD, END_OF_WORDS = 6, 80
"""Ids in between are words in every tiny model; the others may be padding, the beginning, the end, or an image."""

Rule = tuple[str, int]
RULES: tuple[Rule, ...] = (
    (r".*vocab(_size)?.*", 16),  # of other vocabularies; `vocab_size` itself is set apart
    (r"(hidden_size|n_embd|d_model|(embed|emb|embedding|word_embed_proj)_dim|(\w+_)?embedding_size|lru_width)", 64),
    (r"(attention|backbone|out)_hidden_size|dim_model_base|embedding_dim|hidden_size_global|\w+_embed_dim", 64),
    (r"hidden_size_per_layer_input|router_hidden_size|prompt_mid_dim|projector_\w+_dim|d_rel", 16),
    (r"(num_|n_)?(hidden_|encoder_|decoder_)?layers?|num_blocks|depth|num_layers_per_stack", 2),
    (r"(swa_)?(num_|n_)?(encoder_|decoder_|local_)?(attention_)?heads?|num_query_groups", 4),
    (r"index(er)?_n_heads", 16),  # of few, all may give a token nothing, and which equals are taken is left to chance,
    (r"(swa_)?(num_)?(global_)?(key_value|kv)_(n_)?heads", 2),
    (r"(swa_|attention_|index_|indexer_|global_)?head_(dim|size)|(dim|d)_head|kv_channels|(v|qk_nope)_head_dim", 16),
    (r"qk_rope_head_dim|rotary_dim", 8),
    (r".*(intermediate_size|ffn_dim|ffn_hidden_size|feed_forward_size)(_mlp)?|dff|d_inner|dim_ff|n_inner", 64),
    (r".*_(lora_)?rank|hc_lowrank|num_centroids", 16),
    (r"((num|n|moe_num)_(local_|routed_)?experts|zero_expert_num)", 4),
    (r"num_experts_per_tok(en)?|moe_topk|moe_top_k|moe_k|top_k_experts|centroid_intermediate_top_k", 2),
    (r"n_group|topk_group|num_expert_group|(n|num|moe_num)_shared_experts|o_groups", 1),
    (r"first_k_dense_replace|num_dense_layers|moe_layer_start_index|moe_layer_end_index", 1),
    (r"(\w+_)?(sliding_)?window(_size|_len)?|local_attention|attention_chunk_size|rel_extent", WINDOW),
    (r"(\w+_)?chunk_(size|length)|block_size", WINDOW),
    (r"index_topk|indexer_budget|index_block_size", 4),
    (r"max_position_embeddings|n_positions|n_ctx|max_seq_len|context_length|max_(source|target)_positions", 128),
    (r"(\w+_)?state_size|mamba_d_state", 8),
    (r"(mamba_|linear_)(num_|n_)(key_|value_)?heads|n_mamba_heads", 4),
    (r"(mamba_|linear_)(d_head|head_?dim|(key|value)_head_dim)", 16),
    (r"layer_group_size|n_layers_per_attn_res_block|global_attn_every_n_layers", 2),
    (r"ngram_vocab_size_base|make_ngram_vocab_size_divisible_by|split_ngram_parts", 4),
    (r"image_size", 28),
)
"""Field names and the largest value that a tiny model has there."""
SET_WHERE_NONE = re.compile(r"num_key_value_heads|head_dim|num_experts_per_tok|n_routed_experts|n_shared_experts")
"""Fields that some classes leave at None, which their models cannot read or which stands for "no grouped queries"."""
SET_WHERE_ZERO = "first_k_dense_replace"
SPECIAL_ID = re.compile(r"\w+_token_(id|index)")
NOT_OF_LAYERS = {"full_attn_idxs", "moe_layers", "hybrid_layer_ids", "intermediate_size"}
"""Fields whose list may happen to be as long as the model is deep."""
NORM = re.compile(r"norm|ln_", re.IGNORECASE)
PACE = re.compile(r"dt_bias|\.D$|time_|decay|lambda|recurrent_param", re.IGNORECASE)
"""Names of weights that stay, and of those that a state space is only stable near."""
MIN_DEVIATION, MAX_DEVIATION = 1.0, 3.0
"""Standard deviation of the logits, in nats."""


def list_model_types() -> list[str]:
    """Names of all model types of transformers with a causal language model."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def list_names() -> list[str]:
    """All model types, and the variants of `model_exceptions.VARIANTS`: `llama dynamic`."""
    return sorted([*list_model_types(), *VARIANTS])


def why_not_built(name: str) -> str | None:
    """Why a model type cannot be built on this machine; None if it can."""
    return CANNOT_BE_BUILT.get(name)


def shrink_config(name: str, vocab_size: int = VOCAB_SIZE) -> PreTrainedConfig:
    """A tiny configuration of a model type or variant: every layer kind, windows of 8 tokens, grouped queries."""
    model_type, options = VARIANTS.get(name, (name, {}))
    return _shrink(CONFIG_MAPPING[model_type], vocab_size, {**EXCEPTIONS.get(model_type, {}), **options})


def build_tiny(name: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The model of `shrink_config` in evaluation mode, with transformers' eager attention.

    Its logits have a standard deviation of 1 to 3 nats. A function of `seed` alone. In another `dtype` it is what
    transformers loads in that format, which keeps some weights of some models in float32.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            shrink_config(name), attn_implementation="eager", dtype=torch.float32
        )
    draw_weights(model.eval(), seed)
    if dtype == torch.float32:
        return model
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        shrink_config(name).save_pretrained(folder)  # the whole's, where the model is the text part of one
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def draw_words(length: int, seed: int = 0) -> torch.Tensor:
    """Random ids `[length]` that are words in every tiny model."""
    return torch.randint(FIRST_WORD, END_OF_WORDS, (length,), generator=torch.Generator().manual_seed(seed))


def why_no_causal_model(config: PreTrainedConfig) -> str | None:
    """Why a model of this configuration is no causal language model although transformers lists it as one.

    None for all others, the decoders of encoder-decoder models among them: alone, they are causal. It reads the
    configuration; a test compares it with what the models do.
    """
    if config.model_type not in NOT_CAUSAL:
        return None
    what, field, causal = NOT_CAUSAL[config.model_type]
    if field is None:
        return f"{config.model_type}: {what}"
    if getattr(config, field) == causal:
        return None
    return f"{config.model_type}: {what}; with {field}={causal!r} in its configuration it is a causal model"


def _shrink(cls: type[PreTrainedConfig], vocab_size: int, given: Mapping[str, Any]) -> PreTrainedConfig:
    """A tiny configuration of a class, `given` values first."""
    values = {**_shrink_numbers(cls, vocab_size), **_pick_layers(cls), **given}
    for name, part in _parts(cls):
        if name not in given or isinstance(given[name], Mapping):
            options = {**EXCEPTIONS.get(part.model_type, {}), **given.get(name, {})}
            values[name] = _shrink(part, vocab_size, options)
    return cls(**values)


def _parts(cls: type[PreTrainedConfig]) -> Iterator[tuple[str, type[PreTrainedConfig]]]:
    """Names and classes of the configurations inside a class that are there by default."""
    for name, part in cls.sub_configs.items():
        spec = (getattr(cls, "sub_configs_defaults", None) or {}).get(name)
        if spec is None:
            yield name, part
        elif not spec.optional:
            yield name, CONFIG_MAPPING[spec.model_type] if spec.model_type else spec.config_class


def _defaults(cls: type[PreTrainedConfig]) -> dict[str, Any]:
    """Fields of a class with their defaults; None where a class computes them."""
    return {f.name: None if f.default is dataclasses.MISSING else f.default for f in dataclasses.fields(cls)}


def _shrink_numbers(cls: type[PreTrainedConfig], vocab_size: int) -> dict[str, Any]:
    """Small values for the numbers of a class that the rules name; special tokens from the vocabulary's end."""
    values: dict[str, Any] = {}
    defaults = _defaults(cls)
    special = iter(range(vocab_size - 1, END_OF_WORDS - 1, -1))
    for name, default in defaults.items():
        if re.fullmatch(r"(unpadded_|decoder_)?vocab_size(_per_layer_input)?", name) and default:
            values[name] = vocab_size
        elif SPECIAL_ID.fullmatch(name):
            if isinstance(default, int) and default >= FIRST_WORD:
                values[name] = next(special)
        elif isinstance(default, bool):
            continue
        elif (rule := _find_rule(name)) is not None:
            if isinstance(default, int) and default > 0:
                values[name] = min(default, rule)
            elif name == SET_WHERE_ZERO or (default is None and SET_WHERE_NONE.fullmatch(name)):
                values[name] = rule
    if "kv_lora_rank" in defaults:  # its heads share one latent: as many of keys and values as of queries
        values["num_key_value_heads"] = values.get("num_attention_heads", 4)
        if defaults.get("head_dim") is None:
            values.pop("head_dim", None)
    return values


def _find_rule(name: str) -> int | None:
    return next((value for pattern, value in RULES if re.fullmatch(pattern, name)), None)


def _pick_layers(cls: type[PreTrainedConfig]) -> dict[str, Any]:
    """Per-layer lists cut to the first layer of every kind, and their length; empty where the defaults have none."""
    try:
        whole = cls()
    except StrictDataclassError:  # its defaults contradict each other; its exception has what is needed
        return {}
    total = getattr(whole, "num_hidden_layers", None)
    fields = {name: vars(whole).get(name) for name in _defaults(cls).keys() - NOT_OF_LAYERS}
    lists = {
        name: list(value) for name, value in fields.items() if isinstance(value, list | tuple) and len(value) == total
    }
    if not lists or not isinstance(total, int):
        return {}
    kept = {kinds.index(kind) for kinds in lists.values() for kind in kinds}
    kept |= {0, 1} if len(kept) < 2 else set()
    picked = {name: [kinds[i] for i in sorted(kept)] for name, kinds in lists.items()}
    return picked | ({"num_hidden_layers": len(kept)} if "num_hidden_layers" in _defaults(cls) else {})


@torch.no_grad()
def draw_weights(model: PreTrainedModel, seed: int) -> None:
    """Draw weights anew so that everything a model does shows in its logits: transformers' own are so small that
    neither a cap nor a sink nor a bias changes anything.

    Matrices by the number of their inputs, biases and sinks of order 0.1 and 1. Norms stay, and what sets the pace of a
    state space changes by a few per cent.
    """
    draw = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=draw)
        if "sink" in name:
            weight.copy_(noise)
        elif name.endswith("A_log"):
            weight.sub_(2.0)  # states that fade within a few tokens hide what came long before
        elif NORM.search(name):
            continue
        elif PACE.search(name):
            weight.mul_(1 + 0.05 * noise)
        elif weight.ndim >= 2:
            weight.copy_(noise / math.sqrt(weight.shape[-1]))
        else:
            weight.add_(0.1 * noise)
    _scale_logits(model)


def _scale_logits(model: PreTrainedModel) -> None:
    """Bring the standard deviation of the logits between 1 and 3 nats by the output layer's weights."""
    head = model.get_output_embeddings()
    for _ in range(6):
        deviation = float(model(draw_words(24)[None], use_cache=False).logits.std())
        if MIN_DEVIATION <= deviation <= MAX_DEVIATION or not math.isfinite(deviation) or head is None:
            return
        head.weight.mul_(min(8.0, max(0.125, 2.0 / deviation)))
