"""Sentence embeddings by a local encoder such as all-MiniLM-L6-v2: mean of the last layer over the text's tokens."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.types import FloatArray

MAX_TOKENS = 256
"""Most tokens of a text that are read, as in the training of all-MiniLM-L6-v2."""
BATCH_SIZE = 64
MIN_CACHED_TEXTS = 256
"""Fewer texts than this are embedded without a cache file."""
CACHED_QUERIES = 4096


class SentenceEmbedder:
    """Implements `dense.Embedder` with a Hugging Face encoder on the CPU.

    Vectors of a corpus are stored in `cache`, in a file named by the digest of weights and texts, so that a run, its
    evaluations and the next run embed it only once.
    """

    def __init__(self, folder: Path, *, cache: Path | None) -> None:
        """Load the encoder; `cache` None stores nothing. Raises ConfigError if `folder` contains no encoder."""
        weights = folder / "model.safetensors"
        if not weights.is_file():
            raise ConfigError(
                f"environment.args.embedder: {str(folder)!r} has no model.safetensors; use the folder of a sentence "
                "encoder, or run `turnwise models get minilm-l6`"
            )
        from transformers import AutoModel, AutoTokenizer

        from turnwise.models.loading import list_missing, quiet_loading
        from turnwise.models.tensor_names import describe_difference

        where = f"environment.args.embedder: {str(folder)!r}"
        with quiet_loading(), boundary(ConfigError, f"{where} cannot be loaded as an encoder"):
            local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **local)
            model, report = AutoModel.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **local)
        # Modules on top of the last layer are not read, neither from the file nor in the model.
        missing = [name for name in list_missing(model, report, {}) if not name.startswith("pooler.")]
        if problem := describe_difference(missing, (), {}):
            raise ConfigError(f"{where} {problem}")
        self._model: Any = model.eval()
        self._cache = cache
        self._digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        self._lock = threading.Lock()
        self._embed_query = lru_cache(maxsize=CACHED_QUERIES)(self._embed_one)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """See `Embedder.embed`; float32."""
        if len(texts) == 1:
            return self._embed_query(texts[0])[None]
        if self._cache is None or len(texts) < MIN_CACHED_TEXTS:
            return self._compute(texts)
        digest = hashlib.sha256(self._digest.encode())
        for text in texts:
            raw = text.encode(errors="surrogatepass")
            digest.update(len(raw).to_bytes(8, "big") + raw)
        path = self._cache / f"{digest.hexdigest()[:32]}.npy"
        if path.is_file():
            with boundary(ConfigError, f"{path} cannot be read; delete it"):
                return np.asarray(np.load(path, allow_pickle=False))
        vectors = self._compute(texts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            np.save(file, vectors)
        os.replace(file.name, path)
        return vectors

    def _embed_one(self, text: str) -> FloatArray:
        vector: FloatArray = self._compute([text])[0]
        return vector

    def _compute(self, texts: Sequence[str]) -> FloatArray:
        """Compute unit vectors, shape [len(texts), width]. Texts of similar length share a batch."""
        import torch

        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors: list[FloatArray] = [np.empty(0, np.float32)] * len(texts)
        with self._lock, torch.inference_mode():
            for start in range(0, len(order), BATCH_SIZE):
                rows = order[start : start + BATCH_SIZE]
                batch = self._tokenizer(
                    [texts[row].encode(errors="replace").decode() for row in rows],
                    padding=True,
                    truncation=True,
                    max_length=MAX_TOKENS,
                    return_tensors="pt",
                )
                hidden = self._model(**batch).last_hidden_state
                mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                means = (hidden * mask).sum(1) / mask.sum(1)
                for row, vector in zip(rows, torch.nn.functional.normalize(means).numpy(), strict=True):
                    vectors[row] = vector
        return np.stack(vectors)


@lru_cache(maxsize=2)
def load_embedder(folder: Path, cache: Path) -> SentenceEmbedder:
    """Return the encoder in `folder`, loaded once per process."""
    return SentenceEmbedder(folder, cache=cache)


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/turnwise/embeddings`, or the same below `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "turnwise" / "embeddings"
