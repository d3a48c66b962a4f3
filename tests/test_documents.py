"""Documents say what the code does: options, defaults, commands, paths, tests, imports, links, lists and numbers."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
from document_rules import RULES, Facts, check_list, check_number, list_anchors, list_column, list_tables

from turnwise.algorithms.credit_table import CREDIT_METHODS
from turnwise.cards.card import SUFFIX
from turnwise.cli.main import app
from turnwise.cli.reference import list_rows
from turnwise.config.engine_kinds.table import ENGINE_KINDS
from turnwise.config.load import load_config
from turnwise.config.options import LABEL
from turnwise.config.other_names import find_other_name
from turnwise.core import offers, protocols
from turnwise.core.errors import ConfigError
from turnwise.core.types import TurnScores
from turnwise.environments.registry import list_environments

ROOT = Path(__file__).parents[1]
GENERATED = {"docs/options.md", "docs/metrics.md", "docs/api.md"}
"""Pages that `make reference` writes and other tests compare."""
LEFT_OUT = {ROOT / "runs", ROOT / "dist", ROOT / "build", ROOT / "data"}
"""Folders that users make."""
PRODUCED = frozenset(
    {
        # a run folder
        *("checkpoints", "damaged", "evaluations", "groups", "images", "policies", "steps", "trackers", "processes"),
        *("config.json", "counters.json", "data.json", "events.jsonl", "exploitability.json", "ledger.jsonl"),
        *("metrics.jsonl", "report.html", "summary.json", "writer.json", "bugs.ledger.jsonl"),
        *("selection.json", "outstanding.json"),
        # a model's folder
        *("generation_config.json", "model.safetensors", "adapter_model.safetensors", "tokenizer.json"),
        *("tokenizer.model", "turnwise_usage.json", "state.safetensors", "preprocessor_config.json"),
        "processor_config.json",
        # what trackers and other libraries write
        *("mlflow-artifacts", "tensorboard", "wandb", "dist"),
        # tasks of Harbor, rows and packages of others
        *("environment", "instruction.md", "possible_answer", "solution", "task.toml"),
    }
)
"""First folders and names of files that a run, a model or another program has, and this repository does not."""
GROUPS = frozenset(re.findall(r"`(turnwise\.\w+)`", offers.__doc__ or ""))
"""Entry-point groups, which look like modules."""
FOREIGN = frozenset(
    {
        # of repositories whose bugs and suites the pages show
        *("inflection/__init__.py", "test_inflection.py", "test_schema.py", "test_tokenize_format_str"),
        *("tests/test_formatutils.py", "tests/test_queries.py", "toolz/tests/test_itertoolz.py"),
        *("harness/valid.py", "tests/test.sh"),  # of SWE-smith, of a task of Harbor
        "ast.py",  # of Python
    }
)
"""Files and tests of other projects; of a file all its tests."""
RENAMED = {"test_all_rows_that_do_not_fit_are_named_at_once": "test_a_row_that_does_not_fit_is_named_by_file_and_line"}
"""Tests that a page still has by an old name, and their own; empty this when the page has it."""

of_all_packages = pytest.mark.skipif(
    not (find_spec("turnwise_worlds") and find_spec("turnwise_adapters")), reason="the pages tell of every package"
)


def walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path in LEFT_OUT or path.name == "__pycache__" or (path.name.startswith(".") and path.name != ".ci"):
            continue
        if path.is_dir():
            yield from walk(path)
        else:
            yield path


@cache
def list_files() -> frozenset[str]:
    return frozenset(path.relative_to(ROOT).as_posix() for path in walk(ROOT))


@cache
def read_pages() -> dict[str, str]:
    """The documents of the root, of `docs/` and of packages; cards have a test of their own."""
    paths = [
        path
        for path in sorted(list_files())
        if path.endswith(".md") and not path.startswith(("tests", "recipes")) and not path.endswith(SUFFIX)
    ]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}


def list_names(tree: ast.Module) -> Iterator[str]:
    """What can be imported from a module, and the members of its classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name for alias in node.names)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{member.name}"
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield f"{node.name}.{member.target.id}"
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


