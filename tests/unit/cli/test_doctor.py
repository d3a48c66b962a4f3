"""What `turnwise doctor` says of optional extras."""

import importlib.metadata
from pathlib import Path

import pytest
from installed import write_entry_points

from turnwise import __version__
from turnwise.cli.doctor import describe_package, find_extras
from turnwise.core.packages import find_version


def test_every_extra_is_named_with_what_it_lacks() -> None:
    extras = find_extras(
        [
            "numpy>=2",
            "pytest>=9; extra == 'dev'",
            'turnwise-has-no-such-package>=1; extra == "other"',
            "turnwise-lacks.this[x]>=2; (python_version > '3') and extra == 'other'",
            "numpy>=2; extra == 'lora'",
            "turnwise-sandbox[e2b]==0.1.0; extra == 'rented'",  # an extra of a package that is installed
        ]
    )
    e2b = [] if find_version("e2b") else ["e2b"]
    assert extras == {"lora": [], "other": ["turnwise-has-no-such-package", "turnwise-lacks.this"], "rented": e2b}
    assert list(extras) == ["lora", "other", "rented"]


def test_a_package_of_another_version_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_package("turnwise-sandbox") == __version__
    assert describe_package("turnwise-no-such") == "not installed; pip install turnwise-no-such"
    write_entry_points(tmp_path, "turnwise-sandbox", {})
    monkeypatch.syspath_prepend(tmp_path)
    assert describe_package("turnwise-sandbox") == (
        f"1.0, and Turnwise is {__version__}: pip install turnwise-sandbox=={__version__}"
    )


def test_all_extras_of_the_package_are_known() -> None:
    named = set(importlib.metadata.metadata("turnwise").get_all("Provides-Extra") or ()) - {"dev"}
    assert set(find_extras(importlib.metadata.requires("turnwise") or ())) == named
    assert {"wandb", "ray", "mcp", "lora"} <= named
