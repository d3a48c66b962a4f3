"""`turnwise bugs` where it needs no sandbox: the table, and refusals in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.core.errors import ConfigError
from turnwise_swe.bugs.ledger import Entry, Ledger


def test_the_table_reads_the_ledger_beside_the_instances(tmp_path: Path) -> None:
    file = tmp_path / "bugs.jsonl"
    entry = Entry(repository="calc==1.0", candidate_id="bool.1", kind="bool", place="m.py::f", fate="survived")
    Ledger(path=tmp_path / "bugs.ledger.jsonl").write([entry])
    shown = CliRunner().invoke(app, ["bugs", "table", str(file)])
    assert "| bool | 1 | 0 (0%) | 1 survived |  |  |  |" in shown.stdout.splitlines()
    rows = json.loads(CliRunner().invoke(app, ["bugs", "table", str(file), "--json"]).stdout)
    assert [row["name"] for row in rows] == ["calc==1.0", "bool", "all"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["table", "no.jsonl"],
            r"no\.ledger\.jsonl does not exist; `turnwise bugs make \.\.\. --out no\.jsonl` writes",
        ),
        (["make", "a==1", "--out", "b.jsonl", "--kinds", "bool,wrong"], "kind 'wrong' does not exist; choose from"),
    ],
)
def test_what_is_missing_is_named(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, ["bugs", *arguments], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []
