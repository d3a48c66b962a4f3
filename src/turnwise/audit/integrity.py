"""What a stored batch must satisfy by itself: spans, masks, turn order, tool records, group membership, and its ledger
line.

Pure functions from loaded data to breaches; an empty list is a proof of what the function's docstring states. They need
no model, no tokenizer and no environment, so they hold for runs of any engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.core.types import FinishReason, Invalid, StopReason, Trajectory, TrajectoryGroup, Turn
from turnwise.store.ledger import DropReason, StepLedger
from turnwise.store.sampled import digest_advantages, digest_tokens
from turnwise.store.trajectories import TurnAdvantages

LEAVES_OPEN = (StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.TOOL_TIMEOUT, StopReason.ERROR)
"""Stop reasons that may leave an observation unanswered."""
GRAMMAR_TOLERANCE = 0.05
"""Nats by which rounding in half precision may turn the order of a log-probability with the grammar and without it
around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One thing that is not as it must be."""

    check: str
    """Name of the check: "files", "masks", "turns", "groups", "ledger", "prompts", "logprobs", "rewards", "advantages",
    "tools"."""
    step: int
    trajectory: str
    """`group_id/member`; empty where the whole step is meant."""
    text: str

    def __str__(self) -> str:
        return (
            f"[{self.check}] step {self.step}"
            + (f", trajectory {self.trajectory}" if self.trajectory else "")
            + f": {self.text}"
        )


def name_of(trajectory: Trajectory) -> str:
    """`group_id/member`, as breaches name it."""
    return f"{trajectory.group_id}/{trajectory.member}"


def check_masks(step: int, rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]) -> list[Breach]:
    """Every token of the arrays belongs to exactly one turn, and the stored mask, turn numbers and zeros follow from
    that.

    The mask is True exactly on the completions (provenance: who wrote the token), context has log-probability and
    advantage 0 and no weight version. `rows` and `arrays` as `store.trajectories.load_rows` and `load_arrays` give
    them. Raises KeyError, TypeError or ValueError when a row is not one."""
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) != 1:
        return [Breach(check="files", step=step, trajectory="", text=f"token arrays have different lengths {sizes}")]
    total = sizes["token_ids"]
    sampled, turn_index = np.zeros(total, np.bool_), np.full(total, -1)
    guided, whole = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    starts: list[int] = []
    names: list[str] = []
    at = 0
    for row in rows:
        name = f"{row['group_id']}/{row['member']}"
        starts.append(at)
        names.append(name)
        for number, turn in enumerate(row["turns"]):
            (start, middle), (again, end) = turn["context"], turn["completion"]
            if (start, middle) != (at, again) or not start <= middle < end <= total:
                text = (
                    f"turn {number} claims tokens {start}..{middle}..{end}, the turn before it ends at {at} of {total}"
                )
                return [
                    Breach(
                        check="files",
                        step=step,
                        trajectory=name,
                        text=text + "; a turn or a trajectory is missing or moved",
                    )
                ]
            sampled[middle:end] = True
            turn_index[start:end] = number
            guided[middle:end] = turn.get("guided", False)
            whole[middle:end] = turn["version_first"] == turn["version_last"]
            at = end
    if at != total:
        text = (
            f"the trajectories cover {at} of {total} stored tokens; the file is cut off, or a turn or a "
            "trajectory is missing"
        )
        return [Breach(check="files", step=step, trajectory="", text=text)]
    found: list[Breach] = []
    facts = [
        ("loss_mask", arrays["loss_mask"] != sampled),
        ("turn_index", arrays["turn_index"] != turn_index),
        ("logprobs", ~sampled & (arrays["logprobs"] != 0)),
        ("advantages", ~sampled & (arrays["advantages"] != 0)),
    ]
    if "versions" in arrays:
        # -1 stands for versions that were several and not recorded, which needs several.
        facts.append(("versions", np.where(sampled, whole & (arrays["versions"] < 0), arrays["versions"] != -1)))
    if "full_logprobs" in arrays:
        facts.append(("full_logprobs", ~guided & (arrays["full_logprobs"] != 0)))
    for what, wrong in facts:
        positions = np.flatnonzero(wrong)
        # A trajectory without turns starts where the next one does: the last start is the owner's.
        owners = np.searchsorted(starts, positions, side="right") - 1
        for owner, first in zip(*np.unique(owners, return_index=True), strict=True):
            position = int(positions[first])
            kind = "sampled" if sampled[position] else "context"
            text = (
                f"{what.replace('_', ' ')} at stored token {position} is {arrays[what][position]}, which does "
                f"not fit a {kind} token"
            )
            found.append(Breach(check="masks", step=step, trajectory=names[owner], text=text))
    return found


def has_order(trajectory: Trajectory) -> bool:
    """Whether every turn's parent comes before it: only then does the trajectory have branches to look at."""
    return all(turn.parent is None or 0 <= turn.parent < index for index, turn in enumerate(trajectory.turns))


