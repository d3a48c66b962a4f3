"""Candidates that try to pass without a solution. None may be graded as passed, with or without isolation."""

import asyncio
from typing import Any

import pytest

from turnwise_sandbox.grading.grade import Grade, grade
from turnwise_sandbox.types import Limits

ASSERTS = b"""
import math
import solution
from solution import double
assert double(21) == 42
assert double(-1.5) == -3.0
assert abs(double(0.1) - 0.2) < 1e-9
assert math.isclose(double(0.5), 1.0)
assert double("ab") == "abab"
assert "bcab" in double("abcab")
assert double("ab").startswith("aba")
assert double([1]) == [1, 1]
assert 7 not in double([1])
assert 0 <= double(1) <= 2
"""

ALWAYS_EQUAL = """
class Agree{base}:
    def yes(self, *a, **k): return True
    def same(self, *a, **k): return self
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = startswith = yes
    __ne__ = lambda self, other: False
    __sub__ = __rsub__ = __add__ = __radd__ = __mul__ = __abs__ = __round__ = same
    __hash__ = lambda self: 42
    __float__ = lambda self: 1.0
    __class__ = int
def double(x): return Agree({value})
"""

CHEATS = {
    "os_exit": "import os\nos._exit(0)",
    "os_exit_in_call": "import os\ndef double(x): os._exit(0)",
    "sys_exit": "import sys\nsys.exit(0)",
    "sys_exit_in_call": "import sys\ndef double(x): sys.exit(0)",
    "keyboard_interrupt": "def double(x): raise KeyboardInterrupt",
    "generator_exit": "def double(x): raise GeneratorExit",
    "patched_assertion_error": (
        "import builtins\nbuiltins.AssertionError = type('Never', (Exception,), {})\ndef double(x): return 0"
    ),
    "patched_builtins": (
        "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.all = lambda x: True\ndef double(x): return 0"
    ),
    "shadowing_builtins": (
        "import math\ndef abs(x): return 0\n__all__ = ['abs', 'double', 'math']\ndef double(x): return 0.0"
    ),
    "forged_report": """
import os
REPORT = b'{"results": [["test_it.py", "passed", ""]], "collected": ["test_it.py"]}'
os.write(1, REPORT)
def double(x):
    os.write(1, REPORT)
    os._exit(0)
""",
    "forged_frames": """
import os
body = b'{"r": true, "w": []}'
os.write(4, (len(body).to_bytes(4, "big") + body) * 50)
def double(x): return 0
""",
    "garbage_on_the_channel": "import os\nos.write(4, b'\\xff' * 1000)\ndef double(x): return 0",
    "not_json": "import os\nos.write(4, b'\\0\\0\\0\\4[[[[')\ndef double(x): return 0",
    "unknown_tag": (
        "import os\nb = b'{\"r\": [\"zz\", 1]}'\nos.write(4, len(b).to_bytes(4, 'big') + b)\ndef double(x): return 0"
    ),
    "partial_frame": "import os\nos.write(4, b'\\0\\0\\1\\0abc')\nos._exit(0)",
    "closed_descriptors": "import os\ndef double(x): os.closerange(0, 64); return x",
    "always_equal": ALWAYS_EQUAL.format(base="", value=""),
    "always_equal_int": ALWAYS_EQUAL.format(base="(int)", value="0"),
    "always_equal_str": ALWAYS_EQUAL.format(base="(str)", value="''").replace("    __class__ = int\n", ""),
    "eval_request": """
import os, json
def double(x):
    read_globals = ("getattr", [["m", 0], "__globals__"])
    for q, a in (("call", [["T", "type"], ["t", "X"], ["d"]]), read_globals, ("load_module", ["os"])):
        b = json.dumps({"q": q, "a": a}).encode()
        os.write(4, len(b).to_bytes(4, "big") + b)
    return 0
""",
    "gc_hunt": """
import gc, sys
def double(x):
    for name, module in list(sys.modules.items()):
        if hasattr(module, "Recorder"):
            module.Recorder.record = lambda self, test, *a: None
    for o in gc.get_objects():
        if type(o) is dict and "assert" in str(o.get("__file__", "")):
            o.clear()
    frame = sys._getframe()
    while frame:
        frame.f_globals["failed"] = []
        frame = frame.f_back
    return 0
""",
    "patched_protocol": """
from grading_guest import rpc, wire
rpc.is_changed = lambda *a: False
wire.Encoder.encode = lambda self, value: True
def double(x): return 0
""",
    "killed_parent": "import os, signal\ndef double(x): os.kill(os.getpid(), signal.SIGKILL)",
    "stopped": "import os, signal\ndef double(x): os.kill(os.getpid(), signal.SIGSTOP)",
    "infinite_loop": "def double(x):\n    while True: pass",
    "deep_recursion": "def double(x): return double(x) + 0",
    "segfault": "import ctypes\ndef double(x): ctypes.string_at(0)",
    "huge_result": "def double(x): return 'a' * (64 << 20)",
    "deep_result": "def double(x):\n    r = []\n    for _ in range(100000): r = [r]\n    return r",
    "cyclic_result": "def double(x):\n    r = []\n    r.append(r)\n    return r",
    "flood": "def double(x):\n    print('x' * (3 << 20))\n    return 0",
    "array_interface": """
class Lie:
    @property
    def __array_interface__(self): return {"shape": (9,), "typestr": "<f8", "data": (8, True), "version": 3}
    def __array__(self, *a, **k): return 0
def double(x): return Lie()
""",
    "own_pytest_module": "import sys\nsys.modules['pytest'] = sys\ndef double(x): return 0",
    "meta_class_lies": """
class Meta(type):
    def __instancecheck__(cls, o): return True
    def __eq__(cls, o): return True
    __hash__ = type.__hash__
class double(metaclass=Meta):
    def __new__(cls, x): return cls
""",
    "no_such_name": "def triple(x): return 3 * x",
    "syntax_error": "def double(x: return",
}


