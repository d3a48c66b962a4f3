"""Each kind of edit on a hand-written function, and properties of all of them on generated and on real sources."""

import ast
import dataclasses
import json.decoder
import random
import re
import statistics
import textwrap
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, DataError
from turnwise_swe.bugs.candidates import Candidate, draw_candidates
from turnwise_swe.bugs.edits.source import Replacement, Source, apply, compiles, complexity, overlap
from turnwise_swe.bugs.edits.table import KINDS, MODIFIERS, SLIPS, choose_kinds

EVERY = list(KINDS.values())


def texts(name: str, before: str) -> list[str]:
    """The first scope of the text after each single edit of the kind."""
    source = Source.parse("m.py", textwrap.dedent(before).encode())
    kind = KINDS[name]
    scope = next(node for node in source.scopes.values() if isinstance(node, ast.ClassDef) == kind.in_class)
    edits = kind.find(source, scope, random.Random(0))
    return [apply(source.content, edit).decode() for edit in edits]


SITES = [
    ("comparison", "return a < b", ["return a >= b"]),
    ("comparison", "return a is not b", ["return a is b"]),
    ("comparison", "return (a) in (b) == c", ["return (a) not in (b) == c", "return (a) in (b) != c"]),
    ("comparison", "return a not  in b  # in", ["return a in b  # in"]),
    ("comparison", "return f'{a < b}'", []),
    ("boundary", "return a < b == c >= d", ["return a <= b == c >= d", "return a < b == c > d"]),
    ("bool", "return a and b and c", ["return a or b or c"]),
    ("bool", "return not  (a)", ["return (a)"]),
    ("bool", "return g(True)", ["return g(False)"]),
    ("constant", "return a[0] + 0x10", ["return a[1] + 0x10", "return a[0] + 0x11", "return a[0] + 0xf"]),
    ("constant", "return 1.5 + True", []),
    ("return_none", "return a.b", ["return None"]),
    ("return_none", "return None", []),
    ("remove_statement", "if a: b()", []),  # a bare `pass` would give the place away
    ("remove_statement", "a = b; c()", []),
    ("swap_operands", "return a - b", ["return b - a"]),
    ("swap_operands", "return a - b - c", ["return c - (a - b)", "return b - a - c"]),
    ("swap_operands", "return (a + b) / c", ["return c / (a + b)"]),
    ("swap_operands", "return a + b", []),
    ("swap_operands", "return -a ** b", ["return -b ** a"]),
    ("swap_operands", "return b ** -a", ["return (-a) ** b"]),
    ("swap_arguments", "return g(a, b, *c)", ["return g(b, a, *c)"]),
    ("swap_arguments", "return g(a, a)", []),
    ("wrong_exception", "raise KeyError(a)", ["raise IndexError(a)"]),
    ("wrong_exception", "raise Own(a)", []),
    ("func_pm_op_break_chains", "return a + b + c", ["return a + c", "return b + c"]),
    ("func_pm_op_break_chains", "return (a + b) * c", ["return a * c", "return b * c"]),
    ("func_pm_op_break_chains", "return a + b", []),
    ("func_pm_op_change_const", "return a[2] + 3", ["return a[2] + 4", "return a[2] + 2"]),
    ("func_pm_op_change", "return a - b", ["return a + b"]),
    ("func_pm_op_change", "return a // b", ["return a * b", "return a / b", "return a % b"]),
    ("func_pm_op_change", "return a ** b", []),
    ("func_pm_op_swap", "return a + b < c", ["return c < a + b", "return b + a < c"]),
    ("func_pm_op_swap", "return a == b", []),
]


@pytest.mark.parametrize(("kind", "line", "expected"), SITES, ids=[f"{kind}: {line}" for kind, line, _ in SITES])
def test_a_line_becomes(kind: str, line: str, expected: list[str]) -> None:
    assert texts(kind, f"def f():\n    {line}\n") == [f"def f():\n    {text}\n" for text in expected]


