"""Tests that run apart from the package: what passes, what a patch cannot forge, and what the grade says of it."""

import dataclasses
from pathlib import Path

import pytest
from tiny import build_repository, in_sandbox, write_tree

from turnwise_swe.repositories.baseline import measure_baseline
from turnwise_swe.repositories.diffs import make_diff
from turnwise_swe.repositories.grading import Grade, grade_changes, grade_patch
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.library import default_library, list_repositories, load_repository
from turnwise_swe.repositories.repository import Baseline, Repository
from turnwise_swe.repositories.separability import Separability, count_kinds, measure_separability
from turnwise_swe.repositories.separate import find_local_modules, run_separately, without_package
from turnwise_swe.repositories.testing import run_repository, suite_of

PATH = "src/shop/cart.py"
CART = '''"""A cart."""

import datetime
import functools
from collections import namedtuple

Item = namedtuple("Item", "name price")


class CartError(ValueError):
    """Something is wrong with a cart."""


class Cart:
    limit = 3

    def __init__(self, *items):
        self.items = list(items)

    def add(self, item):
        if len(self.items) >= self.limit:
            raise CartError(f"more than {self.limit} items")
        self.items.append(item)
        return self

    def total(self, rate=None):
        return sum(self.price(item) for item in self.items) * (rate() if rate else 1)

    def price(self, item):
        return item.price

    def __eq__(self, other):
        return self.items == other.items

    def __iter__(self):
        return iter(self.items)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.items.clear()


def double(number):
    return number + number


def moment_of(year):
    return datetime.datetime(year, 1, 2, 3, tzinfo=datetime.timezone.utc)


def tagged(function):
    function.tag = function.__name__

    @functools.wraps(function)
    def inner(*args):
        return f"<{function.tag}>{function(*args)}"

    return inner
'''
TESTS = """from datetime import datetime, timedelta, timezone

import pytest

import shop
from shop.cart import Cart, CartError, Item, double, moment_of, tagged
from shop.more import deep


@pytest.fixture
def cart(price):
    return Cart(Item("tea", price))


@pytest.mark.parametrize("number", [2, "ab"])
def test_double(number):
    assert double(number) == number * 2


def test_total(cart):
    assert cart.add(Item("cup", 5)).total(lambda: 2) == 14
    assert [item.name for item in cart] == ["tea", "cup"]


def test_values():
    item = Item("tea", 2)
    assert item == ("tea", 2) and isinstance(item, tuple) and type(item) is Item


def test_error(cart):
    with pytest.raises(CartError, match="more than 3") as caught:
        for _ in range(9):
            cart.add(None)
    assert isinstance(caught.value, ValueError)


def test_subclass():
    class Sale(Cart):
        def price(self, item):
            return super().price(item) - 1

    sale = Sale(Item("tea", 2))
    assert sale.total() == 1 and isinstance(sale, Cart) and type(sale) is Sale


def test_patched(monkeypatch):
    monkeypatch.setattr(Cart, "limit", 0)
    with pytest.raises(CartError):
        Cart().add(1)


def test_limit_is_back():
    assert Cart().add(1).items == [1] and shop.Cart is Cart


def test_decorated():
    @tagged
    def name():
        return "tea"

    assert name() == "<name>tea" and name.__name__ == "name"


def test_context(cart):
    with cart as same:
        assert same is cart
    assert cart.items == []


def test_twice():
    assert double(double(2)) == double(4)


def test_close():
    assert abs(double(1.5) - 3) < 1e-6


def test_moment():
    moment = datetime(2020, 1, 2, 3, tzinfo=timezone.utc)
    assert double(timedelta(1)) == timedelta(2) and moment_of(2020) == moment


def test_deep_module():
    assert deep.answer() == 42


def test_carts_are_equal():
    assert Cart(1) == Cart(1)
"""
DEATH = """import os
from shop.cart import double


def test_dies():
    os.kill(os.getpid(), 9)


def test_after():
    assert double(2) == 4
"""
FILES = {
    "pyproject.toml": '[project]\nname = "shop"\nversion = "1.0"\n'
    '[tool.pytest.ini_options]\ntestpaths = ["tests", "src"]\n',
    "PKG-INFO": "Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n",
    "src/shop/__init__.py": "from shop.cart import Cart\n",
    "src/shop/cart.py": CART,
    "src/shop/more/__init__.py": "",
    "src/shop/more/deep.py": "def answer():\n    return 42\n",
    "src/shop/tests/__init__.py": "",
    "src/shop/tests/test_inside.py": "from ..cart import double\n\n\ndef test_inside():\n    assert double(1) == 2\n",
    "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef price():\n    return 2\n",
    "tests/test_cart.py": TESTS,
    "tests/test_death.py": DEATH,
}
BUGGY = CART.replace("return number + number", "return number")
NAME = "tests/test_cart.py::"
INSTANCE = Instance(
    instance_id="shop-1",
    repository="shop==1.0",
    patch=make_diff({PATH: CART.encode()}, {PATH: BUGGY.encode()}),
    fail_to_pass=(f"{NAME}test_double[2]", f"{NAME}test_double[ab]"),
    pass_to_pass=(f"{NAME}test_total", f"{NAME}test_values", f"{NAME}test_carts_are_equal"),
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, site_packages: Path) -> tuple[Repository, Separability]:
    """The package with its baseline, and what of it runs apart."""
    root = write_tree(tmp_path_factory.mktemp("shop"), FILES)
    plain = dataclasses.replace(build_repository(root, site_packages, Baseline(outcomes={})), name="shop")
    found: list[Separability] = []

    async def measure(sandbox: object) -> Repository:
        baseline = await measure_baseline(
            sandbox,  # type: ignore[arg-type]
            root,
            suite_of(plain),
            name="shop==1.0",
            source_folders=plain.source_folders,
            left_out={"tests/test_death.py": "kills itself"},
        )
        repository = dataclasses.replace(plain, baseline=baseline)
        found.append(await measure_separability(sandbox, repository))  # type: ignore[arg-type]
        return dataclasses.replace(repository, apart=found[0].durations)

    return in_sandbox(measure), found[0]


