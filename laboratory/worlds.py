"""The worlds of the laboratory. A world's summary says which methods it distinguishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laboratory.world import Branch, State, World, build_world


def build_key_door(*, length: int = 6, max_turns: int = 16) -> World:
    """A corridor with a key near its start and a locked door at its end; state (position, has key).

    Actions: forward, back, pick up. The door without the key ends the task in failure. Tasks start at positions 0, 1
    and 2; the last has walked past the key and must turn back. Observations hide whether the key is held."""

    def step(state: State, action: int) -> Sequence[Branch]:
        position, key = state
        if action == 0:
            return [(1.0, bool(key) if position == length else (position + 1, key))]
        if action == 1:
            return [(1.0, (max(0, position - 1), key))]
        return [(1.0, (position, 1 if position == 1 else key))]

    return build_world(
        "key_door",
        summary="corridor with a key and a locked door; mistakes can be undone",
        starts=[(0, 0), (1, 0), (2, 0)],
        num_actions=3,
        max_turns=max_turns,
        step=step,
        observe=lambda state: f"position {state[0]}",
        progress=lambda state: 0.5 * state[1] + 0.4 * state[0] / length,
    )


def build_long_key_door(*, length: int = 30, keys: tuple[int, ...] = (4, 12, 20), max_turns: int = 48) -> World:
    """The same idea with more than 30 turns, in one direction: `length` cells; the door opens if every key was taken on
    the way.

    State (position, keys held). Actions: two that walk on, one that picks up (and only waits where no key lies). A key
    that was passed is lost, which only matters at the door. Observations hide the keys held."""

    def step(state: State, action: int) -> Sequence[Branch]:
        position, held = state
        if action < 2:
            return [(1.0, held == len(keys) if position == length else (position + 1, held))]
        picks = position in keys and held == keys.index(position)
        return [(1.0, (position, held + 1 if picks else held))]

    return build_world(
        "long_key_door",
        summary="33 to 48 turns, of which three decide; the outcome comes at the end",
        starts=[(0, 0)],
        num_actions=3,
        max_turns=max_turns,
        step=step,
        observe=lambda state: f"position {state[0]}",
        progress=lambda state: 0.5 * state[1] / len(keys) + 0.4 * state[0] / length,
    )


def build_distractors(*, num_turns: int = 12, decisive: tuple[int, ...] = (3, 8), num_tasks: int = 3) -> World:
    """Always `num_turns` turns; at the `decisive` ones one of three actions is right, the other turns change nothing.

    State (task, turn, right decisions); the right action differs by task and decision. A mistake is silent until the
    end. Observations hide the right decisions."""

    def step(state: State, action: int) -> Sequence[Branch]:
        task, turn, right = state
        if turn in decisive:
            right += action == (task + decisive.index(turn)) % 3
        return [(1.0, right == len(decisive) if turn == num_turns - 1 else (task, turn + 1, right))]

    return build_world(
        "distractors",
        summary="12 turns, of which two decide and ten change nothing; a mistake shows at the end only",
        starts=[(task, 0, 0) for task in range(num_tasks)],
        num_actions=3,
        max_turns=num_turns,
        step=step,
        observe=lambda state: f"task {state[0]} turn {state[1]}",
        progress=lambda state: 0.4 * state[1] / num_turns + 0.2 * state[2],
    )


def build_late_decisive(*, num_turns: int = 8, num_tasks: int = 3) -> World:
    """Working turns in which one of four actions answers too early and fails; the last turn must pick the task's answer
    of four.

    State (task, turn). Observations show all of it.
    """

    def step(state: State, action: int) -> Sequence[Branch]:
        task, turn = state
        if turn == num_turns - 1:
            return [(1.0, action == task)]
        return [(1.0, False if action == 3 else (task, turn + 1))]

    return build_world(
        "late_decisive",
        summary="seven turns of work that must not end too early, then one that decides",
        starts=[(task, 0) for task in range(num_tasks)],
        num_actions=4,
        max_turns=num_turns,
        step=step,
        observe=lambda state: f"task {state[0]} turn {state[1]}",
        progress=lambda state: 0.8 * state[1] / num_turns,
    )


def build_stochastic_tools(*, num_steps: int = 4, failure_rate: float = 0.3, max_turns: int = 10) -> World:
    """A chain of tool calls; the right one fails with probability `failure_rate` and may be tried again.

    State (step, last call failed). Three actions, whose roles turn with the step: the right call; one that does
    nothing; one that, half of the time, undoes the step before. Observations show only whether the last call failed.
    """

    def step(state: State, action: int) -> Sequence[Branch]:
        done, failed = state
        role = (action - done) % 3
        if role == 0:
            return [(1 - failure_rate, True if done == num_steps - 1 else (done + 1, 0)), (failure_rate, (done, 1))]
        if role == 1:
            return [(1.0, (done, failed))]
        return [(0.5, (max(0, done - 1), 0)), (0.5, (done, failed))]

    return build_world(
        "stochastic_tools",
        summary="four tool calls in order, each failing three times in ten; luck and choice look alike",
        starts=[(0, 0)],
        num_actions=3,
        max_turns=max_turns,
        step=step,
        observe=lambda state: "error" if state[1] else "fine",
        progress=lambda state: 0.8 * state[0] / num_steps,
    )


WORLDS: dict[str, Callable[[], World]] = {
    "key_door": build_key_door,
    "long_key_door": build_long_key_door,
    "distractors": build_distractors,
    "late_decisive": build_late_decisive,
    "stochastic_tools": build_stochastic_tools,
}
"""Name to builder, each with its defaults."""
