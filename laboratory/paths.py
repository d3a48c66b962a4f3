"""Sampling many trajectories of a world at once, from the start or from the middle; trees are prefixes with several
ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laboratory.policy import DECIDING, TOKENS_PER_TURN
from laboratory.world import FloatArray, IntArray, World
from turnwise.algorithms.turns.branching import should_branch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paths:
    """N trajectories of one world on a grid of turns; a trajectory occupies a stretch of its row."""

    world: World
    states: IntArray
    """`[N, T]` state before each turn; -1 if the trajectory has no such turn."""
    next_states: IntArray
    """`[N, T]` state after each turn; -1 likewise."""
    tokens: IntArray
    """`[N, T, 3]` sampled tokens; 0 where there is no turn."""
    turn_ids: IntArray
    """`[N, T]` number of the sampling, equal for trajectories that share it; -1 where there is no turn."""
    groups: IntArray
    """`[N]` task within the batch."""
    trees: IntArray
    """`[N]` tree; every trajectory has its own if none branched."""

    @property
    def taken(self) -> np.ndarray:
        """`[N, T]` bool: whether there is such a turn."""
        return self.states >= 0

    @property
    def outcomes(self) -> FloatArray:
        """`[N]`: 1.0 for success, else 0.0."""
        return np.asarray((self.next_states == self.world.success).any(axis=1), dtype=np.float64)

    @property
    def truncated(self) -> np.ndarray:
        """`[N]` bool: whether the turn limit ended it."""
        return (self.next_states[:, -1] >= 0) & (self.next_states[:, -1] < self.world.num_states)

    @property
    def num_sampled_turns(self) -> int:
        """Number of sampled turns, counting shared ones once."""
        return len(np.unique(self.turn_ids[self.taken]))


def sample_paths(
    world: World, tokens: FloatArray, starts: IntArray, turns: IntArray, rng: np.random.Generator
) -> Paths:
    """Continue from state `starts[i]` at turn `turns[i]` until the end or the turn limit; `[N]` each, `tokens` is
    `[S, 3, A]`.

    Every trajectory is a group and a tree of its own.
    """
    count = len(starts)
    cumulative = tokens.cumsum(axis=-1)[..., :-1]
    shape = (count, world.max_turns)
    states, after = np.full(shape, -1), np.full(shape, -1)
    sampled = np.zeros((*shape, TOKENS_PER_TURN), dtype=np.int64)
    now = starts.copy()
    for turn in range(int(turns.min()) if count else 0, world.max_turns):
        rows = np.flatnonzero((turns <= turn) & (now < world.num_states))
        if not len(rows):
            continue
        here = now[rows]
        uniforms = rng.random((len(rows), TOKENS_PER_TURN + 1))
        drawn = (uniforms[:, :TOKENS_PER_TURN, None] >= cumulative[here]).sum(axis=-1)
        action = drawn[:, DECIDING]
        second = (uniforms[:, -1] >= world.first_probability[here, action]).astype(np.int64)
        reached = world.next_states[here, action, second]
        states[rows, turn], after[rows, turn], sampled[rows, turn] = here, reached, drawn
        now[rows] = reached
    ids = np.where(states >= 0, np.arange(states.size).reshape(shape), -1)
    numbers = np.arange(count)
    return Paths(
        world=world,
        states=states,
        next_states=after,
        tokens=sampled,
        turn_ids=ids,
        groups=numbers,
        trees=numbers,
    )


def draw_starts(world: World, num_groups: int, group_size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Start state and group number of every member, `[num_groups * group_size]` each; the members of a group share its
    task."""
    tasks = np.array(world.starts)[rng.integers(len(world.starts), size=num_groups)]
    return np.repeat(tasks, group_size), np.repeat(np.arange(num_groups), group_size)


def sample_groups(
    world: World, tokens: FloatArray, num_groups: int, group_size: int, rng: np.random.Generator
) -> Paths:
    """Independent attempts: `num_groups` tasks, `group_size` trajectories each."""
    starts, groups = draw_starts(world, num_groups, group_size, rng)
    return regroup(sample_paths(world, tokens, starts, np.zeros_like(starts), rng), groups)


