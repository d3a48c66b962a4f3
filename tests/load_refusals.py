"""Models as other people's folders come, that cannot be trained, and what loading them says.

    python tests/load_refusals.py

prints the table of docs/models.md. `tests/unit/models/test_loading.py` compares it with the document.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.utils.logging import disable_progress_bar

from turnwise.core.errors import ConfigError
from turnwise.models.build import load_model
from turnwise.testing import build_tiny_model

WEIGHTS = "model.safetensors"
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def save_tiny(folder: Path, **changes: Any) -> Path:
    """A whole model of 64 ids, its output layer a tensor of its own."""
    build_tiny_model(vocab_size=64, **{"tie_word_embeddings": False, **changes}).save_pretrained(folder)
    return folder


def rename(folder: Path, new: Callable[[str], str]) -> None:
    """Give the tensors other names; "" leaves one out."""
    tensors = {new(name): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    tensors.pop("", None)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def change_config(folder: Path, **changes: Any) -> None:
    """Change keys of config.json; None takes one out."""
    table = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in table.items() if value is not None}))


def cut(file: Path) -> None:
    """Cut a file in half."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def shard(folder: Path) -> Path:
    """Save the tiny model in several files; the second of them."""
    build_tiny_model(vocab_size=64).save_pretrained(folder, max_shard_size="40KB")
    return sorted(folder.glob("model-*.safetensors"))[1]


def write_config(folder: Path, model_type: str, **changes: Any) -> None:
    """A folder with the config of an architecture, and weights that are never reached."""
    folder.mkdir()
    AutoConfig.for_model(model_type, **changes).save_pretrained(folder)
    save_file({"weight": torch.zeros(1)}, folder / WEIGHTS)


# ------------------------------------------------------------------------------------------------------ folders


def _nowhere(folder: Path) -> None:
    pass


def _empty(folder: Path) -> None:
    folder.mkdir()


def _file(folder: Path) -> None:
    folder.write_text("weights")


def _nested(folder: Path) -> None:
    save_tiny(folder / "checkpoint-500")


def _adapter(folder: Path) -> None:
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")


def _both(folder: Path) -> None:
    (save_tiny(folder) / "adapter_config.json").write_text("{}")


def _parts(folder: Path) -> None:
    save_tiny(folder / "huggingface")
    for rank in range(2):
        (folder / f"model_world_size_2_rank_{rank}.pt").write_text("weights")


def _no_weights(folder: Path) -> None:
    (save_tiny(folder) / WEIGHTS).unlink()


def _pickled(folder: Path) -> None:
    file = save_tiny(folder) / WEIGHTS
    torch.save(load_file(file), folder / "pytorch_model.bin")
    file.unlink()