BLOCKS = [
    (
        "remove_statement",
        """
        def f(a):
            '''A text.'''
            # what b is
            b = (a,
                 1)  # one
            return b
        """,
        ["def f(a):\n    '''A text.'''\n    return b\n"],
    ),
    ("remove_statement", "def f():\n    for a in b:\n        c()\n", []),
    (
        "remove_statement",
        "def f():\n    a()\n\n    if b:\n        b()\n\n        c()\n\n    d()\n\n    return d\n",
        [
            "def f():\n    if b:\n        b()\n\n        c()\n\n    d()\n\n    return d\n",
            "def f():\n    a()\n\n    if b:\n        b()\n\n        c()\n\n    return d\n",
            "def f():\n    a()\n\n    if b:\n        c()\n\n    d()\n\n    return d\n",
            "def f():\n    a()\n\n    if b:\n        b()\n\n    d()\n\n    return d\n",
        ],
    ),
    ("func_pm_remove_assign", "def f():\n    a += 1\n    b()\n", ["def f():\n    b()\n"]),
    (
        "func_pm_remove_cond",
        """
        def f(a):
            if a:
                return 1
            elif b:
                return 2
            return 3
        """,
        ["def f(a):\n    return 3\n", "def f(a):\n    if a:\n        return 1\n    return 3\n"],
    ),
    ("func_pm_remove_loop", "def f():\n    while a:\n        b()\n    else:\n        c()\n", []),
    (
        "func_pm_remove_loop",
        "def f():\n    while a:\n        b()\n    else:\n        c()\n    return a\n",
        ["def f():\n    return a\n"],
    ),
    (
        "func_pm_remove_wrapper",
        "def f():\n    with a:\n        b()\n    try:\n        c()\n    finally:\n        d()\n",
        ["def f():\n    try:\n        c()\n    finally:\n        d()\n", "def f():\n    with a:\n        b()\n"],
    ),
    (
        "func_pm_ctrl_invert_if",
        "def f():\n    if a:\n        b()\n        c()\n    else:\n        d()\n",
        ["def f():\n    if a:\n        d()\n    else:\n        b()\n        c()\n"],
    ),
    ("func_pm_ctrl_invert_if", "def f():\n    if a:\n        b()\n    elif c:\n        d()\n", []),
    (
        "func_pm_ctrl_shuffle",
        "def f():\n    'D.'\n    a = 1\n    for a in b:\n        c()\n    return a\n",
        ["def f():\n    'D.'\n    for a in b:\n        c()\n    a = 1\n    return a\n"],
    ),
    (
        "func_pm_ctrl_shuffle",
        "def f():\n    for a in b:\n        c()\n    d()\n",
        ["def f():\n    d()\n    for a in b:\n        c()\n"],
    ),
    ("func_pm_ctrl_shuffle", "def f():\n    a()\n    b()\n", []),
    (
        "func_pm_class_rm_base",
        "class C(A, B, metaclass=M):\n    pass\n",
        ["class C(B, metaclass=M):\n    pass\n", "class C(A, metaclass=M):\n    pass\n"],
    ),
    ("func_pm_class_rm_base", "class C(A):\n    pass\n", ["class C:\n    pass\n"]),
    ("func_pm_class_rm_base", "class C(object):\n    pass\n", []),
    (
        "func_pm_class_rm_funcs",
        "class C:\n    @p\n    def a(self):\n        return 1\n\n    def b(self):\n        return self.a() + 1\n",
        [
            "class C:\n    def b(self):\n        return None + 1\n",
            "class C:\n    @p\n    def a(self):\n        return 1\n",
        ],
    ),
    (
        "func_pm_class_shuffle_funcs",
        "class C:\n    def a(self): pass\n    x = 1\n    @p\n    def b(self): pass\n",
        ["class C:\n    @p\n    def b(self): pass\n    x = 1\n    def a(self): pass\n"],
    ),
    (
        "wrong_exception",
        "def f():\n    try:\n        a()\n    except (KeyError, Own):\n        b()\n",
        ["def f():\n    try:\n        a()\n    except (IndexError, Own):\n        b()\n"],
    ),
    (
        "wrong_default",
        "def f(a, b=1, *, c=None, d=False):\n    pass\n",
        [
            "def f(a, b=2, *, c=None, d=False):\n    pass\n",
            "def f(a, b=0, *, c=None, d=False):\n    pass\n",
            "def f(a, b=1, *, c=0, d=False):\n    pass\n",
            "def f(a, b=1, *, c=None, d=True):\n    pass\n",
        ],
    ),
    ("missing_await", "async def f():\n    return await g(1)\n", ["async def f():\n    return g(1)\n"]),
]