def check_turns(step: int, trajectory: Trajectory) -> list[Breach]:
    """The turns of one trajectory form a tree in order of time, every observation was answered, and the end fits the
    stop reason.

    A turn extends its parent (linear), or names an earlier one (a branch on record). Log-probabilities are finite and
    at most 0, versions do not run backwards, and a tool record says what the model was shown and what it had asked for.
    """
    return [
        Breach(check="turns", step=step, trajectory=name_of(trajectory), text=text)
        for text in _turn_problems(trajectory)
    ]


def _turn_problems(trajectory: Trajectory) -> Iterator[str]:
    turns, stop = trajectory.turns, trajectory.stop
    continued = {turn.parent for turn in turns}
    if not turns and not isinstance(trajectory.reward, Invalid):
        yield f"no turn is stored and the reward is not Invalid (stop reason {stop.value})"
    for index, turn in enumerate(turns):
        parent = turn.parent
        if parent is not None and not 0 <= parent < index:
            yield f"turn {index} names turn {parent} as its parent, which does not come before it"
        if parent is None and len(turn.context_ids) == 0:
            yield f"turn {index} starts a conversation without a prompt"
        yield from _completion_problems(index, turn)
        yield from _record_problems(index, turn)
        if index in continued:
            if not turn.observations:
                yield (
                    f"turn {index} is followed by another although nothing was observed after it; a turn is "
                    "missing or out of order"
                )
            if turn.completion.finish_reason is FinishReason.LENGTH:
                yield f"turn {index} was cut off by a token limit and yet another follows it"
        elif turn.observations and stop not in LEAVES_OPEN:
            yield (
                f"what was observed after turn {index} is never answered, and the stop reason is {stop.value}; a "
                "turn is missing"
            )
    if turns and stop is StopReason.MAX_TURN_TOKENS and turns[-1].completion.finish_reason is not FinishReason.LENGTH:
        yield "the stop reason is max_turn_tokens and the last reply was not cut off"
    if turns and stop is StopReason.DONE and turns[-1].completion.finish_reason is FinishReason.LENGTH:
        yield "the stop reason is done and the last reply was cut off by a token limit"


def _completion_problems(index: int, turn: Turn) -> Iterator[str]:
    completion = turn.completion
    full = completion.full_logprobs
    for logprobs in (completion.logprobs,) if full is None else (completion.logprobs, full):
        wrong = np.flatnonzero(~np.isfinite(logprobs) | (logprobs > 1e-6))
        if len(wrong):
            value = logprobs[wrong[0]]
            yield (
                f"log-probability of sampled token {wrong[0]} of turn {index} is {value}; it must be finite and "
                "at most 0"
            )
    above = np.flatnonzero((completion.logprobs if full is None else full) > completion.logprobs + GRAMMAR_TOLERANCE)
    if len(above):
        yield (
            f"sampled token {above[0]} of turn {index} is likelier without the grammar than with it, which only "
            "takes others away"
        )
    first, last, versions = completion.version_first, completion.version_last, completion.versions
    if not 0 <= first <= last or (versions is not None and (np.diff(versions) < 0).any()):
        yield f"turn {index} was sampled by weight versions {first}..{last}, which run backwards"
    elif versions is not None and (versions[0], versions[-1]) != (first, last):
        yield (
            f"turn {index} was sampled by weight versions {first}..{last}, its tokens by {versions[0]}..{versions[-1]}"
        )


def _record_problems(index: int, turn: Turn) -> Iterator[str]:
    shown = {message.tool_call_id: message.text for message in turn.observations if message.tool_call_id is not None}
    asked = {call.id: call for call in turn.message.tool_calls}
    for record in turn.tool_records:
        if shown.get(record.call.id, record.observation) != record.observation:
            yield f"the record of tool call {record.call.id!r} of turn {index} is not what the model was shown"
        if asked.get(record.call.id) != record.call:
            yield f"the record of tool call {record.call.id!r} of turn {index} is not a call of that reply"


def check_groups(
    step: int, groups: Sequence[TrajectoryGroup], rows: Sequence[Mapping[str, Any]], *, group_size: int
) -> list[Breach]:
    """Every group has members 0 .. `group_size` - 1 once, all of one task under one name, and no name is used by two
    groups."""
    found: list[Breach] = []

    def breach(trajectory: str, text: str) -> None:
        found.append(Breach(check="groups", step=step, trajectory=trajectory, text=text))

    names: set[str] = set()
    for group in groups:
        if group.group_id in names:
            breach("", f"two groups are called {group.group_id!r}")
        names.add(group.group_id)
        members = [trajectory.member for trajectory in group.trajectories]
        if members != list(range(group_size)):
            breach("", f"group {group.group_id!r} has members {members}, expected 0 to {group_size - 1} once each")
        for trajectory in group.trajectories:
            if trajectory.group_id != group.group_id or trajectory.task_id != group.task.id:
                own, other = (
                    f"{trajectory.group_id!r} of task {trajectory.task_id}",
                    f"{group.group_id!r} of task {group.task.id}",
                )
                text = f"it belongs to group {own}, and is stored in {other}"
                breach(name_of(trajectory), text)
    tasks: dict[str, Any] = {}
    for row in rows:
        if tasks.setdefault(row["group_id"], row["task"]) != row["task"]:
            breach(
                f"{row['group_id']}/{row['member']}", "its stored task is not that of the other members of its group"
            )
    return found