def grade(shop: tuple[Repository, Separability], text: str, instance: Instance = INSTANCE) -> Grade:
    return in_sandbox(lambda sandbox: grade_changes(sandbox, shop[0], instance, {PATH: text.encode()}))


def test_everything_but_the_packages_own_word_runs_apart(shop: tuple[Repository, Separability]) -> None:
    repository, measured = shop
    assert measured.reasons == {f"{NAME}test_carts_are_equal": "compares objects of the package with each other"}
    assert set(measured.durations) == set(repository.baseline.passing) - set(measured.reasons)
    assert "src/shop/tests/test_inside.py::test_inside" in measured.durations


def test_the_tests_see_no_file_of_the_package_but_their_own(shop: tuple[Repository, Separability]) -> None:
    assert find_local_modules(shop[0]) == {"src/shop/tests/__init__.py", "src/shop/tests/test_inside.py"}
    assert without_package(shop[0]) == {
        "src/shop/__init__.py": b"",
        "src/shop/cart.py": None,
        "src/shop/more/__init__.py": None,
        "src/shop/more/deep.py": None,
    }


def test_a_test_that_ends_its_process_takes_no_other_with_it(shop: tuple[Repository, Separability]) -> None:
    ids = ["tests/test_death.py::test_dies", "tests/test_death.py::test_after", f"{NAME}test_total"]
    repository = dataclasses.replace(shop[0], baseline=Baseline(outcomes={}))
    run = in_sandbox(lambda sandbox: run_separately(sandbox, repository, ids=ids))
    assert run.statuses == dict(zip(ids, ("error", "passed", "passed"), strict=True))
    assert run.problem is None


