"""Names as people write them lead to one row, in both tables."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.algorithms.names import collect_rows, find_row, simplify


@dataclass(frozen=True)
class Row:
    name: str
    aliases: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("VinePPO", "vine"),
        ("Tree-GRPO", "tree"),
        ("ARPO", "arpo"),
        ("GiGPO", "gigpo"),
        ("Dr. GRPO", "dr_grpo"),
        ("Dr.GRPO", "dr_grpo"),
        ("RLOO", "rloo"),
        ("REINFORCE++", "reinforce_plus_plus"),
        ("REINFORCE++-baseline", "reinforce_plus_plus_baseline"),
        ("ReMax", "remax"),
        ("MT-GRPO", "multi_turn_grpo"),
        ("Turn-PPO", "turn_gae"),
        ("Bi-level GAE", "bilevel_gae"),
        ("PPO", "gae"),
        ("MaxRL", "max_rl"),
        ("Pass@k", "pass_at_k"),
        ("PRIME", "prime"),
        ("SPA-RL", "spa"),
        ("IGPO", "igpo"),
    ],
)
def test_papers_names_of_credit_methods(written: str, name: str) -> None:
    assert build_credit(written).method is CREDIT_METHODS[name]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("GSPO", "gspo"),
        ("GSPO-token", "gspo_token"),
        ("CISPO", "cispo"),
        ("DAPO", "dapo"),
        ("Dr. GRPO", "dr_grpo"),
        ("Clip-Higher", "clip_higher"),
        ("PPO", "ppo"),
        ("dual-clip PPO", "dual_clip"),
        ("DPPO-Binary-KL", "dppo_kl"),
        ("KL-Cov", "kl_cov"),
        ("Decoupled PPO", "decoupled_ppo"),
    ],
)
def test_papers_names_of_losses(written: str, name: str) -> None:
    assert find_row("loss", written, LOSSES) is LOSSES[name]
    assert build_loss(written).keywords == LOSSES[name].defaults  # type: ignore[attr-defined]


@given(st.sampled_from(sorted(CREDIT_METHODS)), st.randoms())
def test_case_and_punctuation_do_not_matter(name: str, random: object) -> None:
    shuffled = "".join(random.choice((c.upper(), c.lower())) + random.choice(("", "-", " ", ".")) for c in name)  # type: ignore[attr-defined]
    assert find_row("credit method", shuffled, CREDIT_METHODS).name == name


def test_plus_and_at_are_letters_of_a_name() -> None:
    assert simplify("REINFORCE++") != simplify("REINFORCE")
    assert simplify("Pass@k") == simplify("pass_at_k") == "passatk"


def test_the_nearest_name_is_that_of_the_table_even_for_an_alias() -> None:
    with pytest.raises(ValueError, match=r"unknown loss 'VinPPO' \(did you mean 'vine'\?\); known: vine, grpo"):
        find_row("loss", "VinPPO", collect_rows([Row("vine", ("VinePPO",)), Row("grpo")]))
    with pytest.raises(ValueError, match="unknown loss 'zzz'; known: vine"):
        find_row("loss", "zzz", collect_rows([Row("vine")]))


@pytest.mark.parametrize(
    "rows",
    [
        [Row("grpo"), Row("GRPO")],
        [Row("grpo"), Row("grpo")],
        [Row("tree", ("Tree-GRPO",)), Row("tree_grpo")],
        [Row("a", ("c",)), Row("b", ("C.",))],
    ],
)
def test_a_name_leads_to_one_row_only(rows: list[Row]) -> None:
    with pytest.raises(ValueError, match=f"names '{rows[0].name}' and '{rows[1].name}'; rename one of them"):
        collect_rows(rows)


def test_a_row_may_repeat_its_own_name() -> None:
    assert list(collect_rows([Row("rloo", ("RLOO",)), Row("grpo")])) == ["rloo", "grpo"]
