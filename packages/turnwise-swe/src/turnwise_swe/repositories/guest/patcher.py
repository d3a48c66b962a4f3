"""Applies the patch from standard input to the working folder in one way; prints as JSON whether that worked.

The program's first line sets `WAY`. The tree has no git; for `--3way` an index is made outside it.
"""

import json
import os
import subprocess
import sys
import tempfile

COMMANDS = {
    "git apply": ["git", "apply", "--verbose"],
    "git apply --3way": ["git", "apply", "--verbose", "--3way"],
    "git apply --reject": ["git", "apply", "--verbose", "--reject"],
    "patch --fuzz=5": ["patch", "--batch", "--forward", "--fuzz=5", "-p1", "--no-backup-if-mismatch", "-i"],
}
SECONDS = 60


def main(way: str) -> None:
    """Apply the patch in the way of that name."""
    with tempfile.TemporaryDirectory() as scratch:
        patch = os.path.join(scratch, "patch.diff")
        with open(patch, "wb") as file:
            file.write(sys.stdin.buffer.read())
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": scratch, "LANG": "C.UTF-8", "TMPDIR": scratch}
        variables |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": os.path.dirname(os.getcwd())}
        if way.endswith("--3way"):
            variables |= {"GIT_DIR": os.path.join(scratch, "git"), "GIT_WORK_TREE": os.getcwd()}
            for command in (["git", "init", "-q"], ["git", "add", "-A", "-f"]):
                subprocess.run(command, env=variables, timeout=SECONDS, capture_output=True, check=False)
        try:
            done = subprocess.run(
                [*COMMANDS[way], patch], env=variables, timeout=SECONDS, capture_output=True, check=False
            )
        except FileNotFoundError:
            answer = {"applied": False, "reason": f"there is no program {COMMANDS[way][0]}", "is_missing": True}
        else:
            text = (done.stdout + done.stderr).decode("utf-8", "replace")
            answer = {"applied": done.returncode == 0, "reason": text[-2000:], "is_missing": False}
    sys.stdout.write(json.dumps(answer))


main(WAY)  # type: ignore[name-defined]  # noqa: F821 - the first line of the program sets it
