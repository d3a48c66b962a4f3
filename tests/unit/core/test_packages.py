"""Names of Turnwise's packages that are not installed, or of another version: a line that says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import run_command
from installed import write_entry_points

from turnwise import __version__
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.core.packages import OFFERED
from turnwise.environments.registry import load_family
from turnwise.exchange.folder_formats import find_format

GARDEN = {
    "turnwise.environments": ("roses",),
    "turnwise.commands": ("water",),
    "turnwise.task_formats": ("beds",),
    "turnwise.recipes": ("roses",),
}


@pytest.fixture
def garden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of Turnwise's own that is not installed."""
    monkeypatch.setitem(OFFERED, "turnwise-garden", GARDEN)


@pytest.mark.usefixtures("garden")
def test_what_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    remedy = "is in turnwise-garden: pip install turnwise-garden"
    with pytest.raises(ConfigError) as raised:
        load_family("roses", {})
    assert str(raised.value) == f"environment.name='roses' {remedy}"
    with pytest.raises(ConfigError) as raised:
        find_format("beds")
    assert str(raised.value) == f"format='beds' {remedy}"
    with pytest.raises(ConfigError) as raised:
        load_config([Path("roses/red")])
    assert str(raised.value) == f"recipe 'roses/red' {remedy}"
    called = run_command("water", "--deep", "now")
    assert (called.returncode, called.stderr) == (2, f"error: command='water' {remedy}\n")
    assert "water" not in run_command("--help").stdout


@pytest.mark.usefixtures("garden")
def test_a_package_of_a_stranger_may_have_the_name_as_long_as_ours_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entry_points(tmp_path, "roses-of-mine", {"turnwise.task_formats": {"beds": "beds_of_mine:BEDS"}})
    (tmp_path / "beds_of_mine.py").write_text(
        "from turnwise.exchange.folder_formats import FolderFormat\nBEDS = FolderFormat(read=list, write=print)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_format("beds").write is print


def test_a_wheel_of_a_later_version_beside_this_core_is_refused_before_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {
        "turnwise.environments": {"games": "late_worlds:Games"},
        "turnwise.commands": {"exploitability": "late_worlds:exploitability"},
        "turnwise.report_sections": {"games": "late_worlds:GAMES"},
    }
    write_entry_points(tmp_path, "turnwise-worlds", groups, requires="turnwise==99.0")
    (tmp_path / "late_worlds.py").write_text("raise RuntimeError('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = (
        f" of the package turnwise-worlds was made for 'turnwise==99.0', and this is Turnwise {__version__}; "
        "update one of the two, or uninstall turnwise-worlds"
    )
    with pytest.raises(ConfigError) as raised:
        load_family("games", {})
    assert str(raised.value) == f"environment.name='games'{words}"
    called = run_command("exploitability", "RUN")
    assert (called.returncode, called.stderr) == (2, f"error: command='exploitability'{words}\n")
    # A name that this version has and that one lacks.
    with pytest.raises(ConfigError) as raised:
        load_family("relay", {})
    assert str(raised.value) == (
        f"environment.name='relay' is in turnwise-worlds {__version__}; 1.0 is installed: "
        f"pip install turnwise-worlds=={__version__}"
    )
    assert "late_worlds" not in sys.modules
