"""No dead options: every option of the recipe is read by a run: somewhere outside `config/` and `forecast/`."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from turnwise.config.options import list_options
from turnwise.config.run import RunConfig

PACKAGE = Path(__file__).parents[3] / "src" / "turnwise"


def list_unread(names: Iterable[str], source: str) -> list[str]:
    """Options that `source` reads neither as `.section.field` nor through a variable named after the section."""
    return [name for name in names if not re.search(rf"\b{re.escape('.'.join(name.split('.')[-2:]))}\b", source)]


def test_every_option_is_read_by_a_run() -> None:
    apart = {PACKAGE / "forecast", PACKAGE / "forecast" / "simulation"}
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "config" and path.parent not in apart]
    files.append(PACKAGE / "config" / "shown.py")  # what reports and trackers read of a recipe
    code = "\n".join(ast.unparse(WithoutTexts().visit(ast.parse(path.read_text(encoding="utf-8")))) for path in files)
    assert list_unread(list_options(RunConfig), code) == []


class WithoutTexts(ast.NodeTransformer):
    """Empties every string: an error message or docstring that names an option does not read it."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")


def test_an_unread_option_is_found() -> None:
    assert list_unread(
        ["train.lr", "train.steps", "train.max_grad_norm"], "x = config.train.lr + constrain.steps; loss.clip_lower"
    ) == [
        "train.steps",
        "train.max_grad_norm",
    ]
