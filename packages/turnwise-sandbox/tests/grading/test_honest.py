"""Honest candidates: ordinary code and ordinary tests work across the channel."""

import asyncio
from typing import Any

import pytest

from turnwise_sandbox.grading.grade import Grade, grade
from turnwise_sandbox.types import Limits

SOLUTION = b"""
import asyncio, enum, math
from collections import Counter, namedtuple
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

LIMIT = 10
Pair = namedtuple("Pair", "left right")
class Color(enum.IntEnum):
    RED = 1
class MyError(ValueError):
    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code
class Deeper(MyError, KeyError): pass
@dataclass
class Point:
    x: int
    y: int = 0
    def __add__(self, other): return Point(self.x + other.x, self.y + other.y)
    def __mul__(self, k): return Point(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __lt__(self, other): return (self.x, self.y) < (other.x, other.y)
    def __iter__(self): return iter((self.x, self.y))
    def __hash__(self): return hash((self.x, self.y))
    def __neg__(self): return Point(-self.x, -self.y)
    def __abs__(self): return math.hypot(self.x, self.y)
class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item); return self
    def pop(self):
        if not self.items: raise IndexError("pop from empty stack")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]
    def __setitem__(self, i, v): self.items[i] = v
    def __delitem__(self, i): del self.items[i]
    def __bool__(self): return bool(self.items)
    def __repr__(self): return f"Stack({self.items})"
    @property
    def top(self): return self.items[-1]
class Node:
    def __init__(self, value, next=None): self.value, self.next = value, next
class Managed:
    log = []
    def __enter__(self): self.log.append("in"); return self
    def __exit__(self, kind, error, tb): self.log.append(kind and kind.__name__); return kind is KeyError
def add(a, b=1): return a + b
def squares(n):
    for i in range(n): yield i * i
def echo():
    got = None
    while True: got = yield got
def sort_in_place(items): items.sort()
def fill(grid): grid[0][0] = 9; return grid
def apply(f, *args, **kwargs): return f(*args, **kwargs)
def each(items, f): return [f(x) for x in items]
def memoize(f):
    seen = {}
    def inner(n):
        if n not in seen: seen[n] = f(n)
        return seen[n]
    return inner
def use(service): service.count += 1; return service.fetch("k") + service.count
def fail(kind=MyError, *args): raise kind(*args or ("bad",))
def greet(name): print("hello", name)
async def later(x):
    await asyncio.sleep(0)
    return x + 1
def day(): return date(2020, 2, 29)
def money():
    numbers = Decimal("1.10"), Fraction(1, 3)
    return *numbers, {1, 2}, frozenset("a"), b"\\x00", 1 + 2j, 2**200, float("inf"), None, ..., range(3)
def count(word): return Counter(word)
def total(): return LIMIT + 1
def linked(values):
    head = None
    for v in reversed(values): head = Node(v, head)
    return head
"""

