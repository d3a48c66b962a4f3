"""Runs on real Ray clusters: started here, joined, of two nodes that lose one another. `make test-scale` runs them."""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import read_processes
from run_rows import read_rows

from turnwise.core.errors import ConfigError
from turnwise.hosts.host import Program
from turnwise.hosts.ray_cluster import RayCluster

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

RECIPE = Path(__file__).parents[2] / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    *("tokenizer.num_texts=200", "sft.steps=3", "sft.num_demonstrations=32", "train.num_threads=1"),
    *("evaluate.tasks=4", "evaluate.controls={}", "rollout.tasks_per_step=2", "rollout.group_size=3"),
    *("engine.max_concurrency=8", "rollout.max_retries=5", "train.parity_every=0"),
]


def start(folder: Path, *overrides: str) -> subprocess.Popen[bytes]:
    """A run as people start it."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "turnwise", "train", str(RECIPE), *SMALL, f"run.output={folder}", *overrides],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def finish(run: subprocess.Popen[bytes], folder: Path, timeout_s: float = 400.0) -> list[dict[str, Any]]:
    """Its metrics but for times, after it has ended well."""
    try:
        status = run.wait(timeout_s)
    finally:
        run.kill()
    assert status == 0, (folder / "log").read_text()[-3000:]
    [metrics] = folder.glob("*/metrics.jsonl")
    return read_rows(metrics.parent)


def audit(folder: Path) -> None:
    [config] = folder.glob("*/config.json")
    done = subprocess.run(
        [sys.executable, "-m", "turnwise", "audit", str(config.parent)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]


def find_processes(text: str) -> list[int]:
    """Of every process whose command line has the text."""
    return [pid for pid, (_, state, command) in read_processes().items() if text in command and state != "Z"]


def wait_until(condition: Any, what: str, timeout_s: float = 120.0) -> Any:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what}: not in {timeout_s:g} s")


def count_steps(folder: Path) -> int:
    return sum('"train"' in line for file in folder.glob("*/metrics.jsonl") for line in file.read_text().splitlines())


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
    with pytest.raises(ConfigError, match=r"scale.ray='nowhere' is no address; use 'local', 'auto' or 'HOST:PORT'"):
        RayCluster("nowhere", num_actors=1, **options)
    with pytest.raises(ConfigError, match=r"scale.ray='127.0.0.1:9': no Ray cluster answers there"):
        RayCluster("127.0.0.1:9", num_actors=1, **options)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The network device of a cluster's first node; its second one is in a network namespace of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    name = f"tw{os.getpid()}"
    ray_command = Path(sys.executable).parent / "ray"
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # By Ray's defaults a node that is silent for about half a minute is dead; here it may be so for three.
    monkeypatch.setenv("RAY_health_check_failure_threshold", "60")
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

    def call(*arguments: str | Path, check: bool = True) -> None:
        done = subprocess.run(
            list(map(str, arguments)), env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"

    try:
        call("ip", "netns", "add", name)
        call("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
        call("ip", "link", "set", f"{name}b", "netns", name)
        call("ip", "addr", "add", "10.77.0.1/24", "dev", f"{name}a")
        call("ip", "link", "set", f"{name}a", "up")
        inside = ("ip", "netns", "exec", name)
        call(*inside, "ip", "addr", "add", "10.77.0.2/24", "dev", f"{name}b")
        call(*inside, "ip", "link", "set", f"{name}b", "up")
        call(*inside, "ip", "link", "set", "lo", "up")
        node = (ray_command, "start", "--num-cpus=1", "--disable-usage-stats")
        call(*node, "--head", "--port=6399", "--node-ip-address=10.77.0.1", "--include-dashboard=false")
        call(*inside, *node, "--address=10.77.0.1:6399", "--node-ip-address=10.77.0.2")
        yield f"{name}a"
    finally:
        call(ray_command, "stop", "--force", check=False)
        call("ip", "netns", "del", name, check=False)
        call("ip", "link", "del", f"{name}a", check=False)


def test_a_cluster_with_too_few_cores_is_refused(two_nodes: str, tmp_path: Path) -> None:
    run = start(tmp_path, "rollout.num_workers=2", "scale.ray=10.77.0.1:6399", "scale.cpus=5")
    try:
        assert run.wait(200) == 2
    finally:
        run.kill()
    assert "has 2 cores in all, and 2 actors of scale.cpus=5 do not fit" in (tmp_path / "log").read_text()


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


def network_of(pid: int) -> str:
    """The network namespace of a process; empty where it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


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
