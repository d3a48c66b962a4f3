"""Record a finished search as one branched trajectory: every sampled reply once, with its ending (`core.paths`)."""

from __future__ import annotations

from dataclasses import replace

from turnwise.core.types import DropReason, Ending, Invalid, Scored, StopReason, Trajectory, TrajectoryGroup
from turnwise.rollout.loop import cut_reward
from turnwise_worlds.planning.search import Sampled, Search, SearchNode

OPEN = "the search did not go on from here"
KNOWN = "the reply leads to a state that the search knew"


def to_group(search: Search) -> TrajectoryGroup:
    """The search's trajectory as the group of its draw."""
    return TrajectoryGroup(draw=search.attempt.draw, trajectories=(to_trajectory(search),))


def to_trajectory(search: Search) -> Trajectory:
    """The search's answer as first path, and every other path as a branch.

    If the search reached no end, the first path is the deepest one, and Invalid. Paths that did not end get Invalid
    endings, whose tokens the ledger counts as `invalid`; they say whether they were left open or led to a known state.
    """
    first = _list_first(search)
    scored = _find_scored(search)
    rest = [index for index in range(len(search.sampled)) if index not in first]
    order = [*first, *(i for i in rest if i in scored), *(i for i in rest if i not in scored)]
    places = {index: place for place, index in enumerate(order)}
    leads_to = _index_nodes(search)
    turns, endings, with_replies = [], [], {id(sampled.parent) for sampled in search.sampled}
    for index in order:
        sampled = search.sampled[index]
        above = leads_to.get(sampled.parent)
        turns.append(replace(sampled.turn, parent=None if above is None else places[above]))
        if index != first[-1] and (sampled.node is None or id(sampled.node) not in with_replies):
            endings.append(_end(sampled, places[index]))
    end = _end(search.sampled[first[-1]], 0) if first else None
    reward = cut_reward() if end is None else end.reward
    if search.failure is not None and not isinstance(reward, Scored):
        reward = Invalid(reason=search.failure, retryable=True)
    return Trajectory(
        id=search.attempt.id,
        task_id=search.attempt.task.id,
        turns=tuple(turns),
        stop=StopReason.ERROR if end is None else end.stop,
        reward=reward,
        error=reward.reason if isinstance(reward, Invalid) else None,
        endings=tuple(endings),
    )


def count_tokens(search: Search) -> dict[str, int]:
    """The sampled tokens of a search by fate: on the path of its answer, on other paths that were scored, on abandoned
    paths (`DropReason.INVALID`). They sum to `num_sampled_tokens` of its trajectory."""
    answer = _list_first(search) if search.answer is not None else []
    scored = _find_scored(search)
    counts = {"answer": 0, "scored": 0, DropReason.INVALID.value: 0}
    for index, sampled in enumerate(search.sampled):
        fate = "answer" if index in answer else "scored" if index in scored else DropReason.INVALID.value
        counts[fate] += len(sampled.turn.completion.token_ids)
    return counts


def _index_nodes(search: Search) -> dict[SearchNode, int]:
    """Index of the reply that first led to each state."""
    return {sampled.node: index for index, sampled in enumerate(search.sampled) if sampled.node is not None}


def _list_first(search: Search) -> list[int]:
    """The replies on the path to the answer, or to the deepest state if there is none."""
    leads_to = _index_nodes(search)
    node: SearchNode | None = search.answer or max(leads_to, key=lambda each: each.depth, default=None)
    path: list[int] = []
    while node in leads_to:
        path.insert(0, leads_to[node])
        node = node.parent
    return path


def _find_scored(search: Search) -> set[int]:
    """The replies on paths to an end that was scored."""
    leads_to, found = _index_nodes(search), set()
    for index, sampled in enumerate(search.sampled):
        if isinstance(sampled.reward, Scored):
            found.add(index)
            at: SearchNode | None = sampled.parent
            while at in leads_to:
                found.add(leads_to[at])
                at = at.parent
    return found


def _end(sampled: Sampled, turn: int) -> Ending:
    if sampled.stop is not None and sampled.reward is not None:
        return Ending(turn=turn, stop=sampled.stop, reward=sampled.reward, kind="leaf")
    reason = OPEN if sampled.node is not None else KNOWN
    return Ending(turn=turn, stop=StopReason.CUT, reward=Invalid(reason=reason, retryable=False), kind="leaf")
