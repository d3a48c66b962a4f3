"""Tools that run the model's code in a sandbox: a live Python interpreter and its files, for one episode.

python examples/own_sandbox_tools.py
"""

import asyncio
import json
from collections.abc import Callable, Sequence

from turnwise.core.types import Message, Reward, Scored, StopReason, Task, ToolCall, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.tools.sandboxed import SandboxTools
from turnwise_sandbox import Limits, LocalSandbox, Sandbox


class Coding(ToolEnvironment):
    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(tool_timeout_s=30.0)  # above `wall_s`, since a call may wait for a free slot
        self.tools = SandboxTools(sandbox, limits=Limits(wall_s=1.0), files_in="python")

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, self.tools.functions(["python", "read_file"])

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored(total=float("4950" in replies[-1].text))

    async def teardown(self) -> None:
        await self.tools.close()


async def main() -> None:
    task = Task(environment="coding", prompt=(text_message("user", "What is the sum of 0..99?"),), payload={})
    calls = [
        ("python", {"code": "numbers = range(100)\nsum(number)"}),  # a mistake: the model reads the traceback
        ("python", {"code": "open('sum.txt', 'w').write(str(sum(numbers)))"}),  # variables are kept
        ("python", {"code": "while True: pass"}),
        ("read_file", {"path": "sum.txt"}),
    ]
    sandbox = LocalSandbox()
    try:
        environment = Coding(sandbox)
        await environment.reset(task, seed=0)
        for number, (name, arguments) in enumerate(calls):
            call = ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))
            result = await environment.step(Message(role="assistant", content=(), tool_calls=(call,)))
            print(f"{name}: {json.dumps(arguments)}\n{result.observations[0].text}\n")
        await environment.close()
    finally:
        await sandbox.close()


if __name__ == "__main__":
    asyncio.run(main())
