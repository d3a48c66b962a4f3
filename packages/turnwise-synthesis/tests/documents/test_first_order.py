"""First-order actions: every fault of a writer is a named outcome, and what is kept passes its exact filter."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwise.core.errors import DataError, EngineError
from turnwise.core.types import Message
from turnwise.core.verdicts import Form, Usage
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.family import SearchQA
from turnwise.judging.text import Written
from turnwise_synthesis.documents.checks import contains, find_answer, leaks, repeats
from turnwise_synthesis.documents.first_order import build_plans, build_reasonings
from turnwise_synthesis.documents.items import Item, list_task_items, load_corpus_items
from turnwise_synthesis.documents.ledger import REASONS, Ledger
from turnwise_synthesis.documents.writers import Draft, ModelWriter, ScriptedWriter

FACTS = Path(__file__).parents[2] / "src" / "turnwise_synthesis" / "data" / "facts.jsonl"


class Faulty:
    """Writes what it is told for the n-th item: (text, action, refusal, whether it was cut)."""

    def __init__(self, drafts: Sequence[Draft | Exception]) -> None:
        self._drafts = iter(drafts)

    async def plan(self, item: Item, *, seed: int) -> Draft:
        draft = next(self._drafts)
        if isinstance(draft, Exception):
            raise draft
        return draft

    async def reason(self, item: Item, passages: Sequence[Passage], *, seed: int) -> Draft:
        return await self.plan(item, seed=seed)


def draft(text: str, action: str = "", **further: object) -> Draft:
    return Draft(text=text, action=action, **further)  # type: ignore[arg-type]


@pytest.fixture
def canberra() -> Item:
    """Who designed the capital of Australia? Walter Burley Griffin."""
    return load_corpus_items(FACTS, Ledger())[0]


def outcomes(ledger: Ledger, kind: str) -> Counter[str]:
    return Counter(str(reason) for reason in ledger.reasons(kind).elements())


def test_every_fault_of_a_plan_is_named(canberra: Item) -> None:
    good = "Thought: who designed it. Search: capital of Australia"
    writer = Faulty(
        [
            draft(good, "capital of Australia"),
            draft(good, "capital of Australia"),  # a second time
            draft("bla bla qwertz"),  # nonsense: no search
            draft("the the the the the the the the", "the"),
            draft("Search: Walter Burley Griffin Canberra", "Walter Burley Griffin Canberra"),
            draft("I'm sorry, but I cannot help with that."),
            draft("", "", refusal="policy"),
            draft("  "),
            draft("Thought: it goes on and", "capital of Australia", is_cut=True),
            draft("Search: colour of bananas", "colour of bananas"),
            EngineError("no reply in 300 s"),
        ]
    )
    ledger = Ledger()
    [document] = asyncio.run(build_plans([canberra] * 11, writer, ledger, seed=0))
    assert document.messages[-1].tool_calls[0].arguments == '{"query": "capital of Australia"}'
    assert outcomes(ledger, "plan") == {
        "duplicate": 1,
        "off_format": 1,
        "repeats": 1,
        "leaks_answer": 1,
        "refuses": 2,
        "empty": 1,
        "cut": 1,
        "misses_evidence": 1,
        "failed": 1,
    }
    assert {row["reason"] for row in ledger.rows()} <= set(REASONS)
    assert next(iter(ledger.describe())).startswith("plan: kept 1 of 11; dropped: cut 1, duplicate 1, empty 1")


def test_a_reasoning_must_end_in_a_gold_answer(canberra: Item) -> None:
    writer = Faulty(
        [
            draft("Answer: Walter Burley Griffin.", "Walter Burley Griffin."),  # a full stop does not matter
            draft("Answer: Gustave Eiffel", "Gustave Eiffel"),
            draft("Walter Burley Griffin designed it, so the answer is clear."),
            draft("It is he.", "Walter Burley Griffin built more than Chicago"),
        ]
    )
    ledger = Ledger()
    [document] = asyncio.run(build_reasonings([canberra] * 4, writer, ledger, seed=0))
    assert outcomes(ledger, "reason") == {"wrong_answer": 2, "off_format": 1}
    prompt, reply = document.messages
    assert canberra.evidence[0].text in prompt.text
    assert reply.text == "<answer> Walter Burley Griffin </answer>"


def test_costs_count_for_what_is_dropped_too(canberra: Item) -> None:
    drafts = [
        draft(text, action, prompt_tokens=30, reply_tokens=10, seconds=0.5)
        for text, action in (("Search: Australia", "Australia capital"), ("nothing", ""))
    ]
    ledger = Ledger()
    asyncio.run(build_plans([canberra] * 2, Faulty(drafts), ledger, seed=0))
    # Two drafts of 40 tokens and half a second for one kept: 80 tokens and 1 s.
    assert "; per kept one 80 tokens and 1 s of the writer" in next(iter(ledger.describe()))
    assert ledger.describe_million() == ""
    ledger.processor_s = 0.36
    # 0.36 s for one: 360,000 s, 100 hours, for a million, and 80 million tokens.
    assert "0.36 s each; a million of them: 100.0 core hours and 0.08 billion tokens" in ledger.describe_million()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the capital of Australia", False),
        ("no no no no no no no", True),
        ("a b c d a b c d a b c d a b c d", True),  # "a b c d" four times
        ("a b c d a b c d a b c d", False),
        ("", False),
    ],
)
def test_repetition(text: str, expected: bool) -> None:
    assert repeats(text) is expected


def test_an_answer_may_end_a_sentence() -> None:
    assert find_answer("It hangs in the Louvre.", ["Paris", "Louvre"]) == "Louvre"
    assert find_answer("The Louvre has it", ["Louvre"]) is None
    assert find_answer("Antlouvre", ["louvre"]) is None


class Says:
    """A model that replies with a fixed text."""

    def __init__(self, text: str, *, is_cut: bool = False) -> None:
        self._text, self._is_cut = text, is_cut

    async def write(self, prompt: Message, form: Form | None, *, seed: int) -> Written:
        return Written(text=self._text, is_cut=self._is_cut, usage=Usage(prompt_tokens=9, reply_tokens=3))

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        ("capital of Australia", "", "capital of Australia"),
        ("Search: 'capital of Australia'\nand more", "", "capital of Australia"),
        ("Thought: who designed it\nSearch: capital of Australia", "who designed it", "capital of Australia"),
        ("", "", ""),
    ],
)
def test_a_models_plan_is_read_with_and_without_labels(canberra: Item, text: str, thought: str, action: str) -> None:
    read = asyncio.run(ModelWriter(Says(text)).plan(canberra, seed=0))
    assert (read.thought, read.action) == (thought, action)
    assert (read.prompt_tokens, read.reply_tokens) == (9, 3)


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        ("Griffin drew it.\nAnswer: Walter Burley Griffin", "Griffin drew it.", "Walter Burley Griffin"),
        ("Reasoning: Griffin drew it.\nAnswer: he", "Griffin drew it.", "he"),
        ("It was Walter Burley Griffin.", "It was Walter Burley Griffin.", "It was Walter Burley Griffin."),
        ("Answer: he", "", "he"),
    ],
)
def test_a_models_reasoning_is_read(canberra: Item, text: str, thought: str, action: str) -> None:
    read = asyncio.run(ModelWriter(Says(text)).reason(canberra, canberra.evidence, seed=0))
    assert (read.thought, read.action) == (thought, action)


def test_leaks_are_whole_words_that_the_question_lacks() -> None:
    assert contains("It is the Louvre.", "louvre")
    assert not contains("Louvres", "louvre")
    assert leaks("search krill", "What does it eat?", ["krill"])
    assert not leaks("search Denmark prince", "Of Denmark?", ["Denmark"])
    assert not leaks("7 dwarfs", "How many?", ["7"]), "too short to be more than chance"


def test_a_scripted_writer_finds_its_evidence_in_the_search_world() -> None:
    family = SearchQA(mode="fresh", num_entities=16, num_words=8, kinds={"1hop": 0.5, "2hop": 0.3, "unanswerable": 0.2})
    ledger = Ledger()
    items = list_task_items(family, 12, 1000, ledger)
    assert len(items) + outcomes(ledger, "item")["no_evidence"] == 12
    oracle = ScriptedWriter(family.policy("oracle"))
    plans = asyncio.run(build_plans(items, oracle, ledger, seed=0))
    reasons = asyncio.run(build_reasonings(items, oracle, ledger, seed=0))
    assert len(plans) > 0
    assert "wrong_answer" not in outcomes(ledger, "reason")
    by_id = {item.id: item for item in items}
    for document in plans:
        item = by_id["/".join(document.id.split("/")[1:3])]
        query = json.loads(document.messages[-1].tool_calls[0].arguments)["query"]
        assert {p.id for p in item.search(query)} & {p.id for p in item.evidence}
    for document in reasons:
        item = by_id["/".join(document.id.split("/")[1:3])]
        assert any(answer in document.messages[-1].text for answer in item.answers)
        assert all(passage.text in document.messages[0].text for passage in item.evidence)
    # A policy that answers at random is caught by the same filters.
    other = Ledger()
    asyncio.run(build_reasonings(items, ScriptedWriter(family.policy("random")), other, seed=0))
    assert outcomes(other, "reason")["wrong_answer"] > 0


def test_a_corpus_with_empty_repeated_and_endless_passages(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    asked = {"question": "What is the capital of Bhutan?", "answers": ["Thimphu"]}
    rows = [
        {"id": "a", "text": "The capital of Bhutan is Thimphu.", **asked},
        {"id": "b", "text": "The  capital of Bhutan is THIMPHU."},
        {"id": "c", "text": " "},
        {"id": "d", "text": "word " * 200_000},
        {"id": "e", "text": "Peru has the Andes."},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ledger = Ledger()
    [item] = load_corpus_items(path, ledger)
    assert outcomes(ledger, "passage") == {"duplicate": 1, "empty": 1, "too_long": 1}
    assert [passage.id for passage in item.search("Andes")] == ["e"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": 1, "text": "x"}, "corpus.jsonl:1: a passage has"),
        ({"id": "a", "text": "x", "question": "Why?", "answers": []}, "a question needs"),
        ({"id": "a", "text": "x"}, "no passage with a question is left"),
    ],
)
def test_a_wrong_corpus_is_one_line(tmp_path: Path, row: dict[str, object], problem: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=problem):
        load_corpus_items(path, Ledger())


def test_the_facts_of_the_package_hold_their_answers() -> None:
    ledger = Ledger()
    items = load_corpus_items(FACTS, ledger)
    assert (len(items), ledger.dropped) == (40, [])
    for item in items:
        text = f"{item.evidence[0].title} {item.evidence[0].text}"
        assert any(contains(text, answer) for answer in item.answers) or item.id == "fact-06", item.id
        assert item.evidence[0].id in {passage.id for passage in item.search(item.question)}, item.id