@pytest.mark.parametrize(("kind", "before", "expected"), BLOCKS)
def test_a_scope_becomes(kind: str, before: str, expected: list[str]) -> None:
    assert [text.lstrip("\n") for text in texts(kind, before)] == expected


def test_every_kind_has_a_hand_written_case() -> None:
    assert {kind for kind, *_ in SITES} | {kind for kind, *_ in BLOCKS} == set(KINDS)
    assert len(MODIFIERS) == 13
    assert len(SLIPS) == 11


def test_an_unknown_kind_is_refused_and_groups_are_spelt_out() -> None:
    with pytest.raises(ConfigError, match="'boundry' does not exist; choose from modifiers, slips, func_pm"):
        choose_kinds(["boundry"])
    assert choose_kinds(["bool", "slips"])[0].name == "bool"
    assert len(choose_kinds(["bool", "slips"])) == 11
    assert len(choose_kinds([])) == 24


def draw(content: bytes, *, seed: int = 0, limit: int = 200) -> tuple[Source, list[Candidate]]:
    source = Source.parse("m.py", content)
    entered = {f"m.py::{name}" for name in source.scopes}
    drawn = draw_candidates({"m.py": source}, entered, EVERY, seed=seed)
    return source, [candidate for candidate, _ in zip(drawn, range(limit), strict=False)]


