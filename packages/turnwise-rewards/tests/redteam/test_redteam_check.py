"""Attacks find planted faults of a reward, and none in an honest one."""

import json

import pytest
from planted import FAULTS, PickFamily, add, grade_honestly
from typer.testing import CliRunner

from turnwise.core.errors import ConfigError
from turnwise.credit.terms import TermAnnotator
from turnwise_rewards.commands.rewards import rewards
from turnwise_rewards.redteam.attacks.table import ATTACKS, choose_attacks
from turnwise_rewards.redteam.check import Line, check_reward
from turnwise_rewards.redteam.play import Arena

TASKS = 8


def check(grade, names=(), *, listed=None, **options) -> dict[str, Line]:
    arena = Arena(family=PickFamily(grade), **{"max_turns": 12, **options})
    attacks = choose_attacks(names)
    return {line.attack: line for line in check_reward(arena, num_tasks=TASKS, attacks=attacks, listed=listed or {})}


def test_an_honest_reward_holds_against_every_attack() -> None:
    lines = check(grade_honestly)
    assert len(lines) == len(ATTACKS) >= 30
    assert {line.state for line in lines.values()} == {"holds", "does not apply"}
    assert {line.why for line in lines.values() if line.state == "does not apply"} == {
        "no judge is asked",
        "nothing runs a program",
        "the family has no policy 'cheat'",
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    grade, attack = FAULTS[fault]
    [line] = check(grade, [attack]).values()
    assert line.state == "hole", line


def test_a_constant_bonus_and_a_scaled_reward_are_no_hole() -> None:
    names = ["empty reply", "very long", "every format", "every tool at once", "solves and decorates"]
    assert {line.state for line in check(add(lambda pick: 5.0), names).values()} == {"holds"}
    scaled = check(lambda pick: {**grade_honestly(pick), "total": grade_honestly(pick)["total"] / 50}, names)
    assert {line.state for line in scaled.values()} == {"holds"}


def test_a_listed_hole_is_told_with_its_reason() -> None:
    grade, attack = FAULTS["pays for tags"]
    [line] = check(grade, [attack], listed={(attack, ""): "a demonstration"}).values()
    assert line.state == "listed"
    assert line.why.endswith("; listed: a demonstration")
    [other] = check(grade, [attack], listed={(attack, "another role"): "a demonstration"}).values()
    assert other.state == "hole"


class Agreement:
    """A vote: 1 for the answer that most attempts of the group give."""

    async def score(self, group, judges):
        said = [trajectory.turns[-1].message.text if trajectory.turns else "" for trajectory in group.trajectories]
        return [float(each == max(said, key=said.count)) for each in said]


def test_rewards_of_groups_are_attacked_alone_and_among_honest_attempts() -> None:
    vote = TermAnnotator(name="vote", reward=Agreement(), weight=1.0, cap=None, judges={})
    lines = check(grade_honestly, ["yes", "every format"], rewards=(vote,), group_size=6)
    assert lines["yes"].state == "hole"  # all say the same, and nobody is right
    assert lines["yes"].reward == 1.0
    assert lines["yes"].truth == 0.0
    assert lines["every format"].state == "holds"  # each says something else


class Liking:
    """A relative reward: the attempt with most exclamation marks beats the others of its group."""

    async def score(self, group, judges):
        said = [trajectory.turns[-1].message.text if trajectory.turns else "" for trajectory in group.trajectories]
        return [float(len(each) == max(map(len, said))) if len(set(said)) > 1 else 0.5 for each in said]


def test_a_relative_reward_is_attacked_among_honest_attempts() -> None:
    liking = TermAnnotator(name="liking", reward=Liking(), weight=1.0, cap=None, judges={})
    lines = check(grade_honestly, ["very long"], rewards=(liking,), group_size=6)
    assert lines["very long"].state == "hole"
    assert lines["very long"].why.startswith("among honest attempts, ")


def test_the_command_prints_a_table_and_fails_for_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(__import__("pathlib").Path(__file__).parent))
    run = CliRunner().invoke(rewards, ["check", "planted:PickFamily", "--tasks", "4", "--attack", "empty reply"])
    assert run.exit_code == 0, run.output
    assert "holds 1, hole 0, listed 0, does not apply 0" in run.output
    run = CliRunner().invoke(rewards, ["check", "planted:PaysForTags", "--attack", "only the tags", "--json"])
    assert run.exit_code == 1
    [line] = json.loads(run.output)
    assert line["state"] == "hole"
    assert line["reward"] == 0.5
    assert line["truth"] == 0.0


def test_unknown_names_are_refused_in_a_line() -> None:
    with pytest.raises(ConfigError, match="--attack 'empty' is unknown; did you mean 'empty reply'"):
        choose_attacks(["empty"])
    failed = CliRunner().invoke(rewards, ["check", "countdown", "numbers"])
    assert str(failed.exception) == "'numbers' is not of the form key=value"
