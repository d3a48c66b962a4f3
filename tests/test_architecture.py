"""The house rules, read from the source: floors, light imports, sizes, names, and what is forbidden everywhere.

`find_violations` is a pure function over source texts, so that every rule is also tried on a planted violation.
"""

import ast
import keyword
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from turnwise.core.packages import OFFERED

ROOT = Path(__file__).parent.parent
SIBLING = "turnwise_sandbox"
"""The package below `turnwise`. People use it alone, so it imports nothing of `turnwise`."""
EXTENSIONS = ("turnwise_swe", "turnwise_worlds", "turnwise_adapters", "turnwise_rewards", "turnwise_synthesis")
"""Packages that build on `turnwise`, which they enter as strangers' packages do: by entry points."""
BELOW = {"turnwise_synthesis": {"turnwise_rewards"}}
"""Packages that build on another one of these besides: the second package holds what the first checks its reports
with."""
SOURCES = {
    "turnwise": ROOT / "src",
    **{name: ROOT / "packages" / name.replace("_", "-") / "src" for name in (SIBLING, *EXTENSIONS)},
}
"""The folder that each package is in."""

FLOORS = {
    "core": 0,
    **dict.fromkeys(["config", "algorithms", "hosts", "rendering", "store", "pictures", SIBLING], 1),
    **dict.fromkeys(["models", "tools", "rewards", "questions", "batching", "serving", "gateway"], 2),
    **dict.fromkeys(["environments", "engines", "judging", "rollout", "training", "credit", "sync"], 3),
    "curriculum": 3,
    **dict.fromkeys(["learning", "evaluation", "audit", "diagnosis", "reporting", "exchange", "remote", "forecast"], 4),
    **dict.fromkeys(["pipeline", "testing", "badcases", "cards"], 5),
    "building": 6,
    "runs": 7,
    **dict.fromkeys(["api", "cli"], 8),
    "turnwise_swe/repositories": 2,
    "turnwise_swe/environment": 3,
    **dict.fromkeys(["turnwise_swe/bugs", "turnwise_swe/harbor"], 4),
    "turnwise_worlds/browser": 2,
    "turnwise_worlds/reporting": 4,
    "turnwise_worlds/proving": 4,
    **dict.fromkeys(["turnwise_worlds/coq", "turnwise_worlds/lean"], 5),
    "turnwise_worlds/planning": 5,
    "turnwise_adapters/": 3,
    "turnwise_adapters/alfworld": 3,
    "turnwise_adapters/crafter": 3,
    "turnwise_adapters/scienceworld": 3,
    "turnwise_adapters/verl_tool": 3,
    **{f"turnwise_rewards/{name}": 3 for name in ("unlabelled", "shaping", "grounding", "ranked")},
    "turnwise_synthesis/shaper": 3,
    "turnwise_synthesis/browsecomp": 4,
    "turnwise_rewards/reward_models": 4,
    "turnwise_synthesis/failures": 4,
    "turnwise_rewards/redteam": 5,
    "turnwise_synthesis/research": 4,
    **{
        f"{name}/runs": 7 for name in ("turnwise_worlds", "turnwise_adapters", "turnwise_rewards", "turnwise_synthesis")
    },
    **{f"{name}/commands": 8 for name in EXTENSIONS},
    "turnwise_worlds/devices": 4,
    "turnwise_synthesis/documents": 5,
    **{
        f"turnwise_worlds/{name}": 3
        for name in (
            *("coding", "debate", "delegate", "games", "house", "memory", "miniwob", "pages"),
            *("plan", "proofs", "proposer", "push", "relay"),
            *("repair", "retry", "revise", "screens", "tool_calls", "web"),
        )
    },
}
"""A folder of a package that builds on `turnwise` stands on a floor of `turnwise`: it may use that floor and all below,
and of its own package what is on lower floors."""
LIGHT = {"core", "config", "forecast", "cli", SIBLING, ""}
"""Folders ("" is the package itself) that import neither torch nor transformers when imported."""
HEAVY = {"torch", "transformers", "tokenizers", "renderers", "bm25s"}
VAGUE_NAMES = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}
CATCH_ALL = {
    "turnwise/core/errors.py",  # boundary() itself
    "turnwise_sandbox/errors.py",  # its own boundary()
    "turnwise/core/threads.py",  # carries whatever a job raises from its thread to the waiting task
}
"""Files that may catch everything; each says why at the place."""
GUEST = "/guest/"
"""Files in such folders run inside the sandbox only, as or beside the code that is not trusted: they may execute and
catch anything."""
OTHER_INTERPRETERS = {
    "turnwise/engines/vllm/guest/": {
        "vllm",
        "turnwise_adapter",
        "turnwise_errors",
        "turnwise_loader",
        "turnwise_messages",
        "turnwise_pictures",
        "turnwise_receive",
    }
}
"""Folders whose files run under an interpreter of their own, and what that one has, the files among them."""
PROJECTS = {
    name: tomllib.loads((folder.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, folder in SOURCES.items()
}


OTHER_NAMES = {"pillow": "PIL"}
"""Distributions that are imported under a name of another spelling."""


def import_names(requirements: list[str]) -> set[str]:
    """`bm25s` of `bm25s>=0.3`, `math_verify` of `math-verify>=0.8`."""
    names = (re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in requirements)
    return {OTHER_NAMES.get(name, name) for name in names}


REQUIRED = {name: import_names(project["dependencies"]) for name, project in PROJECTS.items()}
OPTIONAL = {
    package: {
        name
        for extra, requirements in project.get("optional-dependencies", {}).items()
        if extra != "dev"
        for name in import_names(requirements)
        if name not in SOURCES
    }
    - REQUIRED[package]
    for package, project in PROJECTS.items()
}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 800, 80
MAX_TWIN_LINES = 15
"""Most lines of two functions in a row that may be the same but for names and values."""


RECIPE_ROOMS = {"config", "building", "runs", "api", "cli", ""}
"""Folders that may see a whole recipe; all others are given what they need of it."""
READS_A_RECIPE = re.compile(r"\b(RunConfig|load_resolved|load_config|change_resolved)\b")
NAMES_OF_ROWS = {("engine", "kind"), ("train", "algorithm")}
"""Options that name a row: what is decided by them is a field of the row, and never a comparison with a name."""


def find_violations(sources: Mapping[str, str]) -> list[str]:
    """Every broken rule as `path: what`. `sources` maps paths below `src` (`turnwise/core/types.py`) to their text."""
    breaches: list[str] = []
    graph: dict[str, set[str]] = {}
    code: dict[str, list[tuple[int, str]]] = {}
    for path, text in sources.items():
        tree = ast.parse(text)
        folder = folder_of(path)
        graph[module_name(path)] = {name for name in at_import_time(tree) if package_of(name) in SOURCES}
        code[path] = list_shapes(text, tree)
        rules = [
            import_rules(tree, folder, path),
            size_rules(text, tree),
            call_rules(tree, folder, path),
            catch_rules(tree, folder, path),
            recipe_rules(text, tree, folder),
        ]
        breaches += [f"{path}: {problem}" for rule in rules for problem in rule]
        if Path(path).name in VAGUE_NAMES:
            breaches.append(f"{path}: a name that says nothing; call it what it does")
    breaches += find_twins(code)
    return breaches + [f"import cycle {' -> '.join(cycle)}" for cycle in find_cycles(graph)]


SHAPE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\b\d[\w.]*|[^\W\d]\w*|#.*$|\s+")


def list_shapes(text: str, tree: ast.AST) -> list[tuple[int, str]]:
    """The lines of all functions by number, each without names, values, spaces and comments; no docstrings."""
    inside: set[int] = set()
    texts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = text.splitlines()
    shapes = [(number, SHAPE.sub(shorten, lines[number - 1])) for number in sorted(inside - texts)]
    return [(number, shape) for number, shape in shapes if shape]


def shorten(match: re.Match[str]) -> str:
    word = match[0]
    if word[0] in "# \t":
        return ""
    return f" {word} " if keyword.iskeyword(word) else "0" if word[0] in "\"'0123456789" else "x"


def find_twins(code: Mapping[str, list[tuple[int, str]]]) -> list[str]:
    """Places whose lines in a row have the same shapes as others, as `path: what`, each pair once at its first line."""
    first: dict[int, tuple[str, int]] = {}
    problems, last = [], ("", "", 0)
    for path, shapes in code.items():
        for start in range(len(shapes) - MAX_TWIN_LINES):
            window = tuple(shape for _, shape in shapes[start : start + MAX_TWIN_LINES + 1])
            if len(set(window)) < MAX_TWIN_LINES / 3:
                continue  # a list of like lines
            there, line = first.setdefault(hash(window), (path, shapes[start][0]))
            if (there, line) == (path, shapes[start][0]):
                continue
            if last != (path, there, start):
                problems.append(
                    f"{path}: from line {shapes[start][0]} more than {MAX_TWIN_LINES} lines are those of {there} from "
                    f"line {line} under other names; share one function"
                )
            last = (path, there, start + 1)
    return problems


def folder_of(path: str) -> str:
    """`core` of `turnwise/core/types.py`, "" for a module directly in the package; `turnwise_swe/bugs` of a package
    that builds on it; `SIBLING` for all of that one."""
    parts = path.split("/")
    if parts[0] == SIBLING:
        return SIBLING
    folder = parts[1] if len(parts) > 2 else ""
    return f"{parts[0]}/{folder}" if parts[0] in EXTENSIONS else folder


def package_of(module: str) -> str:
    """`turnwise` of `turnwise.core.types`."""
    return module.split(".")[0]


def module_name(path: str) -> str:
    """`turnwise.core.types` of `turnwise/core/types.py`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Absolute module names; `from a.b import c` gives both `a.b` and `a.b.c`, since `c` may be a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def executed_on_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not function bodies, not `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from executed_on_import(child)


def at_import_time(tree: ast.AST) -> set[str]:
    return set(imported(executed_on_import(tree)))


def import_rules(tree: ast.AST, folder: str, path: str) -> Iterator[str]:
    installed = {name for start, names in OTHER_INTERPRETERS.items() if path.startswith(start) for name in names}
    everywhere = set(imported(ast.walk(tree)))
    at_start = at_import_time(tree)
    if any(name.startswith(".") for name in everywhere):
        yield "relative import; name the module in full"
    package = path.split("/")[0]
    own = REQUIRED[package] | OPTIONAL[package]
    others = {*EXTENSIONS} - {package} - BELOW.get(package, set())
    strangers = {SIBLING: {*SOURCES} - {SIBLING}, "turnwise": {*EXTENSIONS}}.get(package, others)
    for name in sorted(name for name in everywhere if package_of(name) in strangers):
        yield f"imports {name}; {reason_against(package)}"
    if package in EXTENSIONS:
        yield from extension_rules(everywhere, folder)
    elif folder and folder != SIBLING:
        targets = {name.split(".")[1] for name in everywhere if name.startswith("turnwise.")}
        for target in sorted(targets | {SIBLING} & set(map(package_of, everywhere))):
            yield from floor_rule(folder, target)
    for root in sorted({name.split(".")[0] for name in everywhere} - {""}):
        if root in {"pickle", "dill", "cloudpickle", "marshal", "shelve"}:
            yield f"imports {root}: nothing is ever unpickled"
        if root not in {*sys.stdlib_module_names, *own, *installed, *SOURCES}:
            yield f"imports {root}, which pyproject.toml does not declare"
        if root in OPTIONAL[package] and root in {name.split(".")[0] for name in at_start}:
            yield f"imports {root}, of an optional extra, when it is imported; import it where it is used"
        if folder == "core" and root not in {*sys.stdlib_module_names, "numpy", "packaging", "turnwise"}:
            yield f"core imports {root}; it knows the standard library, numpy and packaging only"
    if folder in LIGHT:
        for root in sorted({name.split(".")[0] for name in at_start} & HEAVY):
            yield f"imports {root} when it is imported; import it where it is used"


def reason_against(package: str) -> str:
    """Why a package does not import another one of Turnwise's."""
    if package == SIBLING:
        return f"{SIBLING} is used without turnwise"
    if package == "turnwise":
        return "what builds on turnwise comes in by entry points (core/offers.py)"
    return "packages that build on turnwise do not know each other"


def extension_rules(names: set[str], folder: str) -> Iterator[str]:
    """The floors of a package that builds on `turnwise`."""
    package = folder.split("/")[0]
    floor = FLOORS.get(folder, 0)
    if folder not in FLOORS and folder != f"{package}/":
        yield f"folder {folder!r} has no floor; give it one in tests/test_architecture.py and docs/architecture.md"
    for owner, inner in sorted({tuple(name.split(".")[:2]) for name in names if "." in name}):
        if owner == "turnwise" and FLOORS.get(inner, 0) > floor:
            yield f"imports {owner}.{inner}, which is on a higher floor"
        if owner in BELOW.get(package, ()) and FLOORS.get(f"{owner}/{inner}", -1) >= floor:
            yield f"imports {owner}.{inner}, which is on the same floor or a higher one"
        if owner == package and f"{owner}/{inner}" != folder and FLOORS.get(f"{owner}/{inner}", -1) >= floor:
            yield f"imports {owner}.{inner}, which is on the same floor or a higher one"


def floor_rule(folder: str, target: str) -> Iterator[str]:
    if target == folder or target not in FLOORS:
        return
    if folder not in FLOORS:
        yield f"folder {folder!r} has no floor; give it one in tests/test_architecture.py and docs/architecture.md"
    elif FLOORS[target] == FLOORS[folder]:
        yield f"imports {target}, which is on the same floor; meet through core/protocols.py"
    elif FLOORS[target] > FLOORS[folder]:
        yield f"imports {target}, which is on a higher floor"


def size_rules(text: str, tree: ast.AST) -> Iterator[str]:
    if (lines := len(text.splitlines())) > MAX_FILE_LINES:
        yield f"{lines} lines, more than {MAX_FILE_LINES}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"function {node.name} has {lines} lines, more than {MAX_FUNCTION_LINES}"


def call_rules(tree: ast.AST, folder: str, path: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"eval", "exec", "compile", "__import__"} and GUEST not in path:
                yield f"line {node.lineno} calls {node.func.id}(); model output and files are never executed"
            if node.func.id == "print" and folder.split("/")[-1] not in {"cli", "commands", "reporting"}:
                yield f"line {node.lineno} prints; only cli and reporting speak to the terminal"


def catch_rules(tree: ast.AST, folder: str, path: str) -> Iterator[str]:
    if path in CATCH_ALL or folder == "rollout" or GUEST in path:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(
                kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})
                for kind in kinds
            ):
                # Cleaning up and raising again hides nothing.
                if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
                    continue
                yield f"line {node.lineno} catches everything; use boundary() of the package's errors"