def docstrings(tree: ast.AST) -> list[str | None]:
    return [
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def check(source: Source, candidate: Candidate) -> None:
    edited = apply(source.content, candidate.replacements)
    assert compiles(edited, "m.py")
    tree = ast.parse(edited)
    assert ast.dump(tree) != ast.dump(source.tree)
    assert set(docstrings(tree)) <= set(docstrings(source.tree))  # a removed method takes its own along
    # Everything outside the spans is there, byte by byte, and the inverse edit restores the file.
    shift, inverse, before, after = 0, [], b"", b""
    place = edited_place = 0
    for item in candidate.replacements:
        start = item.start + shift
        before += source.content[place : item.start]
        after += edited[edited_place:start]
        place, edited_place = item.end, start + len(item.text)
        inverse.append(Replacement(start=start, end=edited_place, text=source.content[item.start : item.end]))
        shift += len(item.text) - (item.end - item.start)
    assert before + source.content[place:] == after + edited[edited_place:]
    assert apply(edited, inverse) == source.content


MODULES = [
    json.decoder,
    textwrap,
    *(pytest.param(module, marks=pytest.mark.slow) for module in (dataclasses, re, statistics)),
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_edits_of_real_sources_compile_differ_and_touch_nothing_else(module: object) -> None:
    with open(module.__file__, "rb") as file:  # type: ignore[attr-defined]
        source, candidates = draw(file.read(), limit=60)
    assert len(candidates) == 60
    for candidate in candidates:
        check(source, candidate)


names = st.sampled_from(["a", "b", "c"])
leaves = st.one_of(names, st.integers(0, 20).map(str), st.sampled_from(["True", "None", "'s'", "f'{a < 1}'"]))


def grow(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(
        [
            *("+", "-", "*", "/", "//", "%", "**", "<<", ">>"),
            *("&", "|", "^", "<", "<=", "==", "!=", "in", "is", "and", "or"),
        ]
    )
    return st.one_of(
        st.builds("({} {} {})".format, children, operators, children),
        st.builds("{} {} {}".format, names, operators, children),
        st.builds("g({}, {})".format, children, children),
        st.builds("(not {})".format, children),
        st.builds("(-{} **({}\n  ))".format, children, children),
        st.builds("[{} # < and +\n, {}]".format, children, children),
    )


expressions = st.recursive(leaves, grow, max_leaves=8)


def indent(block: str) -> str:
    return "".join(f"    {line}\n" for line in block.splitlines())


def blocks(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def body(head: str) -> Callable[[str, str], str]:
        return lambda test, inner: f"{head.format(test)}:\n{indent(inner)}"

    return st.one_of(
        st.builds(body("if {}"), expressions, children),
        st.builds(body("for a in {}"), expressions, children),
        st.builds(body("with {}"), expressions, children),
        st.builds(lambda t, x, y: f"if {t}:\n{indent(x)}else:\n{indent(y)}", expressions, children, children),
        st.builds(lambda x, y: f"try:\n{indent(x)}except KeyError:\n{indent(y)}", children, children),
        st.lists(children, min_size=2, max_size=4).map("".join),
    )


statements = st.recursive(
    st.one_of(
        expressions.map("a = {}\n".format),
        expressions.map("return {}  # why\n".format),
        expressions.map("é = {}; b += 1\n".format),
        st.just("raise ValueError('x')\n"),
        st.just("'a text'\n"),
    ),
    blocks,
    max_leaves=8,
)


@settings(max_examples=30)
@given(body=statements, default=leaves, seed=st.integers(0, 3))
def test_edits_of_generated_sources_compile_differ_and_touch_nothing_else(body: str, default: str, seed: int) -> None:
    text = f"# é\nclass C(A, B):\n    'D'\n    def f(self, a={default}):\n        'D'\n{indent(indent(body))}\n"
    if not compiles(text.encode(), "m.py"):
        return
    source, candidates = draw(text.encode(), seed=seed, limit=40)
    for candidate in candidates:
        check(source, candidate)


def test_candidates_depend_on_the_seed_only_and_are_never_drawn_twice() -> None:
    with open(textwrap.__file__, "rb") as file:
        content = file.read()
    first, again, other = (draw(content, seed=seed, limit=60)[1] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len({candidate.digest for candidate in first}) == len(first)
    # Kinds take turns: the first round has one candidate of each kind that finds a place.
    kinds = [candidate.kind for candidate in first]
    assert len(set(kinds[: len(set(kinds))])) == len(set(kinds))


def test_functions_that_no_test_enters_are_left_alone() -> None:
    source = Source.parse("m.py", b"def f(a):\n    return a < 1\n\ndef g(a):\n    return a < 1\n")
    drawn = draw_candidates({"m.py": source}, {"m.py::g"}, EVERY, seed=0)
    assert {candidate.qualified_name for candidate in drawn} == {"g"}


def test_simple_functions_are_not_for_the_modifiers() -> None:
    # Complexity 1 + if + and = 3 is enough for func_pm_op_change, 2 is not.
    simple = b"def f(a):\n    if a:\n        return a + 1\n"
    enough = b"def f(a):\n    if a and b:\n        return a + 1\n"
    assert complexity(Source.parse("m.py", simple).scopes["f"]) == 2
    assert complexity(Source.parse("m.py", enough).scopes["f"]) == 3
    for content, expected in ((simple, set()), (enough, {"func_pm_op_change"})):
        kinds = {candidate.kind for candidate in draw(content)[1]}
        assert kinds & {"func_pm_op_change"} == expected


def test_edits_that_nobody_would_read_are_left_out() -> None:
    for lines, expected in ((100, 1), (400, 0)):  # 15 bytes a line: 1,500 and 6,000 bytes
        body = "".join(f"        x{number:04} = 1\n" for number in range(lines))
        text = f"def f(a):\n    if a and a:\n{body}    return a\n"
        source = Source.parse("m.py", text.encode())
        drawn = draw_candidates({"m.py": source}, {"m.py::f"}, [KINDS["func_pm_remove_cond"]], seed=0)
        assert len(list(drawn)) == expected


def test_names_that_are_defined_twice_are_no_scopes() -> None:
    source = Source.parse("m.py", b"class C:\n    def a(self): pass\n    def a(self): pass\n    def b(self): pass\n")
    assert set(source.scopes) == {"C", "C.b"}


@pytest.mark.parametrize(
    "content", [b"a = 1\rb = 2\n", b"\xef\xbb\xbfa = 1\n", b"a = \xff\n", b"a = = 1\n", b"a\f = 1"]
)
def test_files_that_offsets_cannot_describe_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"m\.py.*; leave the file out"):
        Source.parse("m.py", content)


def test_overlapping_replacements_are_refused() -> None:
    first, second = Replacement(start=1, end=3, text=b"x"), Replacement(start=2, end=4, text=b"y")
    with pytest.raises(ValueError, match="bytes 2 to 4 overlaps one that ends at 3"):
        apply(b"abcdef", [second, first])
    assert overlap([first], [second])
    assert not overlap([first], [Replacement(start=3, end=4, text=b"")])
    assert apply(b"abcdef", [Replacement(start=3, end=3, text=b"-"), first]) == b"ax-def"
