"""`turnwise questions`: files in and out, one line for what is wrong."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from turnwise.core.errors import ConfigError, DataError
from turnwise.environments.search_qa.family import SearchQA
from turnwise_synthesis.commands.questions import app
from turnwise_synthesis.shaper.graph_files import write_graph
from turnwise_synthesis.shaper.scene import build_world_scene


def run(*arguments: object, code: int = 0) -> str:
    """What a command prints; raises what it raises."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(name="corpus")
def build_corpus(tmp_path):
    """A corpus file of a generated world without years, its texts and its graph."""
    scene = build_world_scene("train", 2, num_entities=60, num_words=48, num_distractors=5)
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in scene.passages]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path, scene


def test_a_corpus_becomes_a_graph_and_questions_about_it(corpus, tmp_path) -> None:
    path, _ = corpus
    graph, questions = tmp_path / "graph.jsonl", tmp_path / "questions.jsonl"
    told = run("graph", path, graph, "--api", "scripted")
    assert told.startswith("read ")
    told = run("expand", "--graph", graph, "--corpus", path, "--count", 5, "--layers", 1, "--output", questions)
    assert "made" in told
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 5
    family = SearchQA(mode="files", corpus_path=str(path), train_path=str(questions), heldout_path=str(questions))
    assert family.task("heldout", 0).payload["answers"] == rows[0]["answers"]


def test_inverted_questions_carry_a_canary_and_are_not_trained_on(corpus, tmp_path) -> None:
    path, scene = corpus
    graph, questions = tmp_path / "graph.jsonl", tmp_path / "inverted.jsonl"
    graph.write_text("\n".join(write_graph(scene.graph)), encoding="utf-8")
    run("invert", "--graph", graph, "--corpus", path, "--count", 6, "--output", questions)
    assert "6 rows with a canary in 1 files" in run("canaries", questions, code=1)
    with pytest.raises(DataError, match=r"inverted.jsonl:1: the row has the canary"):
        SearchQA(mode="files", corpus_path=str(path), train_path=str(questions), heldout_path=str(questions))
    encrypted, back = tmp_path / "encrypted.csv", tmp_path / "back.jsonl"
    run("encrypt", questions, encrypted)
    assert run("decrypt", encrypted, back) == "6 questions; 0 copies left out\n"
    first, again = (json.loads(file.read_text(encoding="utf-8").splitlines()[0]) for file in (questions, back))
    assert {key: first[key] for key in ("question", "answers", "canary")} == {
        key: again[key] for key in ("question", "answers", "canary")
    }


def test_questions_of_a_generated_world_are_printed_and_the_dropped_ones_counted() -> None:
    told = run("expand", "--entities", 60, "--count", 4, "--layers", 1)
    assert told.splitlines()[0].startswith("  1 Find ")
    flawed = run("expand", "--entities", 60, "--count", 4, "--layers", 1, "--strategy", "random", "--keep-flawed")
    assert "[constant_edge" in flawed or "[near_constant" in flawed
    assert "dropped" not in flawed


def test_what_is_wrong_is_one_line(corpus, tmp_path) -> None:
    path, _ = corpus
    graph = tmp_path / "graph.jsonl"
    graph.write_text(
        json.dumps({"subject": "A", "relation": "r", "object": "B", "passages": ["gone"]}), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"--graph and --corpus belong together"):
        run("expand", "--graph", graph)
    with pytest.raises(DataError, match=r"A \| r \| B|r \| A \| B names passage 'gone', which is not in"):
        run("expand", "--graph", graph, "--corpus", path)
    with pytest.raises(ConfigError, match=r"exists; name a new file"):
        run("graph", path, graph, "--api", "scripted")
    with pytest.raises(ConfigError, match=r"needs --model"):
        run("graph", path, tmp_path / "new.jsonl", "--api", "http://127.0.0.1:9/v1")
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"question": "q", "answers": ["a"]}', encoding="utf-8")
    with pytest.raises(DataError, match=r"the row has no canary"):
        run("encrypt", plain, tmp_path / "plain.csv")


def test_a_graph_without_a_unique_answer_says_so_with_counts(tmp_path) -> None:
    facts = [{"subject": s, "relation": "r", "object": "X", "passages": [f"p{s}"]} for s in "AB"]
    graph, corpus = tmp_path / "graph.jsonl", tmp_path / "corpus.jsonl"
    graph.write_text("\n".join(map(json.dumps, facts)), encoding="utf-8")
    corpus.write_text(
        "\n".join(json.dumps({"id": f"p{s}", "title": "", "text": f"The r of {s} is X."}) for s in "AB"),
        encoding="utf-8",
    )
    with pytest.raises(DataError, match=r"no question was made: no conditions 2, one condition 1"):
        run("invert", "--graph", graph, "--corpus", corpus, "--distance", 1)
    with pytest.raises(DataError, match=r"no question was made: "):
        run("expand", "--graph", graph, "--corpus", corpus)


def test_the_seed_decides() -> None:
    assert run("invert", "--seed", 3, "--entities", 100, "--count", 3) == run(
        "invert", "--seed", 3, "--entities", 100, "--count", 3
    )