class Modules(Mapping[str, frozenset[str]]):
    """Names by module, each read when it is asked for."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        for path in sorted(list_files(), reverse=True):  # a stub comes after its module, and is read in its place
            if match := re.fullmatch(r"(?:.*/)?src/(.*)\.pyi?|((?:laboratory|peers|benchmarks)/.*)\.py", path):
                name = (match[1] or match[2]).removesuffix("/__init__").replace("/", ".")
                self._paths.setdefault(name, ROOT / path)
        self._read: dict[str, frozenset[str]] = {}

    def __getitem__(self, name: str) -> frozenset[str]:
        if name not in self._read:
            self._read[name] = frozenset(list_names(ast.parse(self._paths[name].read_text(encoding="utf-8"))))
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        return name in self._paths


def read_commands() -> dict[str, frozenset[str]]:
    """Flags by command, also of commands that installed packages add."""

    def describe(command: Any, name: str) -> Iterator[tuple[str, frozenset[str]]]:
        flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        yield name, frozenset({*flags, "--help"})
        if hasattr(command, "list_commands"):
            context = command.make_context(name or "turnwise", [], resilient_parsing=True)
            for each in command.list_commands(context):
                yield from describe(command.get_command(context, each), f"{name} {each}".strip())

    return dict(describe(typer.main.get_command(app), ""))


def read_tests() -> dict[str, frozenset[str]]:
    tests: dict[str, set[str]] = defaultdict(set)
    for path in list_files():
        if re.fullmatch(r"(?:.*/)?tests/(?:.*/)?test_\w+\.py", path):
            text = (ROOT / path).read_text(encoding="utf-8")
            tests[path.rpartition("/")[2]] |= set(re.findall(r"^\s*(?:async )?def (test_\w+)", text, re.MULTILINE))
    return {name: frozenset(names) for name, names in tests.items()}


def refuse(option: str, value: str) -> str:
    """Why an option cannot have a value, whatever the others are."""
    try:
        load_config([], [f"{option}={value}"])
    except ConfigError as error:
        return str(error) if "; it must be" in str(error) else ""
    return ""


@cache
def read_facts() -> Facts:
    rows = list_rows()
    return Facts(
        options={row.name: row.default for row in rows},
        refuse=refuse,
        of_bad_input=frozenset({"docs/outside.md"}),
        refused=lambda name: (known := find_other_name(name)) is not None and not known.option,
        free=frozenset(row.name for row in rows if row.type.startswith("table") and LABEL not in row.name),
        commands=read_commands(),
        targets=frozenset(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)),
        files=list_files(),
        tests={**read_tests(), "renamed": frozenset(RENAMED)},
        modules=Modules(),
        groups=GROUPS,
        produced=PRODUCED,
        foreign=FOREIGN,
    )


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[of_all_packages] if rule == "commands" else []) for rule in RULES]
)
def test_the_documents_are_right(rule: str) -> None:
    pages = {page: text for page, text in read_pages().items() if page not in GENERATED}
    assert len(pages) > 30
    problems = RULES[rule](pages, read_facts())
    assert not problems, "\n".join(problems)


# ------------------------------------------------------------------------------------------------ lists


def test_engines_are_those_of_the_table() -> None:
    kinds = list_column(read_pages()["docs/engines.md"], "`engine.kind`")
    assert check_list("docs/engines.md", "kinds of engines", kinds, ENGINE_KINDS) == []


def test_credit_methods_are_those_of_the_table() -> None:
    rows = [
        row for table in list_tables(read_pages()["docs/credit.md"]) if table[0][0] == "method" for row in table[1:]
    ]
    compared = {name for row in rows for name in re.findall(r"^(\w+)", row[0])} - {"vine, exact values"}
    assert check_list("docs/credit.md", "credit methods", {*compared, *LEFT_OUT_METHODS}, CREDIT_METHODS) == []
    assert all(f"`{name}`" in read_pages()["docs/credit.md"] for name in LEFT_OUT_METHODS)


LEFT_OUT_METHODS = ("learning_progress",)
"""Methods that the page says it does not compare."""


@of_all_packages
def test_environments_have_a_page_or_a_folder_on_the_page_of_the_house() -> None:
    pages = read_pages()
    paths = {each.name: each.path for each in list_environments() if each.source.startswith(("built in", "turnwise"))}
    adapters = {name for name, path in paths.items() if path.startswith("turnwise_adapters.") and name != "verl_tool"}
    listed = list_column(pages["packages/turnwise-adapters/docs/adapters.md"], "`environment.name`")
    assert check_list("packages/turnwise-adapters/docs/adapters.md", "adapters", listed, adapters) == []
    folders = {path.split(":")[0].split(".")[-2] for name, path in paths.items() if name not in adapters}
    named = set(re.findall(r"`(?:[\w/]+/)?(\w+)/`", pages["docs/architecture.md"]))
    assert check_list("docs/architecture.md", "environments", named & folders, folders) == []


def test_measurements_for_credit_are_the_fields_of_turn_scores() -> None:
    [listed] = re.findall(r"in the `TurnScores` of [^:]*: ([^.]+)\.", read_pages()["docs/extending.md"])
    names = re.findall(r"`(\w+)`", listed)
    assert check_list("docs/extending.md", "measurements", names, [each.name for each in fields(TurnScores)]) == []


def test_entry_point_groups_are_those_of_the_code() -> None:
    named = re.findall(r'entry-points\."(turnwise\.\w+)"|`(turnwise\.\w+)`', read_pages()["docs/extending.md"])
    groups = {first or second for first, second in named} & {*GROUPS, *(first for first, _ in named if first)}
    assert check_list("docs/extending.md", "entry-point groups", groups, GROUPS) == []


# ------------------------------------------------------------------------------------------------ numbers


def read_constant(module: str, name: str) -> int:
    """An integer at the top of a module."""
    tree = ast.parse((ROOT / "src" / "turnwise" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    [value] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name
    ]
    return int(ast.literal_eval(value))


@pytest.mark.parametrize(
    ("page", "sentence", "module", "name"),
    [
        ("docs/engines.md", r"both sides score (\d+) tokens", "engines.canary", "NUM_CANARY_TOKENS"),
        (
            "docs/performance.md",
            r"more than (\d+) tokens drafts",
            "engines.paged.scheduler",
            "MAX_DRAFTING_TOKENS",
        ),
    ],
)
def test_a_number_is_that_of_the_code(page: str, sentence: str, module: str, name: str) -> None:
    assert check_number(read_pages(), page, sentence, read_constant(module, name)) == []


def test_a_seam_has_as_few_methods_as_the_page_says() -> None:
    own = {
        name: [each for each, value in vars(protocol).items() if callable(value) and not each.startswith("_")]
        for name, protocol in vars(protocols).items()
        if getattr(protocol, "_is_protocol", False)
    }
    assert len(own) > 15
    assert max(map(len, own.values())) == 4
    assert "at most four methods" in " ".join(read_pages()["docs/architecture.md"].split())


# ------------------------------------------------------------------------------------------------ planted mistakes

FACTS = Facts(
    options={"loss.kl": "", "loss.kl.coefficient": "0.001", "train.shared": "true", "engine.options.blocks": "32"},
    refuse=lambda option, value: "" if value == "0.001" or option != "loss.kl.coefficient" else f"{option} is {value}",
    free=frozenset({"environment.args"}),
    commands={"": frozenset(), "train": frozenset({"--dry-run"}), "data": frozenset(), "data sft": frozenset({"--to"})},
    targets=frozenset({"test"}),
    files=frozenset({"docs/a.md", "src/turnwise/core/types.py", "tests/test_a.py"}),
    tests={"test_a.py": frozenset({"test_that_it_is_so"})},
    modules={
        "turnwise": frozenset({"train"}),
        "turnwise.core": frozenset(),
        "turnwise.core.types": frozenset({"Task", "Task.id"}),
    },
    groups=frozenset({"turnwise.losses"}),
)
RIGHT = """# A page

