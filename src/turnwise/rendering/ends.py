"""Finds further tokens that end a reply in a model's files, besides those that its chat template writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FILES = ("generation_config.json", "config.json")
"""Both may contain `eos_token_id`, one id or a list; Llama 3.1 has three, of which its template writes one."""


def read_end_ids(folders: Sequence[Path], tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the ids of `eos_token_id` in the first of the folders that has one of the files; empty if none has any.

    Ids that are not control tokens of the tokenizer are left out: a transformers class has default ids of its own,
    which are words in another tokenizer. Raises ConfigError for a file that is not a JSON object.
    """
    control = set(tokenizer.get_added_vocab().values())
    for folder in folders:
        tables = [_read(folder / name) for name in FILES if (folder / name).is_file()]
        if tables:
            named = [table.get("eos_token_id") for table in tables]
            ids = [token for each in named for token in (each if isinstance(each, list) else [each])]
            return tuple(dict.fromkeys(token for token in ids if isinstance(token, int) and token in control))
    return ()


def _read(file: Path) -> dict[str, object]:
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        return dict(table)
    except (OSError, ValueError, TypeError) as cause:
        raise ConfigError(f"cannot read {file} ({cause}); copy the model again") from cause
