"""`python`: a snippet that can import the project."""

from __future__ import annotations

import shlex

from turnwise_swe.environment.output import describe
from turnwise_swe.environment.workspace import Workspace


class Python:
    """Runs snippets, which keep only files."""

    def __init__(self, workspace: Workspace, max_chars: int) -> None:
        self._workspace = workspace
        self._max_chars = max_chars

    async def python(self, code: str) -> str:
        """Run Python code that can import the project, and see what it prints.

        Args:
            code: The code. It starts from nothing each time.
        """
        execution = await self._workspace.run(f"exec python3 -c {shlex.quote(code)}")
        return describe(execution, self._workspace.limits, self._max_chars)
