"""One episode in a repository: a tree with a bug, tools, and grading of the submission in fresh trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.core.errors import ToolFailure
from turnwise.core.types import Message, Reward, StopReason, Task, ToolRecord
from turnwise.environments.shared_sandbox import SharedSandbox
from turnwise.environments.tool_environment import ToolEnvironment, hash_calls
from turnwise_sandbox.types import Limits
from turnwise_swe.environment.arguments import SweArguments, ToolName
from turnwise_swe.environment.cases import Case
from turnwise_swe.environment.tools.bash import Bash
from turnwise_swe.environment.tools.edit import Edit
from turnwise_swe.environment.tools.edit_diff import EditDiff
from turnwise_swe.environment.tools.edit_lines import EditLines
from turnwise_swe.environment.tools.pdb import Pdb
from turnwise_swe.environment.tools.python import Python
from turnwise_swe.environment.tools.search import Search
from turnwise_swe.environment.tools.submit import Submit
from turnwise_swe.environment.tools.test import ALL_PASS, Test
from turnwise_swe.environment.tools.view import View
from turnwise_swe.environment.verdict import judge
from turnwise_swe.environment.workspace import Changes, Workspace

NOTE_CHARS = 1000
"""Characters for a tool's remarks about its output, in addition to the output, which is cut to
`max_observation_chars`."""


class SweEnvironment(ToolEnvironment):
    """A repository with a bug. Single use."""

    def __init__(self, *, sandbox: SharedSandbox, case: Case, chosen: SweArguments) -> None:
        """`sandbox` is shared by all episodes."""
        chars = chosen.max_observation_chars + NOTE_CHARS
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chars)
        self._sandbox = sandbox
        self._case = case
        self._chosen = chosen
        self._task_id = ""
        self._workspace: Workspace | None = None
        self._pdb: Pdb | None = None
        self._submitted: Changes | None = None
        self._ending = ""
        """Why the submission is not graded; "" if it is."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the issue and the tools. The first call that needs the tree opens it."""
        self._task_id, chosen = task.id, self._chosen
        workspace = Workspace(
            sandbox=self._sandbox,
            repository=self._case.repository,
            bug=self._case.bug_without_tests if chosen.hide_tests else self._case.bug,
            limits=Limits(wall_s=chosen.command_s, disk_bytes=chosen.disk_mib << 20, num_files=65_536),
            seed=seed,
        )
        return task.prompt, self._take(workspace, Pdb(workspace, chosen.max_observation_chars))

    def _take(self, workspace: Workspace, debugger: Pdb) -> list[Callable[..., object]]:
        """Return the tools' functions for a workspace, which becomes the episode's."""
        chosen, chars = self._chosen, self._chosen.max_observation_chars
        self._workspace, self._pdb = workspace, debugger
        functions: dict[ToolName, Callable[..., object]] = {
            "bash": Bash(workspace, chars).bash,
            "view": View(workspace, chars, chosen.view_lines).view,
            "search": Search(workspace, chars).search,
            "edit": Edit(workspace).edit,
            "edit_lines": EditLines(workspace).edit_lines,
            "edit_diff": EditDiff(workspace).edit_diff,
            "test": Test(workspace, chars, chosen.test_s).test,
            "python": Python(workspace, chars).python,
            "pdb": debugger.pdb,
            "submit": Submit(self._submit).submit,
        }
        return [functions[name] for name in chosen.tools]

    async def _submit(self) -> None:
        """Take the changes and end everything that runs, so that nothing changes them afterwards."""
        assert self._workspace is not None
        try:
            self._submitted = await self._workspace.changes()
        except ToolFailure:
            self._ending = "too_large"
        await self.teardown()
        self.done = True

    def is_failure(self, record: ToolRecord) -> bool:
        """Return whether the record is a run of tests in which one fails."""
        return record.call.name == "test" and not record.observation.startswith(ALL_PASS)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the submitted files resolve the instance in fresh trees with pristine tests, else 0.

        Parts: `success`; the named ending, one of `verdict.ENDINGS` or of a grade; `fixed` (share of FAIL_TO_PASS),
        `broken` (number of PASS_TO_PASS), `forgeable` (the repair ran in the process of its tests); and counts of
        actions (`verdict.count_calls`). Invalid if grading failed, or if the repository was changed on disk.
        """
        ending = self._ending if self.done else "not_submitted"
        return await judge(self._sandbox, self._case, self._submitted, self.tool_records, ending)

    def state_hash(self) -> str:
        """Return 16 hexadecimal digits of the episode's state: the task and what was read. Equal states have equal
        hashes."""
        return hash_calls(self._task_id, self.tool_records)

    async def fork(self) -> SweEnvironment:
        """See `ForkableEnvironment.fork`. The copy has its own tree with the same files (see `Workspace.fork`) and pdb
        at the same place."""
        assert self._workspace is not None
        assert self._pdb is not None
        workspace = await self._workspace.fork()
        twin = self.copy_episode(with_tools=False)
        twin.offer(twin._take(workspace, await self._pdb.fork(workspace)))
        return twin

    async def teardown(self) -> None:
        """End the session and the debugger."""
        if self._pdb is not None:
            await self._pdb.close()
        if self._workspace is not None:
            await self._workspace.close()
