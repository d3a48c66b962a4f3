"""`turnwise synthesize`: documents and the ledger beside them, and one line for what does not fit."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.core.errors import ConfigError, DataError
from turnwise.exchange.document_rows import load_documents
from turnwise_synthesis.commands.synthesize import app

FACTS = Path(__file__).parents[2] / "src" / "turnwise_synthesis" / "data" / "facts.jsonl"
WORLD = [
    "environment.name=search_qa",
    "environment.args.mode=fresh",
    "environment.args.num_entities=16",
    "environment.args.num_words=8",
    "environment.args.kinds={1hop=0.7, unanswerable=0.3}",
]


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_first_order_actions_and_their_ledger(tmp_path: Path) -> None:
    out = tmp_path / "fas.jsonl"
    said = call("fas", *WORLD, "--out", str(out), "--items", "8", "--heldout", "4")
    documents, _ = load_documents(out)
    dropped = [json.loads(line) for line in (tmp_path / "fas.dropped.jsonl").read_text().splitlines()]
    assert f"reason: kept {sum(document.id.startswith('reason/') for _, document in documents)} of" in said
    assert {row["reason"] for row in dropped} >= {"no_evidence"}
    shown = call("show", str(out), "--kind", "plan", "--count", "2")
    assert shown.startswith("# plan: 2 of ")
    assert "assistant calls search" in shown
    assert "no_evidence: " in call("show", str(tmp_path / "fas.dropped.jsonl"))


def test_higher_order_actions_and_their_control(tmp_path: Path) -> None:
    has, plain = tmp_path / "has.jsonl", tmp_path / "plain.jsonl"
    shared = [*WORLD, "--items", "2", "--policies", "oracle,random", "--heldout", "0"]
    call("has", *shared, "--out", str(has))
    call("has", *shared, "--out", str(plain), "--plain")
    assert " So " in has.read_text()
    assert " So " not in plain.read_text()


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        (["fas", *WORLD, "--writer", "oracle"], ConfigError, "is not scripted:POLICY, run:RUN"),
        (["fas", *WORLD, "--writer", "scripted:nobody"], ConfigError, "nobody"),
        (["fas", str(FACTS), "--writer", "scripted:oracle"], ConfigError, "a corpus has no scripted policy"),
        (["fas", str(FACTS), "--writer", "api:http://127.0.0.1:1/v1"], ConfigError, "names no model"),
        (["fas", "environment.name=countdown"], ConfigError, "first-order actions need passages"),
        (["has"], ConfigError, "name either a recipe"),
        (["has", str(FACTS)], ConfigError, "is a corpus, which has no trajectories"),
        (["show", str(FACTS)], DataError, ""),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, arguments: list[str], error: type, problem: str) -> None:
    where = [] if arguments[0] == "show" else ["--out", str(tmp_path / "x.jsonl"), "--items", "2"]
    if arguments[0] == "show":
        arguments = ["show", str(FACTS), "--kind", "plan"]
        problem = "nothing of the kind 'plan'"
    with pytest.raises(error, match=problem):
        CliRunner().invoke(app, [*arguments, *where], catch_exceptions=False)
    assert not (tmp_path / "x.jsonl").exists()


def test_the_ledger_is_there_where_nothing_is_kept(tmp_path: Path) -> None:
    """A question that states its answer needs no search, so there is no plan to keep."""
    out = tmp_path / "none.jsonl"
    world = [*WORLD[:-1], "environment.args.kinds={no_search=1.0}"]
    with pytest.raises(DataError, match=r"no document is left: .*plan: kept 0 of 1; dropped: off_format 1"):
        call("fas", *world, "--kind", "plan", "--out", str(out), "--items", "1", "--heldout", "0")
    assert "off_format" in (tmp_path / "none.dropped.jsonl").read_text()
    assert not out.exists()
