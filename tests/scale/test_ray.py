"""Runs on real Ray clusters: started here, joined, of two nodes that lose one another. `make test-scale` runs them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ray_runs import audit, count_steps, find_processes, finish, network_of, start, wait_until

from turnwise.core.errors import ConfigError
from turnwise.hosts.host import Program
from turnwise.hosts.ray_cluster import RayCluster

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


def test_an_embedded_cluster_writes_the_run_that_one_process_writes(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    rows = finish(start(here, "train.steps=2"), here)
    assert rows == finish(
        start(there, "train.steps=2", "rollout.num_workers=2", "scale.ray=local", "scale.cpus=0.5"), there
    )
    audit(there)


def test_killed_actors_are_replaced_and_a_killed_run_leaves_nothing(tmp_path: Path) -> None:
    before = set(find_processes("raylet"))
    run = start(tmp_path, "train.steps=200", "rollout.num_workers=2", "scale.ray=local", "schedule.max_staleness=1")
    try:
        for kind in ("ray::Relay", "turnwise.runs.rollout_process"):
            wait_until(lambda: count_steps(tmp_path) > 1, "a step")
            pids = wait_until(lambda kind=kind: find_processes(kind), kind)
            os.kill(pids[0], signal.SIGKILL)
            wait_until(lambda pid=pids[0]: pid not in find_processes(""), "its end")
            steps = count_steps(tmp_path)
            wait_until(lambda steps=steps: count_steps(tmp_path) > steps + 3, f"steps after a killed {kind}")
        programs = find_processes("turnwise.runs.rollout_process")
        assert run.poll() is None
    finally:
        run.kill()
    wait_until(lambda: not set(programs) & set(find_processes("turnwise.runs.rollout_process")), "programs end")
    wait_until(lambda: set(find_processes("raylet")) <= before, "raylets end")
    [ledger] = tmp_path.glob("*/journal.jsonl")
    assert "opened" in ledger.read_text()


def test_a_cluster_that_is_not_there_is_refused() -> None:
    options: dict[str, Any] = {"cpus": 1.0, "strategy": "PACK"}
    with pytest.raises(ConfigError, match=r"scale.ray='nowhere' is not an address; use 'local', 'auto' or 'HOST:PORT'"):
        RayCluster("nowhere", num_actors=1, **options)
    with pytest.raises(ConfigError, match=r"scale.ray='127.0.0.1:9': no Ray cluster answers there"):
        RayCluster("127.0.0.1:9", num_actors=1, **options)


def test_a_cluster_with_too_few_cores_is_refused(two_nodes: str, tmp_path: Path) -> None:
    run = start(tmp_path, "rollout.num_workers=2", "scale.ray=10.77.0.1:6399", "scale.cpus=5")
    try:
        assert run.wait(200) == 2
    finally:
        run.kill()
    assert "has 2 cores in total, and 2 actors with scale.cpus=5 do not fit" in (tmp_path / "log").read_text()


def test_a_node_that_is_cut_off_comes_back_and_one_that_dies_is_done_without(two_nodes: str, tmp_path: Path) -> None:
    run = start(
        tmp_path,
        "train.steps=40",
        "rollout.num_workers=2",
        "scale.ray=10.77.0.1:6399",
        "scale.strategy=SPREAD",
        "schedule.max_staleness=1",
        "rollout.max_invalid_share=0.9",
    )
    try:
        wait_until(lambda: count_steps(tmp_path) > 1, "a step", 200)
        programs = find_processes("turnwise.runs.rollout_process")
        assert len(programs) == 2
        far = [pid for pid in programs if network_of(pid) != network_of(os.getpid())]
        assert len(far) == 1, "one of the two is on the second node"
        subprocess.run(["ip", "link", "set", two_nodes, "down"], check=True)
        time.sleep(30)
        subprocess.run(["ip", "link", "set", two_nodes, "up"], check=True)
        steps = count_steps(tmp_path)
        wait_until(lambda: count_steps(tmp_path) > steps + 2, "steps after 30 s without a network", 200)
        assert run.poll() is None
        # For good: everything in that namespace ends, its raylet first.
        for pid in [p for p in find_processes("") if network_of(p) == network_of(far[0])]:
            os.kill(pid, signal.SIGKILL)
        rows = finish(run, tmp_path)
    finally:
        run.kill()
    assert [row["step"] for row in rows if row["phase"] == "train"] == list(range(1, 41))
    audit(tmp_path)


def test_a_folder_reaches_a_node_with_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the object store, as on another machine: the actor is said not to have the folder."""
    folder = tmp_path / "7"
    folder.mkdir()
    data = bytes(range(256)) * 1000
    (folder / "weights").write_bytes(data)
    cluster = RayCluster("local", num_actors=1, cpus=0.5, strategy="PACK")

    async def holds(*_: object) -> bool:
        return False

    async def check() -> None:
        program = Program(name="sleep", arguments=("/bin/sleep", "60"), environment={}, log=tmp_path / "log")
        running, end = await cluster.start(program)
        assert await cluster.send(running.actor, folder) == folder
        monkeypatch.setattr(RayCluster, "holds", holds)
        sent = await running.carry(folder)
        assert sent != folder
        assert (sent / "weights").read_bytes() == data
        running.kill()
        end.close()
        assert not sent.exists()

    try:
        asyncio.run(check())
    finally:
        cluster.close()


def test_under_uv_run_programs_stay_in_the_runs_own_folder(tmp_path: Path) -> None:
    """Ray looks for an ancestor that is `uv run`: a shell of that name, whose script is `run`, is one."""
    (tmp_path / "say.py").write_text(
        "import os, socket, sys\n"
        "socket.socket(fileno=int(sys.argv[1])).sendall(os.getcwd().encode())\n"
    )
    (tmp_path / "start.py").write_text(
        "import asyncio, pathlib, sys\n"
        "from turnwise.hosts.host import Program\n"
        "from turnwise.hosts.ray_cluster import RayCluster\n"
        "async def main():\n"
        "    cluster = RayCluster('local', num_actors=1, cpus=1.0, strategy='PACK')\n"
        "    arguments = (sys.executable, str(pathlib.Path('say.py').absolute()))\n"
        "    program = Program(name='say', arguments=arguments, environment={}, log=pathlib.Path('say.log'))\n"
        "    running, end = await cluster.start(program)\n"
        "    reader, _ = await asyncio.open_connection(sock=end)\n"
        "    print('in', (await reader.read()).decode())\n"
        "    running.kill()\n"
        "    cluster.close()\n"
        "asyncio.run(main())\n"
    )
    (tmp_path / "run").write_text(f"{sys.executable} start.py\ntrue\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        ["uv", "run"], executable="/bin/sh", cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert f"in {tmp_path}" in done.stdout, done.stderr
