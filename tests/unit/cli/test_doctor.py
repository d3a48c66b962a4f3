"""What `turnwise doctor` says of optional extras, packages and programs."""

import importlib.metadata
import shutil
from pathlib import Path

import pytest
from installed import write_entry_points

from turnwise import __version__
from turnwise.cli.doctor import describe_package, describe_programs, find_extras
from turnwise.core.errors import ConfigError
from turnwise.core.packages import find_version
from turnwise.core.programs import SystemProgram, list_programs


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


def test_programs_that_are_missing_are_named_with_their_users_and_the_remedy() -> None:
    shell = SystemProgram(command="sh", package="dash", used_by="environment 'here'")
    missing = SystemProgram(command="no-such-prover", package="prover", used_by="environment 'proofs'")
    assert shell.find() == shutil.which("sh")
    with pytest.raises(ConfigError, match=r"environment 'proofs' needs the program no-such-prover, .*install prover"):
        missing.find()
    assert describe_programs([shell, missing]) == {
        "programs": "sh",
        "programs missing": "no-such-prover (environment 'proofs'; apt-get install prover)",
    }


def test_an_offer_of_programs_that_is_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entry_points(tmp_path, "odd", {"turnwise.programs": {"odd": "os:sep"}})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="programs='odd' of the package odd must be a sequence of SystemProgram"):
        list_programs()
