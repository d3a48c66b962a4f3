"""Compare graders of answers with those of others, on generated pairs whose truth is known: a Markdown table.

    python benchmarks/graders.py [--pairs 2000] [--seed 0] [--kinds]

`make peers` installs the others in .venv-peers. "wrong paid" counts different pairs with the full score, "right
refused" equal pairs without it. `--kinds` adds tables of the kinds of pairs in which graders err.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.errors import RewardError
from turnwise.rewards import answer_pairs, math_pairs
from turnwise.rewards.answer_pairs import Pair, draw_pairs
from turnwise.rewards.answers import exact_match, f1
from turnwise.rewards.math_verifier import MathVerifier

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"

Score = Callable[[Pair], float]


@dataclass(frozen=True, slots=True)
class Duel:
    """One of our graders, and one of another project."""

    ours: str
    theirs: str
    shown: str
    """Name of the other project's grader, as shown."""


DUELS = (
    Duel("exact_match, squad", "squad_exact_match", "SQuAD exact match (torchmetrics)"),
    Duel("exact_match, squad", "search_r1_exact_match", "Search-R1 exact match (verl)"),
    Duel("f1, squad", "squad_f1", "SQuAD F1 (torchmetrics)"),
    Duel("exact_match, numbers", "squad_exact_match", "SQuAD exact match (torchmetrics)"),
    Duel("exact_match, numbers", "drop_exact_match", "DROP exact match (lm-eval)"),
    Duel("f1, numbers", "drop_f1", "DROP F1 (lm-eval)"),
    Duel("math", "math_verify", "math-verify"),
    Duel("math", "math_is_equiv", "MATH is_equiv (verl)"),
    Duel("math", "prime_math", "PRIME grader (verl)"),
)


def build_ours(verifier: MathVerifier) -> dict[str, Score]:
    """Our graders by name. A comparison that is given up counts as refused."""

    def verify(pair: Pair) -> float:
        try:
            return float(verifier.verify(pair.answer, pair.golds))
        except RewardError:
            return 0.0

    return {
        "exact_match, squad": lambda pair: exact_match(pair.answer, pair.golds, "squad"),
        "exact_match, numbers": lambda pair: exact_match(pair.answer, pair.golds, "numbers"),
        "f1, squad": lambda pair: f1(pair.answer, pair.golds, "squad"),
        "f1, numbers": lambda pair: f1(pair.answer, pair.golds, "numbers"),
        "math": verify,
    }


def draw(grader: str, count: int, seed: int) -> list[Pair]:
    """The pairs on which one of our graders is tried."""
    kinds = math_pairs if grader == "math" else answer_pairs
    return draw_pairs((kinds.RIGHT, kinds.WRONG), count, seed)


def ask_peers(grader: str, pairs: Sequence[Pair]) -> list[float]:
    """The scores of another project's grader."""
    asked = "".join(
        json.dumps({"grader": grader, "answer": pair.answer, "gold": pair.golds[0]}) + "\n" for pair in pairs
    )
    done = subprocess.run(
        [PEERS, "-W", "ignore", "-m", "peers.graders"],
        input=asked,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=3_600,
    )
    scores = [float(line) for line in done.stdout.split()]
    if len(scores) != len(pairs):
        raise SystemExit(f"peers.graders ended after {len(scores)} of {len(pairs)} pairs: {done.stderr[-500:]}")
    return scores


def count_errors(pairs: Sequence[Pair], scores: Sequence[float]) -> tuple[Counter[str], Counter[str]]:
    """By kind: how many different answers got the full score, how many equal ones did not."""
    paid = [(pair, score > 1 - 1e-9) for pair, score in zip(pairs, scores, strict=True)]
    return (
        Counter(pair.kind for pair, full in paid if full and not pair.is_right),
        Counter(pair.kind for pair, full in paid if pair.is_right and not full),
    )


def render(rows: Sequence[tuple[str, ...]], head: Sequence[str]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def render_kinds(graders: Sequence[str], pairs: Sequence[Pair], scores: Mapping[str, Sequence[float]]) -> str:
    """A table of the kinds in which some of these graders err, with the number of pairs of each kind."""
    sizes = Counter(pair.kind for pair in pairs)
    errors = {grader: count_errors(pairs, scores[grader]) for grader in graders}
    rows = []
    for place, what in enumerate(("different", "equal")):
        for kind in dict.fromkeys(pair.kind for pair in pairs):
            counts = [errors[grader][place][kind] for grader in graders]
            if any(counts):
                rows.append((what, kind, str(sizes[kind]), *(str(count or "") for count in counts)))
    return render(rows, ("the two are", "kind of pair", "pairs", *graders))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2_000, help="pairs for each grader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", action="store_true", help="also say in which kinds of pairs each grader errs")
    given = parser.parse_args()
    if not PEERS.exists():
        raise SystemExit(f"{PEERS} is missing; install the graders of others with: make peers")
    ours = build_ours(MathVerifier(num_workers=1))
    pairs = {grader: draw(grader, given.pairs, given.seed) for grader in ours}
    scores = {grader: [score(pair) for pair in pairs[grader]] for grader, score in ours.items()}
    rows = []
    for duel in DUELS:
        drawn = pairs[duel.ours]
        if duel.shown not in scores:
            scores[duel.shown] = ask_peers(duel.theirs, drawn)
        mine, theirs = scores[duel.ours], scores[duel.shown]
        agreeing = sum(abs(a - b) < 1e-2 for a, b in zip(mine, theirs, strict=True))
        counts = [sum(errors.values()) for each in (mine, theirs) for errors in count_errors(drawn, each)]
        share = f"{100 * agreeing / len(drawn):.1f}%"
        rows.append((duel.ours, duel.shown, str(len(drawn)), share, *map(str, counts)))
    head = ("ours", "other", "pairs", "same score", "ours: wrong paid", "right refused", "other: wrong paid")
    print(render(rows, (*head, "right refused")))
    if given.kinds:
        for names in (("exact_match, squad", "exact_match, numbers"), ("math",)):
            others = [duel.shown for duel in DUELS if duel.ours in names]
            print("\n" + render_kinds(list(dict.fromkeys((*names, *others))), pairs[names[0]], scores))


if __name__ == "__main__":
    main()
