"""`edit_lines`: write lines by their numbers."""

from __future__ import annotations

from turnwise.core.errors import ToolFailure
from turnwise_swe.environment.workspace import Workspace
from turnwise_swe.repositories.source_lines import find_line_end, to_line_end


class EditLines:
    """Replaces ranges of lines."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def edit_lines(self, path: str, first: int, last: int, text: str) -> str:
        """Replace lines of a file. A last line before the first one inserts before it; an empty text removes.

        Args:
            path: The file, relative to the project's root.
            first: The first line to replace, from 1.
            last: The last one.
            text: The new lines, with their indentation.
        """
        content = await self._workspace.read(path)
        lines = content.splitlines(keepends=True)
        if not (1 <= first <= len(lines) + 1 and first - 1 <= last <= len(lines)):
            raise ToolFailure(f"there are no lines {first} to {last}: {path} has {len(lines)}")
        end = find_line_end(content)
        new = to_line_end(text.encode(), end)
        ends_file = last == len(lines) and not content.endswith(b"\n")
        if new and not new.endswith(b"\n") and not ends_file:
            new += end
        await self._workspace.write({path: b"".join([*lines[: first - 1], new, *lines[last:]])})
        return f"changed {path}"
