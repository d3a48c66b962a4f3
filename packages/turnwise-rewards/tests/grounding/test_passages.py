"""What tools returned, in the usual layouts, and what is the model's own text."""

import json

import pytest

from turnwise.core.types import ToolCall, ToolRecord
from turnwise_rewards.grounding.passages import read_passages


def record(observation, name="search", error=None, **arguments):
    call = ToolCall(id="1", name=name, arguments=json.dumps(arguments or {"query": "lantern"}))
    return ToolRecord(call=call, observation=observation, error=error, seconds=0.0)


LAYOUTS = [
    ("ids behind", "It is A [doc 17]\nIt is B [doc 18]\n", {"17": "It is A", "18": "It is B"}),
    ("ids in front", "[1] It is A.\nMore.\n[2] It is B", {"1": "It is A.\nMore.", "2": "It is B"}),
    ("Search-R1", "Doc 1(Title: Lantern) It is A\nDoc 2(Title: Press) It is B",
     {"1": "(Title: Lantern) It is A", "2": "(Title: Press) It is B"}),
    ("headed", "Document 3: It is A", {"3": "It is A"}),
    ("numbered", "1. It is A\n2. It is B", {"1": "It is A", "2": "It is B"}),
    ("JSON", '[{"id": "d-17", "text": "It is A"}, {"doc_id": 18, "title": "B", "content": "It is B"}]',
     {"d17": "It is A", "18": "B It is B"}),
    ("JSON within", '{"results": [{"url": "https://a.org/x/", "snippet": "It is A"}]}', {"https://a.org/x": "It is A"}),
    ("elements", '<document id="17">It is A</document>\n<snippet source=\'b\' rank="2">It is B</snippet>',
     {"17": "It is A", "b": "It is B"}),
    ("plain", "It is A", {"call1": "It is A"}),
    ("nothing", " \n", {}),
]  # fmt: skip


@pytest.mark.parametrize(("observation", "texts"), [row[1:] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS])
def test_layout_is_read(observation, texts):
    passages = read_passages([record(observation)])
    assert {name: passage.text for name, passage in passages.items()} == texts


def test_a_page_has_the_name_by_which_it_was_opened():
    passages = read_passages([record("It is A", name="visit", url="https://a.org/x")])
    assert passages["https://a.org/x"].text == passages["call1"].text == "It is A"


def test_only_calls_that_worked_and_tools_that_retrieve_count():
    records = [
        record("error: no page", error="error: no page"),
        record("It is A [doc 1]"),
        record("It is B [doc 2]", name="python"),
    ]
    assert set(read_passages(records)) == {"1", "2"}
    assert set(read_passages(records, ["search"])) == {"1"}


def test_texts_of_one_id_are_kept_together():
    [passage] = read_passages([record("Doc 1(Title: A) a"), record("Doc 1(Title: B) b")]).values()
    assert passage.texts == ("(Title: A) a", "(Title: B) b")


def test_an_echo_is_own_text():
    said = "the author of Blue Lantern is Mira Tolen"
    echo = record(f"{said} [doc 5]", name="python", code=f"print('{said} [doc 5]')")
    assert read_passages([echo])["5"].is_own
    # written to one tool, returned by another
    assert read_passages([record("saved", name="write", text=said), record(said, name="read", path="a")])[
        "call2"
    ].is_own
    # retrieved first and repeated afterwards: it is a source
    first = read_passages([record(f"{said} [doc 5]"), echo])
    assert first["5"].texts == (said,)
    assert not first["5"].is_own
    # a short result that happens to be in the call is none of the model's text
    assert not read_passages([record("4", name="python", code="print(2 + 2, 4)")])["call1"].is_own
