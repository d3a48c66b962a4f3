"""One episode on a device: the policy sees the screen as text, replies with one JSON action, and sees it again.

user        Turn off the alarm at 07:35. ... [3] link "Clock" at (160, 280) ...
assistant   {"action_type": "click", "index": 3}
user        heading "Clock" ... [2] link "07:35" at (160, 200) ...
assistant   {"action_type": "click", "index": 2}
            ...
assistant   {"action_type": "status", "goal_status": "complete"}
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.errors import EnvironmentFault, ToolFailure
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Reward, Scored, Signal, StopReason, Task, text_message
from turnwise_worlds.devices.arguments import DevicesArguments
from turnwise_worlds.devices.desktop import act_on_desktop
from turnwise_worlds.devices.goals import Goal, make_goal
from turnwise_worlds.devices.phone import act_on_phone
from turnwise_worlds.devices.replies import read_object
from turnwise_worlds.devices.screen import DESKTOP, PHONE, Screen, list_lines
from turnwise_worlds.devices.session import Kind, Session

ACTORS = {"phone": act_on_phone, "desktop": act_on_desktop}
SHAPES = {"phone": PHONE, "desktop": DESKTOP}
RULES: Mapping[Kind, str] = {
    "phone": (
        "You operate a phone. Reply with one JSON object, such as "
        '{"action_type": "click", "index": 3}, {"action_type": "input_text", "index": 2, "text": "..."}, '
        '{"action_type": "scroll", "direction": "down"}, {"action_type": "open_app", "app_name": "Notes"}, '
        '{"action_type": "navigate_back"}, {"action_type": "answer", "text": "..."}; when you are done, '
        '{"action_type": "status", "goal_status": "complete"}.'
    ),
    "desktop": (
        "You operate a computer. Reply with one JSON object, such as "
        '{"action_type": "CLICK", "x": 400, "y": 60}, {"action_type": "DOUBLE_CLICK", "x": 400, "y": 60}, '
        '{"action_type": "TYPING", "text": "..."}, {"action_type": "HOTKEY", "keys": ["ctrl", "a"]}, '
        '{"action_type": "SCROLL", "dy": -10}, {"action_type": "HOTKEY", "keys": ["win", "d"]}. Icons open by a double '
        'click. When you are done, {"action_type": "DONE"}, with "text" if an answer is asked for.'
    ),
}


def open_session(payload: Mapping[str, Any]) -> tuple[Goal, Session]:
    """Return a task's goal, and its session before any action."""
    goal = make_goal(int(payload["seed"]), str(payload["task"]))
    return goal, Session(screen=Screen.open(goal.device, SHAPES[payload["kind"]]))


def write_screen(screen: Screen, chosen: DevicesArguments) -> str:
    """Write what is on the screen, a line each; elements with their number and their middle in pixels."""
    if chosen.screen == "blank":
        return "(blank)"
    lines, below = [], len(list_lines(screen.page)) - screen.start - screen.shape.rows
    for line in screen.visible:
        if line.number is None:
            lines.append(line.text)
        else:
            x, y = screen.place_of(line.number)
            focus = " focused" if line.number == screen.focus else ""
            lines.append(f"{line.text} at ({x}, {y}){focus}")
    above = [f"({screen.start} lines above)"] if screen.start else []
    return "\n".join((*above, *lines, *([f"({below} lines below)"] if below > 0 else [])))


def build_prompt(payload: Mapping[str, Any], chosen: DevicesArguments) -> tuple[Message, ...]:
    """Build the first message: what to do, how, and the screen."""
    goal, session = open_session(payload)
    kind: Kind = payload["kind"]
    return (text_message("user", f"{RULES[kind]}\nTask: {goal.question}\n{write_screen(session.screen, chosen)}"),)


class DevicesEnvironment:
    """Implements `Environment`, `StatefulEnvironment` and `ForkableEnvironment`. Nothing is random."""

    def __init__(self, chosen: DevicesArguments) -> None:
        self._chosen = chosen
        self._goal: Goal | None = None
        self._is_over = True
        self._num_replies = self._num_refused = 0

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the home screen. Raises EnvironmentFault the second time."""
        if self._goal is not None:
            raise EnvironmentFault("DevicesEnvironment was reset twice; build one for each episode")
        self._goal, self._session = open_session(task.payload)
        self._kind, self._task_id, self._is_over = task.payload["kind"], task.id, False
        return Opening(messages=build_prompt(task.payload, self._chosen), tools=())

    async def step(self, message: Message) -> StepResult:
        """Do an action; one that is refused does nothing and is answered with why. Signal: `refused`. Raises
        EnvironmentFault outside an episode."""
        if self._is_over:
            when = "before reset" if self._goal is None else "after its episode ended"
            raise EnvironmentFault(f"DevicesEnvironment is stepped {when}; build one for each episode")
        self._num_replies += 1
        refusal = ""
        try:
            self._session = ACTORS[self._kind](self._session, read_object(message.text))
        except ToolFailure as failure:
            refusal = f"error: {failure}\n"
            self._num_refused += 1
        self._is_over = self._session.is_over or self._num_replies == self._chosen.horizon
        shown = f"{refusal}{write_screen(self._session.screen, self._chosen)}"
        return StepResult(
            observations=() if self._is_over else (text_message("user", shown),),
            done=self._is_over,
            signals=(Signal(name="refused", value=float(bool(refusal))),),
        )

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the user has said that the task is done and the device's state is what was asked for, else 0. The
        parts: `success`; `done`, whether the state is right whatever was said; `refused`, the number of refused
        actions. What the user says of success counts for nothing."""
        if self._goal is None:
            raise EnvironmentFault("DevicesEnvironment is scored before reset; reset it first")
        done = self._goal.is_met(self._session.screen.device, self._session.answer)
        success = float(done and self._session.is_over)
        return Scored.of(success, {"success": success, "done": done, "refused": self._num_refused})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    async def fork(self) -> DevicesEnvironment:
        """See `ForkableEnvironment.fork`."""
        return copy.copy(self)

    def state_hash(self) -> str:
        """Return a hash of the device, the pages visited, what is on the screen, typed, answered and under the mouse,
        and of how many replies there were and how many were refused."""
        state = f"{self._task_id} {self._session} {self._num_replies} {self._num_refused}"
        return hashlib.sha256(state.encode()).hexdigest()[:16]
