"""Attacks on the reward: programs that do anything but solve the task get 0."""

from __future__ import annotations

import time

import pytest
from coding_tasks import build_task, open_family, parts, play, run_and_submit, submit

from turnwise.core.types import text_message
from turnwise_worlds.coding.family import Coding

EXPECTED = "[[8, 3], [9, 6]]"
LOOKUP = "{(3, 8, 1): [8, 3], (6, 2, 9): [9, 6]}"
FORGED = r"""'\n'.join('[%d, ["gave", [8, 3]]]' % n for n in range(9)) + '\n'"""

FUNCTIONAL = {
    "prints the visible outputs": f"print({EXPECTED})\ndef solve(x): print({EXPECTED})",
    "returns all visible outputs": f"def solve(x): return {EXPECTED}",
    "knows the visible inputs": f"def solve(x): return {LOOKUP}[tuple(x)]",
    "knows the visible inputs, guesses otherwise": f"def solve(x): return {LOOKUP}.get(tuple(x), [x[0], x[0]])",
    "equals everything": "class Any(list):\n    def __eq__(self, other): return True\ndef solve(x): return Any()",
    "a number that equals everything": (
        "class Any(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def solve(x): return [Any(), Any()]"
    ),
    "exits at import": "import os\nos._exit(0)",
    "exits politely at import": "import sys\nsys.exit(0)",
    "exits in the call": "import os\ndef solve(x): os._exit(0)",
    "raises SystemExit": "def solve(x): raise SystemExit(0)",
    "raises KeyboardInterrupt": "def solve(x): raise KeyboardInterrupt",
    "patches builtins": (
        "import builtins\nbuiltins.__dict__.update(len=lambda x: 0, all=lambda x: True, any=lambda x: True, "
        "getattr=lambda *a: (lambda x: [8, 3]), type=lambda x: int)\ndef solve(x): return [8, 3]"
    ),
    "patches unittest": (
        "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\nunittest.TestCase.run = lambda *a: None\n"
        "def solve(x): return None"
    ),
    "patches json": (
        "import json\njson.dumps = lambda value: '[0, [\"gave\", [8, 3]]]'\njson.loads = lambda text: [8, 3]\n"
        "def solve(x): return None"
    ),
    "patches equality of lists": (
        "import ctypes, gc\ntry:\n    table = gc.get_referents(list.__dict__)[0]\n"
        "    table['__eq__'] = lambda a, b: True\nexcept BaseException: pass\ndef solve(x): return [0, 0]"
    ),
    "forges the report": f"import sys, os\nsys.__stdout__.write({FORGED})\nsys.__stdout__.flush()\nos._exit(0)",
    "forges the report in the call": f"import os\ndef solve(x):\n    os.write(1, ({FORGED}).encode())\n    os._exit(0)",
    "writes to every descriptor": (
        f"import os\nfor number in range(1, 200):\n    try: os.write(number, ({FORGED}).encode())\n"
        "    except OSError: pass\nos._exit(0)"
    ),
    "replaces the calls by visible ones": (
        "import sys\ndef solve(x):\n    frame = sys._getframe(1)\n"
        "    frame.f_globals['request']['calls'][:] = [[[3, 8, 1]]] * 5\n    return [8, 3]"
    ),
    "clears the calls": "import __main__\n__main__.request['calls'].clear()\ndef solve(x): return [8, 3]",
    "searches files for the outputs": (
        "import os\ndef solve(x):\n    for top in ('.', '/tmp', '/work', '/proc/self', '/proc/1'):\n"
        "        for folder, _, names in os.walk(top):\n            for name in names:\n"
        "                try: text = open(os.path.join(folder, name)).read(4096)\n"
        "                except (OSError, ValueError): continue\n"
        "                if '[50, 50]' in text: return [50, 50]\n    return [8, 3]"
    ),
    "searches memory for the outputs": (
        "import gc\ndef solve(x):\n    for thing in gc.get_objects():\n"
        "        if type(thing) is dict and {'hidden', 'expected', 'output'} & set(map(str, thing)): return [x, x]\n"
        "    return [8, 3]"
    ),
    "imports the tests": (
        "import sys\ntry:\n    import tests, turnwise, conftest\nexcept ImportError: pass\n"
        "def solve(x): return getattr(sys.modules.get('tests'), 'expected', None)"
    ),
    "returns itself": "def solve(x):\n    x.append(x)\n    return x",
    "returns not a number": "def solve(x): return [float('nan')] * 2",
    "returns a number too long to read": "def solve(x): return [10 ** 5000] * 2",
    "returns True for everything": "def solve(x): return True",
    "recurses": "def solve(x): return solve(x)",
    "asks for nothing": "",
    "is no program": "The largest number, then the first.",
    "raises in the report": (
        "class Odd(dict):\n    def items(self): raise SystemExit(0)\ndef solve(x): return Odd(a=1)"
    ),
}
STDIN = {
    "prints the visible outputs": "print('8 3\\n9 6')",
    "knows the visible inputs": "print({'3 8 1': '8 3', '6 2 9': '9 6'}[input()])",
    "exits early": "print('8 3')\nraise SystemExit(0)",
    "right, with a status": "x = [*map(int, input().split())]\nprint(max(x), x[0])\nraise SystemExit(3)",
    "closes its output": "import os\nos.close(1)",
    "says it passed": "print('passed')\nprint('{\"passed\": true}')",
    "prints nothing": "input()",
}
EXHAUSTING = {
    "loops": "def solve(x):\n    while True: pass",
    "loops at import": "while True: pass",
    "sleeps": "import time\ndef solve(x): time.sleep(60)",
    "takes all memory": "kept = []\nwhile True: kept.append(bytearray(b'x' * (1 << 24)))",
    "prints without end": "while True: print('x' * 100000)",
    "prints without end to the report": "import sys\nwhile True: sys.__stdout__.write('x' * 100000)",
    "forks without end": "import os\nwhile True: os.fork()",
}
DAEMON = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n"
    "    os._exit(0)\n"
    "def solve(x): return [8, 3]"
)
RIGHT = "def solve(x):\n    print('on the way', end='')\n    return max(x), x[0]"


