"""Usefulness of a call: whether what came back is used later.

Invites parroting: a reply that repeats a word of what it read, and needs none of it. `credit.shaping.gate` closes it
where nothing was solved; the part `counterfactual` asks the policy instead of comparing words.
"""

from __future__ import annotations

from turnwise.core.types import Trajectory, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise.rewards.thoughts import drop_thoughts
from turnwise_rewards.shaping.measured import NoOptions, build_kind, count_of, list_numbers
from turnwise_rewards.shaping.words import find_words


def measure_usefulness(group: TrajectoryGroup, index: int, options: NoOptions) -> RewardAccount:
    """Return the share of calls that are useful; 0 without calls.

    A call is useful if a later reply says a word of its observation that nothing before the observation contained: no
    prompt, no earlier or the same reply, no earlier observation. A later reply says what it writes outside its
    thoughts, and the arguments of its calls. This is what could not have been said without the call, or only by
    chance; whether the answer needed it, it does not measure.
    """
    member = group.trajectories[index]
    useful = find_useful(member, prompt=[message.text for message in group.task.prompt])
    idle = [number for number, is_useful in enumerate(useful, start=1) if not is_useful]
    if not useful:
        return RewardAccount(value=0.0, reason="no calls")
    if not idle:
        return RewardAccount(value=1.0, reason=f"{count_of(len(useful), len(useful), 'call')} used")
    return RewardAccount(
        value=1 - len(idle) / len(useful),
        reason=f"{count_of(len(idle), len(useful), 'call')} not used: {list_numbers(idle, 'call')}",
        change="without them",
        changed=float(len(idle) < len(useful)),
    )


def find_useful(trajectory: Trajectory, prompt: list[str]) -> list[bool]:
    """Return whether each call is useful, in the order of the calls."""
    openings = [message.text for opening in trajectory.conversations for message in opening.messages]
    before = find_words(" ".join([*prompt, *openings]))
    said: list[frozenset[str]] = []
    new: list[tuple[int, frozenset[str]]] = []
    for number, turn in enumerate(trajectory.turns):
        calls = " ".join(call.arguments for call in turn.message.tool_calls)
        said.append(find_words(f"{drop_thoughts(turn.message.text)} {calls}"))
        before |= said[-1] | find_words(turn.message.text) | find_words(turn.message.reasoning or "")
        for record in turn.tool_records:
            words = find_words(record.observation)
            new.append((number, words - before))
            before |= words
    return [any(words & later for later in said[number + 1 :]) for number, words in new]


USEFULNESS = build_kind(
    "usefulness",
    "share of calls whose answer a later reply uses",
    measure_usefulness,
    formula="calls with a new word that a later reply says / calls; 0 without calls",
)
