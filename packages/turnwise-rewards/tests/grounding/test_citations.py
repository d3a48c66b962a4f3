"""Citations in every usual spelling, and what only looks like one."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_rewards.grounding.citations import SPELLINGS, find_citations, normalize_id, read_ids, take_out
from turnwise_rewards.grounding.claims import read_claims

OTHERS = [
    ("several brackets", "A [1][2]", ["1", "2"]),
    ("several ids", "A [1, 2; 3 and 4 & 5]", ["1", "2", "3", "4", "5"]),
    ("a range", "A [1-3]", ["1", "2", "3"]),
    ("a range with a dash", "A [4\u20136]", ["4", "5", "6"]),
    ("a date is an id, not a range", "A [2024-01-03]", ["2024-01-03"]),
    ("a noun for several", "A [docs 17, 18]", ["17", "18"]),
    ("each with its noun", "A [Doc 17; Doc 18]", ["17", "18"]),
    ("an underscore", "A [doc_17]", ["17"]),
    ("a hash", "A [#9]", ["9"]),
    ("letters before the number", "A [S3]", ["s3"]),
    ("a page within", "A [doc 17, p. 3]", ["17"]),
    ("a title behind", "A (doc 17, The Life of Mira)", ["17"]),
    ("sources in parentheses", "A (sources: 3 and 4)", ["3", "4"]),
    ("see", "A (see doc 3)", ["3"]),
    ("an address in brackets", "A [source: https://a.org/x]", ["https://a.org/x"]),
    ("an address in parentheses", "A (https://a.org/x).", ["https://a.org/x"]),
    ("an anchor", "A [17](#ref-list)", ["17"]),
    ("author and year as a link", "A ([Smith, 2020](https://a.org/x))", ["https://a.org/x"]),
    ("numbers raised by a tag", "A<sup>1, 2</sup>", ["1", "2"]),
    ("the same twice", "A [1] [1]", ["1", "1"]),
    ("keys without a semicolon", "A [@url:https://a.org/1 @tag:vale03]", ["url:https://a.org/1", "tag:vale03"]),
    ("a link beside the id", "A [doc-99]. B [doc-99](https://a.org)", ["99", "https://a.org"]),
    ("no space before", "in 2024[3]", ["3"]),
    ("a year in parentheses", "A (2019)", []),
    ("a bare number in parentheses", "A (3)", []),
    ("an exponent", "3 m\u00b2 and 10\u00b3", []),
    ("a remark", "A [sic] [emphasis added] [a]", []),
    ("half a list of ids", "A [Vale, 1]", []),
    ("code", "`x[1]`, ```\ny[2]\n```", []),
    ("an image", "![17](pictures.png)", []),
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.name)
def test_spelling_is_read(spelling):
    [citation] = find_citations(spelling.example)
    assert (citation.spelling, citation.ids) == (spelling.name, spelling.ids)


@pytest.mark.parametrize(("text", "ids"), [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS])
def test_other_texts_are_read(text, ids):
    assert [name for citation in find_citations(text) for name in citation.ids] == ids


@pytest.mark.parametrize("text", ["Doc 17", "doc_17", "#17", "17", "document 17.", "Source: 17", "[17", "017"])
def test_ids_are_equal_whatever_their_spelling(text):
    assert normalize_id(text.lstrip("[")) == "17"


def test_a_lost_hyphen_is_the_same_id():
    # a model that writes pc010 for pc-010 has not invented a source (axial 797)
    assert normalize_id("pc-010") == normalize_id("PC010") == "pc010"
    assert normalize_id("HTTPS://A.org/X/.") == "https://a.org/X"
    assert read_ids("3-60") == ("3-60",)


@given(st.text(alphabet="ab 17[](){}^.,;:-#@/\\<>`\n\u00b9\u3010\u2020\u3011", max_size=80))
def test_citations_lie_in_order_within_the_text(text):
    at = 0
    citations = find_citations(text)
    for citation in citations:
        assert at <= citation.start < citation.end <= len(text)
        assert citation.ids
        assert all(citation.ids)
        at = citation.end
    left = take_out(text, citations)
    assert len(left) <= len(text)
    read_claims(text)


@pytest.mark.parametrize(
    "piece", ["[", "[1-", "(doc ", "[[1]](", "[1](", "<cite id=", "1-1", "\u3010", "a^", "[doc 1, ", "http://"]
)
def test_long_repetitions_are_read_in_time(piece):
    started = time.process_time()
    read_claims(piece * (20_000 // len(piece)))
    assert time.process_time() - started < 5  # quadratic patterns take minutes


REPORT = """# Findings

**Mira Tolen** wrote Blue Lantern [1]. It is set in Port Vessa. [2] Dr. Vale paid 3.5 million for it in the U.S. [^a][3]

- Its publisher is Thorne Press (doc 5)
- There is more:
1. It was sold twice
[4]
Is it good?

| mayor | Lena Marsh [6] |
|---|---|

## Sources
[1] The lantern. https://a.org/1
2. doc 9, page 3
[3]: <https://b.org>
[^a]: https://c.org
"""


def test_report_is_read_claim_by_claim():
    claims = read_claims(REPORT)
    assert [(claim.text, claim.citations) for claim in claims] == [
        ("Mira Tolen** wrote Blue Lantern", ("https://a.org/1",)),
        ("It is set in Port Vessa", ("9",)),
        ("Dr. Vale paid 3.5 million for it in the U.S", ("https://c.org", "https://b.org")),
        ("Its publisher is Thorne Press", ("5",)),
        ("It was sold twice", ("4",)),
        ("mayor | Lena Marsh", ("6",)),
    ]


def test_thoughts_and_code_are_no_claims():
    assert read_claims("<think> It is A [1]. </think>```\nIt is B [2]\n``` It is C [3].") == read_claims("It is C [3]")
    assert [claim.text for claim in read_claims("It is A. <answer> It is B [1] </answer>")] == ["It is B"]
    assert read_claims("") == read_claims("[1]") == read_claims("## Sources\n[1] https://a.org") == []
