"""`edit`: replace a text that occurs once."""

from __future__ import annotations

from turnwise.core.errors import ToolFailure
from turnwise.environments.swe.workspace import Workspace


class Edit:
    """Replaces text in files, and makes new ones."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace a text of a file that occurs in it exactly once. An empty old text makes a new file.

        Args:
            path: The file, relative to the project's root.
            old: The text, with its blanks and line ends.
            new: What stands in its place.
        """
        if not old:
            return await self._make(path, new)
        content = await self._workspace.read(path)
        count = content.count(old.encode())
        if count != 1:
            raise ToolFailure(
                f"the text occurs {count} times in {path}; give one with enough lines around it to occur once"
            )
        await self._workspace.write({path: content.replace(old.encode(), new.encode())})
        line = content[: content.index(old.encode())].count(b"\n") + 1
        return f"changed {path} at line {line}"

    async def _make(self, path: str, text: str) -> str:
        try:
            await self._workspace.read(path)
        except ToolFailure:
            await self._workspace.write({path: text.encode()})
            return f"made {path}"
        raise ToolFailure(f"{path} exists; give the old text that the new one replaces")
