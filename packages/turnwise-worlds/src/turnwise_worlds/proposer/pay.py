"""The reward of a proposal, computed from the share of its solvers that succeed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from turnwise.core.types import RewardPart, Scored

Pay = Literal["progress", "learnability", "difficulty", "azr", "flat"]
"""With the solve rate p of its solvers, a valid proposal earns

- "progress": a quarter if some solvers succeed and some fail; credit adds the progress (`learning_progress`);
- "learnability": 4p(1-p), which peaks at one half like R-Zero's and SPICE's rewards;
- "difficulty": 1-p, which also pays for problems that nobody can solve;
- "azr": 1-p if p is above 0, and -0.5 if it is 0 or 1 (Absolute Zero, arXiv 2505.03335, with our 0.5 on top);
- "flat": nothing more.
"""
VALID = 0.1
"""Added to the reward of every valid proposal. A bad proposal earns nothing."""
MIXED = 0.1

Flaw = Literal["ill_formed", "unsolvable", "ambiguous", "trivial"]
"""Why a proposal is bad: it is not a problem of the language; it has no answer; it has several; its answer is given
away. Credit, which sees the other proposals on the same subject, detects duplicates."""
FLAWS: tuple[Flaw, ...] = get_args(Flaw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The properties by which credit compares proposals."""

    name: str
    """Name of the kind; each kind has its own solve rate, whose change is progress."""
    number: int
    """Equal if two proposals on the same subject are the same problem; below 2**53, because it is stored as a float."""


def compute_pay(pay: Pay, rate: float) -> float:
    """Compute what a valid proposal with solve rate `rate` earns in addition to `VALID`."""
    match pay:
        case "progress":
            return MIXED * (0 < rate < 1)
        case "learnability":
            return 4 * rate * (1 - rate)
        case "difficulty":
            return 1 - rate
        case "azr":
            return 1 - rate if 0 < rate < 1 else -0.5
        case "flat":
            return 0.0


def score_flaw(flaw: Flaw) -> Scored:
    """Return the reward of a bad proposal, 0."""
    return Scored(total=0.0, parts=(*_flaws(flaw), RewardPart(name="success", value=0.0)))


def score_proposal(pay: Pay, kind: Kind, rate: float, kinds: Sequence[str]) -> Scored:
    """Return the reward of a valid proposal, with the parts that credit and plots read.

    Parts: every flaw as 0; `kind_NAME` for every one of `kinds`, 1 for its own; `solved_NAME`, the solve rate, only for
    its own kind, so that the mean is that kind's rate; `proposal`, the number of the kind; `success`.
    """
    parts = (
        *_flaws(None),
        *(RewardPart(name=f"kind_{name}", value=float(name == kind.name)) for name in kinds),
        RewardPart(name=f"solved_{kind.name}", value=rate),
        RewardPart(name="proposal", value=float(kind.number)),
        RewardPart(name="success", value=1.0),
    )
    return Scored(total=VALID + compute_pay(pay, rate), parts=parts)


def _flaws(found: Flaw | None) -> tuple[RewardPart, ...]:
    return tuple(RewardPart(name=flaw, value=float(flaw == found)) for flaw in FLAWS)
