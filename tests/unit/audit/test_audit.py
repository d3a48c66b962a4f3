"""The audit of a run passes a sound one and finds every planted corruption, with the ledger and without it."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_run import TINY, double, make_config, make_materials, make_run, read_weights, save_checkpoint
from numpy.typing import NDArray

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.building.audited import read_audit_settings
from turnwise.config.load import load_config
from turnwise.core.errors import StoreError
from turnwise.core.types import Sample
from turnwise.reporting.audit_table import audit_lines, audit_table
from turnwise.store.advantages import load_advantages, save_advantages
from turnwise.store.groups import GroupStore, digest_files
from turnwise.store.journal import JOURNAL
from turnwise.store.ledger import append_accounts, load_accounts
from turnwise.store.run_folder import LEDGER

Row = dict[str, Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("audit") / "run")


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def audit(run: Path, *, replay_tools: bool = False, **changes: Any) -> AuditReport:
    return run_audit(run, replace(make_materials(make_config()), **changes), replay_tools=replay_tools)


def found_by(report: AuditReport) -> set[str]:
    return {breach.check for breach in report.breaches}


def rewrite(path: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    rows = change([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def edit(path: Path, kind: str, **changes: Any) -> None:
    """Change the last journal line of a kind, or the last with `draw` or `step` of that value."""

    def change(rows: list[Row]) -> list[Row]:
        keys = {key: value for key, value in changes.items() if key in ("draw", "step")}
        row = [r for r in rows if r["kind"] == kind and keys.items() <= r.items()][-1]
        row |= changes
        return rows

    rewrite(path, change)


class Stored:
    """The stored group of one draw, to change in place; the journal gets the digest of the changed files."""

    def __init__(self, run: Path, draw: int = 3) -> None:
        self.run, self.draw = run, draw
        self.npz, self.jsonl = GroupStore(run).paths(draw)
        self.rows: list[Row] = [json.loads(line) for line in self.jsonl.read_text().splitlines()]
        with np.load(self.npz) as data:
            self.arrays = {name: data[name] for name in data.files}

    def save(self) -> None:
        self.jsonl.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        np.savez(self.npz, **self.arrays)
        self.note_digest()

    def note_digest(self) -> None:
        digest = digest_files(self.npz.read_bytes(), self.jsonl.read_bytes())
        edit(self.run / JOURNAL, "finished", draw=self.draw, digest=digest)

    @property
    def long(self) -> Row:
        """The member with three turns."""
        return next(row for row in self.rows if len(row["turns"]) == 3)

    def cut(self, start: int, end: int) -> None:
        """Remove tokens `[start, end)` and move every later span."""
        self.arrays = {name: np.concatenate([array[:start], array[end:]]) for name, array in self.arrays.items()}
        for row in self.rows:
            for turn in row["turns"]:
                for kind in ("context", "completion"):
                    turn[kind] = [at - (end - start) if at >= end else at for at in turn[kind]]


Plant = Callable[[Path], None]
PLANTS: dict[str, tuple[Plant, set[str]]] = {}


def plant(*checks: str) -> Callable[[Plant], Plant]:
    """Register a corruption and the checks that must find it."""

    def register(function: Plant) -> Plant:
        PLANTS[function.__name__] = (function, set(checks))
        return function

    return register


def in_group(*checks: str, draw: int = 3) -> Callable[[Callable[[Stored], None]], Plant]:
    """Register a corruption of a stored group."""

    def register(change: Callable[[Stored], None]) -> Plant:
        def corrupt(run: Path) -> None:
            stored = Stored(run, draw)
            change(stored)
            stored.save()

        corrupt.__name__ = change.__name__
        return plant(*checks)(corrupt)

    return register


# ------------------------------------------------------------------------------------------------ tokens


@in_group("ledger", "logprobs", "prompts")
def a_flipped_sampled_token(stored: Stored) -> None:
    stored.arrays["token_ids"][stored.long["turns"][0]["completion"][0]] += 1


@in_group("ledger", "prompts")
def a_flipped_prompt_token(stored: Stored) -> None:
    stored.arrays["token_ids"][stored.long["turns"][0]["context"][0] + 1] ^= 3


@in_group("masks")
def a_shifted_mask(stored: Stored) -> None:
    start, end = stored.long["turns"][0]["completion"]
    mask = stored.arrays["loss_mask"]
    mask[start - 1 : end] = np.roll(mask[start - 1 : end], -1)


@in_group("masks")
def a_wrong_turn_number(stored: Stored) -> None:
    stored.arrays["turn_index"][stored.long["turns"][1]["completion"][0]] = 0


@in_group("masks")
def a_logprob_on_context(stored: Stored) -> None:
    stored.arrays["logprobs"][stored.long["turns"][0]["context"][0]] = -0.5


@in_group("masks")
def a_whole_distribution_without_a_grammar(stored: Stored) -> None:
    stored.arrays["full_logprobs"][stored.long["turns"][0]["completion"][0]] = -0.5


@in_group("ledger", "logprobs")
def swapped_logprobs(stored: Stored) -> None:
    start, _ = stored.long["turns"][0]["completion"]
    logprobs = stored.arrays["logprobs"]
    assert logprobs[start] != logprobs[start + 1]
    logprobs[[start, start + 1]] = logprobs[[start + 1, start]]


@in_group("turns")
def a_positive_logprob(stored: Stored) -> None:
    stored.arrays["logprobs"][stored.long["turns"][0]["completion"][0]] = 0.25


@in_group("ledger", "logprobs", draw=4)
def versions_from_before_the_group(stored: Stored) -> None:
    for turn in stored.long["turns"]:
        turn["version_first"] = turn["version_last"] = 0
        stored.arrays["versions"][slice(*turn["completion"])] = 0


@in_group("ledger", "logprobs")
def a_moved_border_between_versions(stored: Stored) -> None:
    start, end = stored.long["turns"][0]["completion"]
    versions = stored.arrays["versions"][start:end]
    assert versions.tolist() == [0, 0, 0, 1, 1]
    versions[2] = 1


@in_group("ledger", "turns", "logprobs")
def versions_that_run_backwards(stored: Stored) -> None:
    start, end = stored.long["turns"][0]["completion"]
    stored.arrays["versions"][start:end] = [0, 1, 0, 1, 1]


@in_group("masks")
def a_version_on_context(stored: Stored) -> None:
    stored.arrays["versions"][stored.long["turns"][0]["context"][0]] = 1


@in_group("logprobs", "prompts", draw=5)
def a_flipped_token_of_a_group_that_waits(stored: Stored) -> None:
    stored.arrays["token_ids"][stored.long["turns"][0]["completion"][0]] += 1


@in_group("ledger", "logprobs", "prompts", draw=2)
def a_flipped_token_of_a_dropped_group(stored: Stored) -> None:
    stored.arrays["token_ids"][stored.rows[0]["turns"][0]["completion"][0]] += 1


# ------------------------------------------------------------------------------------------------ turns


@in_group("ledger", "turns")
def a_missing_turn(stored: Stored) -> None:
    gone = stored.long["turns"].pop()
    stored.cut(gone["context"][0], gone["completion"][1])


@in_group("files")
def a_missing_trajectory(stored: Stored) -> None:
    del stored.rows[-1]


@in_group("prompts", "turns")
def an_extended_observation(stored: Stored) -> None:
    stored.long["turns"][0]["observations"][0]["content"][0]["text"] = "22"


@in_group("turns")
def a_changed_tool_record(stored: Stored) -> None:
    stored.long["turns"][0]["tool_records"][0]["observation"] += " and more"


@in_group("turns")
def a_parent_that_comes_later(stored: Stored) -> None:
    stored.long["turns"][0]["parent"] = 1


@in_group("turns")
def a_reply_after_one_that_was_cut_off(stored: Stored) -> None:
    stored.long["turns"][0]["finish_reason"] = "length"


@in_group("turns")
def a_conversation_that_is_not_on_record(stored: Stored) -> None:
    stored.long["turns"][1]["conversation"] = 1


@in_group("turns")
def an_ending_in_the_middle(stored: Stored) -> None:
    ending = {"turn": 1, "stop": "done", "reward": stored.long["reward"], "kind": "leaf"}
    stored.long["endings"] = [ending]


# ------------------------------------------------------------------------------------------------ groups


@in_group("groups")
def a_duplicated_trajectory(stored: Stored) -> None:
    last = stored.rows[-1]
    start, end = last["turns"][0]["context"][0], last["turns"][-1]["completion"][1]
    stored.arrays = {name: np.concatenate([array, array[start:end]]) for name, array in stored.arrays.items()}
    turns = [
        turn | {kind: [at + end - start for at in turn[kind]] for kind in ("context", "completion")}
        for turn in last["turns"]
    ]
    stored.rows.append(last | {"turns": turns})


@in_group("groups")
def members_of_two_tasks_in_one_group(stored: Stored) -> None:
    stored.rows[0]["task"] = stored.rows[0]["task"] | {"payload": {"index": 0, "worth": 1.0}}


@in_group("groups", "ledger", draw=0)
def an_overdrawn_member_that_counts(stored: Stored) -> None:
    stored.rows[2] |= {"place": "member", "reason": None}


@in_group("groups", draw=0)
def a_reason_no_single_trajectory_is_discarded_for(stored: Stored) -> None:
    stored.rows[2]["reason"] = "filtered_group"


@in_group("ledger", draw=0)
def a_discarded_trajectory_with_another_reason(stored: Stored) -> None:
    stored.rows[2]["reason"] = "late"


@in_group("ledger", draw=4)
def a_missing_attempt_that_was_made_again(stored: Stored) -> None:
    gone = stored.rows.pop()
    stored.cut(gone["turns"][0]["context"][0], gone["turns"][-1]["completion"][1])


@in_group("ledger")
def swapped_members(stored: Stored) -> None:
    """Two members exchange everything but their numbers: only what was reconciled before training can tell."""
    first, second = stored.rows
    first["id"], second["id"] = second["id"], first["id"]
    stored.rows = [second, first]
    size = first["turns"][-1]["completion"][1]
    end = len(stored.arrays["token_ids"])
    order = np.concatenate([np.arange(size, end), np.arange(size)])
    stored.arrays = {name: array[order] for name, array in stored.arrays.items()}
    for row, shift in ((second, -size), (first, end - size)):
        for turn in row["turns"]:
            turn["context"], turn["completion"] = (
                [at + shift for at in turn[kind]] for kind in ("context", "completion")
            )


@plant("groups")
def a_group_under_the_name_of_another(run: Path) -> None:
    other = Stored(run, 5)
    for source, target in zip(GroupStore(run).paths(4), (other.npz, other.jsonl), strict=True):
        shutil.copy(source, target)
    other.note_digest()


@plant("groups", "journal")
def a_version_at_the_start_that_is_not_the_stored_one(run: Path) -> None:
    edit(run / JOURNAL, "opened", draw=3, version=1)


@in_group("groups", draw=5)
def an_attempt_from_before_its_group(stored: Stored) -> None:
    for row in stored.rows:
        row["group"]["attempt"] = 1


# ------------------------------------------------------------------------------------------------ rewards and credit


@plant("ledger", "advantages")
def a_wrong_advantage(run: Path) -> None:
    advantages = load_advantages(run, 2)
    assert advantages is not None
    name = next(name for name, turns in advantages.items() if turns)
    save_advantages(run, 2, advantages | {name: [turn + 0.25 for turn in advantages[name] or [] if turn is not None]})


@plant("ledger", "advantages")
def advantages_of_one_trajectory_too_few(run: Path) -> None:
    advantages = load_advantages(run, 2)
    assert advantages is not None
    save_advantages(run, 2, dict(list(advantages.items())[1:]))


@plant("advantages")
def missing_advantages(run: Path) -> None:
    (run / "steps" / "step_000002.npz").unlink()


@plant("files")
def damaged_advantages(run: Path) -> None:
    (run / "steps" / "step_000002.npz").write_bytes(b"PK")


@in_group("rewards", "advantages")
def a_wrong_reward(stored: Stored) -> None:
    stored.long["reward"]["scored"]["total"] -= 2


@in_group("rewards")
def a_wrong_part_of_a_reward(stored: Stored) -> None:
    stored.long["reward"]["scored"]["parts"][0]["value"] += 0.5


@in_group("rewards")
def a_changed_payload_of_the_task(stored: Stored) -> None:
    for row in stored.rows:
        row["task"]["payload"]["worth"] = 2.0


@in_group("ledger", "advantages")
def a_trained_trajectory_declared_invalid(stored: Stored) -> None:
    stored.long["reward"] = {"invalid": {"reason": "hung", "retryable": False}}


# ------------------------------------------------------------------------------------------------ files


@plant("files")
def a_changed_file(run: Path) -> None:
    """A number that nothing else proves: only the digest in the journal can tell."""
    path = Stored(run).jsonl
    path.write_text(path.read_text().replace('"engine_s": 0.0', '"engine_s": 9.0', 1))


@plant("files")
def a_truncated_array_file(run: Path) -> None:
    path = Stored(run).npz
    path.write_bytes(path.read_bytes()[:-40])


@plant("files")
def a_row_cut_in_the_middle(run: Path) -> None:
    path = Stored(run).jsonl
    path.write_text(path.read_text()[: len(path.read_text()) // 2])


@plant("files")
def a_missing_group(run: Path) -> None:
    Stored(run).npz.unlink()


@plant("files")
def a_gap_in_the_metrics(run: Path) -> None:
    rewrite(run / "metrics.jsonl", lambda rows: rows[1:])


# ------------------------------------------------------------------------------------------------ journal and ledger


@plant("journal")
def a_journal_that_cannot_be(run: Path) -> None:
    rewrite(run / JOURNAL, lambda rows: [row for row in rows if row["kind"] != "taken"])


@plant("journal")
def a_finished_step_that_was_never_trained(run: Path) -> None:
    rewrite(run / JOURNAL, lambda rows: [r for r in rows if (r["kind"], r.get("step")) != ("trained", 2)])


@plant("journal")
def a_stored_group_that_was_never_opened(run: Path) -> None:
    store = GroupStore(run)
    for source, target in zip(store.paths(5), store.paths(8), strict=True):
        shutil.copy(source, target)


@plant("journal")
def another_reason_than_the_ledgers(run: Path) -> None:
    edit(run / JOURNAL, "dropped", draw=2, reason="late")


@plant("journal")
def another_order_of_training(run: Path) -> None:
    edit(run / JOURNAL, "taken", step=2, draws=[4, 3])


@plant("journal", "checkpoints")
def a_step_that_left_another_version(run: Path) -> None:
    edit(run / JOURNAL, "trained", step=1, version=2, sums={"weight": 2})
    edit(run / JOURNAL, "trained", step=2, version=2)


@plant("journal")
def a_lost_draw(run: Path) -> None:
    """The ledger has no account of draw 4, which the journal trained: its tokens are lost."""
    rewrite(run / LEDGER, lambda rows: [row for row in rows if row["draw"] != 4])


@plant("journal")
def a_lost_draw_that_was_dropped(run: Path) -> None:
    rewrite(run / LEDGER, lambda rows: [row for row in rows if row["draw"] != 2])


@plant("journal")
def a_draw_that_trained_and_still_waits(run: Path) -> None:
    change_accounts(run, lambda rows: [*rows, next(row for row in rows if row["draw"] == 3) | {"draw": 5}])


@plant("journal")
def an_account_of_a_draw_that_was_never_opened(run: Path) -> None:
    change_accounts(run, lambda rows: [*rows, next(row for row in rows if row["draw"] == 3) | {"draw": 8}])


@plant("journal")
def an_account_of_another_step(run: Path) -> None:
    change_accounts(run, lambda rows: [row | {"step": 1 if row["draw"] == 3 else row["step"]} for row in rows])


@plant("journal", "ledger")
def an_account_of_another_version(run: Path) -> None:
    change_accounts(run, lambda rows: [row | {"version": 3 if row["draw"] == 3 else row["version"]} for row in rows])


@plant("ledger")
def a_draw_that_trained_twice(run: Path) -> None:
    change_accounts(run, lambda rows: [*rows, rows[-1] | {"step": 3}])


@plant("ledger")
def an_account_that_does_not_add_up(run: Path) -> None:
    change_accounts(run, lambda rows: [row | {"trained": row["trained"] - 1} for row in rows])


@plant("ledger")
def an_account_for_one_trajectory_too_few(run: Path) -> None:
    accounts = load_accounts(run)
    (run / LEDGER).unlink()
    append_accounts(run, [replace(account, entries=account.entries[1:]) for account in accounts])


@plant("ledger")
def an_account_for_a_trajectory_too_many(run: Path) -> None:
    accounts = load_accounts(run)
    (run / LEDGER).unlink()
    extra = replace(accounts[0].entries[0], trajectory=replace(accounts[0].entries[0].trajectory, member=7))
    append_accounts(run, [replace(accounts[0], entries=(*accounts[0].entries, extra)), *accounts[1:]])


@plant("ledger")
def a_dropped_group_of_other_tokens(run: Path) -> None:
    accounts = {account.draw: account for account in load_accounts(run)}
    (run / LEDGER).unlink()
    entries = [replace(entry, tokens_digest="0" * 16) for entry in accounts[2].entries]
    accounts[2] = replace(accounts[2], entries=tuple(entries))
    append_accounts(run, list(accounts.values()))


@plant("ledger")
def wrong_published_totals(run: Path) -> None:
    rewrite(run / "metrics.jsonl", lambda rows: [row | {"rollout/sampled_tokens": 1} for row in rows])


def change_accounts(run: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    rewrite(run / LEDGER, change)


# ------------------------------------------------------------------------------------------------ checkpoints


@plant("checkpoints")
def a_damaged_checkpoint(run: Path) -> None:
    (run / "checkpoints" / "step_000001" / "weights.json").write_text("7")


@plant("checkpoints", "logprobs")
def weights_of_another_version(run: Path) -> None:
    """The engine sampled with version 0 and recorded version 1; here the checkpoint of 1 holds other weights."""
    save_checkpoint(run, 1, 0)


@plant("checkpoints")
def other_sums_than_the_journals(run: Path) -> None:
    edit(run / JOURNAL, "trained", step=2, sums={"weight": 9})


@plant("checkpoints")
def a_checkpoint_of_a_step_that_never_was(run: Path) -> None:
    save_checkpoint(run, 3, 3)


# ------------------------------------------------------------------------------------------------ tests


def test_a_sound_run_passes_every_check(sound: Path) -> None:
    report = audit(sound, replay_tools=True)
    assert report.breaches == []
    checked = {name: tally.checked for name, tally in report.tallies.items()}
    accounts = load_accounts(sound)
    sampled = sum(account.sampled for account in accounts)
    waiting = GroupStore(sound).load(5)
    in_waiting = sum(t.num_sampled_tokens for t in waiting.trajectories)
    assert checked["ledger"] == sampled > 0
    assert checked["logprobs"] == sampled + in_waiting, "every version has a checkpoint"
    # 6 groups of 2 members, an over-drawn and a retried attempt and a baseline; 8 draws; versions 0, 1, 2.
    assert (checked["files"], checked["groups"], checked["turns"], checked["checkpoints"]) == (6, 6, 15, 3)
    # All but the attempt that failed; 4 groups trained.
    assert (checked["journal"], checked["rewards"], checked["advantages"]) == (8, 14, 8)
    assert checked["tools"] > 0
    assert report.facts["logprob_gap_max"] == 0
    fates = {name: report.facts[f"draws_{name}"] for name in ("taken", "dropped", "waiting", "open")}
    assert fates == {"taken": 4, "dropped": 2, "waiting": 1, "open": 1}
    # 4 + 5 + 2 replies of the baseline in draw 4 are not scored: "add:1", "done".
    assert report.tallies["logprobs"].not_checked == {"tokens of greedy baselines": 9}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_corruption_is_found(run: Path, name: str) -> None:
    corrupt, expected = PLANTS[name]
    corrupt(run)
    report = audit(run)
    assert expected <= found_by(report), [str(breach) for breach in report.breaches]


@pytest.mark.parametrize(
    "name",
    [name for name, (_, checks) in PLANTS.items() if "ledger" in checks and checks - {"ledger", "journal"}],
)
def test_it_is_found_without_the_ledger_too(run: Path, name: str) -> None:
    corrupt, expected = PLANTS[name]
    corrupt(run)
    (run / LEDGER).write_bytes(b"{}\n")
    report = audit(run)
    assert expected - {"ledger"} <= found_by(report)
    assert sum(report.tallies["ledger"].not_checked.values()) > 0


def test_a_token_that_is_too_old_is_found(run: Path) -> None:
    """Version 1 trained draw 3, of which version 0 sampled a part."""
    report = audit(run, max_staleness=0)
    texts = [str(breach) for breach in report.breaches]
    assert texts
    assert all(t.startswith("[ledger] step 2, trajectory 3/") and "versions 0..1" in t for t in texts)


def test_another_seed_of_the_environments_is_found(run: Path) -> None:
    config = make_config()
    other = config.model_copy(update={"run": config.run.model_copy(update={"seed": 6})})
    assert found_by(audit(run, settings=read_audit_settings(other))) == {"prompts"}


def test_fewer_members_are_allowed_where_late_ones_are_cut(run: Path) -> None:
    stored = Stored(run, 5)
    gone = stored.rows.pop()
    stored.cut(gone["turns"][0]["context"][0], gone["turns"][-1]["completion"][1])
    stored.save()
    assert found_by(audit(run)) == {"groups"}
    assert audit(run, cuts_late=True).breaches == []


def test_draws_of_one_task_index_have_one_task(run: Path) -> None:
    edit(run / JOURNAL, "opened", draw=5, task=4)
    [breach] = audit(run).breaches
    assert (breach.check, breach.draw) == ("groups", 5)
    assert "not that of draw 4, and both have task index 4" in breach.text


def test_a_changed_answer_of_a_tool_is_found_by_running_it_again(run: Path) -> None:
    """Record, observation and their tokens agree with each other, but with no computed result."""
    stored = Stored(run, 5)
    turn, after = stored.long["turns"][:2]
    turn["tool_records"][0]["observation"] = turn["observations"][0]["content"][0]["text"] = "7"
    stored.arrays["token_ids"][after["context"][0]] = ord("7")
    stored.save()
    assert audit(run).breaches == []
    [breach] = audit(run, replay_tools=True).breaches
    assert breach.check == "tools"
    assert "gives '2', on record is '7'" in str(breach)


def test_a_breach_says_where(run: Path) -> None:
    corrupt, _ = PLANTS["a_wrong_reward"]
    corrupt(run)
    [breach] = audit(run).tallies["rewards"].breaches
    assert str(breach) == "[rewards] step 2, trajectory 3/1: the stored reward is 0, scoring again gives 2"


def test_a_step_in_flight_is_left_alone(run: Path) -> None:
    """Journal, ledger and advantages of step 2 are there, its metrics are not yet; a group is being written."""
    rewrite(run / "metrics.jsonl", lambda rows: rows[:1])
    rewrite(run / LEDGER, lambda rows: [row for row in rows if row["draw"] != 4])
    (run / "steps" / "step_000002.npz").unlink()
    Stored(run, 5).npz.with_name(".000000006.npz.tmp").write_bytes(b"PK")
    report = audit(run)
    assert (report.breaches, report.steps) == ([], 1)
    reasons = report.tallies["ledger"].not_checked
    assert reasons.keys() == {
        "tokens of groups that wait to be trained",
        "tokens of groups after the last finished step",
    }


def test_steps_that_are_redone_are_left_alone(run: Path) -> None:
    """A resumed run has cut metrics, ledger and advantages back to its checkpoint, and takes the steps again."""
    from turnwise.store.run_folder import RunFolder

    RunFolder.open(run).truncate(after_step=0)
    report = audit(run)
    assert (report.breaches, report.steps) == ([], 0)
    assert report.tallies["logprobs"].checked > 0


@pytest.mark.parametrize(("rounding_explains", "breaches"), [(True, 0), (False, 1)])
def test_half_precision_may_be_as_coarse_as_the_model_makes_it(
    run: Path, rounding_explains: bool, breaches: int
) -> None:
    """Every score is 0.03 nats off the record, above 0.02; if it is 0.03 off float32 as well, 0.06 is allowed."""
    recorded = make_materials(make_config()).score

    def score(path: Path, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        return [logprobs - 0.03 for logprobs in recorded(path, samples)]

    config = load_config([TINY], ["rollout.group_size=2", "run.seed=5", "model.dtype=bfloat16"])
    settings = read_audit_settings(config)
    report = audit(run, settings=settings, score=score, score_exact=recorded if rounding_explains else score)
    assert len(report.breaches) == breaches, [str(breach) for breach in report.breaches]
    assert report.facts["logprob_bound_mean"] == pytest.approx(0.06 if rounding_explains else 0.02)


def test_what_was_not_checked_is_said(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step_000000")
    report = audit(run)
    assert report.breaches == []
    assert report.facts["logprob_share_checked"] < 1
    lines = audit_lines(report.to_json())
    assert any("tokens sampled by weights of which no checkpoint is kept" in line for line in lines)
    assert any(line.startswith("not checked (tools)") for line in lines)
    assert lines[-1] == "no breach found"
    assert audit_table(report.to_json()).row_count == len(report.tallies)


def test_without_a_renderer_prompts_are_not_checked(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    report = audit(run, renderer=None)
    assert report.breaches == []
    assert report.tallies["prompts"].not_checked.keys() == {"turns of a run without a checkpoint"}
    assert report.tallies["logprobs"].checked == 0


def test_a_run_of_another_format_is_refused(run: Path) -> None:
    (run / "format.json").unlink()
    with pytest.raises(StoreError, match="format 1"):
        audit(run)


def test_the_weights_of_the_run_are_numbers(sound: Path) -> None:
    """The other tests rely on this."""
    assert [read_weights(path) for path in sorted((sound / "checkpoints").iterdir())] == [0, 1, 2]
    assert double(2) == 4
