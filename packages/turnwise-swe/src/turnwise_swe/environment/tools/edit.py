"""`edit`: replace a text that occurs once."""

from __future__ import annotations

import re

from turnwise.core.errors import ToolFailure
from turnwise_swe.environment.workspace import Workspace
from turnwise_swe.repositories.source_lines import find_line_end, to_line_end


class Edit:
    """Replaces text in files, and creates new files."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace a text of a file that occurs in it exactly once. An empty old text makes a new file.

        Args:
            path: The file, relative to the project's root.
            old: The text, with its blanks and new lines.
            new: What stands in its place.
        """
        if not old:
            return await self._make(path, new)
        content = await self._workspace.read(path)
        found = find_text(content, old.encode())
        if old == new:
            raise ToolFailure("the old and the new text are the same; nothing would change")
        if not found:
            raise ToolFailure(f"{path} does not have the text; copy it from a view, without line numbers")
        if len(found) != 1:
            raise ToolFailure(
                f"the text occurs {len(found)} times in {path}; give one with enough lines around it to occur once"
            )
        ((start, end),) = found
        text = to_line_end(new.encode(), find_line_end(content))
        await self._workspace.write({path: content[:start] + text + content[end:]})
        return f"changed {path} at line {len((content[:start] + b'.').splitlines())}"

    async def _make(self, path: str, text: str) -> str:
        try:
            await self._workspace.read(path)
        except ToolFailure:
            await self._workspace.write({path: text.encode()})
            return f"made {path}"
        raise ToolFailure(f"{path} exists; give the old text that the new one replaces")


def find_text(content: bytes, text: bytes) -> list[tuple[int, int]]:
    """Return where each occurrence of a text starts and ends. Its line ends match the file's, whichever these are."""
    pattern = rb"\r?\n".join(map(re.escape, text.replace(b"\r\n", b"\n").split(b"\n")))
    return [match.span() for match in re.finditer(pattern, content)]
