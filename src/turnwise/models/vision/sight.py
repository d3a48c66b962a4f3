"""How a model's pictures are prepared: its family, and transformers' image processor for it.

The processors are those that need Pillow only, in every process alike: torchvision's resize differently."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES, AutoImageProcessor
from transformers.models.auto.image_processing_auto import get_image_processor_class_from_name as find_class

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.pictures import Pixels
from turnwise.models.vision.family import Family, Prepared, Settings
from turnwise.models.vision.table import find_row

PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files of a model's folder, one of which describes its image processor."""
OTHER_FILES = ("video_preprocessor_config.json", "chat_template.json")
"""Files that transformers' processor of the family reads too."""


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """Prepares pictures for one model."""

    config: PreTrainedConfig
    """The model's."""
    settings: Settings
    """Arguments of the model's processor, from processor_config.json; empty for random weights."""
    processor: Any
    """transformers' image processor."""
    family: Family
    files: Mapping[str, str]
    """What a model's folder says of its pictures, by file; empty in a process that saves no model."""

    def prepare(self, pixels: Pixels) -> Prepared:
        """Return the tensors that the image processor makes of one picture, those that count among them."""
        # Pillow's images, because an array of three rows could also be one of three channels.
        made = self.processor(Image.fromarray(pixels), return_tensors="pt", **self.family.options)
        return {name: value if isinstance(value, torch.Tensor) else torch.tensor(value) for name, value in made.items()}

    def count_places(self, prepared: Prepared) -> int:
        """Return how many places a picture has in a prompt."""
        return self.family.write(prepared).count(self.family.tokens[0])

    def describe(self) -> dict[str, Any]:
        """Return the same without its files as plain data, for `read_sight`."""
        return {"settings": dict(self.settings), "processor": json.loads(self.processor.to_json_string())}

    def save(self, folder: Path) -> None:
        """Write the files of the image processor, and of the family's processor, into a model's folder."""
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")


def build_sight(config: PreTrainedConfig) -> Sight:
    """Build the image processor for a model with random weights. Raises ConfigError for an unknown family."""
    row = find_row(config)
    with boundary(ConfigError, f"cannot build the image processor for model.model_type={config.model_type!r}"):
        kind = find_class(IMAGE_PROCESSOR_MAPPING_NAMES[row.find_processor(config)]["pil"])
        processor, family = kind(**row.shape(config)), row.read(config, {})
        table = json.dumps(family.describe(), indent=2, sort_keys=True) + "\n"
        files = dict(zip(PROCESSOR_FILES, (processor.to_json_string(), table), strict=True))
        return Sight(config, {}, processor, family, files)


def read_sight(config: PreTrainedConfig, description: Mapping[str, Any]) -> Sight:
    """Build what `Sight.describe` described, for a model of this config."""
    with boundary(ConfigError, "cannot build the trainer's image processor here"):
        table = dict(description["processor"])
        kind = find_class(str(table["image_processor_type"]).removesuffix("Pil") + "Pil")
        settings = description["settings"]
        return Sight(config, settings, kind.from_dict(table), find_row(config).read(config, settings), {})


def load_sight(folder: Path, where: str) -> Sight:
    """Load the image processor in a model's folder. Raises ConfigError, in a message that begins with `where`, if it is
    missing or cannot be built."""
    if not any((folder / name).is_file() for name in PROCESSOR_FILES):
        raise ConfigError(
            f"{where} has no image processor ({' or '.join(PROCESSOR_FILES)}); copy these files from the model, or "
            "save them into the folder with transformers: AutoImageProcessor.from_pretrained(MODEL)"
            ".save_pretrained(FOLDER)"
        )
    with boundary(ConfigError, f"{where}: the image processor cannot be built"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        processor = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
        settings = _read_settings(folder)
        names = (*PROCESSOR_FILES, *OTHER_FILES)
        files = {name: (folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()}
        return Sight(config, settings, processor, find_row(config).read(config, settings), files)


def _read_settings(folder: Path) -> Settings:
    file = folder / "processor_config.json"
    if not file.is_file():
        return {}
    table = json.loads(file.read_text(encoding="utf-8"))
    return {name: value for name, value in table.items() if not isinstance(value, dict)}
