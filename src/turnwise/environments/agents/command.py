"""Runs a program that plays a task: what it is told, and what its end means."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence

from turnwise.core.episodes import Endpoint
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Task
from turnwise.pictures.chat_parts import EMBEDDED, write_content


def name_endpoint(endpoint: Endpoint) -> dict[str, str]:
    """Return the environment variables in which clients find the endpoint."""
    return {
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": endpoint.api_key,
        "OPENAI_MODEL": endpoint.model,
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_API_KEY": endpoint.api_key,
        "TURNWISE_MODEL": endpoint.model,
    }


def describe_task(task: Task, *, with_payload: bool = True) -> bytes:
    """Return the task as the JSON that a program finds on its standard input; a message with pictures has a list of
    OpenAI's content parts, with data URLs. Raises PictureError for a picture without its pixels."""
    prompt = [{"role": message.role, "content": write_content(message.content, EMBEDDED)} for message in task.prompt]
    payload = {"payload": dict(task.payload)} if with_payload else {}
    return json.dumps({"id": task.id, "prompt": prompt, **payload}).encode()


def describe_failure(command: str, status: int | None, error: bytes) -> str:
    """Say in one line how a program failed, with the last line of its standard error."""
    last = error.decode(errors="replace").strip().splitlines()[-1:] or ["it printed no error"]
    return f"the command {command!r} ended with status {status}: {last[0][:200]}"


async def run_command(command: Sequence[str], task: Task, endpoint: Endpoint) -> str:
    """Run a program with the task on its standard input and the endpoint in its environment; returns what it printed.

    Raises EnvironmentFault if it cannot be started or fails. When cancelled, the program is killed.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **name_endpoint(endpoint)}
        )
    except OSError as cause:
        raise EnvironmentFault(f"the command {command[0]!r} cannot be started: {cause.strerror}") from cause
    try:
        out, err = await process.communicate(describe_task(task))
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise EnvironmentFault(describe_failure(command[0], process.returncode, err))
    return out.decode(errors="replace").strip()
