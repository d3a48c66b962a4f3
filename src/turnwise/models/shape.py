"""The sizes of a model that its memory and its time depend on, read from its config.json.

Counts are closed formulas over decoders of attention and gated layers, with experts, latent attention and recurrent
layers where the config names them. `models/measured.py` counts any causal model of transformers by building it without
memory; what it measured goes before the formula."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.config.catalog import find_model
from turnwise.config.model import ModelSection

ATTENTION_LAYERS = ("attention", "full_attention", "sliding_attention", "chunked_attention", "full", "hybrid")
"""What `layer_types` calls layers that keep keys and values of every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a model has that was built from its config without memory, in the dtype of the recipe."""

    parameters: int
    """Distinct ones."""
    multiplied: int
    """Numbers in all matrices that a token is multiplied by: of experts those that compute it, of embeddings the output
    layer."""
    linears: tuple[tuple[str, int], ...]
    """Of linear layers, by the last part of their names: inputs and outputs of all layers of that name together."""
    cached: int | None = None
    """Numbers that the model's own cache keeps per token; None if that could not be measured."""
    states: int | None = None
    """Numbers that it keeps per sequence, whatever its length: states of recurrent layers. None likewise."""
    saved: tuple[float, float] | None = None
    """Bytes that a forward pass of the model's own modules keeps for the backward pass: per token, and per pair of
    tokens of a row. None likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """The sizes of a vision-language model's tower, and what one picture of the usual size needs."""

    parameters: int
    """Of the tower and of what fits its rows to the text."""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    patches: int
    """Of a picture."""
    places: int
    """Tokens of a prompt that stand for a picture."""

    @property
    def num_saved(self) -> int:
        """Numbers that a forward pass over a picture keeps for the backward pass: of a layer the inputs and results of
        both norms, queries, keys, values and the attended values, the projection, and both sides of the activation
        (10 hidden, 2 intermediate)."""
        return self.num_layers * self.patches * (10 * self.hidden_size + 2 * self.intermediate_size)

    @property
    def num_live(self) -> int:
        """Numbers that live at once while a picture is encoded without a gradient."""
        return self.patches * (6 * self.hidden_size + 2 * self.intermediate_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a model that its memory depends on."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tied: bool
    """Whether the output layer is the embedding."""
    model_type: str = "llama"
    """Name of the architecture in transformers."""
    num_experts: int = 1
    """Of a mixture, each of `intermediate_size`; 1 for a dense model."""
    num_chosen: int = 1
    """Experts that compute a token."""
    shared_size: int = 0
    """Width of the experts that compute every token."""
    num_dense: int = 0
    """Layers of a mixture that have no experts, of width `dense_size`."""
    dense_size: int = 0
    value_dim: int | None = None
    """Numbers per head of the values; None is `head_dim`."""
    q_rank: int = 0
    kv_rank: int = 0
    """Of latent attention (DeepSeek V2 and V3): numbers per token that queries, and that keys and values, are made of.
    0 where they are made of the hidden state."""
    rope_dim: int = 0
    """Numbers of the key that all heads share, of latent attention."""
    num_recurrent: int = 0
    """Layers that keep a state per sequence instead of keys and values per token."""
    num_states: int = 0
    """Numbers in the states of one sequence."""
    is_packed: bool = True
    """Whether training lays sequences end to end and engines page their cache. False for models whose layers mix tokens
    outside attention: they compute padded rows with the model's own attention."""
    measured: Measured | None = None
    """None where only the config was read."""
    tower: Tower | None = None
    """None for a model of text only, and where only the config was read."""

    @property
    def values(self) -> int:
        """Numbers per head of the values."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def num_attending(self) -> int:
        """Layers with keys and values."""
        return self.num_layers - self.num_recurrent

    @property
    def num_attention(self) -> int:
        """Numbers in the matrices of one layer's attention."""
        queries, attended = self.num_heads * self.head_dim, self.num_heads * self.values
        made = self.hidden_size * (queries + self.num_kv_heads * (self.head_dim + self.values))
        if self.kv_rank:
            from_hidden = self.hidden_size * (self.q_rank or queries) + self.q_rank * queries
            whole = self.num_heads * (self.head_dim - self.rope_dim + self.values)
            made = from_hidden + self.hidden_size * (self.kv_rank + self.rope_dim) + self.kv_rank * whole
        return made + attended * self.hidden_size

    @property
    def num_linear(self) -> int:
        """Numbers in all matrices that a token is multiplied by, except the embedding."""
        if self.measured is not None:
            return self.measured.multiplied
        router = self.hidden_size * self.num_experts if self.num_experts > 1 else 0
        expert = 3 * self.hidden_size * self.intermediate_size
        mixed = router + self.num_chosen * expert + 3 * self.hidden_size * self.shared_size
        dense = 3 * self.hidden_size * self.dense_size
        layers = self.num_layers * self.num_attention + (self.num_layers - self.num_dense) * mixed
        return layers + self.num_dense * dense + self.vocab_size * self.hidden_size

    @property
    def num_joined(self) -> int:
        """Numbers in the matrices of queries, keys, values, gate and up."""
        heads = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        return self.num_layers * self.hidden_size * (heads + 2 * self.intermediate_size)

    @property
    def num_parameters(self) -> int:
        """Distinct parameters; by the formula without biases and the norms of queries and keys."""
        if self.measured is not None:
            return self.measured.parameters + (0 if self.tower is None else self.tower.parameters)
        norms = (2 * self.num_layers + 1) * self.hidden_size
        mixtures = self.num_layers - self.num_dense
        others = mixtures * (self.num_experts - self.num_chosen) * 3 * self.hidden_size * self.intermediate_size
        return self.num_linear + others + norms + (0 if self.tied else self.num_head)

    @property
    def num_head(self) -> int:
        """Numbers of the output layer, and of the embedding."""
        return self.vocab_size * self.hidden_size

    @property
    def num_backbone(self) -> int:
        """Distinct parameters without an output layer of its own."""
        return self.num_parameters - (0 if self.tied else self.num_head)

    @property
    def num_cached(self) -> int:
        """Numbers in the key-value cache per token."""
        if not self.is_packed and self.measured is not None and self.measured.cached is not None:
            return self.measured.cached
        return self.num_attending * self.num_kv_heads * (self.head_dim + self.values)

    @property
    def num_kept(self) -> int:
        """Numbers in the states of recurrent layers per sequence."""
        if self.measured is not None and self.measured.states is not None:
            return self.measured.states
        return self.num_states

    def count_adapter(self, rank: int, target_modules: Sequence[str] | None) -> int:
        """Parameters of an adapter of `rank` on the layers of these names; None is all layers but the output layer."""
        if self.measured is not None:
            return rank * sum(
                size
                for name, size in self.measured.linears
                if (name != "lm_head" if target_modules is None else name in target_modules)
            )
        attended, cached = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        sizes = {
            "q_proj": (self.hidden_size, attended),
            "k_proj": (self.hidden_size, cached),
            "v_proj": (self.hidden_size, cached),
            "o_proj": (attended, self.hidden_size),
            "gate_proj": (self.hidden_size, self.intermediate_size),
            "up_proj": (self.hidden_size, self.intermediate_size),
            "down_proj": (self.intermediate_size, self.hidden_size),
        }
        names = sizes if target_modules is None else sizes.keys() & target_modules
        output = "lm_head" in (target_modules or ()) and self.hidden_size + self.vocab_size
        return rank * (self.num_layers * sum(sum(sizes[name]) for name in names) + output)

    def list_saved_arrays(
        self, repeats: float, item: int, *, is_adapted: bool = False
    ) -> tuple[tuple[float, int, int], ...]:
        """Numbers of arrays that a forward pass keeps for the backward pass, their numbers per token, and the bytes of
        each of these in a model of `item` bytes.

        `repeats` is the keys attended to per computed token: above 1 if trajectories share a prefix.

        A layer: both norms' inputs, normalised rows and results (6 hidden); queries before and after their norm,
        turned, and the attended values twice (5 heads); keys likewise and values (4 kv heads); gate, up, the activated
        gate and the product, of every expert that computes a token, of shared experts and of layers without experts.
        Norms compute in float32, so their inputs are kept in that; beside an adapter their weights are frozen, and the
        normalised rows are not kept."""
        layers, mixtures = self.num_layers, self.num_layers - self.num_dense
        queries, keys, wide = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim, max(item, 4)
        return (
            (2 * layers, self.hidden_size, wide),
            ((4 - 2 * is_adapted) * layers, self.hidden_size, item),
            (layers, queries, wide),
            ((4 - is_adapted) * layers, queries, item),
            (layers, keys, wide),
            ((1 - is_adapted + 2 * repeats) * layers, keys, item),
            (4 * mixtures * self.num_chosen, self.intermediate_size, item),
            *([(4 * mixtures, self.shared_size, item)] if self.shared_size else []),
            *([(4 * self.num_dense, self.dense_size, item)] if self.num_dense else []),
        )


def read_policy_shape(model: ModelSection, *, vocab_size: int) -> ModelShape | None:
    """Read the sizes in `model.config`, or in the config.json of `model.path`; None if one of the usual sizes is
    missing. `vocab_size` is that of a tokenizer that is trained."""
    return read_shape_at(model.path) if model.path else read_section_shape(model, vocab_size=vocab_size)


def read_section_shape(model: ModelSection, *, vocab_size: int) -> ModelShape | None:
    """The sizes in `model.config`, with the vocabulary of a tokenizer that is trained; None if one is missing."""
    return parse_shape({"vocab_size": vocab_size, **model.config, "model_type": model.model_type})


def read_shape_at(path: str) -> ModelShape | None:
    """The sizes in the config.json of a folder, or of a name that `turnwise models list` shows; None where it cannot be
    read or one of the usual sizes is missing."""
    table = read_table(find_model(path))
    return None if table is None else parse_shape(table)


def read_table(folder: Path) -> dict[str, Any] | None:
    """The config.json of a folder; None where it cannot be read."""
    try:
        table = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) else None


