"""Ask the second opinion of an environment about every reward above 0."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwise.audit.breaches import Breach, Tallies
from turnwise.core.errors import TurnwiseError
from turnwise.core.paths import Path, split_paths
from turnwise.core.protocols import EnvironmentFamily, SecondOpinion
from turnwise.core.types import Scored, Task, TrajectoryGroup
from turnwise.store.journal import DrawRecord
from turnwise.store.trajectories import list_placed

MAX_ASKED = 32
"""Maximum number of opinions asked for at once: each may start a program, and a prover checks together what waits."""


async def ask_opinions(
    groups: Sequence[tuple[DrawRecord, TrajectoryGroup]], family: EnvironmentFamily, tallies: Tallies
) -> None:
    """Ask about every path of these groups that was rewarded; nothing is asked of a family without second opinions.

    An objection is a breach; a question without an answer is counted as not checked, with the reason.
    """
    if not isinstance(family, SecondOpinion):
        return
    gate = asyncio.Semaphore(MAX_ASKED)

    async def ask(opinions: SecondOpinion, record: DrawRecord, task: Task, path: Path) -> None:
        trajectory = path.trajectory
        try:
            async with gate:
                opinion = await opinions.give_opinion(task, [turn.message for turn in trajectory.turns])
        except TurnwiseError as cause:
            tallies.skip("opinions", str(cause), 1)
            return
        if opinion is None:
            return
        tallies["opinions"].checked += 1
        if opinion.problem is not None:
            text = f"{opinion.by} says that the reward was not earned: {opinion.problem}"
            tallies.take([Breach(check="opinions", step=record.step, trajectory=trajectory.id, text=text)])

    await asyncio.gather(
        *(
            ask(family, record, group.task, path)
            for record, group in groups
            for trajectory, _, _ in list_placed(group)
            for path in split_paths(trajectory)
            if isinstance(path.trajectory.reward, Scored) and path.trajectory.reward.total > 0
        )
    )
