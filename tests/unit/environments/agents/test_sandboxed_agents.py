"""An agent's program in the sandbox: it plays at the endpoint, and reaches nothing else."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import read_processes
from waiting import wait_outside

from turnwise.core.errors import ConfigError
from turnwise.core.types import Draw, Invalid, Scored, Task, Trajectory
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.agents.environment import AgentEnvironment
from turnwise.environments.agents.family import AgentTasks
from turnwise.environments.agents.sandboxed import SandboxedCommand
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.tokenizer import train_tokenizer
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.live import Endpoints, run_live_episode
from turnwise.rollout.policies import EnginePolicy
from turnwise.testing.folders import FolderFamily, call_tool
from turnwise_sandbox.types import Limits as SandboxLimits

ROOT = Path(__file__).parents[4]
FAMILY = FolderFamily()
TOKENIZER = train_tokenizer(FAMILY.texts(400), vocab_size=480, special_tokens=CALLS_FORMAT.special_tokens)
RENDERER = CallsRenderer(TOKENIZER)
FOLLOW = next(task for k in range(40) if (task := FAMILY.task("train", k)).payload["kind"] == "follow")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SharedSandbox]:
    shared = SharedSandbox(load_sandbox("local", {"num_slots": 2}))
    level = asyncio.run(shared._find_home().ask(shared._find_home().sandbox.level()))  # type: ignore[attr-defined]
    if level.name != "full":
        pytest.skip(f"needs level full: {level.reasons}")
    yield shared
    asyncio.run(shared.close())


def follow(prompt: Any) -> Any:
    """The oracle of FOLLOW, by how many answers of tools the prompt has."""
    told = str(TOKENIZER.decode(list(prompt))).split("<tool_response>")[1:]
    last = told[-1].split()[0].removesuffix("</tool_response>") if told else FOLLOW.payload["about"]
    return call_tool("read_file", path=last) if len(told) < 2 else f"<answer> {last} </answer>"


def play(agent: Any, **options: Any) -> Trajectory:
    async def run() -> Trajectory:
        endpoints = Endpoints(lambda ids: str(TOKENIZER.decode(list(ids))))
        policy = EnginePolicy(engine=ScriptedEngine(RENDERER, follow), renderer=RENDERER)
        environment = AgentEnvironment(FAMILY.build_environment(FOLLOW), agent, train_roots="all", **options)
        try:
            episode = await run_live_episode(
                Attempt(draw=Draw(index=0, task=FOLLOW), member=0),
                environment,
                {"agent": policy},
                Limits(max_turns=4, max_turn_tokens=40, max_tokens=300, timeout_s=120.0),
                Sampling(temperature=1.0, seed=7),
                endpoints,
            )
        finally:
            await endpoints.close()
        return episode.trajectories[0]

    return asyncio.run(run())


def write_agent(folder: Path, source: str) -> list[str]:
    path = folder / "agent.py"
    path.write_text(source)
    return ["python", str(path)]


def test_the_first_run_plays_a_task(sandbox: SharedSandbox) -> None:
    pytest.importorskip("openai")
    command = ["python", str(ROOT / "examples" / "first_run.py")]
    agent = play(SandboxedCommand(sandbox, command, SandboxLimits(wall_s=60.0)))
    assert agent.reward == Scored.of(1.0, {"success": 1.0})
    assert [turn.parent for turn in agent.turns] == [None, 0, 1]
    files = FOLLOW.payload["files"]
    first = FOLLOW.payload["about"]
    assert [message.text for turn in agent.turns for message in turn.observations] == [
        files[first],
        files[files[first].strip()],
    ]


ESCAPES = """
import glob, json, os, subprocess, sys, urllib.error, urllib.parse, urllib.request
task = json.load(sys.stdin)

def say(work):
    try:
        return work()
    except Exception as error:
        return type(error).__name__

def post(path, body):
    url = urllib.parse.urljoin(os.environ["ANTHROPIC_BASE_URL"] + "/", path)
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