`loss.kl.coefficient`, `loss.kl` and `environment.args.anything`; `loss.kl.coefficient = 0.001`, the default;
`train.shared` (the default) and `loss.kl.coefficient` (default 0.001). `turnwise data`, `turnwise data sft RUN --to x`,
`make test`; `core/types.py`, `docs/`, `src/turnwise/core/`, `<name>.py`, `RUN/config.json`. `test_a.py::test_that_...`,
`::test_that_it_is_so`, `test_that_it_is_so`. `core.types.Task`, `turnwise.core.types.Task.id`, `turnwise.losses`.
[itself](#a-page), [another](a.md#a-page), [out](https://example.org/x).

| option | default | |
|---|---|---|
| `blocks` | 32 | blocks |

```
turnwise train a.toml loss.kl.coefficient=0.001 --dry-run    # --not-a-flag
```

```toml
[loss.kl]
coefficient = 0.1
```

```python
from turnwise.core.types import (
    Task,
)
import turnwise as tw

tw.train()
```
"""


@pytest.mark.parametrize("rule", RULES)
def test_a_page_that_is_right_is_not_reported(rule: str) -> None:
    assert RULES[rule]({"docs/a.md": RIGHT}, FACTS) == []


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ("options", "`loss.kl.coefficient`,", "`loss.kl.weight`,"),
        ("options", "a.toml loss.kl.coefficient=", "a.toml loss.coefficient="),
        ("values", "coefficient=0.001 --dry", "coefficient=k1 --dry"),
        ("values", "`loss.kl.coefficient = 0.001`", "`loss.kl.coefficient = k1`"),
        ("options", "coefficient = 0.1", "weight = 0.1"),
        ("defaults", "= 0.001`, the default", "= 0.01`, the default"),
        ("defaults", "(default 0.001)", "(default 0.01)"),
        ("defaults", "`train.shared` (the default)", "`loss.kl.coefficient` (the default)"),
        ("defaults", "| `blocks` | 32 |", "| `blocks` | `16` |"),
        ("commands", "`turnwise data`", "`turnwise dat`"),
        ("commands", "turnwise data sft RUN", "turnwise data fst RUN"),
        ("commands", "--to x", "--two x"),
        ("commands", "--dry-run ", "--dry "),
        ("commands", "`make test`", "`make tests`"),
        ("paths", "`core/types.py`", "`core/type.py`"),
        ("paths", "`docs/`", "`doc/`"),
        ("tests", "test_a.py::test_that_...", "test_a.py::test_than_..."),
        ("tests", "test_a.py::", "test_b.py::"),
        ("tests", "`::test_that_it_is_so`", "`::test_that_it`"),
        ("tests", "`test_that_it_is_so`.", "`test_that_it_was_so`."),
        ("imports", "`core.types.Task`", "`core.types.Tasks`"),
        ("imports", "`turnwise.core.types.Task.id`", "`turnwise.core.type.Task.id`"),
        ("imports", "    Task,\n", "    Tasks,\n"),
        ("imports", "tw.train()", "tw.trains()"),
        ("links", "(#a-page)", "(#the-page)"),
        ("links", "(a.md#a-page)", "(a.md#the-page)"),
        ("links", "(a.md#a-page)", "(b.md)"),
    ],
)
def test_a_planted_mistake_is_found(rule: str, right: str, wrong: str) -> None:
    assert right in RIGHT
    [problem] = RULES[rule]({"docs/a.md": RIGHT.replace(right, wrong, 1)}, FACTS)
    assert problem.startswith("docs/a.md: ")


def test_a_list_and_a_number_that_are_wrong_are_found() -> None:
    table = "| `kind` | |\n|---|---|\n| `a`, old | |\n| `b` | |\n"
    assert list_column(table, "`kind`") == ["a", "b"]
    assert check_list("p.md", "kinds", ["a", "b"], ["b", "c"]) == [
        "p.md: kinds lack c",
        "p.md: kinds name a, which do not exist",
    ]
    assert check_number({"p.md": "It has 7\nparts."}, "p.md", r"has (\d+) parts", 8) == [
        "p.md: says 7 in 'has (\\\\d+) parts'; it is 8"
    ]
    assert check_number({"p.md": "It has parts."}, "p.md", r"has (\d+) parts", 8) != []


def test_headings_that_come_twice_have_anchors_of_their_own() -> None:
    assert list_anchors("# A `b` (c)\n\n## Twice\n\n## Twice\n") == {"a-b-c", "twice", "twice-1"}
