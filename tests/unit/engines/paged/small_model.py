"""What the tests of reading pages in place and of recorded steps share: a small model's shape, and how far two results are apart."""

import numpy as np

from turnwise.core.types import Completion

VOCAB = 97
CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
}


def distance(ours: list[Completion], theirs: list[Completion]) -> float:
    """Largest difference of log-probabilities; the tokens must be equal."""
    assert [c.token_ids.tolist() for c in ours] == [c.token_ids.tolist() for c in theirs]
    return max(float(np.abs(a.logprobs - b.logprobs).max()) for a, b in zip(ours, theirs, strict=True))