shell = lambda command: subprocess.run(command, shell=True, capture_output=True, text=True).stdout
subprocess.Popen(["sleep", "86311.5"], start_new_session=True)
body = {"model": os.environ["TURNWISE_MODEL"], "messages": task["prompt"]}
print(json.dumps({
    "keys": sorted(task),
    "stdin of the program, for its commands": "payload" in shell("cat /proc/$PPID/fd/0"),
    "files": sorted(os.listdir(".")),
    "environment": [name for name in os.environ if name in ("SECRET", "PYTHONPATH")],
    "reply": post("v1/chat/completions", body),
    "reward": post("reward", {"reward": 1.0}),
    "sessions": post("/sessions", {}),
    "port": say(lambda: urllib.request.urlopen("http://127.0.0.1:%PORT%", timeout=5).status),
    "address": say(lambda: urllib.request.urlopen("http://192.0.2.1", timeout=5).status),
    "passwd": say(lambda: open("/etc/passwd").read()),
    "run": say(lambda: open("%SECRET%").read()),
    "write": say(lambda: open("/usr/made", "w")),
    "processes": [path for path in glob.glob("/proc/*/cmdline") if "pytest" in say(lambda: open(path).read())],
}))
"""


def test_nothing_else_can_be_reached_and_nothing_is_left(
    sandbox: SharedSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    secret = tmp_path / "steps.jsonl"
    secret.write_text("a run")
    outcomes: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        source = ESCAPES.replace("%PORT%", str(other.getsockname()[1])).replace("%SECRET%", str(secret))
        command = SandboxedCommand(sandbox, write_agent(tmp_path, source), SandboxLimits(wall_s=60.0))

        def keep(task: Task, outcome: str) -> float:
            outcomes.append(outcome)
            return 0.25

        agent = play(command, score=keep)
    assert agent.reward == Scored(total=0.25), agent.reward
    passwd = (found := json.loads(outcomes[0])).pop("passwd")
    assert found == {
        "keys": ["id", "prompt"],
        "stdin of the program, for its commands": False,
        "files": sorted(FOLLOW.payload["files"]),
        "environment": [],
        "reply": 200,
        "reward": 403,
        "sessions": 403,
        "port": "URLError",
        "address": "URLError",
        "run": "FileNotFoundError",
        "write": "OSError",
        "processes": [],
    }
    assert {line.split(":")[0] for line in passwd.splitlines()} <= {"root", "sandbox", "nobody"}
    assert passwd != Path("/etc/passwd").read_text()
    assert len(agent.turns) == 1
    wait_outside(lambda: not any("86311.5" in line for _, state, line in read_processes().values() if state != "Z"))


def test_a_program_ends_at_its_limits(sandbox: SharedSandbox, tmp_path: Path) -> None:
    for source, limits, problem in (
        ("while True: pass", {"wall_s": 0.5}, "'wall'"),
        ("print('x' * 10**6)", {"output_bytes": 1000}, "'output'"),
        ("raise SystemExit('no luck')", {}, "ended with status 1: no luck"),
        ("import os; os.kill(os.getpid(), 9)", {}, "signal 9"),
    ):
        command = SandboxedCommand(sandbox, write_agent(tmp_path, source), SandboxLimits(**limits))  # type: ignore[arg-type]
        reward = play(command).reward
        assert isinstance(reward, Invalid)
        assert problem in reward.reason
    assert play(command, on_error="score").reward == Scored.of(0.0, {"success": 0.0})  # judged by its replies: none


def test_a_sandbox_that_fails_says_nothing_about_the_agent(tmp_path: Path) -> None:
    broken = SharedSandbox(load_sandbox("local", {"level": "process"}))  # has no network of its own
    reward = play(SandboxedCommand(broken, write_agent(tmp_path, ""), SandboxLimits()), on_error="score").reward
    assert isinstance(reward, Invalid)
    assert "network namespace" in reward.reason


def test_arguments_of_the_sandbox_are_checked(tmp_path: Path) -> None:
    name = "turnwise.testing.folders:FolderFamily"
    for arguments, problem in (
        ({"agent": "json:dumps", "sandbox": True}, "sandbox=true needs command"),
        ({"command": ["python", "a.py"], "wall_s": 3.0}, "wall_s limits programs in the sandbox; set sandbox=true"),
        ({"command": ["python", str(tmp_path / "a.py")], "sandbox": True}, "a.py' cannot be read"),
    ):
        with pytest.raises(ConfigError, match=problem):
            AgentTasks(family=name, **arguments)
