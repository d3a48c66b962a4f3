"""No dead options: every option of the recipe is read by a run: somewhere outside `config/` and `forecast/`."""

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
    code = "\n".join(re.sub(r"#.*", "", path.read_text(encoding="utf-8")) for path in files)
    # An error message or docstring that names an option does not read it.
    code = re.sub(r'"""(?s:.*?)"""|"[^"\n]*"', '""', code)
    assert list_unread(list_options(RunConfig), code) == []


def test_an_unread_option_is_found() -> None:
    assert list_unread(
        ["train.lr", "train.steps", "train.max_grad_norm"], "x = config.train.lr + constrain.steps; loss.clip_lower"
    ) == [
        "train.steps",
        "train.max_grad_norm",
    ]
