"""Drive other people's clients against a scripted policy: `python benchmarks/gateway_clients.py [GROUP ...]`.

`clients/setup.sh` makes the environments of the groups. Prints one Markdown row for each client: what came out, its
requests by how they found their place, and the tokens that its session holds as turns beside those that the engine
sampled, compared token for token. Ends with status 1 if they differ, or if a client got another answer than 35.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit" / "gateway"))

from fuzzed_requests import Recorder, check_captured
from gateway_world import serve

from turnwise.core.messages import Message, ToolCall, reply_message
from turnwise.core.types import Grammar
from turnwise.gateway.sampling import Limits, SamplingRule
from turnwise.gateway.server import GatewayServer

ROOT = Path(__file__).parent.parent
GROUPS = ("main", "litellm", "autogen", "strands")
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
COLUMNS = "client | version | requests | continued | branched | opened: why | reasoning dropped | tokens"
TIMEOUT_S = 400.0


def reply(prompt: str) -> Message | str:
    """Add the numbers of the question in the way that the agent's prompt asks for, then answer with the result."""
    told = prompt.rpartition("17 + 18")[2]  # some prompts show other conversations first
    results = re.findall(r"(?:<tool_response>|Observation:|Execution logs:|<output>)\s*(\d+)", told)
    command = f"{SUBMIT} && echo {results[-1]}" if results else "echo $((17 + 18))"
    if "Write ```mswea_bash_command" in prompt:
        return f"```mswea_bash_command\n{command}\n```"
    if "Call bash" in prompt:
        return _call("bash", {"command": command})
    if "<code>" in prompt:
        return f"I add.\n<code>\n{f'final_answer({results[-1]})' if results else 'print(add(a=17, b=18))'}\n</code>"
    if not results:
        return _call("add", {"a": 17, "b": 18})
    if "final_answer" in prompt:
        return _call("final_answer", {"answer": results[-1]})
    return reply_message(f"The sum is {results[-1]}", reasoning="Done.")


def _call(name: str, arguments: dict[str, Any]) -> Message:
    """Return a call, spelled as hardly any client spells it."""
    text = json.dumps(arguments, separators=(" , ", ":  "))
    return reply_message("", reasoning="I call.", tool_calls=(ToolCall(id="call_0", name=name, arguments=text),))


async def drive(group: str, served: Any, url: str) -> list[dict[str, Any]]:
    """Play the clients of a group; returns what each told."""
    python = ROOT / f".venv-gateway-{group}" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing; run: make gateway-clients")
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "MSWEA_SILENT_STARTUP": "1"}
    environment |= {"MSWEA_GLOBAL_CONFIG_DIR": str(python.parent.parent), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    process = await asyncio.create_subprocess_exec(
        str(python), str(ROOT / "clients" / "drive.py"), url, group, stdout=-1, stderr=-1, env=environment
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    except TimeoutError:
        process.kill()
        raise SystemExit(f"the clients of {group} took longer than {TIMEOUT_S:g} s") from None
    if process.returncode:
        raise SystemExit(f"the clients of {group} failed: {errors.decode()[-2000:]}")
    return [json.loads(line) for line in out.decode().splitlines() if line.startswith('{"client"')]


def judge(told: dict[str, Any], served: Any) -> tuple[str, bool]:
    """Return the row of a client, and whether its answer and its tokens are right."""
    session = served.gateway.sessions[told["session"]]
    counts = session.counts
    reasons = [key.removeprefix("reason/") for key in counts if key.startswith("reason/")]
    for node in session.forest.replies:
        detail = getattr(node.record.match, "detail", "")
        if detail and node.record.match.reason in reasons:
            reasons[reasons.index(node.record.match.reason)] += f" ({detail[:80]})"
    try:
        tokens, is_right = f"{check_captured(served.policy.engine, session)}", True
    except AssertionError:
        tokens, is_right = "no", False
    is_right = is_right and not session.undelivered and "35" in told.get("answer", "")
    name = told["client"] + ("" if "error" not in told else f" -- {told['error']}")
    cells = [name, told["version"], len(session.forest.replies), counts["continued"], counts["branched"]]
    cells += [f"{counts['opened']}: {', '.join(reasons)}", counts["reasoning_dropped"], tokens]
    return " | ".join(map(str, cells)), is_right


async def run(groups: list[str]) -> bool:
    """Print the table; returns whether every row is right."""
    # The script calls whenever it is to call, as a policy does that a grammar holds to calls.
    rule = SamplingRule(build_call_grammar=lambda tools, most: Grammar(kind="lark", text="start: /.*/"))
    limits = Limits(max_context=30_000, max_reply_tokens=500)
    served = serve(reply, wrap=Recorder, is_open=True, limits=limits, rule=rule)
    server, are_right = GatewayServer(served.gateway), True
    url = await server.start()
    print(f"| {COLUMNS} |\n|{'---|' * len(COLUMNS.split(' | '))}")
    for group in groups:
        for told in await drive(group, served, url):
            row, is_right = judge(told, served)
            are_right = are_right and is_right
            print(f"| {row} |" + ("" if is_right else f" **wrong**: {told}"), flush=True)
    await server.close()
    return are_right


def main() -> None:
    """Drive, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=list(GROUPS), metavar="GROUP")
    sys.exit(not asyncio.run(run(parser.parse_args().groups)))


if __name__ == "__main__":
    main()
