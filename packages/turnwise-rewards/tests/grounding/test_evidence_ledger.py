"""The ledger's outcomes and sums by hand, and that nothing bad raises the reward."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise_rewards.grounding.claims import Claim, read_claims
from turnwise_rewards.grounding.judged import check_words
from turnwise_rewards.grounding.ledger import Cited, Limits, Stated, Support, build_ledger
from turnwise_rewards.grounding.passages import Passage, to_passages
from turnwise_rewards.grounding.reward import GroundingWeights, compute_grounding

PASSAGES = {
    "1": Passage(id="1", texts=("a is x",)),
    "2": Passage(id="2", texts=("b is y", "a is x", "a is now z")),
    "3": Passage(id="3", texts=("a is z",)),
    "4": Passage(id="4", texts=("c is w",), is_own=True),
}
WEIGHTS = GroundingWeights()


def support(claim, passage):
    """A passage that says the words supports them; one that says something else about the same letter does not."""
    if claim.text in passage.texts:
        return Support.YES
    said = {text[0] for text in passage.texts}
    return Support.NO if claim.text[0] in said else Support.NOT_SUPPORTED


def answers(claim):
    """`a is x` answers a; d is not asked."""
    letter, _, value = claim.text.partition(" is ")
    return (letter, value) if letter in ("a", "b", "c") else None


def ledger_of(claims, expected=3, **more):
    return build_ledger(claims, PASSAGES, support, expected=expected, answers=answers, **more)


def claim(text, *ids):
    return Claim(text=text, citations=ids)


def test_every_outcome_has_its_name():
    ledger = ledger_of(
        [
            claim("a is x", "1", "1", "3", "9"),
            claim("b is y", "1"),
            claim("c is w", "4"),
            claim("b is y", "2"),
            claim("d is x", "1"),
            claim("a is x"),
        ]
    )
    assert [entry.stated for entry in ledger.entries] == [
        Stated.SUPPORTED,
        Stated.REPEATED,  # of the two claims on b the supported one counts
        Stated.UNSUPPORTED,
        Stated.SUPPORTED,
        Stated.UNASKED,
        Stated.REPEATED,
    ]
    assert [outcome for entry in ledger.entries for _, outcome in entry.citations] == [
        *(Cited.SUPPORTED, Cited.DUPLICATE, Cited.CONTRADICTED, Cited.FABRICATED),
        Cited.UNSUPPORTED,
        Cited.OWN_TEXT,
        Cited.SUPPORTED,
        Cited.UNSUPPORTED,
    ]
    # bad: the citations 1 again, 3, 9 of a; 1 of b; 4 of c; 1 of d; the claims b, d and a again: 9. Supported: 2 of 3.
    assert (ledger.num_supported, ledger.num_bad) == (2, 9)
    assert ledger.recall == pytest.approx(2 / 3)
    assert ledger.precision == pytest.approx(2 / 11)
    assert ledger.citation_precision == pytest.approx(2 / 8)  # 1 of a and 2 of b, of eight citations
    # a has three bad citations and counts 1/4, b has one and counts 1/2; three are expected
    assert ledger.credit == pytest.approx((1 / 4 + 1 / 2) / 3)
    # (.5 + .5 * 2 / 11) / 4 - .5 (1 fabricated of 3 expected)
    assert compute_grounding(ledger, WEIGHTS) == pytest.approx((0.5 + 1 / 11) / 4 - 0.5 / 3)
    assert compute_grounding(ledger, WEIGHTS, is_open=False) == pytest.approx(-0.5 / 3)
    assert "| a is x | supported | 1 supported, 1 duplicate, 3 contradicted, 9 fabricated |" in ledger.show()
    assert ledger.show().endswith("2 of 3 supported (recall 0.67, credit 0.25), 9 bad (precision 0.18), 1 fabricated")
    parts = ledger.parts()
    assert (parts["fabricated"], parts["duplicate"], parts["own_text"], parts["repeated"]) == (1, 1, 1, 2)


def test_a_whole_report_earns_everything_and_an_empty_one_nothing():
    whole = ledger_of([claim("a is x", "1"), claim("b is y", "2")], expected=2)
    assert compute_grounding(whole, WEIGHTS) == 1.0
    empty = ledger_of([], expected=2)
    assert compute_grounding(empty, WEIGHTS) == 0.0
    assert empty.parts()["claims"] == 0  # what tells it from a bad report, whose precision is 0 too
    # a second passage that supports a claim neither costs nor earns
    both = ledger_of([claim("a is x", "1", "2"), claim("b is y", "2")], expected=2)
    assert compute_grounding(both, WEIGHTS) == 1.0


def test_citing_every_page_is_worth_no_more_than_guessing_one() -> None:
    pages = {str(n): Passage(id=str(n), texts=("a is x" if n == 1 else f"{n} is q",)) for n in range(1, 7)}

    def earn(*ids: str) -> float:
        ledger = build_ledger([claim("a is x", *ids)], pages, support, expected=1)
        return compute_grounding(ledger, WEIGHTS)

    guess = sum(earn(name) for name in pages) / 6
    assert guess == pytest.approx(1 / 6)
    # credit 1/6, precision 1/6: (.5 + .5 / 6) / 6
    assert earn(*pages) == pytest.approx((0.5 + 0.5 / 6) / 6)
    assert earn(*pages) < guess
    each = [claim("a is x", name) for name in pages]  # one claim per page
    assert compute_grounding(build_ledger(each, pages, support, expected=1), WEIGHTS) < guess


def test_claims_that_a_chain_connects_say_the_same() -> None:
    texts = ["b c d e", "a b c d", "a b c z", "q"]  # 3/5, 3/5; the first and the third share 2/6
    ledger = build_ledger([claim(text, "1") for text in texts], {}, support, expected=3)
    assert [entry.stated for entry in ledger.entries] == [
        Stated.UNSUPPORTED,
        Stated.REPEATED,
        Stated.REPEATED,
        Stated.UNSUPPORTED,
    ]


def test_claims_that_contest_each_other_count_for_nothing():
    ledger = ledger_of([claim("a is x", "1"), claim("a is z", "3"), claim("b is y", "2")])
    assert [entry.stated for entry in ledger.entries] == [Stated.CONTESTED, Stated.CONTESTED, Stated.SUPPORTED]
    assert (ledger.recall, ledger.precision) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_free_text_is_read_without_questions():
    passages = to_passages({"doc 1": "Mira Tolen wrote Blue Lantern in a single winter, and nobody knew."})
    claims = [
        claim("Mira Tolen wrote Blue Lantern", "1"),
        claim("Mira Tolen wrote the Blue Lantern", "1"),  # 5 of 6 words are the same
        claim("Who wrote Blue Lantern", "1"),
        claim("wrote Blue Lantern in a single winter, and nobody knew", "1"),
    ]
    ledger = build_ledger(
        claims,
        passages,
        check_words,
        expected=2,
        question="Report: who wrote Blue Lantern",
        limits=Limits(max_claims=3, max_copied_words=5),
    )
    assert [entry.stated for entry in ledger.entries] == [
        Stated.SUPPORTED,
        Stated.REPEATED,
        Stated.UNASKED,
        Stated.UNREAD,
    ]
    last = build_ledger(claims[-1:], passages, check_words, expected=2, limits=Limits(max_copied_words=5))
    assert last.entries[0].stated is Stated.COPIED
    many = build_ledger(
        [claim("a is x", "1", "1", "2", "3")], PASSAGES, support, expected=1, limits=Limits(max_passages=1)
    )
    assert [outcome for _, outcome in many.entries[0].citations] == [
        *(Cited.SUPPORTED, Cited.DUPLICATE, Cited.UNREAD, Cited.UNREAD)
    ]


@pytest.mark.parametrize(
    ("said", "is_supported"),
    [
        ("Doppler , who died in 1853", True),  # a space before the comma is no other text (NeMo Gym 2585)
        ("DOPPLER who died in 1853", True),
        ("Doppler, who died in 1835", False),  # a digit changed
        ("Doppler, who died", True),
        ("Doppler died in 1853", False),  # a word dropped
        ("Doppler, who died in 1853.5", False),
    ],
)
def test_words_are_compared_alike_on_both_sides(said, is_supported):
    passage = Passage(id="1", texts=("Doppler, who died in 1853, was born here",))
    assert (check_words(claim(said), passage) is Support.YES) == is_supported


# ------------------------------------------------------------------------------ nothing bad raises the reward

TEXTS = st.sampled_from(["a is x", "a is x now", "a is now z", "a is z", "b is y", "b is v", "c is w", "d is x"])
IDS = st.sampled_from(["1", "2", "3", "4", "8", "9"])
CLAIMS = st.builds(lambda text, ids: claim(text, *ids), TEXTS, st.lists(IDS, max_size=4))
REPORTS = st.lists(CLAIMS, max_size=6)
WEIGHTED = st.builds(GroundingWeights, recall=st.floats(0, 2), precision=st.floats(0, 2), fabricated=st.floats(0, 2))


def supports_anything(text, ids):
    return any(name in PASSAGES and support(claim(text), PASSAGES[name]) is Support.YES for name in ids if name != "4")


@settings(max_examples=300, deadline=None)
@given(REPORTS, CLAIMS, st.integers(0, 6), WEIGHTED, st.booleans(), st.booleans())
def test_a_claim_without_support_never_raises_the_reward(report, added, at, weights, asks, is_open):
    if supports_anything(added.text, added.citations) and added.text[0] != "d":
        return
    check_not_raised(report, [*report[:at], added, *report[at:]], weights, asks=asks, is_open=is_open)


@settings(max_examples=300, deadline=None)
@given(REPORTS, st.integers(0, 5), IDS, st.integers(0, 4), WEIGHTED, st.booleans())
def test_a_citation_without_support_never_raises_the_reward(report, at, name, place, weights, asks):
    if not report:
        return
    old = report[at % len(report)]
    if supports_anything(old.text, [name]) and name not in list(dict.fromkeys(old.citations))[:2]:
        return  # of those that were not read, behind `max_passages`, one that supports is new
    new = claim(old.text, *old.citations[:place], name, *old.citations[place:])
    changed = [new if number == at % len(report) else each for number, each in enumerate(report)]
    check_not_raised(report, changed, weights, asks=asks)


@settings(max_examples=300, deadline=None)
@given(REPORTS, st.integers(0, 5), st.integers(0, 6), WEIGHTED, st.booleans())
def test_repeating_a_claim_never_raises_the_reward(report, at, place, weights, asks):
    """One that was not read, behind `max_claims`, is new where it is read."""
    if report:
        again = report[at % min(4, len(report))]
        check_not_raised(report, [*report[:place], again, *report[place:]], weights, asks=asks)


def check_not_raised(before, after, weights, *, asks, is_open=True):
    def earn(claims):
        limits = Limits(max_claims=4, max_passages=2, max_copied_words=0)
        ledger = (
            ledger_of(claims, limits=limits)
            if asks
            else build_ledger(claims, PASSAGES, support, expected=3, question="d is x", limits=limits)
        )
        return compute_grounding(ledger, weights, is_open=is_open)

    assert earn(after) <= earn(before) + 1e-12


@settings(max_examples=200, deadline=None)
@given(REPORTS, WEIGHTED)
def test_the_reward_is_within_its_bounds(report, weights):
    earned = compute_grounding(ledger_of(report), weights)
    assert -weights.fabricated - 1e-12 <= earned <= weights.recall + weights.precision + 1e-12


def test_a_reward_per_citation_would_be_raised_by_padding():
    """The property can fail: 0.1 per citation, the reward that padding was found with, breaks it."""
    report = [claim("a is x", "1")]
    padded = [claim("a is x", "1", "8", "9")]
    assert 0.1 * ledger_of(padded).num_citations > 0.1 * ledger_of(report).num_citations
    assert compute_grounding(ledger_of(padded), WEIGHTS) < compute_grounding(ledger_of(report), WEIGHTS)
    assert read_claims("a is x [1, 8, 9]") == padded
