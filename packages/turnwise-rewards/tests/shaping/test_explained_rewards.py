"""What `turnwise rewards explain` and `turnwise rewards calibration` say about stored trajectories."""

import json

import pytest
from typer.testing import CliRunner

from turnwise.config.credit import ShapingSection
from turnwise.config.load import load_config
from turnwise.config.rewards import RewardSection
from turnwise.core.errors import ConfigError
from turnwise.core.messages import ToolCall, reply_message
from turnwise.core.types import RewardTerm, Scored, ToolRecord
from turnwise.runs.train import run_train
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_rewards.commands.explain import describe
from turnwise_rewards.commands.rewards import rewards as rewards_group
from turnwise_rewards.runs.explain import explain_member

TOOLS = "turnwise_rewards.shaping.tool_success:TOOL_SUCCESS"
CONFIDENCE = "turnwise_rewards.shaping.calibration:CALIBRATION"
PLAIN = ShapingSection()


def make_member(*errors, terms, success=1.0, member=0):
    """A trajectory whose calls end with these errors, None for a call that succeeded."""
    records = tuple(
        ToolRecord(
            call=ToolCall(id=str(number), name="search", arguments=str(number)),
            observation="",
            error=error,
            seconds=0.0,
        )
        for number, error in enumerate(errors)
    )
    turn = make_turn([1], [2], message=reply_message(""), tool_records=records)
    stored = tuple(RewardTerm(name=name, value=value, contribution=gave) for name, value, gave in terms)
    return make_trajectory(turn, reward=Scored.of(success, {"success": success}), member=member, terms=stored)


def give_quarter(group):
    """A reward that is no row."""
    return [0.25] * len(group.trajectories)


RECIPE = {
    "task": RewardSection(kind="task", weight=0.5),
    "tools": RewardSection(kind=TOOLS, weight=0.2),
    "held": RewardSection(kind=TOOLS, weight=0.2, cap=0.15),
}


def test_every_part_is_shown_with_what_would_have_changed_it() -> None:
    """2 of 5 calls failed: 0.2 * 0.6 = 0.12, and 0.2 * 1 without them; the capped one has only 0.03 to win."""
    terms = [("task", 1.0, 0.5), ("tools", 0.6, 0.12), ("held", 0.6, 0.12)]
    group = make_group(make_member(None, None, "no", "no", None, terms=terms))
    explained = explain_member(group, 0, RECIPE, PLAIN)
    assert list(describe(explained)) == [
        "0/0, ended with done",
        "environment  1  (success 1)",
        "task   +0.5 = 0.5 x 1; the environment's own reward",
        "tools  +0.12 = 0.2 x 0.6; 2 of 5 calls failed: calls 3 and 4; without them +0.08",
        "held   +0.12 = 0.2 x 0.6, cap 0.15; 2 of 5 calls failed: calls 3 and 4; without them +0.03",
        "sum    +0.74",
        "its group is credited 0.74",
    ]


def test_what_shaping_does_to_the_sum_is_shown() -> None:
    terms = [("task", 0.0, 0.0), ("tools", 1.0, 0.2)]
    members = [make_member(None, terms=terms, success=0.0, member=member) for member in range(2)]
    explained = explain_member(make_group(*members), 1, RECIPE, ShapingSection(gate="success", length_weight=0.1))
    assert explained.credited == pytest.approx(0.2)
    assert explained.shaped == 0
    assert list(describe(explained))[-3:] == [
        "credit.shaping (length_weight=0.1, gate=success) makes it 0",
        "its group is credited 0.2, 0.2",
        "after credit.shaping 0, 0",
    ]


def test_a_stored_value_that_is_measured_otherwise_is_told() -> None:
    group = make_group(make_member(None, "no", terms=[("tools", 0.75, 0.15)]))
    [term] = explain_member(group, 0, RECIPE, PLAIN).terms
    assert term.reason == "stored 0.75, but measured again it is 0.5: 1 of 2 calls failed: call 2"


def test_a_reward_that_cannot_account_says_so() -> None:
    group = make_group(make_member(None, terms=[("mine", 0.25, 0.25)]))
    [term] = explain_member(group, 0, {"mine": RewardSection(kind=f"{__name__}:give_quarter")}, PLAIN).terms
    assert (term.value, term.reason) == (0.25, f"{__name__}:give_quarter does not account for its values")


def test_an_invalid_reward_and_a_recipe_without_rewards() -> None:
    crashed = make_trajectory(make_turn([1], [2]), reward=None)
    lines = list(describe(explain_member(make_group(crashed), 0, {}, PLAIN)))
    assert lines == ["0/0, ended with done", "the reward is Invalid and trains nothing: crash"]
    plain = explain_member(make_group(make_member(None, terms=[])), 0, {}, PLAIN)
    assert "the recipe has no [rewards], so the environment's reward is credited" in list(describe(plain))


def test_a_term_that_the_recipe_does_not_have_is_named() -> None:
    group = make_group(make_member(None, terms=[("gone", 1.0, 1.0)]))
    with pytest.raises(ConfigError, match="has a term 'gone', which the run's recipe does not have"):
        explain_member(group, 0, RECIPE, PLAIN)


def test_a_run_is_explained_and_its_confidences_measured(tmp_path) -> None:
    overrides = [
        "environment.name=turnwise_rewards.shaping.sources:Sources",
        f"rewards.confidence.kind={CONFIDENCE}",
        "renderer.kind=tags",
        "tokenizer.vocab_size=400",
        "engine.max_context=96",
        "rollout.max_tokens=96",
        "rollout.max_turn_tokens=24",
        "rollout.tasks_per_step=2",
        "rollout.group_size=2",
        "sft.steps=2",
        "sft.num_demonstrations=8",
        "train.steps=1",
        "evaluate.tasks=4",
        "evaluate.controls={}",
        f"run.output={tmp_path}",
    ]
    run = run_train(load_config([], overrides), resume=None, display=False)
    runner = CliRunner()
    shown = runner.invoke(rewards_group, ["explain", str(run), "0/1"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("0/1, ended with")
    assert "confidence  +0 = 1 x 0; the confidence is" in shown.output  # the model has learned nothing
    [explained] = json.loads(runner.invoke(rewards_group, ["explain", str(run), "0/1", "--json"]).output)
    assert explained["trajectory"] == "0/1"
    measured = json.loads(runner.invoke(rewards_group, ["calibration", str(run), "--json"]).output)
    assert [each["evaluation"] for each in measured] == ["heldout_000000", "heldout_000001"]
    assert all(sum(each["outcomes"].values()) == 4 for each in measured)
    missing = runner.invoke(rewards_group, ["calibration", str(run), "--evaluation", "heldout_7"])
    assert "has no evaluation heldout_7; it has heldout_000000, heldout_000001" in str(missing.exception)