def sample_trees(world: World, tokens: FloatArray, num_groups: int, group_size: int, rng: np.random.Generator) -> Paths:
    """Two trees per task: each one trajectory and `group_size / 2 - 1` others that leave it before a turn drawn evenly
    from its turns."""
    starts, groups = draw_starts(world, num_groups, 2, rng)
    trunks = regroup(sample_paths(world, tokens, starts, np.zeros_like(starts), rng), groups)
    parents = np.repeat(np.arange(len(starts)), group_size // 2 - 1)
    lengths = trunks.taken.sum(axis=1)
    return join_paths(trunks, fork_paths(trunks, tokens, parents, rng.integers(lengths[parents]), rng))


def sample_entropy_trees(
    world: World, tokens: FloatArray, num_groups: int, group_size: int, rng: np.random.Generator
) -> Paths:
    """ARPO's rollout: half of a group at first; turn by turn, each trajectory may branch if its entropy has risen; the
    rest start fresh.

    The entropy is that of the three tokens of the turn over log A, summed; it is compared with the trajectory's first
    turn by `should_branch` with its defaults."""
    starts, groups = draw_starts(world, num_groups, group_size // 2, rng)
    trunks = regroup(sample_paths(world, tokens, starts, np.zeros_like(starts), rng), groups)
    entropy = -(tokens * np.log(np.maximum(tokens, 1e-300))).sum(axis=(1, 2)) / np.log(tokens.shape[-1])
    parents: list[int] = []
    turns: list[int] = []
    missing: list[int] = []
    for group in range(num_groups):
        members = np.flatnonzero(groups == group)
        room = group_size - len(members)
        for turn in range(1, world.max_turns):
            for member in members:
                if room and trunks.states[member, turn] >= 0:
                    now, first = entropy[trunks.states[member, turn]], entropy[trunks.states[member, 0]]
                    if should_branch(float(now), float(first), float(rng.random())):
                        parents.append(int(member))
                        turns.append(turn)
                        room -= 1
        missing += [int(members[0])] * room
    forked = fork_paths(trunks, tokens, np.array(parents, dtype=np.int64), np.array(turns, dtype=np.int64), rng)
    fresh_starts = trunks.states[np.array(missing, dtype=np.int64), 0]
    fresh = regroup(
        sample_paths(world, tokens, fresh_starts, np.zeros_like(fresh_starts), rng),
        groups[np.array(missing, dtype=np.int64)],
    )
    return join_paths(join_paths(trunks, forked), fresh, new_trees=True)


def fork_paths(
    trunks: Paths, tokens: FloatArray, parents: IntArray, turns: IntArray, rng: np.random.Generator
) -> Paths:
    """Trajectories that share `parents[i]` up to `turns[i]` and are resampled from there; same group, same tree."""
    ends = sample_paths(trunks.world, tokens, trunks.states[parents, turns], turns, rng)
    before = np.arange(trunks.world.max_turns) < turns[:, None]
    return Paths(
        world=trunks.world,
        states=np.where(before, trunks.states[parents], ends.states),
        next_states=np.where(before, trunks.next_states[parents], ends.next_states),
        tokens=np.where(before[..., None], trunks.tokens[parents], ends.tokens),
        turn_ids=np.where(
            before, trunks.turn_ids[parents], np.where(ends.taken, ends.turn_ids + trunks.turn_ids.max() + 1, -1)
        ),
        groups=trunks.groups[parents],
        trees=trunks.trees[parents],
    )


def regroup(paths: Paths, groups: IntArray) -> Paths:
    """The same trajectories under other group numbers, `[N]`."""
    return Paths(
        world=paths.world,
        states=paths.states,
        next_states=paths.next_states,
        tokens=paths.tokens,
        turn_ids=paths.turn_ids,
        groups=groups,
        trees=paths.trees,
    )


def join_paths(first: Paths, second: Paths, *, new_trees: bool = False) -> Paths:
    """Both batches, ordered by group. `new_trees`: the second batch was sampled separately, so its turns and trees are
    different."""
    id_offset = int(first.turn_ids.max()) + 1 if new_trees else 0
    tree_offset = int(first.trees.max()) + 1 if new_trees else 0
    groups = np.concatenate([first.groups, second.groups])
    order = np.argsort(groups, kind="stable")
    ids = np.where(second.taken, second.turn_ids + id_offset, -1)
    return Paths(
        world=first.world,
        states=np.concatenate([first.states, second.states])[order],
        next_states=np.concatenate([first.next_states, second.next_states])[order],
        tokens=np.concatenate([first.tokens, second.tokens])[order],
        turn_ids=np.concatenate([first.turn_ids, ids])[order],
        groups=groups[order],
        trees=np.concatenate([first.trees, second.trees + tree_offset])[order],
    )
