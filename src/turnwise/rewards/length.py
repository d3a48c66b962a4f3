"""Penalties for long replies, and rewards for short ones: numbers to be added to a reward.

Lengths are sampled tokens, over all turns of a trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence


def compute_overlong_penalty(num_tokens: int, *, max_tokens: int, buffer: int) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), in [-1, 0].

        0                                        num_tokens <= max_tokens - buffer
        (max_tokens - buffer - num_tokens) / buffer      in between
        -1                                       num_tokens >= max_tokens

    The floor of -1 holds however long the trajectory is; multi-turn trajectories can pass `max_tokens`, and without the
    floor the penalty would outweigh any answer. The paper uses max_tokens 20480, buffer 4096.

    Raises:
        ValueError: not 0 < buffer <= max_tokens, or num_tokens is negative.
    """
    if not 0 < buffer <= max_tokens:
        raise ValueError(f"buffer is {buffer} and max_tokens {max_tokens}; they must satisfy 0 < buffer <= max_tokens")
    if num_tokens < 0:
        raise ValueError(f"num_tokens is {num_tokens}; it must be at least 0")
    return max(-1.0, min(0.0, (max_tokens - buffer - num_tokens) / buffer))


def compute_length_rewards(num_tokens: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """Kimi k1.5's length reward (arXiv 2501.12599), relative to the group, in [-0.5, 0.5].

    `lambda = 0.5 - (len - min) / (max - min)`; a correct member gets lambda, a wrong one min(0, lambda), so that no
    wrong answer is paid for being short. A group of one, an empty group and a group of equal lengths give 0.

    Raises:
        ValueError: the lists differ in length.
    """
    if len(num_tokens) != len(correct):
        raise ValueError(f"{len(num_tokens)} lengths but {len(correct)} verdicts; pass one of each per member")
    if not num_tokens or min(num_tokens) == max(num_tokens):
        return [0.0] * len(num_tokens)
    shortest, span = min(num_tokens), max(num_tokens) - min(num_tokens)
    shares = [0.5 - (length - shortest) / span for length in num_tokens]
    return [share if right else min(0.0, share) for share, right in zip(shares, correct, strict=True)]
