"""Model folders that are complete or absent."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import ConfigError, StoreError, boundary


@contextmanager
def model_writer(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target` to fill; on success it becomes `target` in one rename.

    On any failure, Ctrl-C included, it is removed and `target` is unchanged. Raises ConfigError if `target` exists and
    is not an empty folder, StoreError if the disk refuses.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigError(f"{target} already exists; name another folder, or delete it first")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with boundary(StoreError, f"cannot write {target}"):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer's files, without transformers' notes on how it was called to load the tokenizer."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    table = json.loads(file.read_text(encoding="utf-8"))
    kept = {key: value for key, value in table.items() if key not in ("is_local", "local_files_only", "gguf_file")}
    file.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
