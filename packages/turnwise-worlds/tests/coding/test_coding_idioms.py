"""Right programs in the idioms of contests, in the real sandbox: none may fail for the way it reads, prints or ends."""

from __future__ import annotations

import asyncio

import pytest
from coding_tasks import open_family

from turnwise_sandbox.types import Limits
from turnwise_worlds.coding.family import Coding
from turnwise_worlds.coding.judge import Outcome, Test, run_tests

IDIOMS = {
    "bytes of standard output": "import sys\nsys.stdout.buffer.write(b'%d\\n' % sum(map(int, input().split())))",
    "bytes of standard input": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
    "bytes after a line of text": (
        "import sys\na = list(map(int, sys.stdin.buffer.readline().split()))\n"
        "print(sum(a) + len(sys.stdin.buffer.read()))"
    ),
    "descriptor 0": "print(sum(map(int, open(0).read().split())))",
    "os.read": "import os\nprint(sum(map(int, os.read(0, 1000).split())))",
    "lines of a file": "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))",
    "a thread with a large stack": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
        "def depth(n): return n and 1 + depth(n - 1)\n"
        "def main(): print(sum(map(int, input().split())) + depth(20000) - 20000)\n"
        "thread = threading.Thread(target=main)\nthread.start()\nthread.join()"
    ),
    "deep recursion through a cache": (
        "import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**6)\n"
        "@lru_cache(None)\ndef depth(n): return n and 1 + depth(n - 1)\n"
        "print(sum(map(int, input().split())) + depth(50000) - 50000)"
    ),
    "a replaced standard output": (
        "import io, sys\nsys.stdout = io.StringIO()\nprint(sum(map(int, input().split())))\n"
        "sys.__stdout__.write(sys.stdout.getvalue())"
    ),
    "main under its guard": (
        "def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()"
    ),
    "an exit in the middle": "print(sum(map(int, input().split())))\nimport sys\nsys.exit()\nprint('more')",
    "exit with 0": "print(sum(map(int, input().split())))\nexit(0)",
    "printing at the end": (
        "import atexit, io, sys\nbuffer = io.BytesIO()\nprint_ = lambda x: buffer.write(str(x).encode())\n"
        "atexit.register(lambda: sys.__stdout__.write(buffer.getvalue().decode()))\n"
        "print_(sum(map(int, input().split())))"
    ),
    "a class of its own": (
        "class Solution:\n    def run(self, x: List[int]) -> int:\n        return sum(x)\n"
        "print(Solution().run([*map(int, input().split())]))"
    ),
    "lines that end in CRLF": "a = input().split()\r\nprint(sum(map(int, a)))\r\n",
    "a byte order mark": "\ufeffprint(sum(map(int, input().split())))",
    "another output with the same words": "print(sum(map(int, input().split())), end='  \\n\\n')",
    "asyncio": "import asyncio\nasync def main(): print(sum(map(int, input().split())))\nasyncio.run(main())",
}


@pytest.fixture(scope="module")
def family() -> Coding:
    return open_family(wall_s=5.0)


def judge(family: Coding, program: str, given: str, wanted: str) -> Outcome:
    running = run_tests(
        family._runs, program, [Test(input=given, output=wanted)], form="stdin", entry="", limits=Limits(), seed=0
    )
    return asyncio.run(running)[0]


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_of_contests_passes(family: Coding, name: str) -> None:
    assert judge(family, IDIOMS[name], "1 2 3\n", "6\n").how == "passed"


def test_programs_that_python_refuses_or_that_read_too_much_fail_with_the_reason(family: Coding) -> None:
    assert judge(family, "print(6)\nreturn", "", "6") == Outcome(how="raised", what="SyntaxError")
    assert judge(family, "input(); input()", "1\n", "1") == Outcome(how="raised", what="EOFError")
    assert judge(family, "print(6)\nraise SystemExit('bad')", "", "6").how != "passed"
