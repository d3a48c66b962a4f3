"""`pdb`: a debugger that keeps its place from one turn to the next."""

from __future__ import annotations

from turnwise.core.errors import ToolFailure
from turnwise.core.guests import guest_source
from turnwise.environments.shared_sandbox import SharedSession
from turnwise.tools.sandboxed import clip_middle
from turnwise_sandbox.types import Execution
from turnwise_swe.environment.workspace import PACKAGE, Changes, Workspace


class Pdb:
    """One debugged program at a time, in its own session: it sees the tree as it was when the program started, and its
    writes are not kept."""

    def __init__(self, workspace: Workspace, max_chars: int) -> None:
        self._workspace = workspace
        self._max_chars = max_chars
        self._session: SharedSession | None = None
        self._target = ""
        self._changes: Changes = {}
        """The tree's changes when the program started."""
        self._commands: list[str] = []

    async def pdb(self, command: str = "", target: str = "") -> str:
        """Debug a test or a script with pdb. It stops at the first line; later calls go on from where it is.

        Args:
            command: A command of pdb, such as: b src/a.py:12, c, n, s, w, p x, q.
            target: Id of a test, or a script, to begin with; empty goes on with what is open.
        """
        shown = ""
        if target:
            shown = await self._start(target, await self._workspace.changes())
        elif self._session is None:
            raise ToolFailure("no program is open in pdb; name a target")
        if command and self._session is not None:
            shown = "\n".join(part for part in (shown, await self._send(command)) if part)
        return clip_middle(shown, self._max_chars) or "(no output)"

    async def fork(self, workspace: Workspace) -> Pdb:
        """Return the debugger of another tree at the same place: started there and given the same commands."""
        twin = Pdb(workspace, self._max_chars)
        if self._session is not None:
            await twin._start(self._target, self._changes)
            for command in self._commands:
                if twin._session is not None:
                    await twin._send(command)
        return twin

    async def close(self) -> None:
        """End the program. A second call does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _start(self, target: str, changes: Changes) -> str:
        await self.close()
        self._target, self._changes, self._commands = target, changes, []
        self._session = await self._workspace.open_session("python", changes)
        folder = await self._session.run(f"{guest_source(PACKAGE, 'debug_session.py')}\nos.getcwd()")
        repository = self._workspace.repository
        request = {"target": target, "plugins": list(repository.plugins), "options": list(repository.options)}
        variables = self._workspace.variables(str(folder.value).strip("'"))
        return await self._run(f"start({guest_source(PACKAGE, 'debugger.py')!r}, {request!r}, {variables!r})")

    async def _send(self, command: str) -> str:
        self._commands.append(command)
        return await self._run(f"send({command!r})")

    async def _run(self, code: str) -> str:
        """Return what the program and pdb print; the session is closed when the program has ended."""
        assert self._session is not None
        execution = await self._session.run(code)
        ending = self._why_over(execution)
        if ending:
            await self.close()
        text = clip_middle(execution.stdout.decode("utf-8", "replace").strip("\n"), self._max_chars)
        return "\n".join(part for part in (text, ending) if part)

    def _why_over(self, execution: Execution) -> str:
        if execution.limit == "wall":
            return f"[it ran longer than {self._workspace.limits.wall_s:g} s; the debugger was ended]"
        if execution.exit_code != 0:
            return "[the debugger was ended by the program]"
        return "" if execution.value is None else f"[the program ended with status {execution.value}]"
