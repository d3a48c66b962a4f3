"""Drive command-line agents against a scripted policy: `python benchmarks/gateway_agents.py --clients FOLDER [NAME]`.

The folder has what `clients/agents.sh FOLDER` installs. Agents and server run in a network namespace of their own,
which has the loopback interface only (Linux; as root, or where users may make namespaces). Each agent is asked what
17 + 18 is and called upon to run a command of its shell tool. Prints one Markdown row for each: how its requests found
their place, and the tokens that its session holds as turns beside those that the engine sampled, compared token for
token. Ends with status 1 if an agent did not run the command or did not tell the sum, or if tokens differ.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit" / "gateway"))

from fuzzed_requests import Recorder, check_captured
from gateway_world import serve

from turnwise.core.messages import Message, ToolCall, reply_message
from turnwise.gateway.sampling import Limits
from turnwise.gateway.server import GatewayServer

QUESTION = "What is 17 + 18 ? Run a command to find out."
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
COMMAND = "echo $((17 + 18))"
COLUMNS = ("agent", "version", "requests", "continued", "branched", "opened: why", "reasoning dropped", "tokens")
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """How a command-line agent is started."""

    program: str
    """Path below the folder of the clients."""
    arguments: Sequence[str]
    variables: Callable[[str, str], Mapping[str, str]]
    """Environment variables for the root URL and the key."""
    files: Callable[[str], Mapping[str, str]] = field(default=lambda url: {})
    """Files in its home folder."""
    shell: tuple[str, Mapping[str, Any]] | None = None
    """Its tool that runs commands, and the arguments; None for an agent that offers no tools."""


CODEX = """model = "policy"
model_provider = "turnwise"
web_search = "disabled"
[model_providers.turnwise]
name = "turnwise"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
OPENCODE = """{{"provider": {{"turnwise": {{"npm": "@ai-sdk/openai-compatible", "options": {{"baseURL": "{url}/v1",
 "apiKey": "{{env:OPENAI_API_KEY}}"}}, "models": {{"policy": {{"limit": {{"context": 300000, "output": 500}}}}}}}}}},
 "autoupdate": false, "share": "disabled"}}
"""
AGENTS: Mapping[str, Agent] = {
    "Codex": Agent(
        program="node_modules/.bin/codex",
        arguments=("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", QUESTION),
        variables=lambda url, key: {"OPENAI_API_KEY": key},
        files=lambda url: {".codex/config.toml": CODEX.format(url=url)},
        shell=("exec_command", {"cmd": COMMAND}),
    ),
    "Claude Code": Agent(
        program="node_modules/@anthropic-ai/claude-code-linux-x64/claude",
        arguments=(
            "--print",
            "--permission-mode",
            "acceptEdits",
            "--allowedTools",
            "Bash",
            "--model",
            "policy",
            QUESTION,
        ),
        variables=lambda url, key: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": key,
            "ANTHROPIC_SMALL_FAST_MODEL": "policy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        shell=("Bash", {"command": COMMAND, "description": "Add."}),
    ),
    "opencode": Agent(
        program="node_modules/opencode-linux-x64-baseline/bin/opencode",
        arguments=("run", "--model", "turnwise/policy", QUESTION),
        variables=lambda url, key: {"OPENAI_API_KEY": key},
        files=lambda url: {".config/opencode/opencode.json": OPENCODE.format(url=url)},
        shell=("bash", {"command": COMMAND, "description": "Add."}),
    ),
    "Qwen Code": Agent(
        program="node_modules/.bin/qwen",
        arguments=("--yolo", "--auth-type", "openai", "--model", "policy", "-p", QUESTION),
        variables=lambda url, key: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key, "OPENAI_MODEL": "policy"},
        shell=("run_shell_command", {"command": COMMAND, "is_background": False}),
    ),
    "aider": Agent(
        program="v/bin/aider",
        arguments=(
            *("--model", "openai/policy", "--no-git", "--yes-always", "--no-check-update", "--analytics-disable"),
            *("--no-show-model-warnings", "--edit-format", "whole", "--no-fancy-input", "--message", QUESTION),
        ),
        variables=lambda url, key: {
            "OPENAI_API_BASE": f"{url}/v1",
            "OPENAI_API_KEY": key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    ),
}