ASSERTS = b"""
import asyncio, copy
from datetime import date
from decimal import Decimal
from fractions import Fraction
import solution
from solution import Point, Stack, MyError, Pair, Color
# Functions and values
assert add(1) == 2 and add(1, b=5) == 6 and add("a", "b") == "ab"
decimal, third, *rest = solution.money()
assert decimal == Decimal("1.10") and third == Fraction(1, 3)
assert rest == [{1, 2}, frozenset("a"), b"\\x00", 1 + 2j, 2**200, float("inf"), None, ..., range(3)]
assert type(solution.money()[6]) is int and solution.day() == date(2020, 2, 29)
assert add(True, True) == 2 and add(float("nan"), 1) != add(float("nan"), 1)
# Module attributes
assert solution.LIMIT == 10
solution.LIMIT = 20
assert solution.total() == 21
assert not hasattr(solution, "missing") and callable(solution.add)
# Subclasses of built-in types equal their plain content
assert Pair(1, 2) == (1, 2) and Pair(1, right=2).right == 2 and Pair(1, 2) != (2, 1)
assert Color.RED == 1 and Color.RED < 2
assert solution.count("aab") == {"a": 2, "b": 1} and solution.count("aab")["a"] == 2
# Objects
p = Point(1, y=2)
assert p.x == 1 and p == Point(1, 2) and p != Point(2, 2) and p != (1, 2)
assert isinstance(p, Point) and not isinstance(3, Point)
assert p + Point(1, 1) == Point(2, 3) and p * 2 == Point(2, 4) and 2 * p == Point(2, 4)
assert (p * 3).y == 6 and -p == Point(-1, -2)
assert p < Point(2, 0) and sorted([Point(2), Point(1)])[0].x == 1 and list(p) == [1, 2] and abs(Point(3, 4)) == 5.0
assert len({Point(1), Point(1), Point(2)}) == 2 and repr(p) == "Point(x=1, y=2)" and str(p) == repr(p)
p.x = 7
assert p.x == 7 and copy.copy(p) == p and copy.deepcopy(p) is not p and not isinstance(p, (int, dict))
a, b = p
assert (a, b) == (7, 2)
# Container classes of the candidate
s = Stack()
assert len(s) == 0 and not s and s.push(1).push(2) is s and s.top == 2 and s[0] == 1
s[0] = 5
del s[1]
assert list(s) == [5] and 5 in s and 6 not in s and repr(s) == "Stack([5])" and s.pop() == 5
try: s.pop()
except IndexError as problem: assert str(problem) == "pop from empty stack"
else: assert False
head = solution.linked([1, 2, 3])
assert head.next.next.value == 3 and head.next.next.next is None and head.next is head.next
head.next.next.next = head
assert head.next.next.next is head
# Generators
assert list(solution.squares(4)) == [0, 1, 4, 9] and sum(solution.squares(3)) == 5
g = solution.echo()
assert next(g) is None and g.send(3) == 3
g.close()
try: next(g)
except StopIteration: pass
else: assert False
# In place, aliases
items, grid = [3, 1, 2], [[0, 0], [0]]
row = grid[0]
solution.sort_in_place(items)
assert items == [1, 2, 3]
assert solution.fill(grid) is grid and row == [9, 0] and grid[0] is row
cyclic = []
cyclic.append(cyclic)
assert solution.apply(lambda x: x[0] is x, cyclic) is True
# Callbacks
seen = []
assert solution.each([1, 2], lambda x: x * 10) == [10, 20] and solution.each([1], seen.append) == [None] and seen == [1]
assert solution.apply(sorted, [2, 1], key=lambda x: -x) == [2, 1]
assert solution.apply(len, "abc") == 3 and solution.apply(int, "3") == 3
fib = solution.memoize(lambda n: n if n < 2 else fib(n - 1) + fib(n - 2))
assert fib(25) == 75025
class Service:
    count = 0
    def fetch(self, key): return {"k": 5}[key]
service = Service()
assert solution.use(service) == 6 and service.count == 1
class Local(Exception): pass
def boom(): raise Local("mine")
try: solution.apply(boom)
except Local as problem: assert problem.args == ("mine",)
else: assert False
# Exceptions
try: solution.fail(MyError, "bad", 3)
except MyError as problem: assert problem.code == 3 and str(problem) == "bad" and isinstance(problem, ValueError)
else: assert False
try: solution.fail(solution.Deeper, "deep")
except KeyError as problem: assert isinstance(problem, MyError)
else: assert False
assert issubclass(MyError, ValueError) and MyError("x", code=4).code == 4
try: solution.apply(lambda: (_ for _ in ()).throw(MyError("round", 5)))
except MyError as problem: assert problem.code == 5
else: assert False
# Context managers
with solution.Managed() as m: m.log.append("copy")
with solution.Managed(): raise KeyError("swallowed")
assert solution.Managed.log == ["in", None, "in", "KeyError"]
# Coroutines
assert asyncio.run(solution.later(1)) == 2
"""

