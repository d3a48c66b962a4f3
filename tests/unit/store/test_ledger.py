"""The token ledger: sound groups balance, and every way to lose, invent or repeat a token stops the step."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.batch import Drop
from turnwise.core.errors import StoreError
from turnwise.core.sampled import digest_advantages, digest_tokens
from turnwise.core.types import (
    Completion,
    Discarded,
    Draw,
    DropReason,
    FinishReason,
    Invalid,
    Origin,
    Reward,
    Sample,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    text_message,
    to_experts,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.store.ledger import (
    GroupAccount,
    account_batch,
    account_dropped,
    account_group,
    append_accounts,
    load_accounts,
)
from turnwise.store.run_folder import LEDGER, RunFolder
from turnwise.store.token_account import LedgerError

TASK = Task(environment="none", prompt=(text_message("user", "question"),), payload={})


def make_turn(parent: int | None, context: Sequence[int], sampled: Sequence[int], version: int = 4) -> Turn:
    completion = Completion(
        token_ids=to_ids(sampled),
        logprobs=to_floats([-token / 10 for token in sampled]),
        finish_reason=FinishReason.STOP,
        version_first=version,
        version_last=version,
    )
    return Turn(
        parent=parent, context_ids=to_ids(context), completion=completion, message=text_message("assistant", "reply")
    )


def name(member: int, attempt: int = 0, draw: int = 3) -> TrajectoryId:
    return TrajectoryId(draw=draw, member=member, attempt=attempt)


def make_trajectory(member: int, *turns: Turn, reward: Reward | None = None) -> Trajectory:
    return Trajectory(
        id=name(member),
        task_id=TASK.id,
        turns=turns,
        stop=StopReason.DONE,
        reward=reward or Scored(total=float(member)),
    )


def at_attempt(trajectory: Trajectory, attempt: int) -> Trajectory:
    return replace(trajectory, id=replace(trajectory.id, attempt=attempt))


def make_group(
    *trajectories: Trajectory, discarded: Sequence[Discarded] = (), baseline: Trajectory | None = None, version: int = 0
) -> TrajectoryGroup:
    return TrajectoryGroup(
        draw=Draw(index=3, task=TASK),
        trajectories=trajectories,
        version=version,
        baseline=baseline,
        discarded=tuple(discarded),
    )


def account(
    group: TrajectoryGroup,
    samples: Sequence[Sample],
    drops: Sequence[Drop] = (),
    *,
    version: int = 4,
    max_staleness: int = 0,
    max_times: int | None = 1,
    observations_train: bool = False,
) -> GroupAccount:
    return account_group(
        group,
        samples,
        drops,
        step=7,
        version=version,
        max_staleness=max_staleness,
        max_times=max_times,
        observations_train=observations_train,
    )


def flatten(trajectory: Trajectory, branch: int = 0, trains: Sequence[int] | None = None) -> Sample:
    """A sample of one branch, built without `batching`; the turns `trains` carry loss, all of them for None."""
    path = trajectory.branches()[branch]
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    for index in path:
        turn = trajectory.turns[index]
        on = trains is None or index in trains
        ids += [*turn.context_ids.tolist(), *turn.completion.token_ids.tolist()]
        mask += [False] * len(turn.context_ids) + [on] * len(turn.completion.token_ids)
        logprobs += [0.0] * len(turn.context_ids) + [
            value if on else 0.0 for value in turn.completion.logprobs.tolist()
        ]
    return Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(logprobs),
        advantages=to_floats([0.5 if on else 0.0 for on in mask]),
        version_first=4,
        version_last=4,
        origin=Origin(trajectory=trajectory.id, task_id=trajectory.task_id, branch=branch),
    )


# 3 + 2 prompt and observation tokens, 2 + 1 sampled ones.
LINEAR = make_trajectory(0, make_turn(None, [1, 2, 3], [4, 5]), make_turn(0, [6, 7], [8]))
OTHER = make_trajectory(1, make_turn(None, [1, 2, 3], [9]))
FAILED = make_trajectory(2, make_turn(None, [1, 2, 3], [4]), reward=Invalid(reason="hung", retryable=True))


def test_the_identity_holds_and_is_counted() -> None:
    line = account(make_group(LINEAR, OTHER, FAILED, version=2), [flatten(LINEAR), flatten(OTHER)])
    # 3 of the first, 1 of the second; the third sampled 1 token and is Invalid.
    assert (line.sampled, line.trained, line.dropped) == (5, 4, {"invalid": 1})
    assert [(e.trajectory.member, e.sampled, e.trained) for e in line.entries] == [(0, 3, 3), (1, 1, 1), (2, 1, 0)]
    assert (line.draw, line.fate, line.step, line.version) == (3, "trained", 7, 4)
    assert (line.start_version, line.oldest_version, line.max_staleness) == (2, 4, 0)


def test_drops_are_counted_by_reason_and_turn() -> None:
    drops = [
        Drop(trajectory=name(0), reason=DropReason.NO_CREDIT, turns=(1,)),
        Drop(trajectory=name(1), reason=DropReason.TRUNCATED),
    ]
    line = account(make_group(LINEAR, OTHER), [flatten(LINEAR, trains=[0])], drops)
    assert (line.trained, line.dropped) == (2, {"no_credit": 1, "truncated": 1})


def test_a_shared_turn_trains_in_one_branch() -> None:
    tree = make_trajectory(0, make_turn(None, [1], [2, 3]), make_turn(0, [4], [5]), make_turn(0, [6], [7, 8]))
    first, second = flatten(tree, 0, [0, 1]), flatten(tree, 1, [2])
    line = account(make_group(tree), [first, second])
    assert (line.sampled, line.trained) == (5, 5)
    with pytest.raises(LedgerError, match=r"3/0: sampled token 0 of turn 0 trains 2 times"):
        account(make_group(tree), [first, flatten(tree, 1)])


def test_several_conversations_of_one_trajectory_all_train() -> None:
    """Two roots: each is a branch of its own."""
    episode = make_trajectory(0, make_turn(None, [1], [2, 3]), make_turn(None, [4, 5], [6]))
    line = account(make_group(episode), [flatten(episode, 0), flatten(episode, 1)])
    assert (line.sampled, line.trained) == (3, 3)


def breach(
    samples: Sequence[Sample], *, trajectory: Trajectory = LINEAR, drops: Sequence[Drop] = (), version: int = 4
) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        account(make_group(trajectory, OTHER), [*samples, flatten(OTHER)], drops, version=version)
    assert "step 7" in str(caught.value)
    assert "The weights were not changed" in str(caught.value)
    return caught.value


def test_a_lost_token_is_a_breach_that_names_the_trajectory() -> None:
    error = breach([])
    assert error.trajectory == name(0)
    assert "2 of 2 sampled tokens of turn 0 are neither trained nor dropped" in str(error)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            {"token_ids": to_ids([1, 2, 3, 4, 99, 6, 7, 8])},
            "sampled token id 1 of turn 0 is 99 in the sample, but 5 was recorded",
        ),
        ({"token_ids": to_ids([1, 2, 3, 4, 5, 99, 7, 8])}, "context token id 0 of turn 1 is 99"),
        ({"loss_mask": to_mask(np.array([0, 0, 1, 1, 0, 0, 1, 0]))}, "context token 2 of turn 0 trains"),
        (
            {"loss_mask": to_mask(np.array([0, 0, 0, 1, 0, 0, 0, 1]))},
            "1 of 2 sampled tokens of turn 0 are neither trained nor dropped",
        ),
        (
            {"behavior_logprobs": to_floats([0, 0, 0, -0.5, -0.4, 0, 0, -0.8])},
            "log-probability of sampled token 0 of turn 0",
        ),
        (
            {"origin": Origin(trajectory=name(5), task_id="t")},
            "3/5: a sample trains a trajectory that is not a member",
        ),
        ({"origin": Origin(trajectory=name(0), task_id="t", branch=1)}, "trains branch 1, but the trajectory has 1"),
        (
            {"origin": Origin(trajectory=name(1), task_id="t")},
            "3/1: a sample of branch 0 has 8 tokens, but its turns have 4",
        ),
    ],
)
def test_a_sample_that_is_not_what_was_sampled_is_a_breach(damage: dict[str, object], words: str) -> None:
    assert words in str(breach([replace(flatten(LINEAR), **damage)]))  # type: ignore[arg-type]


def test_other_breaches() -> None:
    assert "trains 2 times" in str(breach([flatten(LINEAR), flatten(LINEAR)]))
    assert "sampled by weight version 4..4, but version 5 trains" in str(breach([flatten(LINEAR)], version=5))
    assert "version 3 trains" in str(breach([flatten(LINEAR)], version=3)), "tokens of a future version"
    invalid = replace(LINEAR, reward=Invalid(reason="hung", retryable=False))
    assert "reward is Invalid" in str(breach([flatten(invalid)], trajectory=invalid))
    filtered = Drop(trajectory=name(0), reason=DropReason.NO_CREDIT)
    assert "dropped as 'no_credit', yet 2" in str(breach([flatten(LINEAR)], drops=[filtered]))
    stale = Drop(trajectory=name(0), reason=DropReason.TRUNCATED)
    assert "use one reason" in str(breach([], drops=[filtered, stale]))
    assert "drops turn 2" in str(breach([], drops=[replace(filtered, turns=(2,))]))
    stranger = Drop(trajectory=name(8), reason=DropReason.NO_CREDIT)
    assert "3/8: 'no_credit' drops a trajectory that is not a member" in str(
        breach([flatten(LINEAR)], drops=[stranger])
    )


@pytest.mark.parametrize(
    "group",
    [
        make_group(LINEAR, LINEAR),
        make_group(LINEAR, replace(OTHER, id=replace(OTHER.id, draw=4))),
        make_group(LINEAR, replace(OTHER, id=replace(OTHER.id, role="judge"))),
        make_group(LINEAR, discarded=[Discarded(trajectory=LINEAR, reason=DropReason.LATE)]),
        make_group(LINEAR, baseline=LINEAR),
    ],
)
def test_every_trajectory_of_a_group_has_a_name_of_its_own(group: TrajectoryGroup) -> None:
    with pytest.raises(LedgerError, match=r"its name must be unique in its group, of draw 3 and role 'agent'"):
        account(group, [flatten(LINEAR)])
    with pytest.raises(LedgerError, match="must be unique"):
        account_dropped(group, DropReason.LATE, step=7, version=4)


def test_staleness_is_allowed_where_the_recipe_allows_it() -> None:
    assert account(make_group(LINEAR), [flatten(LINEAR)], version=6, max_staleness=2).trained == 3
    with pytest.raises(LedgerError, match="max_staleness 2"):
        account(make_group(LINEAR), [flatten(LINEAR)], version=7, max_staleness=2)


def test_no_token_is_older_than_its_group() -> None:
    with pytest.raises(
        LedgerError, match=r"turn 0 was sampled by weight version 4, its group was opened under ver.* 5"
    ):
        account(make_group(LINEAR, version=5), [flatten(LINEAR)], version=6, max_staleness=2)


def test_observations_train_only_where_they_may() -> None:
    unmasked = replace(
        flatten(LINEAR),
        loss_mask=to_mask(np.array([0, 0, 0, 1, 1, 1, 1, 1])),
        context_mask=to_mask(np.array([0, 0, 0, 0, 0, 1, 1, 0])),
    )
    line = account(make_group(LINEAR), [unmasked], observations_train=True)
    assert (line.trained, line.context_trained) == (3, 2)
    with pytest.raises(LedgerError, match="context token 0 of turn 1 trains"):
        account(make_group(LINEAR), [unmasked])


def test_pairs_may_repeat_a_trajectory_and_rejection_passes_count() -> None:
    twice = [flatten(OTHER), flatten(OTHER)]
    assert account(make_group(OTHER), twice, max_times=2).trained == 1
    assert account(make_group(OTHER), [*twice, *twice], max_times=None).trained == 1


def other_group(draw: int) -> tuple[TrajectoryGroup, Sample]:
    trajectory = replace(OTHER, id=name(1, draw=draw))
    group = replace(make_group(trajectory), draw=Draw(index=draw, task=TASK))
    return group, flatten(trajectory)


def test_a_batch_is_accounted_group_by_group() -> None:
    """The samples of a group may be in several optimizer steps."""
    group, sample = other_group(9)
    both = make_group(LINEAR, OTHER, FAILED)
    drops = [Drop(trajectory=name(1), reason=DropReason.NO_CREDIT)]
    first, second = account_batch(
        [both, group], [[sample], [flatten(LINEAR)]], drops, step=7, version=4, max_staleness=0
    )
    assert first == account(both, [flatten(LINEAR)], drops)
    assert (second.draw, second.sampled, second.trained) == (9, 1, 1)


def test_a_batch_knows_its_groups() -> None:
    (group, sample), (stranger, strange) = other_group(9), other_group(5)

    def batch(groups: Sequence[TrajectoryGroup], samples: Sequence[Sample], drops: Sequence[Drop] = ()) -> None:
        account_batch(groups, [samples], drops, step=7, version=4, max_staleness=0)

    with pytest.raises(LedgerError, match=r"trajectory 5/1: a sample trains a trajectory that is not in the batch"):
        batch([group], [sample, strange])
    with pytest.raises(LedgerError, match=r"9/1: two groups of this batch have a trajectory with the same name"):
        batch([group, group], [sample])
    with pytest.raises(LedgerError, match=r"5/1: 'late' drops a trajectory that is not in the batch"):
        batch([group], [sample], [Drop(trajectory=name(1, draw=5), reason=DropReason.LATE)])
    with pytest.raises(LedgerError, match=r"5/1: 1 of 1 sampled tokens of turn 0 are neither trained nor dropped"):
        batch([group, stranger], [sample])
    with pytest.raises(LedgerError, match=r"9/1: sampled token 0 of turn 0 trains 2 times"):
        account_batch([group], [[sample], [sample]], step=7, version=4, max_staleness=0)


def test_a_group_that_never_trains_loses_every_token_for_its_reason() -> None:
    group = make_group(LINEAR, OTHER, FAILED, discarded=[late(make_trajectory(3, make_turn(None, [1], [2, 3])))])
    line = account_dropped(group, DropReason.FILTERED_GROUP, step=7, version=4)
    # 3 + 1 of the scored members, 1 of the Invalid one, 2 of the one that came late.
    assert (line.sampled, line.trained) == (7, 0)
    assert line.dropped == {"filtered_group": 4, "invalid": 1, "late": 2}
    assert (line.fate, line.max_staleness) == (DropReason.FILTERED_GROUP, None)


def late(trajectory: Trajectory) -> Discarded:
    return Discarded(trajectory=trajectory, reason=DropReason.LATE)


def retried(trajectory: Trajectory) -> Discarded:
    return Discarded(trajectory=trajectory, reason=DropReason.RETRIED)


def test_discarded_trajectories_are_sampled_and_dropped() -> None:
    """4 tokens of the attempts that count, 2 + 1 of one before them, 1 of an over-drawn one.

    Neither an attempt that sampled nothing nor a baseline has an account.
    """
    hung = Invalid(reason="hung", retryable=True)
    first = make_trajectory(0, make_turn(None, [1, 2, 3], [4, 5]), make_turn(0, [6], [7]), reward=hung)
    empty = make_trajectory(1, reward=hung)
    overdrawn = Discarded(trajectory=make_trajectory(2, make_turn(None, [1], [2])), reason=DropReason.OVERDRAWN)
    members = at_attempt(LINEAR, 1), at_attempt(OTHER, 1)
    baseline = make_trajectory(9, make_turn(None, [1], [2, 3, 4]))
    group = make_group(*members, discarded=[retried(first), retried(empty), overdrawn], baseline=baseline)
    line = account(group, [flatten(member) for member in members])
    assert (line.sampled, line.trained, line.dropped) == (8, 4, {"retried": 3, "overdrawn": 1})
    assert [(e.trajectory.member, e.trajectory.attempt, e.sampled) for e in line.entries] == [
        (0, 1, 3),
        (1, 1, 1),
        (0, 0, 3),
        (2, 0, 1),
    ]
    with pytest.raises(LedgerError, match="3/2: a sample trains a trajectory that is not a member"):
        account(group, [*(flatten(member) for member in members), flatten(overdrawn.trajectory)])
    with pytest.raises(LedgerError, match="3/9: a sample trains a trajectory that is not a member"):
        account(group, [*(flatten(member) for member in members), flatten(baseline)])


def test_an_attempt_is_retried_before_another() -> None:
    for trajectory in (at_attempt(LINEAR, 1), at_attempt(make_trajectory(5, *LINEAR.turns), 0)):
        with pytest.raises(LedgerError, match="was retried, and no later attempt of this member is left"):
            account(make_group(LINEAR, discarded=[retried(trajectory)]), [flatten(LINEAR)])
    # The later attempt may be discarded as well.
    cut = late(at_attempt(OTHER, 1))
    assert account(make_group(LINEAR, discarded=[retried(OTHER), cut]), [flatten(LINEAR)]).sampled == 5


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_the_account_is_readable_while_the_run_goes_on(run: RunFolder) -> None:
    trained = account(make_group(LINEAR, OTHER, FAILED), [flatten(LINEAR), flatten(OTHER)])
    dropped = account_dropped(other_group(9)[0], DropReason.LATE, step=8, version=5)
    assert load_accounts(run.path) == []
    append_accounts(run.path, [trained])
    append_accounts(run.path, [dropped, replace(trained, draw=4, entries=())])
    with (run.path / LEDGER).open("ab") as file:
        file.write(b'{"draw": 5, "versi')  # a line being written
    assert load_accounts(run.path) == [trained, dropped, replace(trained, draw=4, entries=())]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"trained": 4', '"trained": 5', "draw 3: the totals are not the sums"),
        ("[0, 0, 3, 3,", "[0, 0, 3, 2,", "draw 3: the totals are not the sums"),
        ('"version": 4, ', "", "draw 3 is not a ledger line"),
        ('"fate": "trained"', '"fate": "lost"', "draw 3 is not a ledger line"),
    ],
)
def test_a_changed_line_is_refused(run: RunFolder, old: str, new: str, words: str) -> None:
    append_accounts(run.path, [account(make_group(LINEAR, OTHER), [flatten(LINEAR), flatten(OTHER)])])
    text = (run.path / LEDGER).read_text()
    assert old in text
    (run.path / LEDGER).write_text(text.replace(old, new))
    with pytest.raises(StoreError, match=words):
        load_accounts(run.path)


def test_a_draw_accounted_for_twice_is_refused(run: RunFolder) -> None:
    line = account(make_group(OTHER), [flatten(OTHER)])
    append_accounts(run.path, [line])
    append_accounts(run.path, [replace(line, step=8)])
    with pytest.raises(StoreError, match="draw 3 twice"):
        load_accounts(run.path)


def test_resuming_forgets_the_accounts_of_steps_that_run_again(run: RunFolder) -> None:
    line = account(make_group(OTHER), [flatten(OTHER)])
    append_accounts(run.path, [replace(line, draw=step, step=step) for step in (1, 2, 3)])
    run.truncate(after_step=2)
    assert [each.step for each in load_accounts(run.path)] == [1, 2]


def test_digests_tell_absent_from_zero() -> None:
    zero = to_floats([0.0, 0.0])
    assert digest_advantages(None) == digest_advantages([None, None]) == "none"
    assert len({digest_advantages([zero, None]), digest_advantages([zero, zero]), digest_advantages([None, zero])}) == 3
    # Stored as float32, whatever it was computed in.
    double = np.zeros(2)
    assert digest_advantages([double]) == digest_advantages([zero])  # type: ignore[list-item]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_tree_balances_and_any_missing_sample_is_found(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    turns = [
        make_turn(
            data.draw(st.integers(0, index - 1)) if index else None, [50 + index], [index * 10 + i for i in range(size)]
        )
        for index, size in enumerate(sizes)
    ]
    tree = make_trajectory(0, *turns)
    seen: set[int] = set()
    samples = []
    for branch, path in enumerate(tree.branches()):
        samples.append(flatten(tree, branch, [index for index in path if index not in seen]))
        seen.update(path)
    line = account(make_group(tree), samples)
    assert line.sampled == line.trained == sum(sizes)
    lost = data.draw(st.integers(0, len(samples) - 1))
    with pytest.raises(LedgerError, match="neither trained nor dropped"):
        account(make_group(tree), samples[:lost] + samples[lost + 1 :])


def with_completion(**changes: Any) -> Trajectory:
    """LINEAR whose first reply, tokens 4 and 5 of version 4, was sampled in another way."""
    first, second = LINEAR.turns
    return replace(LINEAR, turns=(replace(first, completion=replace(first.completion, **changes)), second))


def test_every_token_must_be_fresh_enough() -> None:
    """A reply that began under version 3 and ended under 4."""
    mixed = with_completion(version_first=3, versions=to_ids([3, 4]))
    with pytest.raises(
        LedgerError, match=r"turn 0 was sampled by weight version 3..4, but version 4 trains with max_staleness 0"
    ):
        account(make_group(mixed), [flatten(mixed)])
    assert account(make_group(mixed), [flatten(mixed)], max_staleness=1).trained == 3
    # The middle of an array counts, too.
    hidden = with_completion(versions=to_ids([4, 2]))
    with pytest.raises(LedgerError, match=r"weight version 2\.\.4"):
        account(make_group(hidden), [flatten(hidden)], max_staleness=1)


def test_what_a_grammar_cut_trains_with_the_whole_distribution() -> None:
    """Sampled at -0.1 and -0.2 of the grammar's tokens, -0.4 and -0.5 of all tokens, which the trainer scores."""
    guided = with_completion(logprobs=to_floats([-0.1, -0.2]), full_logprobs=to_floats([-0.4, -0.5]))
    assert account(make_group(guided), [flatten(LINEAR)]).trained == 3
    cut = replace(flatten(LINEAR), behavior_logprobs=to_floats([0, 0, 0, -0.1, -0.2, 0, 0, -0.8]))
    with pytest.raises(LedgerError, match=r"log-probability of sampled token 0 of turn 0 is -0.1"):
        account(make_group(guided), [cut])


