"""`turnwise check env` on an environment that asks in several conversations."""

from turnwise.testing import CheckPlan, check_environment
from turnwise_worlds.memory.chunks.family import Chunks


def test_an_environment_that_asks_is_played_conversation_by_conversation() -> None:
    lines = check_environment(Chunks, controls={"erased": {"memory": "erased"}}, plan=CheckPlan(num_tasks=10))
    assert not [line for line in lines if line.verdict == "fail"]
    verdicts = {line.check: line for line in lines}
    assert verdicts["oracle"].text == "succeeds on 100% of 10 tasks (at least 95%)"
    assert verdicts["control erased"].verdict == "pass"
    assert verdicts["no leaks between episodes"].text == (
        "10 episodes of each policy, alone, interleaved and 4 of each at the same time"
    )
