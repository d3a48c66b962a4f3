"""What is read of a group."""

from turnwise.core.types import StopReason, TrajectoryId, to_floats
from turnwise.diagnosis.facts import CreditedTurn, describe_group
from turnwise.testing.builders import make_group, make_trajectory, make_turn


def test_turns_are_compared_with_others_from_the_same_state() -> None:
    first = make_trajectory(make_turn([1], [2]), make_turn([3], [4], parent=0), reward=1.0, member=0)
    second = make_trajectory(make_turn([1], [2]), make_turn([3], [5], parent=0), reward=0.0, member=1)
    third = make_trajectory(make_turn([1], [6]), reward=0.0, member=2, stop=StopReason.MAX_TURNS)
    advantages = {
        TrajectoryId(draw=0, member=0): [to_floats([0.5]), to_floats([0.25])],
        TrajectoryId(draw=0, member=1): [to_floats([-0.5]), None],
        TrajectoryId(draw=0, member=2): None,
    }
    facts = describe_group(make_group(first, second, third), 3, advantages)
    assert (facts.step, facts.rewards, facts.truncated, facts.lengths) == (
        3,
        (1.0, 0.0, 0.0),
        (False, False, True),
        (2, 2, 1),
    )
    # State [1] has value 1/3: reply [2] leads to 1/2 on average, reply [6] to 0. State [1][2][3] has value 1/2.
    expected = [
        CreditedTurn(advantage=0.5, outcome=1 / 2 - 1 / 3, is_last=False),
        CreditedTurn(advantage=-0.5, outcome=1 / 2 - 1 / 3, is_last=False),
        CreditedTurn(advantage=0.0, outcome=0 - 1 / 3, is_last=True),
        CreditedTurn(advantage=0.25, outcome=1 / 2, is_last=True),
        CreditedTurn(advantage=0.0, outcome=-1 / 2, is_last=True),
    ]
    assert list(facts.turns) == expected


def test_copies_are_counted_in_pairs_and_observations_tell_them_apart() -> None:
    def attempt(member: int, reward: float, seen: int) -> object:
        turns = make_turn([1], [2]), make_turn([seen], [4], parent=0)
        return make_trajectory(*turns, reward=reward, member=member)

    facts = describe_group(
        make_group(*(attempt(*each) for each in [(0, 1, 3), (1, 0, 3), (2, 1, 3), (3, 1, 9)])), 1, None
    )
    assert facts.is_identical, "all sampled [2] and [4]"
    # Of members 0, 1, 2 there are three pairs; 0 and 2 agree, 1 is paid apart from both. Member 3 saw something else.
    assert (facts.num_alike, facts.num_alike_paid_apart) == (3, 2)
    assert facts.turns == (), "without advantages there is no credit to compare"


def test_members_without_a_reward_do_not_count() -> None:
    lost = make_trajectory(make_turn([1], [2]), reward=None, member=1)
    facts = describe_group(make_group(make_trajectory(make_turn([1], [2])), lost), 1, None)
    assert facts.rewards == (1.0,)
    assert not facts.is_identical, "one member is no group"