PYTEST = b"""
from unittest import mock
import pytest
import solution
from solution import MyError, add

@pytest.fixture
def stack(): return solution.Stack().push(1)
@pytest.mark.parametrize(("a", "expected"), [(1, 2), (2, 3)])
def test_add(a, expected): assert add(a) == expected
def test_raises():
    with pytest.raises(MyError, match="ba") as info: solution.fail()
    assert info.value.code == 0
def test_raises_builtin():
    with pytest.raises(TypeError): add(1, "a")
def test_fixture(stack): assert stack.pop() == 1 and len(stack) == 0
def test_approx(): assert add(0.1, 0.2) == pytest.approx(0.3)
def test_prints(capsys):
    solution.greet("you")
    assert capsys.readouterr().out == "hello you\\n"
def test_monkeypatch(monkeypatch):
    monkeypatch.setattr(solution, "LIMIT", 1)
    assert solution.total() == 2
def test_monkeypatch_is_undone(): assert solution.total() == 11
def test_mock():
    callback = mock.Mock(return_value=4)
    assert solution.apply(callback, 3, key="k") == 4
    callback.assert_called_once_with(3, key="k")
def test_patch():
    with mock.patch("solution.add", return_value=7): assert solution.apply(lambda: solution.add(1)) == 7
    assert solution.add(1) == 2
def test_patch_class(monkeypatch):
    with mock.patch.object(solution.Stack, "pop", return_value=7): assert solution.Stack().pop() == 7
    monkeypatch.setattr(solution.Stack, "top", 8)
    assert solution.Stack().top == 8
    monkeypatch.undo()
    assert solution.Stack().push(1).top == 1 and solution.Stack().push(2).pop() == 2
@pytest.mark.skip(reason="later")
def test_skipped(): pass
@pytest.mark.xfail
def test_xfail(): assert False
def test_fails(): assert add(1) == 3
def test_broken(no_such_fixture): pass
class TestGroup:
    def test_it(self): assert add("a", "b") == "ab"
"""


def run(
    sandbox: Any,
    tests: dict[str, bytes],
    kind: Any = "asserts",
    candidate: dict[str, bytes] | None = None,
    **options: Any,
) -> Grade:
    files = candidate or {"solution.py": SOLUTION}
    module = options.pop("module", "solution")
    return asyncio.run(
        grade(sandbox, kind=kind, candidate=files, module=module, tests=tests, limits=Limits(wall_s=60), **options)
    )


def test_ordinary_code_works_across_the_channel(sandbox: Any) -> None:
    graded = run(sandbox, {"test_all.py": ASSERTS})
    assert graded.status == "passed", (graded.failed, graded.errors, graded.reason, graded.grader.stderr[-2000:])


def test_pytest_outcomes(sandbox: Any) -> None:
    graded = run(
        sandbox,
        {"test_it.py": PYTEST, "sub/test_more.py": b"from solution import add\ndef test_sub(): assert add(1) == 2\n"},
        "pytest",
    )
    assert graded.complete
    assert [problem.id for problem in graded.failed] == ["test_it.py::test_fails"], graded.failed
    assert "assert 2 == 3" in graded.failed[0].message
    assert [problem.id for problem in graded.errors] == ["test_it.py::test_broken"], graded.errors
    assert {problem.id for problem in graded.skipped} == {"test_it.py::test_skipped", "test_it.py::test_xfail"}
    assert len(graded.passed) == 14  # 2 of test_add, 10 single functions, TestGroup, sub
    assert graded.status == "failed"