def check_ledger(
    ledger: StepLedger | None,
    step: int,
    groups: Sequence[TrajectoryGroup],
    advantages: Mapping[tuple[str, int], TurnAdvantages],
    retried: Sequence[TrajectoryGroup] = (),
) -> list[Breach]:
    """The stored trajectories are those of the ledger line, token by token: counts, digests of tokens and advantages,
    versions.

    `advantages` as `store.trajectories.load_groups` gives them; empty where the step's algorithm has none. `retried`
    are the attempts that were thrown away. A missing line is a breach."""
    if ledger is None:
        return [
            Breach(
                check="ledger",
                step=step,
                trajectory="",
                text="the step has no line in ledger.jsonl although it is finished",
            )
        ]
    found: list[Breach] = []
    counted = [entry for entry in ledger.entries if DropReason.RETRIED not in entry.dropped]
    accounts = {(entry.group_id, entry.member): entry for entry in counted}
    stored = {(t.group_id, t.member): t for group in groups for t in group.trajectories}

    def breach(key: tuple[str, int], text: str) -> None:
        found.append(Breach(check="ledger", step=step, trajectory=f"{key[0]}/{key[1]}", text=text))

    if len(accounts) != len(counted):
        found.append(
            Breach(check="ledger", step=step, trajectory="", text="the ledger line accounts for a trajectory twice")
        )
    for key in accounts.keys() - stored.keys():
        breach(key, "the ledger accounts for it, the store does not hold it")
    for key, trajectory in stored.items():
        if key not in accounts:
            breach(key, "it is stored and not in the ledger")
            continue
        entry = accounts[key]
        if trajectory.num_sampled_tokens != entry.sampled or trajectory.attempt != entry.attempt:
            breach(
                key,
                f"the store has attempt {trajectory.attempt} with {trajectory.num_sampled_tokens} sampled tokens, "
                f"the ledger attempt {entry.attempt} with {entry.sampled}",
            )
        elif digest_tokens(trajectory) != entry.tokens_digest:
            breach(
                key,
                "its stored token ids, log-probabilities, versions or turns are not those that were reconciled "
                "before training",
            )
        if entry.trained and advantages and digest_advantages(advantages.get(key)) != entry.advantages_digest:
            breach(key, "its stored advantages are not those that trained")
        if entry.trained and isinstance(trajectory.reward, Invalid):
            breach(key, "it trained although its stored reward is Invalid")
        for number, turn in enumerate(trajectory.turns):
            first, last = turn.completion.version_first, turn.completion.version_last
            if entry.trained and not ledger.version - ledger.max_staleness <= first <= last <= ledger.version:
                versions = f"{ledger.version - ledger.max_staleness} to {ledger.version}"
                breach(
                    key,
                    f"turn {number} was sampled by weight version {first}..{last}, the step trained on versions "
                    f"{versions}",
                )
    thrown = {
        (e.group_id, e.member, e.attempt): e.tokens_digest for e in ledger.entries if DropReason.RETRIED in e.dropped
    }
    kept = {
        (t.group_id, t.member, t.attempt): digest_tokens(t)
        for g in retried
        for t in g.trajectories
        if t.num_sampled_tokens
    }
    for group_id, member, attempt in sorted(thrown.keys() | kept.keys()):
        if thrown.get((group_id, member, attempt)) != kept.get((group_id, member, attempt)):
            breach(
                (group_id, member), f"attempt {attempt}, which was retried, is not in the store as it is in the ledger"
            )
    return found


def check_totals(ledger: StepLedger, metrics: Mapping[str, Any]) -> list[Breach]:
    """The step's published metrics say what its ledger line says. Metrics that were not recorded are not compared."""
    found = []
    expected = {
        "rollout/sampled_tokens": ledger.sampled,
        "train/trained_tokens": ledger.trained + ledger.context_trained,
    }
    for name, value in expected.items():
        published = metrics.get(name)
        if isinstance(published, (int, float)) and not math.isclose(published, value):
            text = f"metrics.jsonl says {name} = {published:g}, the ledger {value}"
            found.append(Breach(check="ledger", step=ledger.step, trajectory="", text=text))
    return found
