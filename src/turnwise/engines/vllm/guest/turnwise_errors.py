"""Describes vLLM's errors in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_CHARACTERS = 400
UNINSPECTED = "failed to be inspected"
"""vLLM's message for a model whose module cannot be imported in another process; it does not pass that error on."""


def describe_error(error: BaseException, settings: Mapping[str, Any] | None = None) -> str:
    """Return the kind and message of an error in one line. `settings` are those of an engine that could not start."""
    text = f"{type(error).__name__}: {error}"
    if UNINSPECTED in text and settings is not None:
        cause = find_import_error(Path(settings["folder"]))
        text = text if cause is None else f"the module of the model cannot be imported: {describe_error(cause)}"
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."


def find_import_error(folder: Path) -> Exception | None:
    """Return the error with which the module of a folder's model fails to import; None if it can be imported."""
    from vllm.model_executor.models.registry import ModelRegistry

    for name in json.loads((folder / "config.json").read_text())["architectures"]:
        try:
            ModelRegistry.models[name].load_model_cls()
        except (ImportError, RuntimeError, AttributeError, OSError) as error:
            return error
    return None
