"""Judges a repository in a Harbor container: prints 1 if the tests that must pass do, else 0.

Copied into task folders as `tests/judge.py`; needs nothing but Python. It lays the source files of `/testbed` over the
pristine rest of the tree in a folder of its own, runs the launcher there, and believes its report only if the report is
complete.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any


def read_statuses(output: str) -> dict[str, str]:
    """Test id to status; empty if the run was tampered with or did not complete."""
    rows = [json.loads(line) for line in output.splitlines() if line]
    kinds = [row["kind"] for row in rows]
    if "tampered" in kinds or "end" not in kinds:
        return {}
    return {row["id"]: row["status"] for row in rows if row["kind"] == "test"}


def list_sources(testbed: str, request: dict[str, Any]) -> Iterator[str]:
    """The plain files of the source folders that count: Python files, and those that were sources from the start."""
    for source in request["source_folders"]:
        place = os.path.join(testbed, source)
        walked = os.walk(place) if os.path.isdir(place) else [(os.path.dirname(place), [], [os.path.basename(place)])]
        for folder, _, names in walked:
            for name in names:
                file = os.path.join(folder, name)
                path = os.path.relpath(file, testbed)
                may_count = (name.endswith(".py") and name != "conftest.py") or path in request["other_sources"]
                if may_count and os.path.isfile(file) and not os.path.islink(file):
                    yield path


def lay_room(testbed: str, tests: str, room: str, request: dict[str, Any]) -> None:
    """Lay out the pristine files and the source files of `testbed`; a pristine file is never replaced."""
    shutil.copytree(os.path.join(tests, "pristine"), room)
    for path in list_sources(testbed, request):
        target = os.path.join(room, path)
        if not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(testbed, path), target)


def main(testbed: str, tests: str, site_packages: str) -> None:
    """Judge the tree, and print the reward."""
    with open(os.path.join(tests, "request.json"), encoding="utf-8") as file:
        request = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        room = os.path.join(folder, "room")
        lay_room(testbed, tests, room, request)
        run = subprocess.run(
            [sys.executable, "-S", "-P", "-B", os.path.join(tests, "launcher.py")],
            input=json.dumps({**request["run"], "site_packages": site_packages}).encode("ascii"),
            capture_output=True,
            cwd=room,
            env={"TMPDIR": folder, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        )
    statuses = read_statuses(run.stdout.decode("utf-8", "replace"))
    is_fixed = all(statuses.get(test) == "passed" for test in request["fail_to_pass"])
    is_kept = all(statuses.get(test) in allowed for test, allowed in request["pass_to_pass"].items())
    sys.stdout.write(f"{int(bool(statuses) and is_fixed and is_kept)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