def recipe_rules(text: str, tree: ast.AST, folder: str) -> Iterator[str]:
    may_see = folder in {*RECIPE_ROOMS, SIBLING} or folder.split("/")[-1] in {"runs", "commands"}
    if not may_see and (match := READS_A_RECIPE.search(text)):
        yield f"names {match[0]}; a recipe is resolved in building/, so take the settings that are needed"
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.Match | ast.Subscript):
            parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [*ast.iter_child_nodes(node)]
            for section, option in {option_of(part) for part in parts} & NAMES_OF_ROWS:
                yield f"line {node.lineno} decides by the name of {section}.{option}; make it a field of the row"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            for section, option in {option_of(part) for part in node.args} & NAMES_OF_ROWS:
                yield f"line {node.lineno} decides by the name of {section}.{option}; make it a field of the row"


def option_of(node: ast.AST) -> tuple[str, str]:
    """`("engine", "kind")` of the expression `config.engine.kind` or `engine.kind`; two empty texts of any other."""
    if not isinstance(node, ast.Attribute):
        return "", ""
    owner = node.value
    section = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return section, node.attr


def find_cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Every import cycle met by a depth-first walk, as the modules on it."""
    done: set[str] = set()
    cycles: list[list[str]] = []

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            cycles.append([*path[path.index(module) :], module])
        elif module in graph and module not in done:
            for target in sorted(graph[module] - {module}):
                visit(target, [*path, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    return cycles


def test_the_source_keeps_the_rules() -> None:
    sources = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for folder in SOURCES.values()
        for path in folder.rglob("*.py")
    }
    assert {name.split("/")[0] for name in sources} == {*SOURCES}
    violations = find_violations(sources)
    assert not violations, "\n".join(violations)


def test_no_circle_below_the_runs_rests_on_imports_inside_functions_or_for_types() -> None:
    graph = {}
    source = SOURCES["turnwise"]
    for path in (source / "turnwise").rglob("*.py"):
        name = path.relative_to(source).as_posix()
        if FLOORS.get(folder_of(name), FLOORS["runs"]) < FLOORS["runs"]:
            graph[module_name(name)] = set(imported(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    assert len(graph) > 100
    assert find_cycles(graph) == []


def rooms_of_the_document() -> list[tuple[str, int]]:
    """Folder and floor per row of the table of the house."""
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?!turnwise_)\w+)/` \| (\d) \|", document, re.MULTILINE)
    return [(name, int(floor)) for name, floor in rows]


def test_the_house_in_the_document_is_the_code() -> None:
    folders = {path.parent.name for path in (SOURCES["turnwise"] / "turnwise").glob("*/__init__.py")}
    rooms = rooms_of_the_document()
    assert sorted(name for name, _ in rooms) == sorted(folders)
    assert dict(rooms) == {name: FLOORS[name] for name in folders}
    assert [floor for _, floor in rooms] == sorted(floor for _, floor in rooms)
    assert {name for name in FLOORS if "/" not in name} == folders | {SIBLING}


def test_the_packages_in_the_document_are_the_code() -> None:
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(turnwise_\w+/\w*)(?:/`|`) \| (\d) \|", document, re.MULTILINE)
    assert {name: int(floor) for name, floor in rows} == {name: floor for name, floor in FLOORS.items() if "/" in name}
    for name in EXTENSIONS:
        folders = {path.parent.name for path in (SOURCES[name] / name).glob("*/__init__.py")}
        assert {key.split("/")[1] for key in FLOORS if key.startswith(f"{name}/")} - {""} == folders


def test_all_packages_have_one_version_and_require_each_other_at_it() -> None:
    text = (SOURCES["turnwise"] / "turnwise" / "__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    for name, folder in SOURCES.items():
        found = (folder / name / "__init__.py").read_text(encoding="utf-8")
        assert re.findall(r'^__version__ = "(.*)"$', found, re.MULTILINE) == version, name
        assert PROJECTS[name].get("version", version[0]) == version[0], name
        extras = PROJECTS[name].get("optional-dependencies", {})
        for required in (*PROJECTS[name]["dependencies"], *(each for extra in extras.values() for each in extra)):
            if import_names([required]) & {*SOURCES} and not required.startswith("turnwise["):  # an extra of its own
                assert required.endswith(f"=={version[0]}"), f"{name} requires {required}"
    assert "turnwise-sandbox==" + version[0] in PROJECTS["turnwise"]["dependencies"]
    for name in EXTENSIONS:
        assert "turnwise==" + version[0] in PROJECTS[name]["dependencies"]


def test_what_the_core_knows_of_its_packages_is_what_they_offer() -> None:
    """By it an error about a name of a package that is not installed says what to install."""
    for name in EXTENSIONS:
        offered = {group: tuple(names) for group, names in OFFERED[name.replace("_", "-")].items()}
        entries = {group: tuple(sorted(names)) for group, names in PROJECTS[name]["entry-points"].items()}
        recipes = tuple(sorted(path.name for path in (SOURCES[name] / name / "recipes").iterdir()))
        assert offered == {group: names for group, names in entries.items() if group in offered} | {
            "turnwise.recipes": recipes
        }
        assert set(entries) <= {*offered, "turnwise.report_sections", "turnwise.programs"}


def test_the_way_of_a_trajectory_enters_each_room_once_and_never_turns_back() -> None:
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    way = re.findall(r"^\| \d+ \| `(\w+)/` \|", document, re.MULTILINE)
    assert len(way) == len(set(way)) > 5
    for place, room in enumerate(way):
        later = set(way[place + 1 :])
        for path in (SOURCES["turnwise"] / "turnwise" / room).rglob("*.py"):
            names = set(imported(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
            targets = {name.split(".")[1] for name in names if name.startswith("turnwise.")}
            assert not targets & later, f"{path.name} of {room} imports {sorted(targets & later)}, which come later"


@pytest.mark.parametrize("package", SOURCES)
def test_everything_pyproject_declares_is_imported(package: str) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES[package].rglob("*.py"))
    # `import_module("name...")` counts too, and a program given to the sandbox.
    unused = [
        name
        for name in sorted(REQUIRED[package] | OPTIONAL[package])
        if not re.search(rf"\b(import|from) {name}\b|import_module\(\"{name}\b", text)
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("tools/a.py", "from turnwise.runs.build import x", "higher floor"),
        ("tools/a.py", "import turnwise.engines.local", "higher floor"),
        ("tools/a.py", "def f():\n    from turnwise.training import state", "higher floor"),
        ("tools/a.py", "from turnwise import runs", "higher floor"),
        ("engines/a.py", "from turnwise.training.state import x", "same floor"),
        ("runs/a.py", "def f():\n    import turnwise_worlds.games", "comes in by entry points"),
        ("plugins/a.py", "from turnwise.core.types import Task", "no floor"),
        ("tools/a.py", "from .tool import x", "relative import"),
        ("core/a.py", "import pydantic", "core imports pydantic"),
        ("config/a.py", "import torch", "imports torch"),
        ("cli/a.py", "class A:\n    from transformers import AutoModel", "imports transformers"),
        ("__init__.py", "import torch.nn", "imports torch"),
        ("store/a.py", "import pickle", "unpickled"),
        ("runs/a.py", "def f():\n    import requests", "pyproject.toml does not declare"),
        ("runs/a.py", "import sympy", "of an optional extra"),
        ("tools/utils.py", "", "says nothing"),
        ("tools/a.py", "x = 1\n" * 801, "801 lines"),
        ("tools/a.py", "def f():\n" + "    x = 1\n" * 80, "81 lines"),
        ("tools/a.py", "eval('1')", "calls eval"),
        ("rollout/a.py", "exec('1')", "calls exec"),
        ("config/a.py", "import turnwise_sandbox", "same floor"),
        ("runs/a.py", "print(1)", "prints"),
        ("learning/a.py", "def f(config: 'RunConfig') -> None: ...", "names RunConfig"),
        ("reporting/a.py", "from turnwise.config.load import load_resolved", "names load_resolved"),
        ("runs/a.py", "ok = config.engine.kind == 'paged'", "decides by the name of engine.kind"),
        ("config/a.py", "ok = engine.kind not in ('vllm', 'server')", "decides by the name of engine.kind"),
        ("runs/a.py", "n = {'dpo': 1}.get(config.train.algorithm, 2)", "decides by the name of train.algorithm"),
        ("runs/a.py", "n = {'dpo': 1}[train.algorithm]", "decides by the name of train.algorithm"),
        ("runs/a.py", "match config.engine.kind:\n    case _:\n        pass", "decides by the name of engine.kind"),
        ("tools/a.py", "try:\n    f()\nexcept Exception:\n    pass", "catches everything"),
        ("tools/a.py", "try:\n    f()\nexcept (ValueError, BaseException) as e:\n    pass", "catches everything"),
        ("tools/a.py", "try:\n    f()\nexcept:\n    pass", "catches everything"),
    ],
)
def test_a_planted_violation_is_found(path: str, text: str, expected: str) -> None:
    [problem] = find_violations({f"turnwise/{path}": text})
    assert problem.startswith(f"turnwise/{path}: ")
    assert expected in problem


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.py", "from turnwise.core.errors import ConfigError", "imports turnwise.core.errors"),
        ("kernel/a.py", "def f():\n    import turnwise", "imports turnwise;"),
        ("grading/guest/a.py", "from turnwise.core import types", "without turnwise"),
        ("a.py", "import torch", "imports torch"),
        ("a.py", "exec('1')", "calls exec"),
        ("kernel/a.py", "print(1)", "prints"),
        ("serve.py", "try:\n    f()\nexcept Exception:\n    pass", "catches everything"),
        ("remote/a.py", "x = 1\n" * 801, "801 lines"),
    ],
)
def test_a_violation_planted_in_the_sibling_is_found(path: str, text: str, expected: str) -> None:
    problems = find_violations({f"{SIBLING}/{path}": text})
    assert problems
    for problem in problems:
        assert problem.startswith(f"{SIBLING}/{path}: ")
    assert expected in problems[0]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("swe/repositories/a.py", "from turnwise.environments.replies import x", "higher floor"),
        ("swe/repositories/a.py", "def f():\n    import turnwise_swe.bugs.x", "same floor or a higher one"),
        ("worlds/games/a.py", "from turnwise_worlds.relay.family import x", "same floor or a higher one"),
        ("worlds/games/a.py", "import turnwise_swe", "do not know each other"),
        ("worlds/moves/a.py", "import json", "has no floor"),
        ("worlds/games/a.py", "print(1)", "prints"),
        ("adapters/a.py", "import textworld", "of an optional extra"),
        ("adapters/a.py", "import peft", "pyproject.toml does not declare"),
        ("rewards/grounding/a.py", "import turnwise_synthesis.research", "do not know each other"),
        ("synthesis/research/a.py", "import turnwise_worlds.memory", "do not know each other"),
        ("synthesis/research/a.py", "import turnwise_rewards.redteam.play", "same floor or a higher one"),
    ],
)
def test_a_violation_planted_in_a_package_is_found(path: str, text: str, expected: str) -> None:
    [problem] = find_violations({f"turnwise_{path}": text})
    assert problem.startswith(f"turnwise_{path}: ")
    assert expected in problem


def test_a_cycle_is_found() -> None:
    sources = {
        "turnwise/tools/a.py": "from turnwise.tools.b import x",
        "turnwise/tools/b.py": "import turnwise.tools.c",
        "turnwise/tools/c.py": "from turnwise.tools import a",
    }
    assert find_violations(sources) == [
        "import cycle turnwise.tools.a -> turnwise.tools.b -> turnwise.tools.c -> turnwise.tools.a"
    ]
    assert find_violations({f"{SIBLING}/a.py": f"import {SIBLING}.b", f"{SIBLING}/b.py": f"import {SIBLING}.a"}) == [
        f"import cycle {SIBLING}.a -> {SIBLING}.b -> {SIBLING}.a"
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("runs/a.py", "from turnwise.core.types import Task\nfrom turnwise.runs.build import System\nimport torch"),
        ("config/a.py", "def f():\n    import torch"),
        ("cli/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("core/a.py", "import json\nimport numpy as np"),
        ("cli/a.py", "print(1)"),
        ("runs/a.py", "def f(config: 'RunConfig') -> None:\n    find_engine_kind(config.engine.kind)"),
        ("core/errors.py", "try:\n    f()\nexcept Exception as e:\n    raise ValueError from e"),
        ("store/a.py", "try:\n    f()\nexcept BaseException:\n    clean()\n    raise"),
        ("tools/a.py", "from turnwise_sandbox.types import Limits"),
    ],
)
def test_what_is_allowed_is_not_reported(path: str, text: str) -> None:
    assert find_violations({f"turnwise/{path}": text}) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "import os\nfrom turnwise_sandbox.kernel import limits"),
        ("guest/a.py", "try:\n    exec('1')\nexcept BaseException:\n    pass"),
        ("errors.py", "try:\n    f()\nexcept Exception as e:\n    raise ValueError from e"),
    ],
)
def test_what_is_allowed_in_the_sibling_is_not_reported(path: str, text: str) -> None:
    assert find_violations({f"{SIBLING}/{path}": text}) == []


def test_a_package_may_build_on_the_one_that_is_named_for_it() -> None:
    text = "from turnwise_rewards.grounding.ledger import x"
    assert find_violations({"turnwise_synthesis/research/a.py": text}) == []


def test_a_copy_is_found_under_other_names() -> None:
    def write(noun: str, value: int, lines: int = 16) -> str:
        body = "".join(
            f"    {noun}_{number} = call({', '.join([noun, str(value)] * number)})  # {noun}\n"
            for number in range(lines - 1)
        )
        return f'def read_{noun}({noun}):\n    """Read a {noun}."""\n{body}'

    [problem] = find_violations({"turnwise/store/a.py": write("row", 1), "turnwise/tools/b.py": write("step", 2)})
    assert problem.startswith("turnwise/tools/b.py: from line 1 more than 15 lines are those of turnwise/store/a.py")
    assert find_violations({"turnwise/store/a.py": write("row", 1, 15), "turnwise/tools/b.py": write("step", 2)}) == []
    other = write("step", 2).replace("step_1 = call(step, 2)", "step_1 = call(step)")
    assert find_violations({"turnwise/store/a.py": write("row", 1), "turnwise/tools/b.py": other}) == []


def test_no_two_test_files_share_a_name() -> None:
    """pytest collects only the first of them."""
    folders = [ROOT / "tests", *(ROOT / "packages").glob("*/tests")]
    names = Counter(path.name for folder in folders for path in folder.rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]