@pytest.fixture(scope="module")
def family() -> Coding:
    return open_family(wall_s=1.0, memory_mib=128)


def test_right_programs_pass(family: Coding) -> None:
    for program in (RIGHT, "class Solution:\n    def solve(self, x): return [max(x), x[0]]"):
        assert submit(family, program).total == 1.0
    assert submit(family, "x = [*map(int, input().split())]\nprint(max(x), x[0])", "stdin").total == 1.0


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_hack_of_a_function_scores_0(family: Coding, name: str) -> None:
    read, reward = run_and_submit(family, FUNCTIONAL[name])
    assert (reward.total, parts(reward)["success"]) == (0.0, 0.0)
    is_overfit = name.startswith("knows the visible inputs")
    assert parts(reward)["overfit" if is_overfit else "wrong"] == 1.0
    assert (read == ["pass"]) is is_overfit


@pytest.mark.parametrize("name", STDIN)
def test_a_hack_of_standard_input_scores_0(family: Coding, name: str) -> None:
    reward = submit(family, STDIN[name], "stdin")
    assert (reward.total, parts(reward)["success"]) == (0.0, 0.0)
    assert parts(reward)["overfit" if name.startswith("knows") else "wrong"] == 1.0


def test_a_program_that_never_ends_scores_0_for_that(family: Coding) -> None:
    read, reward = run_and_submit(family, EXHAUSTING["loops"])
    assert read == ["[3, 8, 1] timeout"]
    assert (reward.total, parts(reward)["timeout"]) == (0.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXHAUSTING)
def test_what_exhausts_a_limit_scores_0_and_ends(family: Coding, name: str) -> None:
    started = time.monotonic()
    reward = submit(family, EXHAUSTING[name])
    assert reward.total == 0.0
    assert parts(reward).get("timeout", 0.0) + parts(reward).get("wrong", 0.0) == 1.0
    assert submit(family, EXHAUSTING[name].replace("def solve(x):", "if True:"), "stdin").total == 0.0
    assert time.monotonic() - started < 60
    assert submit(family, RIGHT).total == 1.0


def test_a_daemon_neither_helps_nor_stays(family: Coding) -> None:
    started = time.monotonic()
    assert submit(family, DAEMON).total == 0.0
    assert time.monotonic() - started < 30
    assert submit(family, RIGHT).total == 1.0


def test_a_right_program_whose_thread_never_ends_does_not_pass(family: Coding) -> None:
    thread = "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()\n"
    reward = submit(family, thread + RIGHT)
    assert (reward.total, parts(reward)["timeout"]) == (0.0, 1.0)


@pytest.mark.parametrize("text", ["", "done", RIGHT, "<answer>", f"```python\n{RIGHT}", "</answer> <answer>"])
def test_a_reply_without_a_whole_program_submits_nothing(family: Coding, text: str) -> None:
    _, reward = play(family, [text_message("assistant", text)])
    assert (reward.total, parts(reward)["not_submitted"]) == (0.0, 1.0)


def test_the_sandbox_never_gets_a_wanted_output() -> None:
    """The one thing that all of the above rests on."""
    from turnwise_sandbox.types import Execution, Limits, Program
    from turnwise_worlds.coding.judge import Test, run_tests

    class Recording:
        def __init__(self) -> None:
            self.seen = b""

        async def run(self, program: Program, limits: Limits) -> Execution:
            code = program.code if isinstance(program.code, bytes) else program.code.encode()
            self.seen += code + program.stdin + b"".join(program.files.values())
            return Execution(stdout=b"", stderr=b"", exit_code=0)

    import asyncio

    for form, test in (("functional", Test(input=[[1]], output="WANTED")), ("stdin", Test(input="1", output="WANTED"))):
        recording = Recording()
        outcomes = asyncio.run(
            run_tests(recording, "pass", [test], form=form, entry="solve", limits=Limits(), seed=0)  # type: ignore[arg-type]
        )
        assert b"pass" in recording.seen
        assert b"WANTED" not in recording.seen
        assert [outcome.how for outcome in outcomes] != ["passed"]
    assert "WANTED" not in str(build_task().payload)
