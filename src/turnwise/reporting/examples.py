"""Show the same held-out tasks before and after training, token by token.

Reads the plain rows of `store.trajectories`; of an environment it reads messages, rewards and the payload's `kind` and
`answers`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

Row = Mapping[str, Any]

MAX_TOKENS = 800
"""Most sampled tokens shown of one trajectory, to keep the page small."""
MAX_CONTEXT_CHARS = 6000
"""Most characters shown of one context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The trajectories of one evaluation."""

    label: str
    rows: Sequence[Row]
    arrays: Mapping[str, np.ndarray]
    """Flat token arrays `[T]` by name."""


def choose_examples(before: Sequence[Row], after: Sequence[Row], count: int) -> list[tuple[str, Row, Row]]:
    """Choose up to `count` tasks that both evaluations have, as `(verdict, before, after)`.

    Most are "wrong → right", those with most tool calls first, with one each of "still wrong" and "right → wrong" if
    there is one; "right both times" fills up what is left. A task that could not be scored is left out."""
    first = {row["task"]["id"]: row for row in before if "scored" in row["reward"]}
    by_verdict: dict[str, list[tuple[str, Row, Row]]] = {
        "wrong → right": [],
        "right → wrong": [],
        "still wrong": [],
        "right both times": [],
    }
    for row in after:
        if row["task"]["id"] in first and "scored" in row["reward"]:
            verdict = _verdict(succeeded(first[row["task"]["id"]]), succeeded(row))
            by_verdict[verdict].append((verdict, first[row["task"]["id"]], row))
    for pairs in by_verdict.values():
        pairs.sort(key=lambda pair: -count_tool_calls(pair[2]))
    others = by_verdict["right → wrong"][:1] + by_verdict["still wrong"][:1]
    chosen = by_verdict["wrong → right"][: max(1, count - len(others))] + others
    spare = by_verdict["right both times"] + by_verdict["still wrong"][1:] + by_verdict["right → wrong"][1:]
    return (chosen + spare)[:count]


def _verdict(before: bool, after: bool) -> str:
    if before:
        return "right both times" if after else "right → wrong"
    return "wrong → right" if after else "still wrong"


def succeeded(row: Row) -> bool:
    """Whether the trajectory is a success: its reward's "success" part, or its total if there is none, is above 0.5."""
    scored = row["reward"].get("scored")
    if scored is None:
        return False
    parts = {part["name"]: part["value"] for part in scored["parts"]}
    return bool(parts.get("success", scored["total"]) > 0.5)


def count_tool_calls(row: Row) -> int:
    """Count the tool calls of all turns."""
    return sum(len(turn["tool_records"]) for turn in row["turns"])


def draw_example(verdict: str, before: tuple[Row, Batch], after: tuple[Row, Batch]) -> str:
    """Draw one task: the verdict, the accepted answers, and both trajectories side by side."""
    task = after[0]["task"]
    kind = task["payload"].get("kind")
    badge = f'<span class="kind">{escape(str(kind))}</span>' if kind is not None else ""
    good = " good" if verdict.endswith("right") else " bad" if verdict.endswith("wrong") else ""
    verdict_and_id = f'<span class="verdict{good}">{escape(verdict)}</span>{badge}<span class="id">{escape(task["id"])}'
    head = f"<h3>{verdict_and_id}</span></h3>"
    answers = task["payload"].get("answers")
    gold = ""
    if isinstance(answers, list):
        gold = f'<p class="gold">accepted answers: <b>{escape(", ".join(map(str, answers)) or "none")}</b></p>'
    return (
        f'<article>{head}{gold}<div class="pair">{_draw_trajectory(*before)}{_draw_trajectory(*after)}</div></article>'
    )


def _draw_trajectory(row: Row, batch: Batch) -> str:
    scored, invalid = row["reward"].get("scored"), row["reward"].get("invalid")
    facts = [f"stop: {row['stop']}", f"tool calls: {count_tool_calls(row)}"]
    if scored is not None:
        facts += [f"reward: {scored['total']:g}", *(f"{part['name']}: {part['value']:g}" for part in scored["parts"])]
    if invalid is not None:
        facts.append(f"reward invalid: {invalid['reason']}")
    if row["error"]:
        facts.append(row["error"])
    left = MAX_TOKENS
    pieces = []
    for number, turn in enumerate(row["turns"]):
        if turn["parent"] is not None and turn["parent"] != number - 1:
            pieces.append(f'<span class="branch">branch from turn {turn["parent"] + 1}</span>')
        pieces.append(_draw_context(turn, batch))
        pieces.append(_draw_completion(turn, batch, left))
        left = max(0, left - (turn["completion"][1] - turn["completion"][0]))
    chips = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    head = f'<h4>{escape(batch.label)}</h4><ul class="facts">{chips}</ul>'
    return f'<div class="side">{head}<div class="tokens">{"".join(pieces)}</div></div>'


def _draw_context(turn: Row, batch: Batch) -> str:
    start, end = turn["context"]
    text = turn.get("context_text") or " ".join(map(str, batch.arrays["token_ids"][start:end]))
    cut = len(text) - MAX_CONTEXT_CHARS
    more = f" … {cut:,} more characters" if cut > 0 else ""
    if turn["parent"] is None:
        return f'<span class="prompt" title="prompt">{escape(text[:MAX_CONTEXT_CHARS])}{more}</span>'
    return f'<span class="observation" title="observation">{escape(text[:MAX_CONTEXT_CHARS])}{more}</span>'


def _draw_completion(turn: Row, batch: Batch, limit: int) -> str:
    start, end = turn["completion"]
    pieces = turn.get("completion_pieces") or [f"{token} " for token in batch.arrays["token_ids"][start:end]]
    logprobs = batch.arrays["logprobs"][start:end].tolist()
    spans = []
    for piece, logprob in list(zip(pieces, logprobs, strict=True))[:limit]:
        hint = f"p {math.exp(min(0.0, logprob)):.2f}, logprob {logprob:.2f}"
        spans.append(f'<i class="p{shade(logprob)}" title="{hint}">{escape(piece)}</i>')
    more = f'<span class="branch">{end - start - limit:,} more tokens</span>' if end - start > limit else ""
    return f'<span class="sampled">{"".join(spans)}</span>{more}'


def shade(logprob: float) -> int:
    """Return the fifth the probability falls in, from 0 (improbable) to 4 (near certain); 0 if it is NaN."""
    return 0 if math.isnan(logprob) else min(4, int(5 * math.exp(min(0.0, logprob))))
