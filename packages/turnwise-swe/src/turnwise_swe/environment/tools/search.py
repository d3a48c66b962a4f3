"""`search`: a regular expression over the tree."""

from __future__ import annotations

import json
import shlex

from turnwise.core.errors import ToolFailure
from turnwise.core.guests import guest_source
from turnwise.tools.sandboxed import clip_middle
from turnwise_swe.environment.output import describe
from turnwise_swe.environment.workspace import PACKAGE, Workspace

MAX_MATCHES = 50
BAD_PATTERN = 3
"""Exit status of the program for an invalid pattern."""


class Search:
    """Finds lines."""

    def __init__(self, workspace: Workspace, max_chars: int) -> None:
        self._workspace = workspace
        self._max_chars = max_chars

    async def search(self, pattern: str, path: str = ".") -> str:
        """Find lines that match a regular expression.

        Args:
            pattern: The expression, in Python's syntax.
            path: A file or folder to look in.
        """
        request = json.dumps({"pattern": pattern, "path": path, "max_matches": MAX_MATCHES})
        program = f"exec python3 -I -S -c {shlex.quote(guest_source(PACKAGE, 'search.py'))} {shlex.quote(request)}"
        execution = await self._workspace.run(program)
        if execution.exit_code == BAD_PATTERN:
            raise ToolFailure(execution.text().strip())
        if execution.ok:
            return clip_middle(execution.text().strip(), self._max_chars)
        return describe(execution, self._workspace.limits, self._max_chars)
