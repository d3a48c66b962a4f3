"""The token ledger: the identity holds for sound steps, and every way to lose, invent or repeat a token stops the step
by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import StoreError
from turnwise.core.types import (
    Completion,
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
    Turn,
    text_message,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.store.ledger import (
    Drop,
    DropReason,
    LedgerError,
    append_ledger,
    load_ledgers,
    reconcile,
)
from turnwise.store.run_folder import LEDGER, RunFolder
from turnwise.store.sampled import digest_advantages, digest_tokens

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


def make_trajectory(member: int, *turns: Turn, reward: Reward | None = None) -> Trajectory:
    return Trajectory(
        task_id=TASK.id,
        group_id="g",
        member=member,
        turns=turns,
        stop=StopReason.DONE,
        reward=reward or Scored(total=float(member)),
    )


def make_group(*trajectories: Trajectory, group_id: str = "g") -> TrajectoryGroup:
    return TrajectoryGroup(task=TASK, group_id=group_id, trajectories=trajectories)


def flatten(trajectory: Trajectory, branch: int = 0, trains: Sequence[int] | None = None) -> Sample:
    """A sample of one branch, written apart from `batching`: `trains` are the turns that carry loss (None: all of the
    branch)."""
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
        origin=Origin(
            task_id=trajectory.task_id, group_id=trajectory.group_id, member=trajectory.member, branch=branch
        ),
    )


# 3 + 2 prompt and observation tokens, 2 + 1 sampled ones.
LINEAR = make_trajectory(0, make_turn(None, [1, 2, 3], [4, 5]), make_turn(0, [6, 7], [8]))
OTHER = make_trajectory(1, make_turn(None, [1, 2, 3], [9]))
FAILED = make_trajectory(2, make_turn(None, [1, 2, 3], [4]), reward=Invalid(reason="hung", retryable=True))


def test_the_identity_holds_and_is_counted() -> None:
    ledger = reconcile(7, [make_group(LINEAR, OTHER, FAILED)], [[flatten(LINEAR)], [flatten(OTHER)]], version=4)
    # 3 of the first, 1 of the second; the third sampled 1 token and is Invalid.
    assert (ledger.sampled, ledger.trained, ledger.dropped, ledger.num_updates) == (5, 4, {"invalid": 1}, 2)
    assert [(e.member, e.sampled, e.trained) for e in ledger.entries] == [(0, 3, 3), (1, 1, 1), (2, 1, 0)]


def test_drops_are_counted_by_reason_and_turn() -> None:
    drops = [
        Drop(group_id="g", member=0, reason=DropReason.NO_CREDIT, turns=(1,)),
        Drop(group_id="g", member=1, reason=DropReason.TOO_STALE),
    ]
    ledger = reconcile(1, [make_group(LINEAR, OTHER)], [[flatten(LINEAR, trains=[0])]], drops, version=4)
    assert (ledger.trained, ledger.dropped) == (2, {"no_credit": 1, "too_stale": 1})


def test_a_shared_turn_trains_in_one_branch() -> None:
    tree = make_trajectory(0, make_turn(None, [1], [2, 3]), make_turn(0, [4], [5]), make_turn(0, [6], [7, 8]))
    first, second = flatten(tree, 0, [0, 1]), flatten(tree, 1, [2])
    ledger = reconcile(1, [make_group(tree)], [[first, second]], version=4)
    assert (ledger.sampled, ledger.trained) == (5, 5)
    with pytest.raises(LedgerError, match=r"g/0: sampled token 0 of turn 0 trains 2 times"):
        reconcile(1, [make_group(tree)], [[first, flatten(tree, 1)]], version=4)


def breach(
    samples: Sequence[Sample], *, trajectory: Trajectory = LINEAR, drops: Sequence[Drop] = (), version: int = 4
) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        reconcile(7, [make_group(trajectory, OTHER)], [[*samples, flatten(OTHER)]], drops, version=version)
    assert "step 7" in str(caught.value)
    assert "The weights were not changed" in str(caught.value)
    return caught.value


def test_a_lost_token_is_a_breach_that_names_the_trajectory() -> None:
    error = breach([])
    assert (error.group_id, error.member) == ("g", 0)
    assert "2 of 2 sampled tokens of turn 0 neither train nor are dropped" in str(error)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            {"token_ids": to_ids([1, 2, 3, 4, 99, 6, 7, 8])},
            "sampled token id 1 of turn 0 is 99 in the sample, 5 was recorded",
        ),
        ({"token_ids": to_ids([1, 2, 3, 4, 5, 99, 7, 8])}, "context token id 0 of turn 1 is 99"),
        ({"loss_mask": to_mask([0, 0, 1, 1, 0, 0, 1, 0])}, "context token 2 of turn 0 trains"),
        (
            {"loss_mask": to_mask([0, 0, 0, 1, 0, 0, 0, 1])},
            "1 of 2 sampled tokens of turn 0 neither train nor are dropped",
        ),
        (
            {"behavior_logprobs": to_floats([0, 0, 0, -0.5, -0.4, 0, 0, -0.8])},
            "log-probability of sampled token 0 of turn 0",
        ),
        (
            {"origin": Origin(task_id="t", group_id="g", member=5)},
            "g/5: a sample trains a trajectory that was not sampled",
        ),
        ({"origin": Origin(task_id="t", group_id="g", member=0, branch=1)}, "trains branch 1, the trajectory has 1"),
        (
            {"origin": Origin(task_id="t", group_id="g", member=1)},
            "g/1: a sample of branch 0 has 8 tokens, its turns have 4",
        ),
    ],
)
def test_a_sample_that_is_not_what_was_sampled_is_a_breach(damage: dict[str, object], words: str) -> None:
    assert words in str(breach([replace(flatten(LINEAR), **damage)]))  # type: ignore[arg-type]


def test_other_breaches() -> None:
    assert "trains 2 times" in str(breach([flatten(LINEAR), flatten(LINEAR)]))
    assert "sampled by weight version 4..4, version 5 trains" in str(breach([flatten(LINEAR)], version=5))
    assert "version 3 trains" in str(breach([flatten(LINEAR)], version=3)), "tokens of a future version"
    invalid = replace(LINEAR, reward=Invalid(reason="hung", retryable=False))
    assert "reward is Invalid" in str(breach([flatten(invalid)], trajectory=invalid))
    filtered = Drop(group_id="g", member=0, reason=DropReason.FILTERED_GROUP)
    assert "dropped as 'filtered_group' and yet 2" in str(breach([flatten(LINEAR)], drops=[filtered]))
    stale = Drop(group_id="g", member=0, reason=DropReason.TOO_STALE)
    assert "give one reason" in str(breach([], drops=[filtered, stale]))
    with pytest.raises(LedgerError, match="two trajectories of this step have this name"):
        reconcile(1, [make_group(LINEAR, LINEAR)], [[flatten(LINEAR)]], version=4)


def test_staleness_is_allowed_where_the_recipe_allows_it() -> None:
    assert reconcile(1, [make_group(LINEAR)], [[flatten(LINEAR)]], version=6, max_staleness=2).trained == 3
    with pytest.raises(LedgerError, match="max_staleness 2"):
        reconcile(1, [make_group(LINEAR)], [[flatten(LINEAR)]], version=7, max_staleness=2)


def test_observations_train_only_where_they_may() -> None:
    unmasked = replace(
        flatten(LINEAR), loss_mask=to_mask([0, 0, 0, 1, 1, 1, 1, 1]), context_mask=to_mask([0, 0, 0, 0, 0, 1, 1, 0])
    )
    ledger = reconcile(1, [make_group(LINEAR)], [[unmasked]], version=4, observations_train=True)
    assert (ledger.trained, ledger.context_trained) == (3, 2)
    with pytest.raises(LedgerError, match="context token 0 of turn 1 trains"):
        reconcile(1, [make_group(LINEAR)], [[unmasked]], version=4)


def test_pairs_may_repeat_a_trajectory_and_rejection_passes_count() -> None:
    twice = [[flatten(OTHER)], [flatten(OTHER)]]
    assert reconcile(1, [make_group(OTHER)], twice, version=4, max_times=2).trained == 1
    assert reconcile(1, [make_group(OTHER)], [[*twice[0], *twice[1]]], version=4, max_times=None).trained == 1


def test_the_account_is_readable_while_the_run_goes_on(tmp_path: Path) -> None:
    groups, updates = [make_group(LINEAR, OTHER, FAILED)], [[flatten(LINEAR), flatten(OTHER)]]
    ledgers = [reconcile(step, groups, updates, version=4) for step in (1, 2)]
    for ledger in ledgers:
        append_ledger(tmp_path, ledger)
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(b'{"step": 3, "versi')  # a line being written
    assert list(load_ledgers(tmp_path).values()) == ledgers
    assert load_ledgers(tmp_path / "elsewhere") == {}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"trained": 4', '"trained": 5', "totals are not the sums"),
        ('["g", 0, 0, 3, 3,', '["g", 0, 0, 3, 2,', "totals are not the sums"),
        ('"version": 4, ', "", "not a ledger line"),
    ],
)
def test_a_changed_line_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    append_ledger(tmp_path, reconcile(1, [make_group(LINEAR, OTHER)], [[flatten(LINEAR), flatten(OTHER)]], version=4))
    text = (tmp_path / LEDGER).read_text()
    assert old in text
    (tmp_path / LEDGER).write_text(text.replace(old, new))
    with pytest.raises(StoreError, match=words):
        load_ledgers(tmp_path)


def test_a_step_accounted_for_twice_is_refused(tmp_path: Path) -> None:
    ledger = reconcile(1, [make_group(OTHER)], [[flatten(OTHER)]], version=4)
    append_ledger(tmp_path, ledger)
    append_ledger(tmp_path, ledger)
    with pytest.raises(StoreError, match="step 1 twice"):
        load_ledgers(tmp_path)


def test_resuming_forgets_the_accounts_of_steps_that_run_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    for step in (1, 2, 3):
        append_ledger(folder.path, reconcile(step, [make_group(OTHER)], [[flatten(OTHER)]], version=4))
    folder.truncate(after_step=2)
    assert sorted(load_ledgers(folder.path)) == [1, 2]


def test_digests_tell_absent_from_zero() -> None:
    zero = to_floats([0.0, 0.0])
    assert digest_advantages(None) == digest_advantages([None, None]) == "none"
    assert len({digest_advantages([zero, None]), digest_advantages([zero, zero]), digest_advantages([None, zero])}) == 3
    assert digest_advantages([np.zeros(2)]) == digest_advantages([zero]), (
        "stored as float32, whatever it was computed in"
    )


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
    ledger = reconcile(1, [make_group(tree)], [samples], version=4)
    assert ledger.sampled == ledger.trained == sum(sizes)
    lost = data.draw(st.integers(0, len(samples) - 1))
    with pytest.raises(LedgerError, match="neither train nor are dropped"):
        reconcile(1, [make_group(tree)], [samples[:lost] + samples[lost + 1 :]], version=4)


def test_attempts_that_were_thrown_away_are_sampled_and_dropped(tmp_path: Path) -> None:
    """3 tokens of the attempt that counts, 2 + 1 of the one before it; one that sampled nothing has no account."""
    hung = Invalid(reason="hung", retryable=True)
    first = make_trajectory(0, make_turn(None, [1, 2, 3], [4, 5]), make_turn(0, [6], [7]), reward=hung)
    nothing = replace(make_trajectory(1, reward=hung), attempt=0)
    groups = [make_group(replace(LINEAR, attempt=1), replace(OTHER, attempt=1))]
    ledger = reconcile(7, groups, [[flatten(LINEAR), flatten(OTHER)]], version=4, retried=[first, nothing])
    assert (ledger.sampled, ledger.trained, ledger.dropped) == (7, 4, {"retried": 3})
    assert [(e.member, e.attempt, e.sampled) for e in ledger.entries] == [(0, 1, 3), (1, 1, 1), (0, 0, 3)]
    append_ledger(tmp_path, ledger)
    assert load_ledgers(tmp_path) == {7: ledger}


@pytest.mark.parametrize(
    ("retried", "words"),
    [
        ([replace(LINEAR, attempt=1)], "attempt 1 is accounted for twice, or is not before the one that counts"),
        ([LINEAR, LINEAR], "attempt 0 is accounted for twice"),
        ([replace(LINEAR, member=5)], "attempt 0 was retried, and no attempt of this member is left"),
    ],
)
def test_an_attempt_is_thrown_away_once_and_for_another(retried: list[Trajectory], words: str) -> None:
    groups = [make_group(replace(LINEAR, attempt=1), OTHER)]
    with pytest.raises(LedgerError, match=words):
        reconcile(7, groups, [[flatten(LINEAR), flatten(OTHER)]], version=4, retried=retried)


def with_completion(**changes: object) -> Trajectory:
    """LINEAR whose first reply, tokens 4 and 5 of version 4, was sampled in another way."""
    first, second = LINEAR.turns
    return replace(LINEAR, turns=(replace(first, completion=replace(first.completion, **changes)), second))


def test_every_token_must_be_fresh_enough() -> None:
    """A reply that began under version 3 and ended under 4."""
    mixed = with_completion(version_first=3, versions=to_ids([3, 4]))
    with pytest.raises(
        LedgerError, match=r"turn 0 was sampled by weight version 3\.\.4, version 4 trains with max_staleness 0"
    ):
        reconcile(7, [make_group(mixed)], [[flatten(mixed)]], version=4)
    assert reconcile(7, [make_group(mixed)], [[flatten(mixed)]], version=4, max_staleness=1).trained == 3
    # What stands in the middle counts, too.
    hidden = with_completion(versions=to_ids([4, 2]))
    with pytest.raises(LedgerError, match=r"weight version 2\.\.4"):
        reconcile(7, [make_group(hidden)], [[flatten(hidden)]], version=4, max_staleness=1)


def test_what_a_grammar_cut_trains_with_the_whole_distribution() -> None:
    """Sampled at -0.1 and -0.2 of what the grammar left, which is -0.4 and -0.5 of everything: the trainer sees the
    latter."""
    guided = with_completion(logprobs=to_floats([-0.1, -0.2]), full_logprobs=to_floats([-0.4, -0.5]))
    assert reconcile(7, [make_group(guided)], [[flatten(LINEAR)]], version=4).trained == 3
    cut = replace(flatten(LINEAR), behavior_logprobs=to_floats([0, 0, 0, -0.1, -0.2, 0, 0, -0.8]))
    with pytest.raises(LedgerError, match=r"log-probability of sampled token 0 of turn 0 is -0.1"):
        reconcile(7, [make_group(guided)], [[cut]], version=4)


def test_the_digest_knows_versions_and_whole_distributions_but_not_how_versions_were_said() -> None:
    plain = digest_tokens(LINEAR)
    assert digest_tokens(with_completion(versions=to_ids([4, 4]))) == plain, (
        "as runs wrote it that kept no versions per token"
    )
    others = [
        digest_tokens(with_completion(**changes))
        for changes in (
            {"versions": to_ids([4, 5]), "version_last": 5},
            {"version_last": 5},
            {"full_logprobs": to_floats([-0.4, -0.5])},
            {"full_logprobs": to_floats([-0.4, -0.6])},
        )
    ]
    assert len({plain, *others}) == 5
