"""A user's passages as a graph: what is kept, what is dropped and by which name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from turnwise.core.errors import DataError, EngineError
from turnwise.core.types import Message
from turnwise.core.verdicts import Usage
from turnwise.environments.search_qa.corpus import Passage, write_corpus
from turnwise.environments.search_qa.wordings import Style
from turnwise.environments.search_qa.world import build_world
from turnwise.judging.engine import EngineWriter
from turnwise.judging.text import TextOptions, Written
from turnwise.testing import ScriptedEngine, build_tiny_renderer, build_tiny_tokenizer
from turnwise_synthesis.shaper.extraction import MAX_WINDOW, cut, extract_graph, read_reply, write_facts
from turnwise_synthesis.shaper.writers import by_writer

OSLO = Passage("p1", "Kon-Tiki", "Thor Heyerdahl built the raft Kon-Tiki, which left Callao in 1947.")
RAFT = "Kon-Tiki (raft) | builder | Thor Heyerdahl (person)"


def extract(replies: Mapping[str, str], *passages: Passage, **options):
    """Extract with replies by id of the passage; the prompt is recognised by its text."""

    async def write(prompt: str) -> str:
        return next(replies[each.id] for each in passages if each.text[:40] in prompt)

    return asyncio.run(extract_graph(passages, write, **options))


def test_a_generated_corpus_gives_back_its_facts_each_with_its_passage() -> None:
    world = build_world(3, "train", 20)
    corpus = write_corpus([world], seed=1, style=Style(wording="natural"), num_distractors=0)
    graph = asyncio.run(extract_graph(corpus.passages, write_facts)).graph
    facts = {each.triple: each.passages for each in graph.statements}
    assert facts == {
        (relation, subject, target): (corpus.passages[corpus.evidence[relation, subject]].id,)
        for (relation, subject), target in world.facts.items()
    }
    assert all(graph.types[name] == world.types[name] for name in graph.types)


@pytest.mark.parametrize(
    ("line", "fate"),
    [
        (RAFT, "kept"),
        ("1. " + RAFT, "kept"),
        ("- " + RAFT, "kept"),
        ("kon tiki | built by | THOR HEYERDAHL", "kept"),  # words, not capitals or hyphens
        ("Kon-Tiki | builder | Roald Amundsen", "object_not_in_passage"),
        ("Fram | builder | Thor Heyerdahl", "subject_not_in_passage"),
        ("Kon | builder | Thor Heyer", "object_not_in_passage"),  # part of a word is not the word
        ("it | left | Callao", "pronoun"),
        ("This | related_to | 1947", "pronoun"),
        ("Kon-Tiki | builder", "malformed"),
        ("Kon-Tiki builder Thor Heyerdahl", "malformed"),
        ("Kon-Tiki | | Thor Heyerdahl", "malformed"),
        ("Kon-Tiki | is | kon tiki", "about_itself"),
        ("Kon-Tiki | type | raft", "reserved_relation"),
        ("Thor Heyerdahl built the raft Kon-Tiki which left Callao in 1947 and more | is | raft", "too_long"),
    ],
)
def test_every_fate_of_a_fact(line: str, fate: str) -> None:
    other = Passage("p2", "", "Ra is a boat of papyrus.")
    extracted = extract({"p1": line, "p2": "Ra | material | papyrus"}, OSLO, other)
    assert extracted.fates.get(fate) == (2 if fate == "kept" else 1)
    assert (fate == "kept") or any(fate.replace("_", " ") in told for told in extracted.named)


def test_repeated_facts_copies_and_second_sources_are_counted() -> None:
    again = Passage("p2", "", "The raft Kon-Tiki was built by Thor Heyerdahl.")
    copy = Passage("p3", "kon-tiki", OSLO.text.upper())
    empty = Passage("p4", "a title", " \u200b ")
    replies = {"p1": f"{RAFT}\n{RAFT}", "p2": RAFT, "p3": "never asked", "p4": "never asked"}
    extracted = extract(replies, OSLO, again, copy, empty)
    assert extracted.fates == {"kept": 1, "repeated": 1, "stated_again": 1}
    assert extracted.readings == {"read": 2, "empty_passage": 1, "copy_of_a_passage": 1}
    assert extracted.graph.statements[0].passages == ("p1", "p3", "p2")


def test_a_writer_that_repeats_itself_without_end_gives_each_fact_once() -> None:
    extracted = extract({"p1": "\n".join([RAFT] * 5000)}, OSLO)
    assert extracted.fates == {"kept": 1, "repeated": 4999}
    assert len(extracted.named) == 0


@pytest.mark.parametrize(
    ("reply", "reading"),
    [("NONE", "no_facts"), ("none.", "no_facts"), ("I cannot help with that.", "nonsense"), ("", "nonsense")],
)
def test_readings_of_replies_without_facts(reply: str, reading: str) -> None:
    other = Passage("p2", "", "Ra is a boat of papyrus.")
    assert extract({"p1": reply, "p2": "Ra | material | papyrus"}, OSLO, other).readings == {reading: 1, "read": 1}


def test_failures_and_silence_are_named_with_their_passage() -> None:
    other = Passage("p2", "", "Ra is a boat of papyrus.")
    third = Passage("p3", "", "Tigris is a boat of reed.")

    async def write(prompt: str) -> str:
        if "Ra is" in prompt:
            raise EngineError("the server is away")
        if "Tigris" in prompt:
            await asyncio.sleep(60)
        return RAFT

    extracted = asyncio.run(extract_graph([OSLO, other, third], write, timeout_s=0.05))
    assert extracted.readings == {"read": 1, "writer_failed": 2}
    assert extracted.named == ("passage p2: the server is away", "passage p3: no reply within 0.05 s")


def test_nothing_to_read_and_nothing_kept_are_errors_with_counts() -> None:
    with pytest.raises(DataError, match=r"the corpus has no passages"):
        extract({})
    with pytest.raises(DataError, match=r"none of the 1 passages has a word"):
        extract({}, Passage("p", "", "..."))
    with pytest.raises(DataError, match=r"no fact of 1 passages was kept: nonsense 1, malformed 1"):
        extract({"p1": "lorem ipsum"}, OSLO)


def test_long_passages_are_cut_between_words_and_lose_none() -> None:
    words = [f"word{number}" for number in range(200_000)]
    windows = cut(" ".join(words))
    assert max(map(len, windows)) <= MAX_WINDOW
    assert " ".join(windows).split() == words
    assert "".join(cut("x" * (2 * MAX_WINDOW + 5))) == "x" * (2 * MAX_WINDOW + 5)


def test_types_and_relations_of_a_line() -> None:
    assert read_reply("Kon-Tiki (raft) | Built by | Thor Heyerdahl") == [
        (("Kon-Tiki", "raft"), "built_by", ("Thor Heyerdahl", "thing"))
    ]


class Refuses:
    """A writer with one reply."""

    def __init__(self, **reply) -> None:
        self.reply = Written(
            **{"text": RAFT, "is_cut": False, "usage": Usage(prompt_tokens=1, reply_tokens=1), **reply}
        )

    async def write(self, prompt: Message, form, *, seed: int) -> Written:
        return self.reply

    async def close(self) -> None:
        pass


def test_any_writer_reads_passages_and_its_refusal_is_no_fact() -> None:
    read = asyncio.run(extract_graph([OSLO], by_writer(Refuses())))
    assert [each.triple for each in read.graph.statements] == [("builder", "Kon-Tiki", "Thor Heyerdahl")]
    for reply, told in (({"refusal": "no"}, "the writer refused: no"), ({"is_cut": True}, "the reply was cut")):
        with pytest.raises(DataError, match=r"writer failed 1"):
            asyncio.run(extract_graph([OSLO], by_writer(Refuses(**reply))))
        with pytest.raises(DataError, match=told):
            asyncio.run(by_writer(Refuses(**reply))("prompt"))


def test_an_engine_reads_passages() -> None:
    renderer = build_tiny_renderer(build_tiny_tokenizer([RAFT, OSLO.text], vocab_size=400))
    engine = ScriptedEngine(renderer, [RAFT])
    writer = EngineWriter(engine, renderer, TextOptions(max_tokens=200), name="extractor", owns_engine=True)
    read = asyncio.run(extract_graph([OSLO], by_writer(writer)))
    assert read.readings == {"read": 1}
    assert [each.triple for each in read.graph.statements] == [("builder", "Kon-Tiki", "Thor Heyerdahl")]