def test_unittest_outcomes(sandbox: Any) -> None:
    tests = b"""
import unittest
from solution import *
class T(unittest.TestCase):
    def setUp(self): self.stack = Stack()
    def test_equal(self): self.assertEqual(add(1), 2)
    def test_raises(self):
        with self.assertRaisesRegex(MyError, "bad"): fail()
    def test_almost(self): self.assertAlmostEqual(add(0.1, 0.2), 0.3)
    def test_objects(self):
        self.assertEqual(Point(1), Point(1)); self.assertNotEqual(Point(1), Point(2))
        self.assertIsInstance(Point(1), Point)
    def test_fails(self): self.assertEqual(add(1), 3)
    def test_crashes(self): self.stack.pop()
    def test_subtests(self):
        for i in range(3):
            with self.subTest(i=i): self.assertNotEqual(i, 1)
    @unittest.skip("later")
    def test_skipped(self): pass
"""
    graded = run(sandbox, {"test_it.py": tests}, "unittest")
    assert sorted(name.rsplit(".")[-1] for name in graded.passed) == [
        "test_almost",
        "test_equal",
        "test_objects",
        "test_raises",
    ]
    assert [problem.id for problem in graded.failed] == ["test_it.T.test_fails", "test_it.T.test_subtests"]
    assert [problem.message for problem in graded.errors] == ["IndexError: pop from empty stack"]
    assert [problem.message for problem in graded.skipped] == ["later"]


def test_numpy_arrays_are_copied(sandbox: Any) -> None:
    candidate = (
        b"import numpy as np\ndef scale(a, k=2): return a * k\ndef zero(a): a[0] = 0\ndef mean(a): return a.mean()\n"
    )
    tests = b"""
import numpy as np
from solution import scale, zero, mean
a = np.arange(6.0).reshape(2, 3)
assert np.array_equal(scale(a), a * 2) and scale(a).dtype == a.dtype and np.allclose(scale(a, 0.5), a / 2)
zero(a)
assert a[0].tolist() == [0, 0, 0] and a[1, 0] == 3
assert mean(np.ones(3)) == 1.0 and isinstance(mean(np.ones(3)), np.float64)
"""
    graded = run(sandbox, {"t.py": tests}, candidate={"solution.py": candidate})
    assert graded.status == "passed", graded.errors + graded.failed


def test_a_package_with_modules_and_data(sandbox: Any) -> None:
    files = {
        "shop/__init__.py": b"from .cart import Cart\nimport json\n",
        "shop/cart.py": b"import os\nclass Cart:\n    def rate(self): return float(open('rate.txt').read())\n",
        "rate.txt": b"1.5",
    }
    tests = b"""
import shop, shop.cart
from shop.cart import Cart
assert Cart().rate() == 1.5 and shop.Cart is Cart and shop.cart.Cart is Cart
try:
    import shop.nothing
except ModuleNotFoundError: pass
else: assert False
"""
    graded = run(sandbox, {"t.py": tests}, candidate=files, module="shop")
    assert graded.status == "passed", graded.errors + graded.failed


def test_operators_against_values_need_permission(sandbox: Any) -> None:
    candidate = b"""
class Words:
    def __contains__(self, word): return word == "cat"
class Meters:
    def __init__(self, n): self.n = n
    def __lt__(self, other): return self.n < other
    def __sub__(self, other): return self.n - other
"""
    tests = {
        "a.py": b"from solution import Words\nassert 'cat' in Words() and 'dog' not in Words()\n",
        "b.py": b"from solution import Meters\nassert Meters(3) < 4\n",
        "c.py": b"from solution import Meters\nassert Meters(3) - 1 == 2\n",
    }
    assert len(run(sandbox, tests, candidate={"solution.py": candidate}).errors) == 3
    assert run(sandbox, tests, candidate={"solution.py": candidate}, allow_operators=True).status == "passed"


def test_an_exception_at_import_is_the_candidates(sandbox: Any) -> None:
    for kind in ("asserts", "unittest", "pytest"):
        graded = run(
            sandbox,
            {"test_it.py": b"import solution\n"},
            kind,
            candidate={"solution.py": b"raise RuntimeError('on import')"},
        )
        assert graded.complete
        assert "on import" in graded.errors[0].message
        assert graded.status == "failed"


def test_a_request_that_cannot_be_graded_is_refused(sandbox: Any) -> None:
    with pytest.raises(ValueError, match="no test file"):
        run(sandbox, {"conftest.py": b""})
    with pytest.raises(ValueError, match=r"add solution\.py"):
        run(sandbox, {"t.py": b""}, candidate={"other.py": b""})
    with pytest.raises(ValueError, match="not a path inside"):
        run(sandbox, {"../t.py": b""})
