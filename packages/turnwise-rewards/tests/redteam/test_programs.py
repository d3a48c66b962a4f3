"""Programs that attack a grader in the sandbox: a naive one falls, one that compares outside does not."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from turnwise.core.types import Message, Scored, StopReason, Task, text_message
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise_rewards.redteam.attacks.table import choose_attacks
from turnwise_rewards.redteam.check import check_reward
from turnwise_rewards.redteam.play import Arena
from turnwise_sandbox.types import Limits, Program

LIMITS = Limits(wall_s=10, memory_bytes=256 << 20)
TESTS = "\nresult = add(2, 3)\nassert result == 5\n"


class Adder(ToolEnvironment):
    """A program is submitted; tests behind it decide."""

    def __init__(self, sandbox: SharedSandbox, *, naive: bool) -> None:
        super().__init__()
        self._sandbox, self._naive = sandbox, naive

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, []

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Scored:
        code = replies[-1].text.removeprefix("```python\n").removesuffix("\n```")
        if self._naive:  # believes the exit code of the program with the tests behind it
            execution = await self._sandbox.run(Program(code=code + TESTS), LIMITS)
            passed = execution.exit_code == 0
        else:  # compares what is printed last, which the program cannot know without adding
            code += f"\nprint()\nprint(add({self._a}, {self._b}))"
            execution = await self._sandbox.run(Program(code=code), LIMITS)
            passed = execution.stdout.split()[-1:] == [str(self._a + self._b).encode()]
        return Scored.of(float(passed), {"success": float(passed)})

    _a, _b = 391, 754


class AdderFamily:
    def __init__(self, *, naive: bool) -> None:
        self._naive, self._sandbox = naive, SharedSandbox(load_sandbox("local", {}))

    def task(self, split: str, index: int) -> Task:
        prompt = (text_message("user", f"{index}: write def add(a, b)"),)
        return Task(environment="adder", prompt=prompt, payload={})

    def build_environment(self, task: Task) -> Adder:
        return Adder(self._sandbox, naive=self._naive)

    def policy(self, name: str) -> "AdderPolicy":
        return AdderPolicy("a + b" if name == "oracle" else "a - b")

    def texts(self, count: int) -> list[str]:
        return []


class AdderPolicy:
    def __init__(self, expression: str) -> None:
        self._expression = expression

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return text_message("assistant", f"```python\ndef add(a, b): return {self._expression}\n```")


ATTACKS = choose_attacks(["exits at once", "exits hard", "equal to everything", "does nothing"])


@pytest.mark.parametrize(("naive", "fallen"), [(True, 3), (False, 0)])
def test_a_grader_that_believes_an_exit_code_falls(naive: bool, fallen: int) -> None:
    lines = check_reward(Arena(family=AdderFamily(naive=naive)), num_tasks=5, attacks=ATTACKS, listed={})
    holes = [line.attack for line in lines if line.state == "hole"]
    assert holes == [attack.name for attack in ATTACKS[:fallen]], lines
