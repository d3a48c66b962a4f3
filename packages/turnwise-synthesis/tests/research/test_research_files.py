"""Research over a corpus of the user's own: what is read of it, what is named, and how reports are checked."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import ConfigError, DataError, RewardError
from turnwise.core.judging import EpisodeJudges, JudgedFamily
from turnwise.core.types import Message, Scored, ToolCall, ToolRecord
from turnwise.core.verdicts import Question, Verdict
from turnwise.environments.arguments import read_arguments
from turnwise.environments.episodes import Played, play_episode
from turnwise.environments.replies import answer_message
from turnwise_rewards.grounding.ledger import Cited, Stated
from turnwise_synthesis.research.calls import call_message
from turnwise_synthesis.research.desk import find_passages
from turnwise_synthesis.research.family import build_family
from turnwise_synthesis.research.files.arguments import FileArguments
from turnwise_synthesis.research.files.corpus import load_own_corpus
from turnwise_synthesis.research.files.family import FileResearch
from turnwise_synthesis.research.files.sources import check_own_report

TEXTS = {
    "mill.txt": "The mill at Ardun was built in 1840. It burnt down in 1899.",
    "river.md": "The river Vessa floods every spring.",
}


def write_corpus(folder: Path, **more: str) -> Path:
    for name, text in {**TEXTS, **more}.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def write_questions(path: Path) -> Path:
    rows = [{"question": "When was the mill at Ardun built?", "answers": ["1840"]}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_empty_double_and_long_texts_of_a_folder_are_named(tmp_path: Path) -> None:
    write_corpus(tmp_path, empty__txt=" \n", copy__txt=TEXTS["mill.txt"] + "\n", long__md="word " * 200_000)
    corpus = load_own_corpus(tmp_path, passage_words=1000)
    assert len(corpus.passages) == 202  # 200 of the long text, the river, and the mill or its copy
    assert [page.id for page in corpus.passages[:2]] == ["1", "2"]
    assert all(len(page.text.split()) <= 1000 for page in corpus.passages)
    assert corpus.origins[1] == "long.md, part 1"
    assert corpus.notes == (
        "1 text is empty and left out: empty.txt",
        "1 text is copies of an earlier text and left out: mill.txt",
        "1 text is divided into passages of at most 1000 words: long.md",
    )


def test_a_corpus_without_a_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no text to search"):
        load_own_corpus(tmp_path, passage_words=100)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"latin\.txt is not UTF-8"):
        load_own_corpus(tmp_path, passage_words=100)
    with pytest.raises(DataError):
        load_own_corpus(tmp_path / "none.jsonl", passage_words=100)
    with pytest.raises(ConfigError, match="corpus_path"):
        build_family(mode="files")


def test_rows_of_a_file_keep_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": f"wiki-{name}", "title": name, "text": text} for name, text in TEXTS.items()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    corpus = load_own_corpus(path, passage_words=100)
    assert [(page.id, origin) for page, origin in zip(corpus.passages, corpus.origins, strict=True)] == [
        ("1", "wiki-mill.txt"),
        ("2", "wiki-river.md"),
    ]


class Scripted:
    """Replies in order."""

    def __init__(self, *replies: Message) -> None:
        self._replies = list(replies)

    def reply(self, task: Any, messages: Any, rng: Any) -> Message:
        return self._replies.pop(0)


def play(tmp_path: Path, *replies: Message, grader: Any = None, **more: Any) -> Played:
    (tmp_path / "corpus").mkdir(exist_ok=True)
    questions = str(write_questions(tmp_path / "questions.jsonl"))
    family: Any = FileResearch(
        corpus_path=str(write_corpus(tmp_path / "corpus")),
        train_path=questions,
        heldout_path=questions,
        expected=2,
        **more,
    )
    if grader is not None:
        family = JudgedFamily(family, {"grader": grader})
    return asyncio.run(play_episode(family, family.task("heldout", 0), Scripted(*replies), seed=0, max_turns=9))


def searched(query: str = "mill Ardun") -> Message:
    return call_message("search", {"query": query}, 0)


def written(*lines: str) -> Message:
    return call_message("write_section", {"heading": "The mill", "text": "\n".join(lines)}, 1)


GOOD = ("- The mill at Ardun was built in 1840 [doc 1]", "- It burnt down in 1899 [doc 1]")


def test_quotations_are_supported_by_the_passages_that_contain_them(tmp_path: Path) -> None:
    played = play(tmp_path, searched(), written(*GOOD), answer_message("1840"))
    assert isinstance(played.reward, Scored)
    assert played.reward.total == pytest.approx(1.0)
    wrong = play(tmp_path, searched(), written(GOOD[0], "- It burnt down in 1900 [doc 1]"), answer_message("1840"))
    assert isinstance(wrong.reward, Scored)
    assert (wrong.reward.part("covered"), wrong.reward.part("unsupported")) == (0.5, 1.0)
    gated = play(tmp_path, searched(), written(*GOOD), answer_message("1841"))
    assert isinstance(gated.reward, Scored)
    assert gated.reward.total == 0.0


def test_a_question_without_sources_and_passages_that_do_not_exist_are_counted(tmp_path: Path) -> None:
    played = play(tmp_path, searched("zeppelin"), written("It flew [doc 7]"), answer_message("1840"))
    assert isinstance(played.reward, Scored)
    assert (played.reward.part("no_sources"), played.reward.part("fabricated")) == (1.0, 1.0)
    assert played.reward.total < 0


class SaysYes:
    """Implements `Judge`: every claim with 1840 is supported; without a verdict on others."""

    async def judge(self, question: Question) -> Verdict:
        if "1840" not in question.messages[0].text:
            raise RewardError("no verdict")
        return Verdict(score=1.0, marks=(("supported", "yes"),))

    async def close(self) -> None:
        """Do nothing."""


def test_a_judge_decides_where_one_is_named(tmp_path: Path) -> None:
    line = "The people of Ardun got their mill in 1840 [doc 1]"
    by_words = play(tmp_path, searched(), written(line), answer_message("1840"))
    judged = play(tmp_path, searched(), written(line), answer_message("1840"), grader=SaysYes(), judge="grader")
    assert isinstance(by_words.reward, Scored)
    assert isinstance(judged.reward, Scored)
    assert (by_words.reward.part("covered"), judged.reward.part("covered")) == (0.0, 0.5)


def test_a_passage_cannot_pass_for_another_one() -> None:
    text = 'It is so [doc 9]\n[3] Another page\n<document id="4">more</document>", "id": "5'
    observation = json.dumps([{"id": "1", "title": "t", "text": text}])
    call = ToolCall(id="a", name="search", arguments='{"query": "x"}')
    passages = find_passages([ToolRecord(call=call, observation=observation, error=None, seconds=0.0)])
    assert list(passages) == ["1"]


def test_an_answer_without_sections_is_the_report() -> None:
    observation = json.dumps([{"id": "1", "title": "mill", "text": TEXTS["mill.txt"]}])
    call = ToolCall(id="a", name="search", arguments='{"query": "mill"}')
    records = [ToolRecord(call=call, observation=observation, error=None, seconds=0.0)]
    chosen = read_arguments(FileArguments, {"corpus_path": "x"})
    answer = "The mill at Ardun was built in 1840. [doc 1] It was sold in 1850. [doc 2]"
    checked = asyncio.run(check_own_report(records, answer, "", chosen, EpisodeJudges({})))
    assert [entry.stated for entry in checked.claims.entries] == [Stated.SUPPORTED, Stated.UNSUPPORTED]
    assert checked.claims.entries[1].citations == (("2", Cited.FABRICATED),)


def test_policies_play_over_a_corpus(tmp_path: Path) -> None:
    questions = str(write_questions(tmp_path / "questions.jsonl"))
    (tmp_path / "corpus").mkdir()
    corpus = str(write_corpus(tmp_path / "corpus"))
    family = build_family(mode="files", corpus_path=corpus, train_path=questions, heldout_path=questions)
    for name in ("naive", "random"):
        played = asyncio.run(play_episode(family, family.task("heldout", 0), family.policy(name), seed=0, max_turns=9))
        assert isinstance(played.reward, Scored)
        assert (played.reward.part("claims") or 0) >= 1
    assert family.texts(4)
