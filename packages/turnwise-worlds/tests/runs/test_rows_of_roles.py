"""The table of a run's trajectories where an episode has several roles."""

from __future__ import annotations

from pathlib import Path

import turnwise as tw

SMALL = {
    "tokenizer.num_texts": 60,
    "tokenizer.vocab_size": 320,
    "engine.max_concurrency": 8,
    "rollout.tasks_per_step": 2,
    "rollout.group_size": 2,
    "rollout.max_tokens": 64,
    "rollout.max_turn_tokens": 8,
    "sft.steps": 2,
    "sft.num_demonstrations": 4,
    "sft.batch_size": 2,
    "train.num_threads": 1,
    "train.steps": 1,
    "evaluate.tasks": 0,
}


def test_an_episode_of_several_roles_has_one_row_for_each(tmp_path: Path) -> None:
    changes = {**SMALL, "run.output": tmp_path}
    run = tw.train("relay", overrides=changes, roles={"b": "scripted:oracle"}, display=False)
    table = run.trajectories(step=1)
    rows = table if isinstance(table, list) else table.to_dict("records")
    # Two tasks, two members, two roles.
    assert sorted((row["draw"], row["member"], row["role"]) for row in rows) == [
        (draw, member, role) for draw in range(2) for member in range(2) for role in ("a", "b")
    ]
    assert {(row["role"], row["fate"]) for row in rows} == {("a", "trained"), ("b", "not_learning")}
    assert [group.draw.index for group in run.groups(1)] == [0, 1]