def enter_namespace() -> None:
    """Leave every network but the loopback interface of a namespace of its own. Raises SystemExit if it is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if libc.unshare(flags):
        raise SystemExit(f"no network namespace: {os.strerror(ctypes.get_errno())}; run it as root")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS


@dataclass(slots=True)
class Script:
    """The policy."""

    shell: tuple[str, Mapping[str, Any]] | None = None

    def reply(self, prompt: str) -> Message:
        """Run the command with the agent's shell tool, if it has one, then tell the result."""
        is_known = re.search(r"\b35\b", prompt.rpartition("17 + 18")[2])
        if is_known or self.shell is None:
            return reply_message("The sum is 35.", reasoning="Done.")
        call = ToolCall(id="call_0", name=self.shell[0], arguments=json.dumps(self.shell[1]))
        return reply_message("", reasoning="I run it.", tool_calls=(call,))


async def run_agent(agent: Agent, clients: Path, arguments: Sequence[str], home: Path, url: str, key: str) -> str:
    """Run an agent in an empty home folder; returns what it printed."""
    for name, text in agent.files(url).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    work = home / "work"
    work.mkdir(exist_ok=True)
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "CI": "1", "NO_COLOR": "1", "TERM": "dumb"}
    process = await asyncio.create_subprocess_exec(
        str(clients / agent.program),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=-1,
        stderr=-2,
        cwd=work,
        env={**variables, **agent.variables(url, key)},
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    except TimeoutError:
        process.kill()
        out, _ = await process.communicate()
        return f"killed after {TIMEOUT_S:g} s: {out.decode(errors='replace')}"
    return out.decode(errors="replace")


async def drive(name: str, clients: Path, served: Any, script: Script, url: str, *, is_shown: bool) -> tuple[str, bool]:
    """Let an agent answer the question; returns its row, and whether all is well."""
    agent, access = AGENTS[name], served.gateway.open()
    script.shell = agent.shell
    session = served.gateway.sessions[access.name]
    with tempfile.TemporaryDirectory() as folder:
        version = await run_agent(agent, clients, ("--version",), Path(folder), url, access.key)
        out = await run_agent(agent, clients, agent.arguments, Path(folder), url + access.path, access.key)
    if is_shown:
        print(out, file=sys.stderr)
    counts = session.counts
    reasons = [f"{counts[key]} {key.removeprefix('reason/')}" for key in sorted(counts) if key.startswith("reason/")]
    tokens = check_captured(served.policy.engine, session)
    messages = [node.message for node in session.forest.nodes]
    has_run = agent.shell is None or any("35" in each.text for each in messages if each.role == "tool")
    number = re.search(r"\d+\.\d+\.\d+", version)
    cells = [name, number[0] if number else "?", session.forest.num_replies, counts["continued"], counts["branched"]]
    cells += [f"{counts['opened']}: {', '.join(reasons)}", counts["reasoning_dropped"], tokens]
    return f"| {' | '.join(map(str, cells))} |", "35" in out and has_run and session.undelivered == []


async def run(names: Sequence[str], clients: Path, *, is_shown: bool) -> bool:
    """Print the table; returns whether every row is right."""
    limits = Limits(max_context=600_000, max_reply_tokens=500)
    script = Script()
    served = serve(script.reply, wrap=Recorder, limits=limits)
    server, are_right = GatewayServer(served.gateway), True
    url = await server.start()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    for name in names:
        row, is_right = await drive(name, clients, served, script, url, is_shown=is_shown)
        are_right = are_right and is_right
        print(row if is_right else f"{row} **wrong**", flush=True)
    await server.close()
    return are_right


def main() -> None:
    """Drive, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(AGENTS), metavar="NAME")
    parser.add_argument("--clients", type=Path, required=True)
    parser.add_argument("--show", action="store_true", help="Print what the agents print.")
    options = parser.parse_args()
    enter_namespace()
    sys.exit(not asyncio.run(run(options.names, options.clients.resolve(), is_shown=options.show)))


if __name__ == "__main__":
    main()
