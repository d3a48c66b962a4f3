"""Explaining the credit of a stored trajectory: the stored advantages, and those of other methods."""

from pathlib import Path

import numpy as np
import pytest
from made_run import make_run

from turnwise.core.errors import ConfigError, DataError
from turnwise.runs.explain import explain_trajectory
from turnwise.store.advantages import load_advantages, save_advantages


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("explain") / "run")


def test_stored_advantages_stand_beside_recomputed_ones(run: Path) -> None:
    """Rewards 2 and 1: GRPO gives 0.5 / std with std 0.5 or 0.707; RLOO the difference to the other, 1."""
    explanation = explain_trajectory(run, "1/0", ["grpo", "rloo"])
    assert explanation.columns == ("grpo (as trained)", "rloo")
    assert (explanation.reward, explanation.group_rewards, explanation.stop) == (2.0, (2.0, 1.0), "done")
    assert [turn.text for turn in explanation.turns] == ["add:1", "add:2", "done"]
    assert [turn.num_tokens for turn in explanation.turns] == [5, 5, 4]
    stored = load_advantages(run, 1)
    assert stored is not None
    [trained] = [turns for name, turns in stored.items() if (name.draw, name.member) == (1, 0)]
    for turn, array in zip(explanation.turns, trained or [], strict=True):
        credit, other = turn.credit["grpo (as trained)"], turn.credit["rloo"]
        assert credit is not None
        assert other is not None
        assert array is not None
        assert credit.mean == pytest.approx(float(array.mean()))
        assert other.mean == pytest.approx(1.0)


def test_the_runs_own_method_is_shown_when_none_is_named(run: Path) -> None:
    assert explain_trajectory(run, "3/1", []).columns == ("grpo (as trained)",)


def test_the_step_comes_from_the_journal(run: Path, tmp_path: Path) -> None:
    """Draw 3 trained in step 2: its stored advantages are those of that step."""
    run = make_run(tmp_path / "run")
    advantages = load_advantages(run, 2)
    assert advantages is not None
    changed = {
        name: None if turns is None else [None if turn is None else np.full(len(turn), 9.0) for turn in turns]
        for name, turns in advantages.items()
    }
    save_advantages(run, 2, changed)
    for name, value in (("3/1", 9.0), ("1/0", None)):
        credit = explain_trajectory(run, name, []).turns[0].credit["grpo (as trained)"]
        assert credit is not None
        assert (credit.mean == 9.0) == (value == 9.0)


def test_a_group_that_did_not_train_is_credited_alone(run: Path) -> None:
    """Draw 5 waits; draw 2 was dropped since both members have the same reward."""
    waiting = explain_trajectory(run, "5/0", ["rloo"])
    assert waiting.columns == ("rloo",)
    assert [turn.credit["rloo"].mean for turn in waiting.turns] == pytest.approx([1.0, 1.0, 1.0])  # type: ignore[union-attr]
    dropped = explain_trajectory(run, "2/1", [])
    assert dropped.columns == ("grpo",)
    assert [turn.credit["grpo"].mean for turn in dropped.turns] == pytest.approx([0.0, 0.0])  # type: ignore[union-attr]


def test_what_there_is_not_is_named(run: Path) -> None:
    with pytest.raises(DataError, match=r"not of the form DRAW/MEMBER, such as 57/0"):
        explain_trajectory(run, "step1/task0/0", [])
    with pytest.raises(DataError, match=r"has no group for draw 6; it has stored groups of draws 0 to 5"):
        explain_trajectory(run, "6/0", [])
    with pytest.raises(DataError, match=r"draw 0 of .* has no member 1; it has \[0, 2\]"):
        explain_trajectory(run, "0/1", [])
    with pytest.raises(ConfigError, match="--method"):
        explain_trajectory(run, "1/0", ["nonsense"])
