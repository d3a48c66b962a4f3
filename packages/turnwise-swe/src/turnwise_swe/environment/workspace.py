"""The tree of one episode: a live session over the repository with the bug, and its changes.

The session is a shell. The agent or a deadline may end it at any time; its files are then laid under a new session, so
that nothing written is lost.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from turnwise.core.errors import SandboxError, ToolFailure
from turnwise.environments.shared_sandbox import SharedSandbox, SharedSession
from turnwise_sandbox.tree_changes import ChangesTooLarge
from turnwise_sandbox.trees import MAX_PATH_BYTES, Layer, Tree
from turnwise_sandbox.types import Execution, Limits
from turnwise_swe.repositories.repository import Repository

PACKAGE = "turnwise_swe.environment"
"""Package whose `guest/` contains the programs that tools run in the sandbox."""
Changes = Mapping[str, bytes | None]
"""Maps the path of each changed file to its content; None if it was removed."""


@dataclass(slots=True, kw_only=True)
class Workspace:
    """A tree that an agent works on. Opened on first use; `close` ends it.

    Raises SandboxError if the sandbox itself fails.
    """

    sandbox: SharedSandbox
    repository: Repository
    bug: Changes
    """The layer over the pristine tree."""
    limits: Limits
    """Limits of the session; `wall_s` is the deadline of one command."""
    seed: int
    below: Changes = field(default_factory=dict)
    """Changes that lie below the present session."""
    _session: SharedSession | None = None
    _folder: str = ""
    """Folder of the tree in the session."""

    def layers(self, changes: Changes) -> tuple[Layer, ...]:
        """Return the layers of the tree with these changes."""
        return (self.repository.root, self.bug, changes) if changes else (self.repository.root, self.bug)

    async def open_session(self, language: str, changes: Changes) -> SharedSession:
        """Open a separate session in the tree with these changes."""
        return await self.sandbox.open(
            "python" if language == "python" else "bash",
            limits=self.limits,
            seed=self.seed,
            network=self.repository.network,
            tree=Tree(layers=self.layers(changes), visible=(self.repository.site_packages,)),
        )

    def variables(self, folder: str) -> dict[str, str]:
        """Return the environment variables of the agent's programs, besides the sandbox's own; the tree is in
        `folder`."""
        of_tree = [str(PurePosixPath(folder, part)) for part in self.repository.import_folders]
        return {
            "PYTHONPATH": ":".join([*of_tree, str(self.repository.site_packages)]),
            "PYTHONNOUSERSITE": "1",
            "PAGER": "cat",
            "TZ": "UTC",
        }

    async def run(self, command: str) -> Execution:
        """Run a command in a new shell that starts in the tree; its error output is part of its output.

        It keeps files and processes but no variables. `exit_code` is None if it ended the session.
        """
        session = await self._open()
        execution = await session.run(f"bash -c {shlex.quote(command)} 2>&1")
        if execution.exit_code is None:
            await self._leave()
        return execution

    async def changes(self) -> Changes:
        """Return the changes so far. Raises ToolFailure if the changed files exceed the quota."""
        try:
            changed = {} if self._session is None else await self._session.changes()
        except SandboxError as failure:
            if isinstance(failure.__cause__, ChangesTooLarge):
                raise ToolFailure(str(failure.__cause__)) from failure
            raise
        # No layer can contain a longer path, and no module has one.
        kept = {path: text for path, text in changed.items() if len(path.encode(errors="replace")) <= MAX_PATH_BYTES}
        return {**self.below, **kept}

    async def read(self, path: str) -> bytes:
        """Return a file of the tree. Raises ToolFailure if there is none."""
        session = await self._open_alive()
        try:
            return await session.read_file(self.relative(path), max_bytes=self.limits.disk_bytes)
        except SandboxError:
            raise ToolFailure(
                f"cannot read {path!r}: it is missing, too large, no plain file, or not in the tree"
            ) from None

    async def write(self, files: Changes) -> None:
        """Write files and remove those that map to None: all or none. Raises ToolFailure if there is not enough
        room."""
        session = await self._open_alive()
        moves = []
        for number, (path, content) in enumerate(files.items()):
            target, source = shlex.quote(self.relative(path)), f".turnwise-new-{number}"
            if content is None:
                moves.append(f"rm -f -- {target}")
                continue
            folder = shlex.quote(str(PurePosixPath(self.relative(path)).parent))
            moves += [f"mkdir -p -- {folder}", f"[ ! -d {target} ]"]
            moves += [
                f"if [ -e {target} ]; then chmod --reference={target} {source}; fi",
                f"mv -f -- {source} {target}",
            ]
            try:
                await session.write_file(source, content)
            except SandboxError:
                await self.run("rm -f .turnwise-new-*")
                raise ToolFailure(f"cannot write {path!r}: there is no room for it") from None
        execution = await self.run(" && ".join(moves))
        if execution.exit_code != 0:
            await self.run("rm -f .turnwise-new-*")
            raise ToolFailure(f"cannot write {', '.join(map(repr, files))}: it is a folder, or there is no room for it")

    def relative(self, path: str) -> str:
        """Return the path relative to the tree's folder, which the agent may spell out. Raises ToolFailure for paths
        outside."""
        pure = PurePosixPath(path)
        if self._folder and pure.is_relative_to(self._folder):
            pure = pure.relative_to(self._folder)
        if pure.is_absolute() or ".." in pure.parts or "\0" in path or path.strip() in ("", "."):
            raise ToolFailure(f"{path!r} is no file of the tree; give a path relative to the root of the project")
        return str(pure)

    async def fork(self) -> Workspace:
        """Return a second tree with the same files. Empty folders, modes, and files outside the tree are not copied."""
        return Workspace(
            sandbox=self.sandbox,
            repository=self.repository,
            bug=self.bug,
            limits=self.limits,
            seed=self.seed,
            below=await self.changes(),
        )

    async def close(self) -> None:
        """End the session and everything that runs in it. A second call does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open(self) -> SharedSession:
        if self._session is None:
            self._session = await self.open_session("bash", self.below)
            self._folder = (await self._session.run("pwd")).stdout.decode("utf-8", "surrogateescape").strip()
            settings = [f"{name}={shlex.quote(value)}" for name, value in self.variables(self._folder).items()]
            programs = shlex.quote(f"{self.repository.site_packages}/bin")
            await self._session.run(f"export PATH={programs}:$PATH {' '.join(settings)}")
        return self._session

    async def _open_alive(self) -> SharedSession:
        """Return the session after checking that it responds, so that later refusals are the agent's doing."""
        await self.run(":")
        return await self._open()

    async def _leave(self) -> None:
        """Take the files of a session that has ended; the next command opens another session on them. Files beyond the
        quota cannot be taken: the tree is then as it was when the session started."""
        with contextlib.suppress(ToolFailure):
            self.below = await self.changes()
        await self.close()
