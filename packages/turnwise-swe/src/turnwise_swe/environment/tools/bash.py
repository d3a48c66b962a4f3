"""`bash`: any command."""

from __future__ import annotations

from turnwise_swe.environment.output import describe
from turnwise_swe.environment.workspace import Workspace


class Bash:
    """Runs commands, which keep only files."""

    def __init__(self, workspace: Workspace, max_chars: int) -> None:
        self._workspace = workspace
        self._max_chars = max_chars

    async def bash(self, command: str) -> str:
        """Run a command in the project's folder. Each starts there in a new shell; files are kept.

        Args:
            command: The command.
        """
        return describe(await self._workspace.run(command), self._workspace.limits, self._max_chars)