def test_the_digest_knows_versions_and_whole_distributions_but_not_how_versions_were_said() -> None:
    plain = digest_tokens(LINEAR)
    assert digest_tokens(with_completion(versions=to_ids([4, 4]))) == plain, (
        "versions that are all the first's are not part of it"
    )
    others = [
        digest_tokens(with_completion(**changes))
        for changes in (
            {"versions": to_ids([4, 5]), "version_last": 5},
            {"version_last": 5},
            {"full_logprobs": to_floats([-0.4, -0.5])},
            {"full_logprobs": to_floats([-0.4, -0.6])},
            {"experts": to_experts(np.zeros((4, 2, 2)))},
            {"experts": to_experts(np.eye(4)[:, :, None])},
        )
    ]
    assert len({plain, *others}) == 7


def test_a_token_trains_with_the_experts_of_its_sampling() -> None:
    """Turns of 3 + 2 and 2 + 1 tokens: 4 rows of the first, which ends before its last token, and 3 of the second."""
    rows = np.arange(14).reshape(7, 1, 2)
    turns = [
        replace(turn, completion=replace(turn.completion, experts=to_experts(part)))
        for turn, part in zip(LINEAR.turns, (rows[:4], rows[4:]), strict=True)
    ]
    mixture = replace(LINEAR, turns=tuple(turns))
    sample = replace(flatten(mixture), experts=to_experts(rows))
    assert account(make_group(mixture), [sample]).trained == 3
    swapped = rows.copy()
    swapped[5] = swapped[5, :, ::-1]
    with pytest.raises(LedgerError, match=r"token 5 of branch 0 trains with experts \[\[11, 10\]\]"):
        account(make_group(mixture), [replace(sample, experts=to_experts(swapped))])
    with pytest.raises(LedgerError, match=r"has experts of shape None, but its turns \(7, 1, 2\)"):
        account(make_group(mixture), [replace(sample, experts=None)])