def parse_shape(table: Mapping[str, Any], *, is_complete: bool = False) -> ModelShape | None:
    """The sizes that a config.json names, in its text part where it has several; None if one of the usual sizes is
    missing. `is_complete` says that the architecture's defaults are filled in: then a width that is not named is four
    times the hidden size (GPT-2, BLOOM)."""
    nested = table.get("text_config")
    if isinstance(nested, Mapping):
        outer = {name: table.get(name) for name in ("tie_word_embeddings", "vocab_size")}
        table = {**outer, **nested}
    sizes = _Sizes(table)
    hidden, heads = (
        sizes.find("hidden_size", "n_embd", "d_model"),
        sizes.find("num_attention_heads", "n_head", "n_heads"),
    )
    layers, vocab_size = sizes.find("num_hidden_layers", "n_layer", "n_layers"), sizes.find("vocab_size")
    recurrent, states = _count_states(sizes, layers or 0)
    if not heads and recurrent and recurrent == layers:
        heads = 1  # no layer attends
    if not (hidden and heads and layers and vocab_size):
        return None
    num_experts = sizes.find("num_experts", "num_local_experts", "n_routed_experts") or 1
    width = sizes.find("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    expert = sizes.find("moe_intermediate_size") or width
    chosen = sizes.find("num_experts_per_tok", "num_experts_per_token", "moe_topk") if num_experts > 1 else 1
    if expert is None and is_complete and hidden is not None and recurrent != layers:
        expert = 4 * hidden
    # Only recurrent layers come without a width of their own.
    if (expert is None and recurrent != layers) or chosen is None:
        return None
    expert = expert or 0
    dense = min(layers, sizes.find("first_k_dense_replace") or 0) if num_experts > 1 else 0
    shared = sizes.find("shared_expert_intermediate_size") or (sizes.find("n_shared_experts") or 0) * expert
    kv_rank, rope, nope = (
        sizes.find("kv_lora_rank") or 0,
        sizes.find("qk_rope_head_dim"),
        sizes.find("qk_nope_head_dim"),
    )
    head_dim = rope + nope if kv_rank and rope and nope else sizes.find("head_dim") or hidden // heads
    return ModelShape(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=expert,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads if kv_rank else sizes.find("num_key_value_heads") or heads,
        head_dim=head_dim,
        tied=bool(table.get("tie_word_embeddings")),
        model_type=str(table.get("model_type") or "llama"),
        num_experts=num_experts,
        num_chosen=chosen,
        shared_size=shared if num_experts > 1 else 0,
        num_dense=dense,
        dense_size=(width or 0) if dense else 0,
        value_dim=sizes.find("v_head_dim") if kv_rank else None,
        q_rank=(sizes.find("q_lora_rank") or 0) if kv_rank else 0,
        kv_rank=kv_rank,
        rope_dim=(rope or 0) if kv_rank else 0,
        num_recurrent=recurrent,
        num_states=states,
        is_packed=not states,
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Whole numbers above 0 of a config, under any of the names that architectures give them."""

    table: Mapping[str, Any]

    def find(self, *names: str) -> int | None:
        """The first that is there; None where none is."""
        for name in names:
            value = self.table.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None


def _count_states(sizes: _Sizes, layers: int) -> tuple[int, int]:
    """Recurrent layers, and the numbers in the states of one sequence: of gated delta rules (Qwen3-Next, Qwen3.5), of
    Mamba 2 and Mamba, and of short convolutions (LFM2); each with the last inputs of its convolution."""
    types = sizes.table.get("layer_types") or sizes.table.get("layers_block_type")
    recurrent = 0
    if isinstance(types, list):
        recurrent = sum(1 for name in types if name not in ATTENTION_LAYERS and name != "moe" and name != "mlp")
    elif sizes.find("full_attention_interval"):
        recurrent = layers - layers // (sizes.find("full_attention_interval") or 1)
    elif sizes.find("state_size") and not sizes.find("num_attention_heads"):
        recurrent = layers
    # Where no layer is named as one or the other, every one is both (Falcon-H1).
    has_both = sizes.find("mamba_d_state") and sizes.find("num_attention_heads")
    has_both = has_both and (not isinstance(types, list) or set(types) == {"hybrid"})
    if not recurrent and not has_both:
        return 0, 0
    hidden = sizes.find("hidden_size", "d_model") or 0
    kernel = sizes.find("linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel", "conv_L_cache") or 4
    if value_heads := sizes.find("linear_num_value_heads"):
        key_heads = sizes.find("linear_num_key_heads") or value_heads
        key, value = sizes.find("linear_key_head_dim") or 0, sizes.find("linear_value_head_dim") or 0
        each = value_heads * key * value + (2 * key_heads * key + value_heads * value) * kernel
    elif state := sizes.find("mamba_d_state", "ssm_state_size", "state_size"):
        inner = (sizes.find("mamba_expand", "expand") or 2) * hidden
        groups = sizes.find("mamba_n_groups", "n_groups") or 0
        each = inner * state + (inner + 2 * groups * state) * kernel
    else:
        each = hidden * kernel
    return recurrent, (recurrent or layers) * each
