"""`edit_diff`: apply a unified diff."""

from __future__ import annotations

import contextlib

from turnwise.core.errors import DataError, ToolFailure
from turnwise_swe.environment.workspace import Workspace
from turnwise_swe.repositories.diffs import parse_diff, to_crlf
from turnwise_swe.repositories.patching import apply_patch
from turnwise_swe.repositories.source_lines import find_line_end


class EditDiff:
    """Applies diffs, completely or not at all."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def edit_diff(self, diff: str) -> str:
        """Change files by a unified diff.

        Args:
            diff: The diff, with paths below a/ and b/.
        """
        diff = to_crlf(diff, await self._find_crlf(diff))
        layers = self._workspace.layers(await self._workspace.changes())
        patched = await apply_patch(self._workspace.sandbox, layers, diff)
        if not patched.changes:
            raise ToolFailure(f"the diff does not apply: {patched.reason or 'it changes nothing'}")
        await self._workspace.write(patched.changes)
        return f"changed {', '.join(patched.changes)}"

    async def _find_crlf(self, diff: str) -> set[str]:
        """Return the files that the diff changes and whose lines end with CRLF."""
        found: set[str] = set()
        with contextlib.suppress(DataError):  # the programs that apply the diff report what is wrong with it
            for file in parse_diff(diff):
                with contextlib.suppress(ToolFailure):
                    if file.old_path and find_line_end(await self._workspace.read(file.old_path)) == b"\r\n":
                        found.add(file.old_path)
        return found
