"""`view`: numbered lines of a file, or the content of a folder."""

from __future__ import annotations

import shlex

from turnwise.core.errors import ToolFailure
from turnwise.tools.sandboxed import clip_middle
from turnwise_swe.environment.workspace import Workspace

MAX_LINE_CHARS = 400


class View:
    """Shows files."""

    def __init__(self, workspace: Workspace, max_chars: int, max_lines: int) -> None:
        """`max_lines` lines are shown at a time."""
        self._workspace = workspace
        self._max_chars = max_chars
        self._max_lines = max_lines

    async def view(self, path: str, first: int = 1, last: int = 0) -> str:
        """Show lines of a file with their numbers, or the names in a folder.

        Args:
            path: The file or folder, relative to the project's root.
            first: The first line, from 1.
            last: The last line; 0 shows as many as fit.
        """
        folder = await self._workspace.run(f"[ -d {shlex.quote(path)} ] && exec ls -1Ap -- {shlex.quote(path)}")
        if folder.exit_code == 0:
            return clip_middle(folder.text().strip() or "(empty)", self._max_chars)
        lines = [line.decode("utf-8", "replace") for line in (await self._workspace.read(path)).splitlines()]
        if not lines:
            return "(empty)"
        if not 1 <= first <= len(lines) or (last and last < first):
            raise ToolFailure(f"there are no lines {first} to {last or 'the end'}: {path} has {len(lines)}")
        end = min(last or len(lines), first - 1 + self._max_lines, len(lines))
        shown = [f"{number} {lines[number - 1][:MAX_LINE_CHARS]}" for number in range(first, end + 1)]
        rest = [f"[{len(lines) - end} more lines]"] if end < len(lines) else []
        return clip_middle("\n".join([*shown, *rest]), self._max_chars)