def _pointer(folder: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (save_tiny(folder) / WEIGHTS).write_text(text)


def _dangling(folder: Path) -> None:
    file = save_tiny(folder) / WEIGHTS
    file.unlink()
    file.symlink_to(folder / "blobs" / "gone")


def _consolidated(folder: Path) -> None:
    (save_tiny(folder) / WEIGHTS).rename(folder / "consolidated.safetensors")


def _half(folder: Path) -> None:
    cut(save_tiny(folder) / WEIGHTS)


def _half_shard(folder: Path) -> None:
    cut(shard(folder))


def _no_shard(folder: Path) -> None:
    shard(folder).unlink()


def _no_index(folder: Path) -> None:
    shard(folder)
    (folder / "model.safetensors.index.json").unlink()


def _other_shard(folder: Path) -> None:
    file = shard(folder)
    tensors = load_file(file)
    del tensors[sorted(tensors)[0]]
    save_file(tensors, file, metadata={"format": "pt"})


# ------------------------------------------------------------------------------------------------------ tensors


def _renamed(folder: Path) -> None:
    rename(save_tiny(folder), lambda name: name.replace("layers.0.mlp.up_proj", "layers.0.mlp.u_proj"))


def _no_head(folder: Path) -> None:
    rename(save_tiny(folder), lambda name: "" if name == "lm_head.weight" else name)


def _more_layers(folder: Path) -> None:
    change_config(save_tiny(folder), num_hidden_layers=3, layer_types=None)


def _fewer_layers(folder: Path) -> None:
    change_config(save_tiny(folder), num_hidden_layers=1, layer_types=None)


def _other_sizes(folder: Path) -> None:
    change_config(save_tiny(folder, tie_word_embeddings=True), vocab_size=60)


def _other_head(folder: Path) -> None:
    tensors = load_file(save_tiny(folder) / WEIGHTS)
    save_file({**tensors, "lm_head.weight": torch.zeros(72, 32)}, folder / WEIGHTS, metadata={"format": "pt"})


def _wrapped(prefix: str) -> Callable[[Path], None]:
    return lambda folder: rename(save_tiny(folder), lambda name: prefix + name)


def _compiled(folder: Path) -> None:
    rename(save_tiny(folder), lambda name: name.replace("model.layers.0.", "model.layers.0._orig_mod."))


def _unmerged(folder: Path) -> None:
    rename(save_tiny(folder), lambda name: name.replace("q_proj.weight", "q_proj.base_layer.weight"))


def _with_adapter(folder: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.lora_A.weight"
    tensors = {**load_file(save_tiny(folder) / WEIGHTS), name: torch.zeros(4, 32)}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def _value_head(folder: Path) -> None:
    tensors = {**load_file(save_tiny(folder) / WEIGHTS), "v_head.summary.weight": torch.zeros(1, 32)}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def _reward_model(folder: Path) -> None:
    rename(save_tiny(folder), lambda name: "score.weight" if name == "lm_head.weight" else name)
    change_config(folder, architectures=["Qwen3ForSequenceClassification"])


def _stored_in(dtype: torch.dtype) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tensors = load_file(save_tiny(folder) / WEIGHTS)
        name = "model.layers.0.mlp.up_proj.weight"
        tensors[name] = tensors[name].to(dtype)
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return write


# ------------------------------------------------------------------------------------------------------ configs


def _quantized(method: str) -> Callable[[Path], None]:
    return lambda folder: change_config(save_tiny(folder), quantization_config={"quant_method": method})


def _modelopt(folder: Path) -> None:
    (save_tiny(folder) / "hf_quant_config.json").write_text("{}")


def _config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: change_config(save_tiny(folder), **changes)


def _own_code(folder: Path) -> None:
    code = {"AutoConfig": "configuration_xyz.XyzConfig", "AutoModelForCausalLM": "modeling_xyz.XyzForCausalLM"}
    change_config(save_tiny(folder), model_type="xyz", auto_map=code)
    for use in ("configuration", "modeling"):
        (folder / f"{use}_xyz.py").write_text("")


def _broken_config(folder: Path) -> None:
    cut(save_tiny(folder) / "config.json")


def _architecture(model_type: str, **changes: Any) -> Callable[[Path], None]:
    return lambda folder: write_config(folder, model_type, **changes)


CASES: dict[str, Callable[[Path], None]] = {
    "no such folder": _nowhere,
    "an empty folder": _empty,
    "a file": _file,
    "the parent folder": _nested,
    "an adapter": _adapter,
    "a model together with an adapter": _both,
    "parts of a trainer's checkpoint": _parts,
    "a truncated config.json": _broken_config,
    "no weights": _no_weights,
    "pickled weights": _pickled,
    "a Git LFS pointer": _pointer,
    "a dangling link": _dangling,
    "weights under a different name": _consolidated,
    "half a file": _half,
    "half a shard": _half_shard,
    "a missing shard": _no_shard,
    "shards without an index": _no_index,
    "a shard from another version": _other_shard,
    "one renamed tensor": _renamed,
    "no output layer": _no_head,
    "a config with more layers": _more_layers,
    "a config with fewer layers": _fewer_layers,
    "another vocab_size": _other_sizes,
    "an output layer of a different size": _other_head,
    "prefix of DataParallel": _wrapped("module."),
    "prefix of torch.compile": _wrapped("_orig_mod."),
    "prefix of peft": _wrapped("base_model.model."),
    "prefix of a wrapping module": _wrapped("actor.model."),
    "compiled layers": _compiled,
    "an adapter that is not merged": _unmerged,
    "additional tensors of an adapter": _with_adapter,
    "a reward model": _reward_model,
    "a value head": _value_head,
    "float8 without scales": _stored_in(torch.float8_e4m3fn),
    "int8 without scales": _stored_in(torch.int8),
    "fp8": _quantized("fp8"),
    "mxfp4": _quantized("mxfp4"),
    "bitsandbytes": _quantized("bitsandbytes"),
    "gptq": _quantized("gptq"),
    "awq": _quantized("awq"),
    "compressed-tensors": _quantized("compressed-tensors"),
    "modelopt": _modelopt,
    "untrusted code": _own_code,
    "code that was not copied": _config(
        model_type="xyz", auto_map={"AutoConfig": "configuration_xyz.XyzConfig", "AutoModelForCausalLM": "xyz.Xyz"}
    ),
    "a newer architecture": _config(model_type="qwen9", transformers_version="9.1.0"),
    "no model_type": _config(model_type=None),
    "T5": _architecture("t5"),
    "BART": _architecture("bart"),
    "BERT": _architecture("bert"),
    "an embedding model (EmbeddingGemma)": _architecture("gemma3_text", use_bidirectional_attention=True),
    "Idefics2": _architecture("idefics2"),
    "LLaVA-NeXT": _architecture("llava_next"),
    "PaliGemma": _architecture("paligemma"),
    "Whisper": _architecture("whisper"),
    "CLIP": _architecture("clip"),
}
"""Writes the folder of each kind."""


def say(case: str, parent: Path) -> str:
    """What loading the folder says, its path written as DIR. Raises AssertionError if it is loaded."""
    folder = parent / "folder"
    CASES[case](folder)
    try:
        load_model(folder)
    except ConfigError as error:
        text = str(error).replace(str(folder), "DIR").replace(str(parent), "PARENT")
        for volatile, shown in (
            (transformers.__version__, "5.x"),
            (r"\d+ bytes", "N bytes"),
            (r"line \d+ .*\d\)\)", "...)"),
        ):
            text = re.sub(volatile, shown, text)
        return text
    raise AssertionError(f"{case}: the model was loaded")


def write_row(case: str, parent: Path) -> str:
    """A row of the table in docs/models.md."""
    text = say(case, parent).removeprefix("model.path='DIR'").strip().replace("|", "\\|")
    return f"| {case} | {text} |"


if __name__ == "__main__":
    disable_progress_bar()
    print("| the folder | the message after `model.path='DIR'` |\n|---|---|")
    for each in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            print(write_row(each, Path(scratch)))
