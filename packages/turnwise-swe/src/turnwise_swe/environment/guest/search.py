"""Prints the lines of text files below a path that match a pattern. Its argument is a JSON object: `pattern`, `path`,
`max_matches`. Status 3: there is no such path, or the pattern is invalid."""

import json
import os
import re
import sys

MAX_FILE_BYTES = 4 << 20
MAX_LINE_CHARS = 200
SKIPPED = {"__pycache__", ".git"}


def list_files(path: str) -> list[str]:
    """List the plain files below a path, in order."""
    if os.path.isfile(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(set(folders) - SKIPPED)
        places = (os.path.join(folder, name) for name in sorted(names))
        found += [place for place in places if os.path.isfile(place) and not os.path.islink(place)]
    return found


def main() -> int:
    """Search. Returns the exit status."""
    request = json.loads(sys.argv[1])
    try:
        pattern = re.compile(request["pattern"])
    except re.error as problem:
        sys.stdout.write(f"the pattern is no regular expression: {problem}")
        return 3
    if not os.path.exists(request["path"]):
        sys.stdout.write(f"there is no {request['path']}")
        return 3
    shown, num_matches = [], 0
    for place in list_files(request["path"]):
        with open(place, "rb") as file:
            content = file.read(MAX_FILE_BYTES)
        if b"\0" in content[:1024]:
            continue
        for number, part in enumerate(content.splitlines(), 1):  # split bytes: as Python and editors number lines
            line = part.decode("utf-8", "replace")
            if pattern.search(line):
                num_matches += 1
                if num_matches <= request["max_matches"]:
                    shown.append(f"{os.path.normpath(place)}:{number}: {line.strip()[:MAX_LINE_CHARS]}")
    if num_matches > request["max_matches"]:
        shown.append(f"[{num_matches - request['max_matches']} more lines match]")
    sys.stdout.write("\n".join(shown) or "no line matches")
    return 0


sys.exit(main())
