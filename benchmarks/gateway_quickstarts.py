"""Train with the programs of docs/gateway.md, as its readers would: `python benchmarks/gateway_quickstarts.py [NAME]`.

Takes each program from the page, trains a short run of `recipes/agents/tiny.toml` with it as the agent's command,
audits the run, and evaluates it with the command. Prints a Markdown row for each. Ends with status 1 if a program's run
has an invalid attempt, trains no token, continues no reply on stored tokens or fails its audit. `make gateway-clients`
makes the environment of the clients.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PYTHON = ROOT / ".venv-gateway-main" / "bin" / "python"
PROGRAM = re.compile(r"```python\n# (agent_\w+\.py)\n(.*?)```", re.DOTALL)
SHORT = ("sft.steps=30", "train.steps=1", "rollout.tasks_per_step=2", "rollout.group_size=2", "evaluate.tasks=2")
COLUMNS = ("program", "lines", "tokens trained", "continued on stored tokens", "invalid", "audit", "evaluated tasks")
TIMEOUT_S = 1500.0


def read_programs() -> dict[str, str]:
    """Return the programs of the page by name."""
    return dict(PROGRAM.findall((ROOT / "docs" / "gateway.md").read_text()))


def turnwise(*arguments: str) -> str:
    """Run a command of Turnwise; returns what it printed."""
    command = [sys.executable, "-m", "turnwise", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise SystemExit(f"turnwise {' '.join(arguments)}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def try_program(name: str, text: str, folder: Path) -> tuple[str, bool]:
    """Train, audit and evaluate with a program; returns its row, and whether all is well."""
    program, output = folder / name, folder / name.removesuffix(".py")
    program.write_text(text)
    command = [str(PYTHON), str(program)]
    chosen = ("environment.args.agent=", f"environment.args.command={json.dumps(command)}")
    turnwise("train", "recipes/agents/tiny.toml", *chosen, *SHORT, f"run.output={output}")
    [run] = output.iterdir()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    values: dict[str, Any] = {}
    for step in steps:
        values |= step.get("metrics", step)
    audited = json.loads(turnwise("audit", str(run), "--json"))
    evaluated = json.loads(turnwise("evaluate", str(run), "--command", " ".join(command), "--json"))
    continued, invalid = values["signal/gateway_continued"], values["rollout/invalid"]
    cells = [name, len(text.splitlines()), values["train/trained_tokens"], continued, invalid, audited["ok"]]
    cells.append(sum(row["episodes"] for row in evaluated["rows"] if row["kind"] == "all"))
    is_trained = values["train/trained_tokens"] > 0 and continued > 0 and invalid == 0
    return f"| {' | '.join(map(str, cells))} |", bool(is_trained and audited["ok"] and cells[-1] == 2)


def main() -> None:
    """Try the programs, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs = read_programs()
    parser.add_argument("names", nargs="*", default=list(programs), metavar="NAME")
    chosen = parser.parse_args().names
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON} is missing; run: make gateway-clients")
    are_right = True
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            row, is_right = try_program(name, programs[name], Path(folder))
            are_right = are_right and is_right
            print(row if is_right else f"{row} **wrong**", flush=True)
    sys.exit(not are_right)


if __name__ == "__main__":
    main()
