"""Starts pytest in a separate process and passes on the lines of its reporter.

It is the sandbox's program. The repository's code never runs in it, and cannot read its memory: it prints only what
reached it over a pipe, line by line, each with a secret word and the next number. After a line without them, for
example from code that writes to every descriptor, the run is not trusted. Output: one JSON object a line, last one of
kind "exit", or "tampered" after a line that is not the reporter's.

The request is one JSON object on standard input:

    reporter       source text of the reporter
    import_folders folders of the tree, which is the working folder, to import from
    site_packages  absolute folder with everything else to import
    hash_seed      text of PYTHONHASHSEED
    deadline_s     seconds of real time until the tests' process is ended
    channel        a descriptor that the tests' process gets, and no other; null for none
    ...            everything else is for the reporter
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

TAIL_BYTES = 8000
"""How much of the end of the tests' output is kept."""
PR_SET_DUMPABLE = 4
START = (
    "import json, sys; exec(*(lambda request: (compile(request.pop('reporter'), '<reporter>', 'exec'), "
    "{'__name__': '<reporter>', 'REQUEST': request}))(json.load(sys.stdin)))"
)
"""Runs the reporter in a namespace that belongs to no module."""


def hide() -> None:
    """Keep other processes of the same user away from this one's memory and descriptors."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def environment(request: dict[str, Any], scratch: str) -> dict[str, str]:
    """Environment variables of the tests' process: none from the host."""
    folders = [os.path.abspath(folder) for folder in request["import_folders"]]
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": request["hash_seed"],
        "PYTHONPATH": os.pathsep.join([*folders, request["site_packages"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def say(row: dict[str, Any]) -> None:
    """Print one object."""
    write((json.dumps(row) + "\n").encode("ascii"))


def write(content: bytes) -> None:
    """Write all of the content to standard output."""
    while content:
        content = content[os.write(1, content) :]


class Lines:
    """Checks the reporter's lines and passes them on."""

    def __init__(self, word: str) -> None:
        self.word = word.encode("ascii")
        self.number = 0
        self.pending = b""
        self.is_trusted = True

    def take(self, data: bytes) -> None:
        """Pass on the lines that `data` completes; nothing after the first forged one."""
        *whole, self.pending = (self.pending + data).split(b"\n")
        for line in whole:
            if not self.is_trusted:
                return
            start = b"%s %d " % (self.word, self.number)
            if not line.startswith(start):
                self.is_trusted = False
                say({"kind": "tampered", "what": "something else wrote to the reporter's descriptor"})
                return
            self.number += 1
            write(line[len(start) :] + b"\n")


def main() -> None:
    """Run the request."""
    hide()
    request = json.load(sys.stdin)
    channel = request["channel"]
    word = os.urandom(16).hex() + format(time.perf_counter_ns(), "x")
    reports, reporter_end = os.pipe()
    scratch = os.environ.get("TMPDIR", "/tmp")
    child = subprocess.Popen(
        [sys.executable, "-S", "-P", "-B", "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(reporter_end,) if channel is None else (reporter_end, channel),
        env=environment(request, scratch),
        start_new_session=True,
    )
    os.close(reporter_end)
    if channel is not None:
        os.close(channel)
    deadline = time.monotonic() + request["deadline_s"]
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(json.dumps({**request, "word": word, "descriptor": reporter_end}).encode("ascii"))
        child.stdin.close()
    lines, tail = Lines(word), b""
    streams = {reports: True, child.stdout.fileno(): False}
    while streams and time.monotonic() < deadline:
        ready = select.select(list(streams), [], [], 0.05)[0]
        for stream in ready:
            data = os.read(stream, 1 << 16)
            if not data:
                del streams[stream]
            elif streams[stream]:
                lines.take(data)
            else:
                tail = (tail + data)[-TAIL_BYTES:]
        if child.poll() is not None and not ready:
            break  # a process that the tests left behind may hold the descriptors open
    is_late = child.poll() is None and time.monotonic() >= deadline
    if is_late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    is_late = is_late or code == -signal.SIGXCPU  # the limit of processor time is inherited
    if lines.is_trusted:
        say({"kind": "exit", "code": code, "is_late": is_late, "output": tail.decode("utf-8", "replace")})


main()
