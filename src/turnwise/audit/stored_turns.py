"""Check that the turns of a stored trajectory fit together, without a model, a tokenizer or an environment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from turnwise.audit.breaches import Breach
from turnwise.core.messages import ImagePart, show_digest
from turnwise.core.paths import take_received
from turnwise.core.types import FinishReason, Invalid, StopReason, Trajectory, Turn

ANSWERED = (StopReason.DONE, StopReason.MAX_TURN_TOKENS)
"""Stop reasons after which no observation is left unanswered."""
GRAMMAR_TOLERANCE = 0.05
"""Nats by which half-precision rounding may raise the log-probability without the grammar above that with the
grammar."""


def has_order(trajectory: Trajectory) -> bool:
    """Whether every turn's parent comes before it: only then can its branches be checked."""
    return all(turn.parent is None or 0 <= turn.parent < index for index, turn in enumerate(trajectory.turns))


def check_turns(step: int | None, trajectory: Trajectory, *, has_others: bool = False) -> list[Breach]:
    """Check that the turns form a tree in order of time, every observation was answered, and the end fits the stop
    reason.

    A turn extends its parent (linear), names an earlier one (a branch on record), or starts a conversation.
    Log-probabilities are finite and at most 0, versions do not decrease, and a tool record states what the model was
    shown and what it had asked for. Pass the paths of a branched trajectory one by one (`core.paths.split_paths`). With
    `has_others` other roles spoke in its episode, and may have ended it before it said anything.
    """
    texts = _turn_problems(trajectory, has_others)
    return [Breach(check="turns", step=step, trajectory=trajectory.id, text=text) for text in texts]


def check_endings(step: int | None, trajectory: Trajectory) -> list[Breach]:
    """Check that every path of a branched trajectory but the first has one ending, and every turn a recorded
    conversation; replies that nobody received come last.

    Parents must precede their turns.
    """
    texts = []
    leaves, ends = {path[-1] for path in trajectory.branches()}, [ending.turn for ending in trajectory.endings]
    if ends and (len(set(ends)) != len(ends) or not set(ends) < leaves or len(leaves) != len(ends) + 1):
        texts.append(f"its endings are of turns {ends}, its paths end in turns {sorted(leaves)}; all but one need one")
    num_received = len(take_received(trajectory).turns)
    for index, turn in enumerate(trajectory.turns):
        if index < num_received and not turn.is_received:
            texts.append(f"turn {index} was received by nobody, yet turn {num_received - 1} comes after it and was")
        if not 0 <= turn.conversation < max(1, len(trajectory.conversations)):
            count = len(trajectory.conversations)
            texts.append(f"turn {index} is of conversation {turn.conversation}, the store has {count} of them")
    return [Breach(check="turns", step=step, trajectory=trajectory.id, text=text) for text in texts]


def _turn_problems(trajectory: Trajectory, has_others: bool) -> Iterator[str]:
    turns, stop = trajectory.turns, trajectory.stop
    continued = {turn.parent for index, turn in enumerate(turns) if _goes_on(trajectory, index)}
    num_conversations = len({turn.conversation for turn in turns})
    if not turns and not isinstance(trajectory.reward, Invalid) and not has_others:
        yield f"no turn is stored and the reward is not Invalid (stop reason {stop.value})"
    for index, turn in enumerate(turns):
        parent = turn.parent
        if parent is not None and not 0 <= parent < index:
            yield f"turn {index} names turn {parent} as its parent, which does not come before it"
        if parent is None and len(turn.context_ids) == 0:
            yield f"turn {index} starts a conversation without a prompt"
        if parent is not None and 0 <= parent < index and not _fits(trajectory, turn, turns[parent]):
            yield f"turn {index} is of conversation {turn.conversation}, its parent of another"
        yield from _completion_problems(index, turn, is_scripted=not trajectory.learns)
        yield from _expert_problems(index, turn)
        yield from _record_problems(index, turn)
        yield from _image_problems(index, turn)
        if index in continued:
            if not turn.observations:
                yield (
                    f"turn {index} is followed by another although nothing was observed after it; a turn is "
                    "missing or out of order"
                )
            if turn.completion.finish_reason is FinishReason.LENGTH:
                yield f"turn {index} was cut off by a token limit and yet another follows it"
        elif turn.observations and stop in ANSWERED and (num_conversations == 1 or index == len(turns) - 1):
            yield (
                f"what was observed after turn {index} is never answered, and the stop reason is {stop.value}; a "
                "turn is missing"
            )
    # If several conversations were open, replies later than the one that was cut off were sampled too.
    received = take_received(trajectory).turns
    last = received if num_conversations > 1 else received[-1:]
    is_cut_off = any(turn.completion.finish_reason is FinishReason.LENGTH for turn in last)
    if turns and stop is StopReason.MAX_TURN_TOKENS and not is_cut_off and not has_others:
        yield "the stop reason is max_turn_tokens and the last reply was not cut off"
    if turns and stop is StopReason.DONE and is_cut_off:
        yield "the stop reason is done and the last reply was cut off by a token limit"


