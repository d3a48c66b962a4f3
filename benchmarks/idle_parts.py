"""What each part of a reward gives a scripted policy that earns it without solving the task, beside an honest one.

    python benchmarks/idle_parts.py [--tasks 300]

In the world `drawers`, 4 honest and 4 idle attempts at every task are one group. One row of Markdown per part: the mean
value and the success of each policy, and the share of groups of 8 idle attempts that `credit.shaping.gate` leaves
out, since none of them is right."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from turnwise.core.messages import reply_message
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Scored, StopReason, Task, ToolCall, Trajectory, text_message
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_rewards.shaping.call_format import measure_call_format
from turnwise_rewards.shaping.curiosity import CuriosityOptions, measure_curiosity
from turnwise_rewards.shaping.drawers import DRAWERS, WORDS, Drawers
from turnwise_rewards.shaping.measured import NoOptions
from turnwise_rewards.shaping.plan_consistency import PlanOptions, measure_plan_consistency
from turnwise_rewards.shaping.progress import ProgressOptions, measure_progress
from turnwise_rewards.shaping.redundancy import measure_redundancy
from turnwise_rewards.shaping.tool_success import measure_tool_success
from turnwise_rewards.shaping.usefulness import measure_usefulness


class Caller:
    """Calls for these things, "named" and "other" standing for drawers, and answers with the last word it read if it
    `reads`, else with any."""

    def __init__(self, *calls: str, reads: bool = False, plan: str = "") -> None:
        self._calls, self._reads, self._plan = calls, reads, plan

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the reply."""
        seen = [message.text for message in messages if message.role == "tool"]
        stuck = bool(seen) and "stuck" in seen[-1]
        if len(seen) < len(self._calls) and not (self._reads and seen and not stuck):
            named = task.payload["named"]
            others = [drawer for drawer in DRAWERS if drawer != named]
            what = {"named": named, "other": others[len(seen) % 3]}.get(self._calls[len(seen)], self._calls[len(seen)])
            call = ToolCall(id="call", name="search", arguments=json.dumps({"query": what}))
            return reply_message(self._plan.replace("NAMED", named) if not seen else "", tool_calls=(call,))
        word = seen[-1].split()[-1] if self._reads and seen and not stuck else rng.choice(WORDS)
        return text_message("assistant", f"<answer> {word} </answer>")


HONEST = Caller("named", "named", "named", reads=True, plan="<plan> search NAMED </plan>")
PARTS: Mapping[str, tuple[Any, Any, str, ScriptedPolicy]] = {
    "tool_success": (measure_tool_success, NoOptions(), "rings the bell", Caller("bell")),
    "usefulness": (measure_usefulness, NoOptions(), "repeats the radio", Caller("radio", reads=True)),
    "plan_consistency": (
        measure_plan_consistency,
        PlanOptions(),
        "plans the bell and rings it",
        Caller("bell", plan="<plan> search bell </plan>"),
    ),
    "redundancy": (measure_redundancy, NoOptions(), "answers at once", Caller()),
    "call_format": (measure_call_format, NoOptions(), "answers at once", Caller()),
    "curiosity": (measure_curiosity, CuriosityOptions(), "listens to the radio", Caller("radio", "radio", "radio")),
    "progress": (
        measure_progress,
        ProgressOptions(source="opened"),
        "opens the other drawers",
        Caller("other", "other", "other"),
    ),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    print("| part | idle policy | part, honest | idle | success, honest | idle | gated |")
    print("|---|---|---|---|---|---|---|")
    num_tasks = parser.parse_args().tasks
    for name, (measure, options, habit, idle) in PARTS.items():
        values: dict[bool, list[float]] = {True: [], False: []}
        solved: dict[bool, list[float]] = {True: [], False: []}
        gated: list[bool] = []
        for index in range(num_tasks):
            members = [play(HONEST if member < 4 else idle, index, member) for member in range(8)]
            group = make_group(*members)
            for place, member in enumerate(members):
                assert isinstance(member.reward, Scored)
                values[place < 4].append(measure(group, place, options).value)
                solved[place < 4].append(member.reward.total)
            alone = members[4:] + [play(idle, index, member) for member in range(8, 12)]
            gated.append(all(isinstance(each.reward, Scored) and each.reward.total < 1 for each in alone))
        cells = [f"{statistics.mean(values[who]):.2f}" for who in (True, False)]
        cells += [f"{statistics.mean(solved[who]):.1%}" for who in (True, False)]
        cells.append(f"{statistics.mean(gated):.0%}")
        print(f"| `{name}` | {habit} | {' | '.join(cells)} |")


def play(policy: ScriptedPolicy, index: int, member: int) -> Trajectory:
    """One episode of a training task."""
    return asyncio.run(_play(policy, index, member))


async def _play(policy: ScriptedPolicy, index: int, member: int) -> Trajectory:
    family, random = Drawers(), Random(f"{index} {member}")
    task = family.task("train", index)
    environment = family.build_environment(task)
    opening = await environment.reset(task, random.randrange(1 << 30))
    messages, turns = list(opening.messages), []
    for number in range(4):
        state, reply = environment.state_hash(), policy.reply(task, messages, random)
        result = await environment.step(reply)
        messages += [reply, *result.observations]
        turns.append(
            make_turn(
                [1],
                [2],
                parent=number - 1 if number else None,
                message=reply,
                observations=result.observations,
                tool_records=result.tool_records,
                signals=result.signals,
                state=state,
            )
        )
        if result.done:
            break
    reward = await environment.score([turn.message for turn in turns], StopReason.DONE)
    await environment.close()
    return make_trajectory(*turns, reward=reward, member=member, task_id=task.id)


if __name__ == "__main__":
    main()
