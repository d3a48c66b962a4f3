"""A cluster of two nodes on one machine."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """The network device of a cluster's first node; its second one is in a network namespace of its own. With the
    parameter "processes" it does not see the processes of the first one either, and so not their memory."""
    is_hidden = getattr(request, "param", "") == "processes"
    nodes: list[subprocess.Popen[bytes]] = []
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
        second = (*node, "--address=10.77.0.1:6399", "--node-ip-address=10.77.0.2")
        if is_hidden:
            hide = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
            nodes.append(subprocess.Popen([*inside, *hide, *second, "--block"], env=environment))
        else:
            call(*inside, *second)
        yield f"{name}a"
    finally:
        for running in nodes:
            running.kill()
            running.wait(60)
        call(ray_command, "stop", "--force", check=False)
        call("ip", "netns", "del", name, check=False)
        call("ip", "link", "del", f"{name}a", check=False)
