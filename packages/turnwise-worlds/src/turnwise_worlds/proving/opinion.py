"""An audit's question: is what was rewarded a proof, when it is played again from its replies?"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.protocols import Opinion
from turnwise.core.types import Invalid, Message, StopReason, Task
from turnwise_worlds.proving.environment import ProvingEnvironment
from turnwise_worlds.proving.prover import ProverLost


async def replay(environment: ProvingEnvironment, task: Task, replies: Sequence[Message], by: str) -> Opinion:
    """Play the replies again in a fresh environment, and verify what they leave. `by` names who verifies.

    Raises ProverLost if there is no verdict.
    """
    try:
        await environment.reset(task, 0)
        for reply in replies:
            if (await environment.step(reply)).done:
                break
        reward = await environment.score(replies, StopReason.DONE)
    finally:
        await environment.close()
    if isinstance(reward, Invalid):
        raise ProverLost(reward.reason)
    if reward.total > 0:
        return Opinion(by=by, problem=None)
    return Opinion(by=by, problem=environment.problem or "a goal is open after the last reply")
