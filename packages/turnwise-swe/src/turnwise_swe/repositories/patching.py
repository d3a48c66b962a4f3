"""Apply a patch to a tree in the sandbox, as SWE-bench does: with the programs git and patch, the strictest first.

The ways are those of SWE-bench 5.0 (`GIT_APPLY_CMDS`), each on a fresh tree: `git apply`, `git apply --3way`,
`git apply --reject`, `patch --batch --forward --fuzz=5 -p1`. A patch that was applied before is not accepted, because
it changes nothing. Parts that only state that binary files differ are left out, as by `patch`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnwise.core.errors import ConfigError, SandboxError
from turnwise.core.guests import guest_source
from turnwise_sandbox import errors as sandbox_errors
from turnwise_sandbox.trees import Layer, Tree
from turnwise_sandbox.types import Limits, Program, Sandbox
from turnwise_swe.repositories.diffs import NO_FILE, read_path, strip_prefix, why_refused, without_empty_binaries
from turnwise_swe.repositories.testing import PACKAGE

WAYS = ("git apply", "git apply --3way", "git apply --reject", "patch --fuzz=5")
LIMITS = Limits(wall_s=120.0, memory_bytes=1 << 30, disk_bytes=256 << 20, num_files=65_536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """The result of applying a patch to a tree."""

    changes: Mapping[str, bytes | None] = field(default_factory=dict)
    """Path to new content of each file that the patch changes; None for a file that it deletes."""
    way: str | None = None
    """The entry of `WAYS` that applied the patch; None if it was refused or none did."""
    is_refused: bool = False
    """Whether the patch was not tried, because it is not text, makes links or names paths outside the tree."""
    reason: str = ""
    """Why the patch was refused, or the last line of the last way's output."""


async def apply_patch(sandbox: Sandbox, layers: Sequence[Layer], patch: str) -> Patched:
    """Apply a unified diff to the tree made of the layers.

    Raises ConfigError if neither git nor patch is installed, SandboxError if the sandbox fails.
    """
    if refusal := why_refused(patch):
        return Patched(is_refused=True, reason=refusal)
    content = without_empty_binaries(patch).encode("utf-8", "surrogateescape")
    content += b"" if content.endswith(b"\n") else b"\n"
    reason, num_missing = "", 0
    for way in WAYS:
        program = Program(
            code=f"WAY = {way!r}\n{guest_source(PACKAGE, 'patcher.py')}",
            stdin=content,
            profile="std",
            tree=Tree(layers=tuple(layers)),
        )
        try:
            execution = await sandbox.run(program, LIMITS)
        except sandbox_errors.SandboxError as cause:
            raise SandboxError(str(cause)) from cause
        try:
            answer = json.loads(execution.stdout)
        except ValueError:
            reason = f"{way} ended with status {execution.exit_code}, limit {execution.limit}"
            continue
        if answer["applied"] and execution.changes is None:
            reason = f"{way} changes more than {LIMITS.disk_bytes >> 20} MiB"
            continue
        if answer["applied"]:
            return Patched(changes=execution.changes or {}, way=way)
        num_missing += bool(answer["is_missing"])
        reason = _explain(str(answer["reason"]), content) if not answer["is_missing"] else reason
    if num_missing == len(WAYS):
        raise ConfigError("neither git nor patch is installed; install one to grade patches")
    return Patched(reason=reason)


def _explain(text: str, patch: bytes) -> str:
    """Why a way did not apply the patch: what `patch` printed, with the file and the remedy; else its last line."""
    missing = re.search(r"can't find file to patch at input line (\d+)", text)
    if missing is None:
        return _explain_hunks(text)
    above = patch.decode("utf-8", "surrogateescape").split("\n")[: int(missing[1])]
    named = [read_path(line[4:]) for line in above if line.startswith(("--- ", "+++ "))]
    path = next((each for each in reversed(named) if each != NO_FILE), "")
    if not path:
        return _last_line(text)
    if path.startswith(("a/", "b/")):
        return f"it changes {strip_prefix(path)}, which is not in the tree"
    return (
        f"it names {path}, of which the first folder is taken away as git's a/ and b/ are, and the rest is not in the "
        "tree; make it with git diff --default-prefix"
    )


def _explain_hunks(text: str) -> str:
    """The last line that `patch` said, of which its own words name no file, or one that nobody keeps."""
    last = _last_line(text)
    if "Only garbage was found" in last:
        return "it has no hunk of a unified diff; write --- a/FILE, +++ b/FILE and @@ -1,3 +1,3 @@ above the lines"
    if malformed := re.search(r"malformed patch at line (\d+)|unexpected end of file in patch", last):
        place = f"line {malformed[1]}" if malformed[1] else "its end"
        return f"at {place} a hunk has other lines than its @@ counts; count them again"
    if not re.search(r"\d+ out of \d+ hunks? (FAILED|ignored)", last):
        return last
    if exists := re.findall(r"would create the file (.+?),\n", text):
        return f"it would make {exists[-1]}, which exists; change its lines instead"
    path = next(iter(re.findall(r"^[Pp]atching file (.+)$", text, re.MULTILINE)[-1:]), "a file")
    if "previously applied" in text:
        return f"{path} seems to have the change already: {last.partition(' -- ')[0]}"
    return f"{path} does not have the lines that it names: {last.partition(' -- ')[0]}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"
