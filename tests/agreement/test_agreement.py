"""Every number of the golden file against ours: equal to 1e-6 in float64, or different by a relation that is named and
asserted."""

from __future__ import annotations

import numpy as np
import pytest
from agreement_golden import COMPARISONS, FOLDER, ROOT, batches, load_arrays, load_case, load_manifest, load_module
from agreement_table import DOCUMENT, find_table, render_table

CASES = load_manifest()["cases"]


@pytest.mark.parametrize("name", sorted(CASES))
def test_ours_agrees_with_the_peer_or_differs_as_named(name: str) -> None:
    COMPARISONS[name].check(load_case(name))


def test_every_comparison_has_its_golden_numbers() -> None:
    assert COMPARISONS.keys() == CASES.keys()


def test_at_least_25_of_our_functions_are_covered() -> None:
    ours = {
        f"{function.__module__}.{function.__qualname__}"
        for comparison in COMPARISONS.values()
        for function in comparison.ours
    }
    assert len(ours) >= 25
    assert all(name.startswith("turnwise.") for name in ours)


def test_the_peers_are_at_least_two_at_pinned_versions() -> None:
    assert {entry["peer"] for entry in CASES.values()} == {"verl", "trl"}
    assert load_manifest()["versions"]["verl"] == "0.9.1"
    assert load_manifest()["versions"]["trl"] == "1.16.0"


@pytest.mark.parametrize("name", sorted(batches.BATCHES))
def test_the_batches_are_those_their_script_makes(name: str) -> None:
    made = batches.BATCHES[name]().arrays()
    for key, array in made.items():
        np.testing.assert_allclose(load_arrays()[f"batch/{name}:{key}"], array, rtol=1e-12)


def test_the_batches_have_ragged_groups_observations_and_masked_turns() -> None:
    batch = batches.BATCHES["ragged"]()
    assert sorted(np.bincount(batch.group)) == [1, 2, 3, 3, 4]
    present = batch.spans[..., 0] >= 0
    assert present.sum() > batch.trains.sum()  # masked turns
    assert batch.length.sum() > (batch.spans[..., 1] - batch.spans[..., 0])[present].sum()  # observations
    assert set(np.unique(batch.mask.sum(1)))  # every row trains
    assert batch.mask.sum(1).min() >= 1


def test_golden_numbers_are_compared_in_the_precision_of_their_makers() -> None:
    is_same = load_module(ROOT / "peers" / "make_golden.py").is_same
    rounding = [(name, output) for name, entry in CASES.items() for output in entry["float32"]]
    assert ("verl/grpo_vectorized", "advantages") in rounding
    assert len(rounding) < 10  # what hangs on float32 is the exception
    committed = load_arrays()["verl/grpo_vectorized:advantages"]
    unit = 2.0**-23 * np.abs(committed).max()
    assert is_same(committed + 3 * unit, committed, rounds=True)  # another processor
    assert not is_same(committed + 3 * unit, committed, rounds=False)
    assert not is_same(committed + 20 * unit, committed, rounds=True)  # another formula
    assert not is_same(committed[:1], committed, rounds=True)


def test_the_golden_file_is_small() -> None:
    assert (FOLDER / "golden.npz").stat().st_size < 1_000_000


def test_the_document_lists_what_is_compared() -> None:
    assert find_table(DOCUMENT.read_text()) == render_table(), "run `python tests/agreement/agreement_table.py`"
