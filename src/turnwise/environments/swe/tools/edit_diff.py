"""`edit_diff`: apply a unified diff."""

from __future__ import annotations

from turnwise.core.errors import ToolFailure
from turnwise.environments.swe.workspace import Workspace
from turnwise.repositories.patching import apply_patch


class EditDiff:
    """Applies diffs, whole or not at all."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def edit_diff(self, diff: str) -> str:
        """Change files by a unified diff.

        Args:
            diff: The diff, with paths below a/ and b/.
        """
        layers = self._workspace.layers(await self._workspace.changes())
        patched = await apply_patch(self._workspace.sandbox, layers, diff)
        if not patched.changes:
            raise ToolFailure(f"the diff does not apply: {patched.reason or 'it changes nothing'}")
        await self._workspace.write(patched.changes)
        return f"changed {', '.join(patched.changes)}"
