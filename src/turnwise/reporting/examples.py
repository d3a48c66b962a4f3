"""Show the same held-out tasks before and after training, token by token.

Reads the plain rows of `store.trajectories`; the only environment data it reads are messages, rewards and the payload's
`kind` and `answers`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from turnwise.core.messages import ImagePart, TextPart
from turnwise.reporting.pictures import PictureDrawer
from turnwise.reporting.style import NUM_COLOURS
from turnwise.reporting.voices import Row, Said, Talk, find_lead, group_episodes, list_talks
from turnwise.store.rows import part_from_json

MAX_TOKENS = 800
"""Maximum number of sampled tokens shown per trajectory, to keep the page small."""
MAX_CONTEXT_CHARS = 6000
"""Maximum number of characters shown per context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The trajectories of one evaluation."""

    label: str
    rows: Sequence[Row]
    arrays: Mapping[str, np.ndarray]
    """Flat token arrays `[T]` by name."""
    drawer: PictureDrawer
    """Draws the pictures of the run."""


Episode = Sequence[Row]
"""The trajectories of one episode: one row for every role."""


def choose_examples(before: Sequence[Row], after: Sequence[Row], count: int) -> list[tuple[str, Episode, Episode]]:
    """Choose up to `count` tasks that both evaluations have, as `(verdict, before, after)`.

    Most are "wrong → right", those with most tool calls first, with one each of "still wrong" and "right → wrong" if
    there is one; "right both times" fills the remaining places. A task that could not be scored is left out."""
    first = {lead["task"]["id"]: (lead, episode) for lead, episode in _list_scored(before)}
    by_verdict: dict[str, list[tuple[str, Episode, Episode]]] = {
        "wrong → right": [],
        "right → wrong": [],
        "still wrong": [],
        "right both times": [],
    }
    for lead, episode in _list_scored(after):
        if lead["task"]["id"] in first:
            old, episode_before = first[lead["task"]["id"]]
            verdict = _verdict(succeeded(old), succeeded(lead))
            by_verdict[verdict].append((verdict, episode_before, episode))
    for pairs in by_verdict.values():
        pairs.sort(key=lambda pair: -sum(map(count_tool_calls, pair[2])))
    others = by_verdict["right → wrong"][:1] + by_verdict["still wrong"][:1]
    chosen = by_verdict["wrong → right"][: max(1, count - len(others))] + others
    spare = by_verdict["right both times"] + by_verdict["still wrong"][1:] + by_verdict["right → wrong"][1:]
    return (chosen + spare)[:count]


def _list_scored(rows: Sequence[Row]) -> list[tuple[Row, Episode]]:
    """Every episode whose leading row has a reward, together with that row."""
    episodes = [(find_lead(episode), episode) for episode in group_episodes(rows)]
    return [(lead, episode) for lead, episode in episodes if "scored" in lead["reward"]]


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


def draw_example(verdict: str, before: tuple[Episode, Batch], after: tuple[Episode, Batch]) -> str:
    """Draw one task: the verdict, the accepted answers, and both episodes, side by side if only one role speaks in
    them."""
    task = after[0][0]["task"]
    kind = task["payload"].get("kind")
    badge = f'<span class="kind">{escape(str(kind))}</span>' if kind is not None else ""
    good = " good" if verdict.endswith("right") else " bad" if verdict.endswith("wrong") else ""
    verdict_and_id = f'<span class="verdict{good}">{escape(verdict)}</span>{badge}<span class="id">{escape(task["id"])}'
    head = f"<h3>{verdict_and_id}</span></h3>"
    answers = task["payload"].get("answers")
    gold = ""
    if isinstance(answers, list):
        gold = f'<p class="gold">accepted answers: <b>{escape(", ".join(map(str, answers)) or "none")}</b></p>'
    layout = "pair" if len(before[0]) == len(after[0]) == 1 else "stack"
    return f'<article>{head}{gold}<div class="{layout}">{draw_episode(*before)}{draw_episode(*after)}</div></article>'


def draw_episode(episode: Episode, batch: Batch) -> str:
    """Draw one column per role, then what was carried over from one conversation to the next. A turn with a `note` is
    preceded by it."""
    talks = list_talks(episode)
    columns = "".join(_draw_role(row, batch, talks, number) for number, row in enumerate(episode, start=1))
    lines = [(talk.name, talk.memory) for talk in talks if talk.memory]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(memory)}</dd>" for name, memory in lines)
    memory = f'<h5>Memory over time</h5><dl class="memory">{items}</dl>' if lines else ""
    several = " several" if len(episode) > 1 else ""
    roles = f'<div class="roles{several}" style="--roles: {len(episode)}">{columns}</div>'
    return f'<div class="side"><h4>{escape(batch.label)}</h4>{roles}{memory}</div>'


def _draw_role(row: Row, batch: Batch, talks: Sequence[Talk], number: int) -> str:
    own = [talk for talk in talks if talk.role == row["id"]["role"]]
    left = MAX_TOKENS
    pieces = []
    for talk in own:
        if len(talks) > 1:
            by = f", called by {talk.caller}" if talk.caller is not None else ""
            pieces.append(f'<span class="talk">{escape(talk.name + by)}</span>')
        for said in talk.said:
            if said.branch_of is not None:
                pieces.append(f'<span class="branch">branch from turn {said.branch_of}</span>')
            pieces.append(_draw_context(said, batch))
            if said.turn.get("note"):
                pieces.append(f'<span class="wrong">{escape(said.turn["note"])}</span>')
            pieces.append(_draw_completion(said, batch, left))
            left = max(0, left - (said.turn["completion"][1] - said.turn["completion"][0]))
    head = f'<h5 class="k{(number - 1) % NUM_COLOURS + 1}">{escape(row["id"]["role"])}</h5>'
    return f'<div>{head}{_draw_facts(row)}<div class="tokens">{"".join(pieces)}</div></div>'


def _draw_facts(row: Row) -> str:
    scored, invalid = row["reward"].get("scored"), row["reward"].get("invalid")
    facts = [f"stop: {row['stop']}", f"tool calls: {count_tool_calls(row)}"]
    if scored is not None:
        facts += [f"reward: {scored['total']:g}", *(f"{part['name']}: {part['value']:g}" for part in scored["parts"])]
    if invalid is not None:
        facts.append(f"reward invalid: {invalid['reason']}")
    if row["error"]:
        facts.append(row["error"])
    return f'<ul class="facts">{"".join(f"<li>{escape(fact)}</li>" for fact in facts)}</ul>'


def _draw_context(said: Said, batch: Batch) -> str:
    turn = said.turn
    start, end = turn["context"]
    text = turn.get("context_text") or " ".join(map(str, batch.arrays["token_ids"][start:end]))
    left, shown = MAX_CONTEXT_CHARS, ""
    parts = list(map(part_from_json, turn.get("context_parts") or [{"text": text}]))
    for part in parts:
        if isinstance(part, ImagePart):
            shown += batch.drawer.draw(part)
        else:
            shown += escape(part.text[:left])
            left = max(0, left - len(part.text))
    cut = sum(len(part.text) for part in parts if isinstance(part, TextPart)) - MAX_CONTEXT_CHARS
    more = f" … {cut:,} more characters" if cut > 0 else ""
    name = "prompt" if turn["parent"] is None else "observation"
    return f'<span class="{name}{_grey(said.forgot_context)}" title="{name}">{shown}{more}</span>'


def _grey(forgotten: bool) -> str:
    return " forgotten" if forgotten else ""


def _draw_completion(said: Said, batch: Batch, limit: int) -> str:
    turn = said.turn
    start, end = turn["completion"]
    pieces = turn.get("completion_pieces") or [f"{token} " for token in batch.arrays["token_ids"][start:end]]
    logprobs = batch.arrays["logprobs"][start:end].tolist()
    spans = []
    for piece, logprob in list(zip(pieces, logprobs, strict=True))[:limit]:
        hint = f"p {math.exp(min(0.0, logprob)):.2f}, logprob {logprob:.2f}"
        spans.append(f'<i class="p{shade(logprob)}" title="{hint}">{escape(piece)}</i>')
    more = f'<span class="branch">{end - start - limit:,} more tokens</span>' if end - start > limit else ""
    return f'<span class="sampled{_grey(said.forgot_reply)}">{"".join(spans)}</span>{more}'


def shade(logprob: float) -> int:
    """Return the fifth the probability falls in, from 0 (improbable) to 4 (near certain); 0 if it is NaN."""
    return 0 if math.isnan(logprob) else min(4, int(5 * math.exp(min(0.0, logprob))))