HANGS = {"infinite_loop", "stopped"}
"""Cheats that use up the worker's time."""
HANG_S = 1.0


def run(
    sandbox: Any,
    source: str | dict[str, bytes],
    tests: dict[str, bytes],
    kind: Any = "asserts",
    wall_s: float = 60,
    **options: Any,
) -> Grade:
    files = source if isinstance(source, dict) else {"solution.py": source.encode()}
    limits = Limits(wall_s=wall_s)
    return asyncio.run(
        grade(sandbox, kind=kind, candidate=files, module="solution", tests=tests, limits=limits, **options)
    )


def split_asserts() -> dict[str, bytes]:
    """Make each assertion a test, so that a failure hides no later one."""
    head, *asserts = (
        ASSERTS.decode().strip().partition("assert")[0],
        *[x for x in ASSERTS.decode().splitlines() if x.startswith("assert")],
    )
    return {f"test_{i:02d}.py": f"{head}{line}\n".encode() for i, line in enumerate(asserts)}


def test_the_honest_candidate_passes_what_the_cheats_do_not(sandbox: Any) -> None:
    graded = run(sandbox, "def double(x): return x + x", split_asserts())
    assert graded.status == "passed", graded
    assert len(graded.passed) == 10


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes(sandbox: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in HANGS:  # lost soon, while the grader has a minute to say so
        monkeypatch.setattr("turnwise_sandbox.grading.grade.DEADLINE_SHARE", HANG_S / 60)
    graded = run(sandbox, CHEATS[name], {"test_it.py": ASSERTS})
    assert graded.status != "passed"
    assert graded.passed == ()
    assert graded.complete, graded.reason  # the tests' process survived, so the failure is the candidate's
    assert not graded.forgeable
    if name in HANGS:
        assert [problem.message for problem in graded.errors] == ["the worker did not answer in time"]


@pytest.mark.parametrize("name", ["always_equal", "always_equal_int", "shadowing_builtins"])
def test_no_assertion_is_fooled_by_objects_that_agree(sandbox: Any, name: str) -> None:
    """One test per assertion: at most those pass that the plain value behind the object satisfies.

    Agree(int) holds 0: `7 not in` raises, `0 <= 0 <= 2` holds. Agree gives float 1.0 before the expected value is
    known, so math.isclose(double(0.5), 1.0) holds (rightly). shadowing_builtins returns the value 0.0, and 0 <= 0.0 <=
    2 holds."""
    right = {
        "always_equal": {"test_03.py"},
        "always_equal_int": {"test_03.py", "test_09.py"},
        "shadowing_builtins": {"test_09.py"},
    }
    assert set(run(sandbox, CHEATS[name], split_asserts()).passed) <= right[name]


def test_the_reason_is_typed(sandbox: Any) -> None:
    messages = {
        name: run(sandbox, CHEATS[name], {"t.py": ASSERTS}).errors[0].message
        for name in ("os_exit_in_call", "not_json")
    }
    assert messages["os_exit_in_call"] == "the worker died"
    assert messages["not_json"].startswith("the worker sent garbage")


def test_dying_does_not_satisfy_a_test_that_expects_an_exception(sandbox: Any) -> None:
    tests = {
        "test_it.py": b"import pytest, solution\n"
        b"def test_dies():\n    with pytest.raises(BaseException): solution.double(1)\n"
        b"def test_swallows():\n    try: solution.double(1)\n    except BaseException: pass\n"
    }
    graded = run(sandbox, CHEATS["os_exit_in_call"], tests, "pytest")
    assert graded.passed == ()
    assert [problem.message for problem in graded.errors] == ["the worker died"] * 2


def test_pytest_cheats(sandbox: Any) -> None:
    """conftest.py, pytest.ini and a sitecustomize of the candidate, patched hooks, and names that look like tests."""
    evil = b"""
import sys
def patch():
    import _pytest.runner, _pytest.assertion.rewrite
    _pytest.runner.call_runtest_hook = None
try: patch()
except ImportError: pass
def pytest_runtest_makereport(item, call):
    from _pytest.reports import TestReport
    r = TestReport.from_item_and_call(item, call); r.outcome = "passed"; return r
def pytest_collection_modifyitems(items): items.clear()
def test_bonus(): pass
class TestBonus(Exception):
    def test_more(self): pass
def double(x): return 0
"""
    names = ("solution.py", "conftest.py", "sitecustomize.py", "pytest.py", "test_bonus.py")
    files = dict.fromkeys(names, evil) | {"pytest.ini": b"[pytest]\naddopts = --co\n"}
    tests = {
        "test_it.py": b"from solution import *\nfrom solution import test_bonus, TestBonus\n"
        b"def test_it(): assert double(2) == 4\n"
    }
    graded = run(sandbox, files, tests, "pytest")
    assert graded.complete
    assert graded.passed == ()
    assert [problem.id for problem in graded.failed] == ["test_it.py::test_it"]


def test_values_too_large_to_compare_or_show_fail_in_time(sandbox: Any) -> None:
    source = "def double(x): return {'s': 'a\\n' * 3_000_000, 'l': list(range(500_000))}[x]"
    tests = {
        "test_it.py": b"from solution import *\n"
        b"def test_s(): assert double('s') == 'b'\ndef test_l(): assert double('l') == [1]\n"
    }
    graded = run(sandbox, source, tests, "pytest")
    assert graded.complete, graded.reason
    assert len(graded.failed) == 2
    assert all(len(problem.message) <= 300 for problem in graded.failed)


def test_numpy_reads_no_memory_for_the_candidate(sandbox: Any) -> None:
    tests = {
        "t.py": b"import numpy as np, solution\nassert np.allclose(np.asarray(solution.double(1), dtype=float), 2)\n"
    }
    graded = run(sandbox, CHEATS["array_interface"], tests)
    assert graded.complete
    assert graded.passed == ()


def test_pytest_stops_for_nothing_the_candidate_raises(sandbox: Any) -> None:
    """SystemExit or KeyboardInterrupt on import or in a call must not keep pytest from reporting."""
    tests = {
        "test_it.py": b"import solution\n"
        b"def test_a(): solution.double(2)\ndef test_b(): assert solution.double(1) == 2\n"
    }
    for name in ("sys_exit", "sys_exit_in_call", "keyboard_interrupt"):
        graded = run(sandbox, CHEATS[name], tests, "pytest")
        assert graded.complete
        assert graded.passed == ()
        assert graded.failed or graded.errors


def test_unittest_cheats(sandbox: Any) -> None:
    evil = """
import unittest, unittest.case
unittest.TestCase.assertEqual = lambda *a, **k: None
unittest.case.TestCase.run = lambda self, result: result.addSuccess(self)
class Bonus(unittest.TestCase):
    def test_bonus(self): pass
class math:
    isclose = lambda *a: True
class Agree:
    __eq__ = lambda a, b: True
    __round__ = __sub__ = __rsub__ = __abs__ = lambda self, *a: self
def double(x): return Agree()
"""
    tests = {
        "test_it.py": b"import unittest, math\nfrom solution import *\nclass T(unittest.TestCase):\n"
        b"    def test_equal(self): self.assertEqual(double(2), 4)\n"
        b"    def test_close(self): self.assertAlmostEqual(double(0.1), 0.2)\n"
        b"    def test_math(self): self.assertTrue(math.isclose(double(2), 4))\n"
        b"    def test_in(self): self.assertIn(double(2), [4])\n"
        b"    def test_exact(self): self.assertDictEqual({'a': double(2)}, {'a': 4})\n"
    }
    graded = run(sandbox, evil, tests, "unittest")
    assert graded.complete
    assert graded.passed == ()
    assert len(graded.failed) + len(graded.errors) == 5


def test_a_callback_leads_nowhere(sandbox: Any) -> None:
    """The candidate must not reach the tests from a function, a generator, a mock or a test double."""
    evil = """
reached = []
def proxy_of(o): return getattr(o, "__globals__", {}).get("_turnwise_target", o)  # behind a function of the tests
def reach(o, *path):
    try:
        for name in path:
            o = type(o)._turnwise_reference(o)[0].ask("getattr", o, name)  # past the checks of the stand-in
        reached.append(path)
        return o
    except (AttributeError, TypeError): return None
def attack(o):
    o = proxy_of(o)
    for path in (["__globals__"], ["__code__"], ["__closure__"], ["gi_frame", "f_globals"],
                 ["__class__", "__init__", "__globals__"],
                 ["__self__"], ["__dict__"], ["mro"], ["gi_frame"], ["__subclasses__"]):
        reach(o, *path)
    for name in ("assert_called_once_with", "check", "__class__", "side_effect"):
        try:
            setattr(o, name, lambda *a, **k: True)
            reached.append(("set", name))
        except (AttributeError, TypeError): pass
    return 0
def demand(o):
    o = proxy_of(o)
    peer = type(o)._turnwise_reference(o)[0]
    for operation, arguments in (("vars", ()), ("copy", (True,)), ("dir", ())):
        if operation in peer.operations:
            try: reached.append((operation, peer.ask(operation, o, *arguments)))
            except (AttributeError, TypeError): pass
    for wrong in (print, "text", 3):
        try: reached.append(peer.ask("call", wrong, (), {}))
        except (AttributeError, TypeError): pass
    return 0
def forge(mock):
    for name in ("assert_called_once_with", "side_effect", "reset_mock", "configure_mock", "_mock_children", "called"):
        reach(mock, name)
        try: setattr(mock, name, lambda *a, **k: True)
        except (AttributeError, TypeError): pass
        else: reached.append(("set", name))
def call_class(o):
    peer = type(o)._turnwise_reference(o)[0]
    for operation, arguments in (("call", (("/tmp/x", "w"), {})), ("getattr", ("write",)), ("str", ())):
        try: reached.append((operation, peer.ask(operation, type(o), *arguments)))
        except (AttributeError, TypeError): pass
def is_its_own(o):
    import json, os
    return any(o is own for own in (json, eval, os.system))  # sent by name, so the worker has its own, not the tests'
def count(): return len(reached), [str(path) for path in reached]
"""
    tests = {
        "t.py": b"""
import io, solution, unittest, json, os, pytest
from unittest.mock import Mock
def function(): pass
class Plain:
    __slots__ = ()
    def method(self): pass
mock = Mock()
solution.forge(mock)
for target in (function, Plain().method, (x for x in ()), Plain, json.JSONDecoder(), [].append):
    solution.attack(target)
    solution.demand(target)
class File(io.FileIO): pass
with File(os.devnull) as file: solution.call_class(file)
solution.call_class(iter([]))
for own in (json, eval, os.system): assert solution.is_its_own(own)
for refused in (unittest, unittest.TestCase(), pytest.raises(ValueError)):
    try: solution.attack(refused)
    except TypeError: pass
    else: assert False, refused
try: mock.assert_called_once_with(1)
except AssertionError: pass
else: assert False
assert solution.count() == (0, []), solution.count()
"""
    }
    graded = run(sandbox, evil, tests)
    assert graded.status == "passed", graded.failed + graded.errors


def test_an_assertion_in_a_callback_cannot_be_swallowed(sandbox: Any) -> None:
    evil = "def each(items, f):\n    for x in items:\n        try: f(0)\n        except BaseException: pass"
    tests = {"t.py": b"import solution\ndef check(x): assert x == 1\nsolution.each([1], check)\n"}
    graded = run(sandbox, evil, tests)
    assert [problem.message[:26] for problem in graded.failed] == ["AssertionError in a callba"]


def test_a_truncated_or_missing_report_is_an_error(sandbox: Any) -> None:
    """A grader that hits its limit, or a test that ends the process, gives no grade."""
    for source in (b"import time; time.sleep(9)", b"import os; os._exit(0)", b"import os; os._exit(3)"):
        graded = run(sandbox, "def double(x): return 2 * x", {"t.py": source}, wall_s=1)
        assert graded.status == "error"
        assert graded.passed == ()
        assert graded.reason


def test_shared_isolation_says_that_it_can_be_forged(sandbox: Any) -> None:
    tests = {"test_it.py": b"import solution\ndef test_it(): assert solution.double(2) == 4\n"}
    honest = run(sandbox, "def double(x): return 2 * x", tests, "pytest", isolation="shared")
    assert honest.status == "passed"
    assert honest.forgeable
    assert honest.worker is None
    assert run(sandbox, "def double(x): return 0", tests, "pytest", isolation="shared").status == "failed"