def test_gold_resolves_and_the_bug_does_not(shop: tuple[Repository, Separability]) -> None:
    gold = in_sandbox(lambda sandbox: grade_patch(sandbox, shop[0], INSTANCE, INSTANCE.gold))
    assert (gold.ending, gold.forgeable) == ("resolved", False)
    noop = grade(shop, BUGGY)
    assert (noop.ending, noop.forgeable) == ("unresolved", False)
    assert noop.resolution is not None
    assert noop.resolution.not_fixed == INSTANCE.fail_to_pass
    assert noop.resolution.kept == INSTANCE.pass_to_pass


def test_an_instance_whose_tests_do_not_all_run_apart_stays_forgeable(shop: tuple[Repository, Separability]) -> None:
    for lost in (INSTANCE.fail_to_pass[:1], INSTANCE.pass_to_pass):
        apart = {test: seconds for test, seconds in shop[0].apart.items() if test not in lost}
        repository = dataclasses.replace(shop[0], apart=apart)
        grade_ = in_sandbox(lambda sandbox, r=repository: grade_patch(sandbox, r, INSTANCE, INSTANCE.gold))  # type: ignore[misc]
        assert (grade_.ending, grade_.forgeable) == ("resolved", True)


ANY = """
    class Any:
        __eq__ = __bool__ = __lt__ = __gt__ = __contains__ = lambda self, *other: True
        __ne__ = lambda self, other: False
        __hash__ = lambda self: 0
        __getattr__ = lambda self, name: self
        __call__ = lambda self, *all: self
    return Any()
"""
OBJECT_COMPARISON = """
    class Answer:
        __bool__ = lambda self: True
    class Query:
        __eq__ = lambda self, other: Answer()
    return Query()
"""
PLUGIN = """
import gc, sys
for thing in gc.get_objects():
    if type(thing).__name__ == "PytestPluginManager":
        class Forger:
            def pytest_pyfunc_call(self, pyfuncitem):
                return True
        thing.register(Forger())
"""
RUNTEST = """
try:
    import _pytest.python
    _pytest.python.Function.runtest = lambda self: None
except ImportError:
    pass
"""
DESCRIPTORS = """
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b'{"kind": "test", "id": "tests/test_cart.py::test_double[2]", "status": "passed"}\\n')
    except OSError:
        pass
"""
FRAMES = """
import os
body = b'{"r": 4, "w": []}'
for descriptor in range(3, 64):
    try:
        os.write(descriptor, (len(body).to_bytes(4, "big") + body) * 9)
    except OSError:
        pass
"""
PROTOCOL = """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("grading_guest") and hasattr(module, "OPERATIONS"):
        module.get_plain = lambda value: 4
"""


def instead(code: str) -> str:
    """The package with other code in `double`."""
    return BUGGY.replace("\n    return number\n", code)


CHEATS = {
    "equals everything": instead(ANY),
    "compares to an object that is true": instead(OBJECT_COMPARISON),
    "a text that equals everything": instead(ANY.replace("class Any:", "class Any(str):")),
    "swallows failures": BUGGY + "import builtins\nbuiltins.AssertionError = type('Quiet', (Exception,), {})\n",
    "registers a plugin": BUGGY + PLUGIN,
    "replaces runtest": BUGGY + RUNTEST,
    "writes reports": BUGGY + DESCRIPTORS,
    "writes answers": BUGGY + FRAMES,
    "replaces the protocol": BUGGY + PROTOCOL,
    "skips": instead("\n    import pytest\n    pytest.skip('not today')\n"),
    "exits": instead("\n    import os\n    os._exit(0)\n"),
    "raises SystemExit": instead("\n    raise SystemExit(0)\n"),
    "kills its parent": BUGGY + "import os\nos.kill(os.getppid(), 9)\n",
    "exits at import": BUGGY + "import os\nos._exit(0)\n",
}
NUMBER = instead("""
    class Zero(int):
        __sub__ = __rsub__ = __abs__ = __neg__ = lambda self, *other: Zero(0)
    return Zero(0)
""")
FORGED_TOGETHER = {"equals everything", "compares to an object that is true", "a text that equals everything"}
FAST = {"equals everything", "replaces runtest"}


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CHEATS]
)
def test_a_cheat_is_worth_nothing(shop: tuple[Repository, Separability], name: str) -> None:
    grade_ = grade(shop, CHEATS[name])
    assert (grade_.score, grade_.forgeable) == (0.0, False), (grade_.ending, grade_.reason)


