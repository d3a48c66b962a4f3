"""One Lean REPL: requests and answers as JSON, an empty line after each.

{"cmd": "theorem t : 1 = 1 := by sorry", "env": 0}
{"sorries": [{"goal": "⊢ 1 = 1", "proofState": 0}], "messages": [...], "env": 1}

{"tactic": "rfl", "proofState": 0}
{"proofState": 1, "goals": []}
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.environments.shared_sandbox import SharedSandbox
from turnwise_worlds.proving.program import TalkingProgram
from turnwise_worlds.proving.prover import ProverLost


class Repl:
    """A REPL in a cell of the sandbox, for one caller at a time."""

    def __init__(
        self,
        sandbox: SharedSandbox,
        command: Sequence[str],
        *,
        visible: Sequence[Path],
        memory_bytes: int,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Start it; `visible` are the folders of Lean and of what it imports."""
        self._program = TalkingProgram(
            sandbox, command, memory_bytes=memory_bytes, num_pids=64, visible=visible, files=files
        )
        self._unread = b""

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a request. Raises ProgramEnded, and ProverLost for an answer that is no JSON object,
        after both of which there is nothing to ask."""
        deadline = time.monotonic() + seconds
        self._program.send(json.dumps(request) + "\n\n", deadline)
        while b"\n\n" not in self._unread.lstrip():
            self._unread += self._program.receive(deadline)
        text, _, self._unread = self._unread.lstrip().partition(b"\n\n")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise ProverLost(f"the REPL answered {text[:80]!r}, which is no JSON object")
        return answer

    def close(self) -> None:
        """End the process. A second call does nothing."""
        self._program.close()


def list_errors(answer: Mapping[str, Any]) -> list[str]:
    """Return what an answer reports as wrong, a line each; none if it reports nothing."""
    alone = answer.get("message")
    messages = answer.get("messages", [])
    found = [each for each in messages if isinstance(each, dict) and each.get("severity") == "error"]
    said = [str(each.get("data", "error")) for each in found]
    return [" ".join(text.split())[:300] for text in ([str(alone)] if alone else []) + said]
