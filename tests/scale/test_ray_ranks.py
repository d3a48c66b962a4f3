"""Trainer ranks as actors of real Ray clusters. `make test-scale` runs them."""

import os
import signal
from pathlib import Path

import pytest
from ray_runs import audit, count_steps, find_processes, finish, network_of, resume, start, wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

RANKS = ["train.ranks=2", "train.steps=3"]
PROGRAM = "turnwise.training.ranks.rank"


def test_ranks_on_an_embedded_cluster_write_the_run_of_local_ranks(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    rows = finish(start(here, *RANKS), here)
    assert rows == finish(start(there, *RANKS, "scale.ray=local", "scale.cpus=0.5"), there)
    audit(there)
    assert find_processes(PROGRAM) == []


@pytest.mark.parametrize("kind", ["ray::Relay", PROGRAM])
def test_a_killed_rank_ends_the_run_with_its_name_and_resume_goes_on(kind: str, tmp_path: Path) -> None:
    raylets = set(find_processes("raylet"))
    run = start(tmp_path, "train.ranks=2", "train.steps=30", "train.checkpoint_every=2", "scale.ray=local")
    try:
        wait_until(lambda: count_steps(tmp_path) > 3, "steps", 200)
        victim = find_processes(kind)[0]
        assert os.getpriority(os.PRIO_PROCESS, victim) == os.getpriority(os.PRIO_PROCESS, 0), "it would starve"
        os.kill(victim, signal.SIGKILL)
        assert run.wait(100) == 2
    finally:
        run.kill()
    text = " ".join((tmp_path / "log").read_text().split())
    assert "rank " in text
    assert "continue from the last checkpoint with --resume" in text
    assert "signal 9" in text or "lost with what ran it" in text or "did not take part" in text
    wait_until(lambda: not find_processes(PROGRAM), "ranks end", 30)
    wait_until(lambda: set(find_processes("raylet")) <= raylets, "raylets end", 60)
    trained = count_steps(tmp_path)
    [folder] = [path.parent for path in tmp_path.glob("*/config.json")]
    rows = finish(resume(folder), tmp_path)
    assert [row["step"] for row in rows if row["phase"] == "train"] == list(range(1, 31))
    assert trained < 30
    audit(tmp_path)


@pytest.mark.parametrize("two_nodes", ["processes"], indirect=True)
def test_a_rank_on_each_of_two_nodes_takes_the_steps_of_local_ranks(two_nodes: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    rows = finish(start(here, *RANKS), here)
    run = start(there, *RANKS, "scale.ray=10.77.0.1:6399", "scale.strategy=SPREAD", "scale.cpus=0.5")
    try:
        ranks = wait_until(lambda: len(find := find_processes(PROGRAM)) == 2 and find, "two ranks", 200)
        assert len({network_of(pid) for pid in ranks}) == 2
    finally:
        assert finish(run, there) == rows
    audit(there)
    [shards] = there.glob("*/checkpoints/step_000003/ranks")
    assert len(list(shards.glob("shard-*.safetensors"))) == 2
    wait_until(lambda: not find_processes(PROGRAM), "ranks end", 30)