@pytest.mark.parametrize(
    ("test", "cheat"), [("test_twice", CHEATS["equals everything"]), ("test_close", NUMBER)], ids=["two", "number"]
)
def test_a_cheat_at_a_weaker_test_is_worth_nothing(
    shop: tuple[Repository, Separability], test: str, cheat: str
) -> None:
    """The test compares two results of the package with each other, or calculates with one before it compares."""
    instance = dataclasses.replace(INSTANCE, fail_to_pass=(NAME + test,))
    for apart, expected in ((shop[0].apart, (0.0, False)), ({}, (1.0, True))):
        repository = dataclasses.replace(shop[0], apart=apart)
        grade_ = grade((repository, shop[1]), cheat, instance)
        assert (grade_.score, grade_.forgeable) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORGED_TOGETHER))
def test_the_same_cheat_resolves_in_the_process_of_the_tests(shop: tuple[Repository, Separability], name: str) -> None:
    together = dataclasses.replace(shop[0], apart={})
    grade_ = grade((together, shop[1]), CHEATS[name])
    assert (grade_.score, grade_.forgeable) == (1.0, True)


def test_the_kinds_of_reasons_are_counted() -> None:
    reasons = {"a": "FileNotFoundError: [Errno 2] No such file or directory: '/x'", "b": "the worker died", "c": "odd"}
    reasons |= {"d": "compares objects of the package with each other", "e": "the worker did not answer in time"}
    assert count_kinds(reasons) == {
        "loses its worker": 2,
        "shares files between test and package": 1,
        "differs from a run in one process": 1,
        "compares objects of the package with each other": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "path", "right", "wrong"),
    [
        ("sqlparse==0.6.1", "sqlparse/utils.py", "val = val[1:-1]", "val = val[1:]"),
        ("toolz==1.2.0", "toolz/dicttoolz.py", "d2[k] = d[k]", "d2[k] = None"),
    ],
)
def test_a_real_package_resolves_by_its_gold_patch_only(key: str, path: str, right: str, wrong: str) -> None:
    """A package of several modules, and one whose tests lie inside it. Needs `turnwise repos add`."""
    if key not in list_repositories(default_library()):
        pytest.skip(f"{key} is not on this machine")
    repository = load_repository(key, default_library())
    if not repository.apart:
        pytest.skip(f"what of {key} runs apart is not measured")
    text = (repository.root / path).read_text(encoding="utf-8")
    assert text.count(right) == 1
    bug = {path: text.replace(right, wrong).encode()}
    tests = repository.baseline.passing
    statuses = in_sandbox(lambda sandbox: run_repository(sandbox, repository, (bug,), ids=tests)).statuses
    failing = tuple(test for test in tests if statuses.get(test) != "passed")
    instance = Instance(
        instance_id="real",
        repository=key,
        patch=make_diff({path: text.encode()}, bug),
        fail_to_pass=failing,
        pass_to_pass=tuple(test for test in tests if test not in failing),
    )
    gold = in_sandbox(lambda sandbox: grade_patch(sandbox, repository, instance, instance.gold))
    assert (gold.ending, gold.forgeable) == ("resolved", False), gold.reason
    noop = in_sandbox(lambda sandbox: grade_changes(sandbox, repository, instance, {}))
    assert (noop.ending, noop.forgeable) == ("unresolved", False)
    assert noop.resolution is not None
    assert (noop.resolution.fixed, noop.resolution.broken) == ((), ())
