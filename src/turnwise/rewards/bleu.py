"""BLEU for answers of a few words, by which progressive reward shaping (arXiv 2512.07478) scores short answers.

How the paper accounts for the length is not known; the rule here is ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from turnwise.rewards.normal_form import Normalize, normalize_answer


def compute_length_aware_bleu(
    prediction: str, golds: Sequence[str], *, max_order: int = 4, normalize: Normalize = "numbers"
) -> float:
    """Compute the best BLEU over gold answers on words in normal form, in [0, 1], adapted to answers of a few words.

    `BP * exp(mean_n log p_n)` for n = 1..N: clipped n-gram precisions p_n (for n > 1 with one added to both counts, so
    that one broken pair of words does not give 0) and brevity penalty `BP = exp(min(0, 1 - |gold| / |prediction|))`.
    The highest order N is `max_order` or the shorter length, whichever is less: plain BLEU-4 gives 0 to every answer
    below four words. Extra words lower p_n, missing words lower BP. Equal word sequences give 1; no shared word gives
    0; two empty normal forms agree (1), one empty gives 0; no gold answer gives 0.

    Raises:
        ValueError: max_order is below 1.
    """
    if max_order < 1:
        raise ValueError(f"max_order is {max_order}; it must be at least 1")
    words = normalize_answer(prediction, normalize).split()
    return max((_bleu(words, normalize_answer(gold, normalize).split(), max_order) for gold in golds), default=0.0)


def _bleu(words: list[str], gold: list[str], max_order: int) -> float:
    if not words or not gold:
        return float(words == gold)
    logs = []
    for n in range(1, min(max_order, len(words), len(gold)) + 1):
        given, wanted = _ngrams(words, n), _ngrams(gold, n)
        matched, added = (given & wanted).total(), int(n > 1)
        if not matched + added:
            return 0.0
        logs.append(math.log((matched + added) / (given.total() + added)))
    return math.exp(min(0.0, 1 - len(gold) / len(words)) + math.fsum(logs) / len(logs))


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
