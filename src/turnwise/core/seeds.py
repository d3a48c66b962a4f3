"""Counter-based seeds: every random choice is a function of *what* it is for, never of when it happened."""

from __future__ import annotations

import hashlib
import random

import numpy as np


def derive_seed(*parts: int | str) -> int:
    """Derive a 63-bit seed from a path of names and counters, e.g. `derive_seed(run_seed, "rollout", task_id, member,
    turn)`.

    Equal paths give equal seeds on every machine and Python version; different paths give independent ones
    (SHA-256 over an unambiguous encoding: lengths are part of it, so ("ab", "c") differs from ("a", "bc")).
    """
    digest = hashlib.sha256()
    for part in parts:
        encoded = f"{type(part).__name__}:{part}".encode()
        digest.update(len(encoded).to_bytes(4, "big"))
        digest.update(encoded)
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def rng(*parts: int | str) -> random.Random:
    """A `random.Random` seeded by `derive_seed(*parts)`."""
    return random.Random(derive_seed(*parts))


def uniforms(seed: int, count: int) -> np.ndarray:
    """`[count]` float64 numbers in [0, 1): the k-th depends on `seed` and k only (Philox)."""
    return np.random.Generator(np.random.Philox(key=seed)).random(count)