def _goes_on(trajectory: Trajectory, index: int) -> bool:
    """Whether a turn follows an earlier one of its own conversation."""
    turn = trajectory.turns[index]
    parent = turn.parent
    return parent is not None and 0 <= parent < index and trajectory.turns[parent].conversation == turn.conversation


def _fits(trajectory: Trajectory, turn: Turn, parent: Turn) -> bool:
    """Whether a turn continues its parent's conversation, or opens one that inherits from it."""
    if turn.conversation == parent.conversation:
        return True
    openings = trajectory.conversations
    if not (0 <= turn.conversation < len(openings) and 0 <= parent.conversation < len(openings)):
        return False
    opening = openings[turn.conversation]
    is_first = next(other for other in trajectory.turns if other.conversation == turn.conversation) is turn
    return opening.inherits and is_first and opening.caller == openings[parent.conversation].name


def _completion_problems(index: int, turn: Turn, *, is_scripted: bool) -> Iterator[str]:
    completion = turn.completion
    full = completion.full_logprobs
    if is_scripted and np.isnan(completion.logprobs).all():
        return  # no model sampled it
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


def _expert_problems(index: int, turn: Turn) -> Iterator[str]:
    """Check that experts are recorded for every token that the turn's request computed: for a root all but the last
    one, for another turn as many as it has tokens, starting with the last token of its parent."""
    experts = turn.completion.experts
    if experts is None:
        return
    expected = len(turn.context_ids) + len(turn.completion.token_ids) - (turn.parent is None)
    if len(experts) != expected:
        yield f"turn {index} has the experts of {len(experts)} tokens, {expected} were computed for it"
    ordered = np.sort(experts, axis=-1)
    wrong = np.flatnonzero((ordered[..., 1:] == ordered[..., :-1]).any((1, 2)))
    if len(wrong):
        yield f"computed token {wrong[0]} of turn {index} takes one expert twice: {experts[wrong[0]].tolist()}"


def _record_problems(index: int, turn: Turn) -> Iterator[str]:
    shown = {message.tool_call_id: message for message in turn.observations if message.tool_call_id is not None}
    asked = {call.id: call for call in turn.message.tool_calls}
    for record in turn.tool_records:
        message = shown.get(record.call.id)
        pictures = tuple(part for part in record.content if isinstance(part, ImagePart))
        if message is not None and (message.text, message.images) != (record.observation, pictures):
            yield f"the record of tool call {record.call.id!r} of turn {index} is not what the model was shown"
        if asked.get(record.call.id) != record.call:
            yield f"the record of tool call {record.call.id!r} of turn {index} is not a call of that reply"


def _image_problems(index: int, turn: Turn) -> Iterator[str]:
    """Check that pictures stand in the context, in order, and that no token belongs to two of them."""
    end = 0
    for span in turn.images:
        first, last = span.start, span.start + span.length - 1
        if span.length < 1 or first < end or last >= len(turn.context_ids):
            yield (
                f"picture {show_digest(span.digest)} claims tokens {first} to {last} of the context of turn {index}; "
                f"those from {end} to {len(turn.context_ids) - 1} are free"
            )
        end = max(end, last + 1)
