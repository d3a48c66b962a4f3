"""Converts a GGUF file to a Hugging Face directory: weights dequantized, tokenizer, chat template, generation
config."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import ConfigError, DataError, boundary
from turnwise.models.build import DTYPES
from turnwise.models.folders import save_tokenizer
from turnwise.models.loading import list_missing, quiet_loading
from turnwise.models.tensor_names import describe_difference

GGUF_MAGIC = b"GGUF"
DIGITS_FIRST = frozenset({"smollm", "starcoder", "refact", "command-r"})
"""Kinds of splitting (`tokenizer.ggml.pre`) that separate every digit before anything else, which transformers does not
read from a GGUF file: "\n\n1" begins with one token for both line ends, but with two if this is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufSummary:
    """What a GGUF file says about itself."""

    name: str
    architecture: str
    license: str
    """Empty if the file does not say."""
    quantization: str
    """Number formats of its tensors with counts, "Q4_1 x 210, F32 x 61"."""
    splitting: str
    """`tokenizer.ggml.pre`: how text is split before merges; empty if the file does not say."""
    context_length: int | None


def check_packages() -> None:
    """Raise ConfigError naming the remedy if a package with which transformers reads GGUF is missing or too old."""
    from transformers.utils import is_accelerate_available, is_gguf_available

    try:
        import_module("accelerate")
        import_module("gguf")
        usable = is_accelerate_available() and is_gguf_available()
    except ImportError:
        usable = False
    if not usable:
        raise ConfigError(
            "reading a GGUF file needs accelerate>=1.1 and gguf>=0.10, one of which is missing or older; run pip "
            "install 'turnwise[models]'"
        )


def read_summary(file: Path) -> GgufSummary:
    """Read the header of a GGUF file.

    Raises ConfigError if packages are missing, DataError if the file is not a whole GGUF file or its architecture is
    one that transformers cannot read.
    """
    check_packages()
    try:
        with file.open("rb") as stream:
            magic = stream.read(4)
    except OSError as cause:
        raise DataError(f"cannot read {file}: {cause.strerror or cause}") from cause
    if magic != GGUF_MAGIC:
        raise DataError(f"{file} is not a GGUF file: it starts with {magic!r}, not {GGUF_MAGIC!r}")
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    with boundary(DataError, f"{file} is truncated or broken; fetch it again"):
        reader = GGUFReader(file)
        counts: dict[str, int] = {}
        for tensor in reader.tensors:
            counts[tensor.tensor_type.name] = counts.get(tensor.tensor_type.name, 0) + 1

        def read(key: str) -> Any:
            field = reader.get_field(key)
            return None if field is None else field.contents()

        architecture = str(read("general.architecture") or "")
        summary = GgufSummary(
            name=str(read("general.name") or file.stem),
            architecture=architecture,
            license=str(read("general.license") or ""),
            quantization=", ".join(f"{kind} x {count}" for kind, count in sorted(counts.items())),
            splitting=str(read("tokenizer.ggml.pre") or ""),
            context_length=read(f"{architecture}.context_length"),
        )
    if not any(known.replace("_", "") == architecture.replace("_", "") for known in GGUF_SUPPORTED_ARCHITECTURES):
        raise DataError(
            f"{file} contains a model of architecture {architecture!r}, which transformers cannot read from GGUF; it "
            f"supports {', '.join(sorted(GGUF_SUPPORTED_ARCHITECTURES))}: use the model's Hugging Face directory "
            "instead"
        )
    return summary


def convert_gguf(file: Path, folder: Path, *, dtype: str = "float32") -> GgufSummary:
    """Write the model of a GGUF file into the existing `folder` as a Hugging Face directory, weights in `dtype`.

    Dequantized weights are exact in float32. Raises what `read_summary` raises, and DataError if transformers refuses
    the file.
    """
    summary = read_summary(file)
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    where = {"gguf_file": file.name, "local_files_only": True}
    with boundary(DataError, f"{file} cannot be converted"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
        _restore_splitting(tokenizer, summary.splitting)
        if summary.context_length:
            tokenizer.model_max_length = summary.context_length
        with quiet_loading():
            model, report = AutoModelForCausalLM.from_pretrained(
                file.parent, dtype=DTYPES[dtype], output_loading_info=True, **where
            )
        if problem := describe_difference(list_missing(model, report, {}), (), {}):
            raise DataError(f"{file} {problem}")
        if len(tokenizer) > model.config.vocab_size:
            raise DataError(
                f"{file}: its tokenizer has {len(tokenizer)} tokens, its model {model.config.vocab_size}; the file is "
                "inconsistent: use another one"
            )
        model.hf_quantizer = None  # its weights are plain, and a model with a quantizer refuses to be saved
        _tidy_config(model.config)
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
    return summary


def _restore_splitting(tokenizer: PreTrainedTokenizerBase, splitting: str) -> None:
    """Make the tokenizer split text before merges as the file says, if transformers does not do so itself."""
    from tokenizers import pre_tokenizers

    if splitting in DIGITS_FIRST:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )


def _tidy_config(config: Any) -> None:
    """Change the config to that of the dequantized model, which could not be saved with a note of the quantization."""
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    # A GGUF file stores it in float32: 9.999999747378752e-06 stands for 1e-05.
    for name in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"):
        value = getattr(config, name, None)
        if isinstance(value, float):
            short = float(f"{value:.6g}")
            if torch.tensor(short, dtype=torch.float32) == torch.tensor(value, dtype=torch.float32):
                setattr(config, name, short)
