"""Checked reports and their reward, by hand; nothing bad raises the reward."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise_rewards.grounding.claims import Claim
from turnwise_rewards.grounding.ledger import Limits
from turnwise_rewards.grounding.passages import to_passages
from turnwise_synthesis.research.checked import CheckedReport, check_report, shuffle_citations, states_several
from turnwise_synthesis.research.reward import ResearchWeights, compute_research

AUTHOR, MAYOR = ("author", "Blue Lantern"), ("mayor", "Port Vessa")
TRUTH = {AUTHOR: "Mira Tolen", MAYOR: "Lena Marsh"}
PASSAGES = to_passages(
    {
        "17": "1987 register : The author of Blue Lantern is Mira Tolen",
        "4": "1971 rumour : The author of Blue Lantern is Orin Vale",
        "8": "1975 newspaper : The mayor of Port Vessa is Lena Marsh",
        "9": "1975 newspaper : The mayor of Fort Hale is Sela Drake",
    }
)
GOOD = ["author of Blue Lantern : Mira Tolen [doc 17]", "mayor of Port Vessa : Lena Marsh [doc 8]"]
DENIED = "author of Blue Lantern : not Orin Vale [doc 4]"
LIMITS = Limits(max_copied_words=8)


def check(*lines: str, disputed: tuple[tuple[str, str], ...] = (AUTHOR,)) -> CheckedReport:
    return check_report({"": "\n".join(lines)}, PASSAGES, [AUTHOR, MAYOR], TRUTH, disputed, limits=LIMITS)


def pay(report: CheckedReport, *, is_right: bool = True, max_words: int = 40) -> float:
    return compute_research(report, ResearchWeights(), is_right=is_right, max_words=max_words)


def test_a_whole_report_earns_everything_and_less_its_parts() -> None:
    assert pay(check(*GOOD, DENIED)) == pytest.approx(1.0)  # (.4 + .3 * 1) * 1 + .3 * 1
    assert pay(check(*GOOD)) == pytest.approx(0.7)  # no contradiction is named
    assert pay(check(GOOD[1], DENIED)) == pytest.approx(0.65)  # (.4 + .3) * 1/2 + .3
    assert pay(check(*GOOD, disputed=())) == pytest.approx(1.0)  # C is R where there is none to name: .7 + .3
    assert pay(check(DENIED, disputed=())) == pytest.approx(0.0)
    assert pay(check(*GOOD, DENIED), is_right=False) == 0.0


def test_what_is_bad_by_hand() -> None:
    wrong_page = check(GOOD[0].replace("17", "9"), GOOD[1], DENIED)
    # covered 1/2; good are 1 claim and 1 contradiction, bad 1 citation: P = 2/3; (.4 + .3 * 2/3) / 2 + .3 = .6
    assert pay(wrong_page) == pytest.approx(0.6)
    assert wrong_page.parts()["unsupported"] == wrong_page.parts()["unsupported_claims"] == 1
    overruled = check("author of Blue Lantern : Orin Vale [doc 4]", GOOD[1])
    assert overruled.parts()["contradicted"] == 1
    fabricated = check(GOOD[0].replace("17", "99"), GOOD[1])
    # covered 1/2, P = 1/2: (.4 + .15) / 2 - .3 * 1/2 = .275 - .15
    assert pay(fabricated) == pytest.approx(0.125)
    assert pay(fabricated, is_right=False) == pytest.approx(-0.15)
    assert fabricated.parts()["fabricated"] == 1


def test_denials_are_checked_like_claims() -> None:
    assert check(*GOOD, DENIED).named == 1.0
    assert check(*GOOD, DENIED.replace("doc 4", "doc 17")).named == 0.0  # that page says something else
    assert check(*GOOD, "author of Blue Lantern : not Mira Tolen [doc 17]").named == 0.0  # the page is right
    assert check(*GOOD, "author of Blue Lantern : not Orin Vale").named == 0.0
    assert check(*GOOD, DENIED, DENIED).named == 0.0  # the repetition takes it back
    assert check(*GOOD, "mayor of Fort Hale : not Sela Drake [doc 9]").parts()["unasked"] == 1
    assert check(*GOOD, disputed=()).named is None


def test_a_long_report_earns_its_share() -> None:
    talk = "It was a quiet town with a mill and a bridge [doc 8]"
    report = check(*GOOD, DENIED, talk)
    words = report.num_words
    # one more bad citation and a claim that was not asked for: P = 3 / 5; (.4 + .18) + .3 = .88, and 10 / words of it
    assert pay(report, max_words=5) == pytest.approx(0.88 * 10 / words)


def test_lines_that_state_several_facts_are_named() -> None:
    assert states_several("Mira Tolen ; mayor of Port Vessa : Lena Marsh")
    assert states_several("Mira Tolen and mayor of Port Vessa : Lena Marsh")
    assert not states_several("Marsh and Sons")
    joined = check("author of Blue Lantern : Mira Tolen ; mayor of Port Vessa : Lena Marsh [doc 17]")
    assert (pay(joined), joined.parts()["joined"]) == (0.0, 1.0)


def test_a_copied_passage_and_an_empty_report_are_named() -> None:
    copied = check("1987 register : The author of Blue Lantern is Mira Tolen [doc 17]")
    assert (pay(copied), copied.parts()["copied"]) == (0.0, 1.0)
    assert (pay(check("")), check("").parts()["no_claims"]) == (0.0, 1.0)


def test_shuffled_citations_name_another_retrieved_page() -> None:
    claim = Claim(text="a", citations=("17", "99"))
    for seed in range(10):
        shuffled = shuffle_citations(claim, ["17", "4", "8"], Random(seed))
        assert shuffled.citations[0] in ("4", "8")
        assert shuffled.citations[1] == "99"  # what does not exist stays so
    assert shuffle_citations(claim, ["17"], Random(0)) == claim  # there is no other


BAD = [
    "author of Blue Lantern : Mira Tolen",
    GOOD[0],
    DENIED,
    "author of Blue Lantern : Orin Vale [doc 4]",
    "mayor of Port Vessa : Lena Marsh [doc 99]",
    "mayor of Port Vessa : Lena Marsh [doc 8] [doc 9]",
    "mayor of Fort Hale : Sela Drake [doc 9]",
    "1975 newspaper : The mayor of Port Vessa is Lena Marsh [doc 8]",
    "All of this is well supported",
    "author of Blue Lantern : not Lena Marsh [doc 8]",
]


@given(st.lists(st.sampled_from([*GOOD, DENIED]), unique=True, min_size=1), st.lists(st.sampled_from(BAD), max_size=4))
@settings(max_examples=200)
def test_nothing_bad_raises_the_reward(honest: list[str], bad: list[str]) -> None:
    added = [line for line in bad if line in honest or line not in (GOOD[0], DENIED)]
    extra = [line for line in added if not (line.startswith("mayor") and GOOD[1] not in honest)]
    assert pay(check(*honest, *extra)) <= pay(check(*honest)) + 1e-12
    assert pay(check(*extra, *honest)) <= pay(check(*honest)) + 1e-12


def check_sections(**sections: str) -> CheckedReport:
    texts = {name.replace("_", " "): text for name, text in sections.items()}
    return check_report(texts, PASSAGES, [AUTHOR, MAYOR], TRUTH, (), limits=LIMITS)


def test_numbers_of_a_section_are_those_of_its_own_references() -> None:
    # u14app/deep-research 61, jacob-bd/gemini-notebook-mcp-cli 186: [1] is the list's, and no place among the sources
    own = check_sections(
        Blue_Lantern="author of Blue Lantern : Mira Tolen [1]\n### Sources\n[1] doc 17",
        Port_Vessa="mayor of Port Vessa : Lena Marsh [1]\n**Sources**\n[1] doc 8",
    )
    assert own.claims.num_supported == 2
    common = check_sections(
        Blue_Lantern="author of Blue Lantern : Mira Tolen [1]",
        Port_Vessa="mayor of Port Vessa : Lena Marsh [2]",
        Sources="[1] doc 17\n[2] doc 8",
    )
    assert (common.claims.num_supported, common.parts()["claims"]) == (2, 2)


@pytest.mark.parametrize(
    "heading", ["### Sources", "**List of All Relevant Sources (with citations in the report)**", "References:"]
)
def test_a_list_of_references_is_no_claim_whatever_its_heading(heading: str) -> None:
    # langchain-ai/open_deep_research 232: its prompts ask for two headings
    listed = check_sections(A=f"author of Blue Lantern : Mira Tolen [1]\n\n{heading}\n[1] doc 17\n[2] doc 8")
    assert [len(ledger.entries) for ledger in listed.ledgers] == [1, 0]
    assert listed.claims.num_supported == 1


def test_addresses_that_nothing_returned_are_fabricated() -> None:
    # qx-labs/agents-deep-research 15: made-up addresses in the list; monarch-initiative/dismech 10249: citations of a
    # kind that a checker does not know are not left out of its count
    listed = check_sections(
        A="author of Blue Lantern : Mira Tolen [22]\n## References\n[22] https://example.com/bookstore-differences"
    )
    assert (listed.num_fabricated, listed.claims.num_supported) == (1, 0)
    for spelt in ("[PMID:25428705]", "(https://a.org/1)", "[17] [PMID:25428705]"):
        checked = check_sections(A=f"author of Blue Lantern : Mira Tolen {spelt}")
        assert checked.num_fabricated == 1
        assert checked.covered == 0
    assert check_sections(A="author of Blue Lantern : Mira Tolen (PMID 25428705)").claims.num_supported == 0


def test_reasoning_in_a_section_is_no_claim() -> None:
    # unslothai/unsloth 10245: thoughts leaked into reports
    leaked = "<think> mayor of Port Vessa : Lena Marsh [doc 8] </think>\nauthor of Blue Lantern : Mira Tolen [doc 17]"
    assert [len(ledger.entries) for ledger in check_sections(A=leaked).ledgers] == [1, 0]
