"""A first agent: a model with a shell and a reader of files, in a loop, written with the openai client.

It is an ordinary program for any model behind OPENAI_BASE_URL, and it runs what the model asks for. Turnwise trains it
as it is, inside the sandbox: `turnwise train recipes/agents/first_run.toml`.
"""

import json
import os
import subprocess
import sys
from typing import Any

from openai import OpenAI


def describe(name: str, text: str, argument: str) -> Any:
    """A tool with one text argument, as the API wants it."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}


TOOLS = [
    describe("execute_bash", "Run a shell command and show what it prints.", "command"),
    describe("read_file", "Show what a file says.", "path"),
]


def use_tool(name: str, arguments: dict[str, str]) -> str:
    """What a tool answers: the model acts on the world here, and nowhere else."""
    if name == "execute_bash":
        done = subprocess.run(arguments["command"], shell=True, capture_output=True, text=True)
        return done.stdout + done.stderr
    if name == "read_file":
        with open(arguments["path"]) as file:
            return file.read()
    return f"there is no tool {name}"


def run_agent(question: str, max_turns: int = 5) -> str | None:
    """Ask the model, do what it calls for, show it the answers, until it answers in words."""
    client = OpenAI()  # base URL and key come from the environment
    messages: list[Any] = [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": question}]
    for turn in range(max_turns):
        model = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
        message = client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            assert call.type == "function"
            arguments = json.loads(call.function.arguments)
            print(f"turn {turn + 1}: {call.function.name} {arguments}", file=sys.stderr)
            answer = use_tool(call.function.name, arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
    return "no answer: out of turns"


if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(run_agent(task["prompt"][-1]["content"]))
