"""The audit of a run: a sound one passes, and every planted corruption is found by name, with the ledger and without
it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.batching.samples import to_samples
from turnwise.cli.main import app
from turnwise.config.load import dump_resolved, load_config
from turnwise.config.run import RunConfig
from turnwise.core.metrics import record
from turnwise.core.types import to_floats
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.reporting.audit_table import audit_lines
from turnwise.runs.accounting import open_account
from turnwise.runs.build import build_system
from turnwise.runs.methods import build_credit_method
from turnwise.runs.sampling import compute_rollout_metrics, sample_groups
from turnwise.runs.sft import run_warmup
from turnwise.store.checkpoint_folder import checkpoint_writer
from turnwise.store.ledger import LEDGER, append_ledger, load_ledgers
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_group_batch
from turnwise.training.optimizer import build_optimizer
from turnwise.training.state import Counters, save_training_state

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=150",
    "tokenizer.vocab_size=450",
    "rollout.tasks_per_step=3",
    "rollout.group_size=3",
    "environment.args.kinds={unanswerable=0.7, 1hop=0.3}",
    "sft.steps=40",
    "sft.batch_size=16",
    "sft.num_demonstrations=160",
    "train.steps=2",
    "train.num_threads=1",
    "evaluate.tasks=0",
    "engine.max_concurrency=16",
]


def make_run(path: Path, config: RunConfig) -> Path:
    """Two steps as a run takes them, with random changes of the weights for learning: what is audited is the record."""
    torch.set_num_threads(1)
    folder = RunFolder.create(path)
    folder.write_json("config.json", dump_resolved(config))
    system = build_system(config)
    run_warmup(system, lambda step, metrics: None)
    optimizer = build_optimizer(system.model, lr=0.0, betas=(0.9, 0.99), weight_decay=0.0)

    def checkpoint(step: int) -> None:
        with checkpoint_writer(path, step) as temporary:
            counters = Counters(step=step, optimizer_steps=step, version=step)
            save_training_state(temporary, system.model, system.tokenizer, optimizer, counters)

    checkpoint(0)
    for step in (1, 2):
        sampled = sample_groups(system, step=step, first_task=100 * step, with_greedy=False)
        advantages = {
            key: [to_floats(turn) for turn in turns]
            for key, turns in compute_advantages(
                build_credit_method(config), sampled.kept, to_credit_trajectories(sampled.kept)
            ).items()
        }
        attempts = {(t.group_id, t.member): t for group in sampled.kept for t in group.trajectories}
        samples = [sample for key, credit in advantages.items() for sample in to_samples(attempts[key], credit)]
        open_account(path, config, step=step, version=step - 1, groups=sampled.groups, kept=sampled.kept)([samples], [])
        with torch.no_grad():
            for parameter in system.model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step)) * 0.02)
        system.engine.adopt(step)
        save_group_batch(
            path / "trajectories",
            f"step_{step:06d}",
            sampled.groups,
            advantages=advantages,
            decode=system.tokenizer.decode,
        )
        folder.append_metrics(step, "train", record(compute_rollout_metrics(sampled)))
        checkpoint(step)
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit") / "run"
    return make_run(path, load_config([TINY], [*SMALL, f"run.output={path.parent}"]))


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


class Stored:
    """The stored batch of one step, to be changed in place and written back as an honest writer would."""

    def __init__(self, run: Path, step: int = 2) -> None:
        self.path = run / "trajectories" / f"step_{step:06d}"
        self.rows: list[dict[str, Any]] = [
            json.loads(line) for line in self.path.with_suffix(".jsonl").read_text().splitlines()
        ]
        with np.load(self.path.with_suffix(".npz")) as data:
            self.arrays = {name: data[name] for name in data.files}

    def save(self) -> None:
        self.path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        np.savez(self.path.with_suffix(".npz"), **self.arrays)

    def row(self, num_turns: int = 1) -> dict[str, Any]:
        """The first trajectory with so many turns or more."""
        return next(row for row in self.rows if len(row["turns"]) >= num_turns)

    def cut(self, start: int, end: int) -> None:
        """Remove tokens `[start, end)` and move every later span."""
        self.arrays = {name: np.concatenate([array[:start], array[end:]]) for name, array in self.arrays.items()}
        for row in self.rows:
            for turn in row["turns"]:
                for kind in ("context", "completion"):
                    turn[kind] = [at - (end - start) if at >= end else at for at in turn[kind]]


Plant = Callable[[Path, Stored], None]
PLANTS: dict[str, tuple[Plant, set[str]]] = {}


def plant(*checks: str) -> Callable[[Plant], Plant]:
    """Register a corruption and the checks that must find it."""

    def register(function: Plant) -> Plant:
        PLANTS[function.__name__] = (function, set(checks))
        return function

    return register


@plant("ledger", "logprobs", "prompts")
def a_flipped_sampled_token(run: Path, stored: Stored) -> None:
    at = stored.row()["turns"][0]["completion"][0]
    stored.arrays["token_ids"][at] = (stored.arrays["token_ids"][at] + 7) % 400


@plant("ledger", "prompts")
def a_flipped_prompt_token(run: Path, stored: Stored) -> None:
    stored.arrays["token_ids"][stored.row()["turns"][0]["context"][0] + 1] ^= 3


@plant("masks")
def a_shifted_mask(run: Path, stored: Stored) -> None:
    start, end = stored.row()["turns"][0]["completion"]
    mask = stored.arrays["loss_mask"]
    mask[start - 1 : end] = np.roll(mask[start - 1 : end], -1)


@plant("masks")
def an_advantage_on_context(run: Path, stored: Stored) -> None:
    stored.arrays["advantages"][stored.row()["turns"][0]["context"][0]] = 0.5


@plant("ledger", "logprobs")
def swapped_logprobs(run: Path, stored: Stored) -> None:
    start, end = next(
        t["completion"] for row in stored.rows for t in row["turns"] if t["completion"][1] - t["completion"][0] > 2
    )
    logprobs = stored.arrays["logprobs"]
    low, high = start + int(logprobs[start:end].argmin()), start + int(logprobs[start:end].argmax())
    logprobs[[low, high]] = logprobs[[high, low]]


@plant("turns")
def a_positive_logprob(run: Path, stored: Stored) -> None:
    stored.arrays["logprobs"][stored.row()["turns"][0]["completion"][0]] = 0.25


@plant("ledger", "logprobs")
def a_stale_version(run: Path, stored: Stored) -> None:
    for turn in stored.row()["turns"]:
        turn["version_first"] = turn["version_last"] = 0
        stored.arrays["versions"][slice(*turn["completion"])] = 0


@plant("ledger", "turns", "logprobs")
def a_stale_version_of_one_token(run: Path, stored: Stored) -> None:
    spans = (turn["completion"] for row in stored.rows for turn in row["turns"])
    stored.arrays["versions"][next(start + 1 for start, end in spans if end - start > 2)] = 0


@plant("masks")
def a_version_on_context(run: Path, stored: Stored) -> None:
    stored.arrays["versions"][stored.row()["turns"][0]["context"][0]] = 1


@plant("groups")
def a_duplicated_trajectory(run: Path, stored: Stored) -> None:
    last = stored.rows[-1]
    start, end = last["turns"][0]["context"][0], last["turns"][-1]["completion"][1]
    stored.arrays = {name: np.concatenate([array, array[start:end]]) for name, array in stored.arrays.items()}
    turns = [
        turn | {kind: [at + end - start for at in turn[kind]] for kind in ("context", "completion")}
        for turn in last["turns"]
    ]
    stored.rows.append(last | {"turns": turns})


@plant("ledger", "advantages")
def a_wrong_advantage(run: Path, stored: Stored) -> None:
    start, end = stored.row()["turns"][0]["completion"]
    stored.arrays["advantages"][start:end] += 0.25


@plant("rewards", "advantages")
def a_wrong_reward(run: Path, stored: Stored) -> None:
    scored = stored.row()["reward"]["scored"]
    scored["total"] = 1.0 - scored["total"]


@plant("rewards")
def a_wrong_part_of_a_reward(run: Path, stored: Stored) -> None:
    stored.row()["reward"]["scored"]["parts"][0]["value"] += 0.5


@plant("ledger", "advantages")
def a_trained_trajectory_declared_invalid(run: Path, stored: Stored) -> None:
    stored.row()["reward"] = {"invalid": {"reason": "hung", "retryable": False}}


@plant("ledger", "turns")
def a_missing_turn(run: Path, stored: Stored) -> None:
    row = stored.row(2)
    gone = row["turns"].pop()
    row["has_credit"].pop()
    row["stop"] = "done"
    stored.cut(gone["context"][0], gone["completion"][1])


@plant("files")
def a_missing_trajectory(run: Path, stored: Stored) -> None:
    del stored.rows[-1]


@plant("prompts", "turns")
def an_extended_observation(run: Path, stored: Stored) -> None:
    stored.row(2)["turns"][0]["observations"][0]["content"][0]["text"] = "the author of everything is nobody ."


@plant("turns")
def a_changed_tool_record(run: Path, stored: Stored) -> None:
    record_of(stored)["observation"] += " and more"


@plant("turns")
def a_parent_that_comes_later(run: Path, stored: Stored) -> None:
    stored.row(2)["turns"][0]["parent"] = 1


@plant("ledger")
def swapped_members(run: Path, stored: Stored) -> None:
    """Two members exchange everything but their numbers: only what was reconciled before training can tell."""
    first, second = stored.rows[:2]
    first["member"], second["member"] = second["member"], first["member"]
    stored.rows[:2] = [second, first]
    size = first["turns"][-1]["completion"][1]
    end = second["turns"][-1]["completion"][1]
    order = np.concatenate([np.arange(size, end), np.arange(size), np.arange(end, len(stored.arrays["token_ids"]))])
    stored.arrays = {name: array[order] for name, array in stored.arrays.items()}
    for row, shift in ((second, -size), (first, end - size)):
        for turn in row["turns"]:
            turn["context"], turn["completion"] = (
                [at + shift for at in turn[kind]] for kind in ("context", "completion")
            )


@plant("groups", "prompts")
def members_of_two_tasks_in_one_group(run: Path, stored: Stored) -> None:
    stored.rows[0]["task"], stored.rows[3]["task"] = stored.rows[3]["task"], stored.rows[0]["task"]


@plant("rewards")
def changed_gold_answers(run: Path, stored: Stored) -> None:
    success = next(row for row in stored.rows if row["reward"]["scored"]["total"] > 0)
    for row in stored.rows:
        if row["group"] == success["group"]:
            row["task"]["payload"]["answers"] = ["something else"]


@plant("files")
def a_truncated_array_file(run: Path, stored: Stored) -> None:
    stored.save()
    data = stored.path.with_suffix(".npz").read_bytes()
    stored.save = lambda: stored.path.with_suffix(".npz").write_bytes(data[:-40])  # type: ignore[method-assign, assignment]


@plant("files")
def a_row_cut_in_the_middle(run: Path, stored: Stored) -> None:
    text = stored.path.with_suffix(".jsonl").read_text()
    stored.save = lambda: stored.path.with_suffix(".jsonl").write_text(text[: len(text) // 2])  # type: ignore[method-assign, assignment]


@plant("files")
def a_missing_step(run: Path, stored: Stored) -> None:
    stored.save = lambda: stored.path.with_suffix(".npz").unlink()  # type: ignore[method-assign]


@plant("files")
def a_gap_in_the_metrics(run: Path, stored: Stored) -> None:
    rewrite(run / "metrics.jsonl", lambda rows: rows[1:])


@plant("ledger")
def wrong_published_totals(run: Path, stored: Stored) -> None:
    rewrite(run / "metrics.jsonl", lambda rows: [row | {"rollout/sampled_tokens": 1} for row in rows])


@plant("ledger")
def a_step_without_an_account(run: Path, stored: Stored) -> None:
    rewrite(run / LEDGER, lambda rows: rows[:1])


@plant("ledger")
def an_account_that_does_not_add_up(run: Path, stored: Stored) -> None:
    rewrite(run / LEDGER, lambda rows: [row | {"trained": row["trained"] - 1} for row in rows])


@plant("ledger")
def an_account_for_one_trajectory_too_few(run: Path, stored: Stored) -> None:
    ledgers = list(load_ledgers(run).values())
    (run / LEDGER).unlink()
    for ledger in ledgers:
        append_ledger(run, replace(ledger, entries=ledger.entries[1:]))


@plant("checkpoints")
def a_damaged_checkpoint(run: Path, stored: Stored) -> None:
    weights = run / "checkpoints" / "step_000001" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


@plant("logprobs")
def weights_of_another_version(run: Path, stored: Stored) -> None:
    """The engine kept sampling with the weights of version 0 and wrote version 1: here, the checkpoint of 1 holds
    others."""
    with checkpoint_writer(run, 1) as temporary:
        shutil.copytree(run / "checkpoints" / "step_000001", temporary, dirs_exist_ok=True)
        shutil.copy(run / "checkpoints" / "step_000000" / "model.safetensors", temporary)
        (temporary / "manifest.json").unlink()


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    rows = change([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def record_of(stored: Stored) -> dict[str, Any]:
    record: dict[str, Any] = next(
        turn["tool_records"][0] for row in stored.rows for turn in row["turns"] if turn["tool_records"]
    )
    return record


def found_by(report: AuditReport) -> set[str]:
    return {breach.check for breach in report.breaches}


def test_a_sound_run_passes_every_check(sound: Path) -> None:
    report = run_audit(sound, replay_tools=True)
    assert report.breaches == []
    checked = {name: tally.checked for name, tally in report.tallies.items()}
    ledgers = load_ledgers(sound)
    sampled = sum(ledger.sampled for ledger in ledgers.values())
    assert checked["ledger"] == checked["logprobs"] == sampled > 0, (
        "every version has a checkpoint, so every token is scored again"
    )
    # 2 steps of 3 groups of 3.
    assert (checked["files"], checked["groups"], checked["turns"], checked["checkpoints"]) == (2, 6, 18, 3)
    assert checked["rewards"] == checked["advantages"] == 18
    assert checked["prompts"] >= 18
    assert checked["tools"] > 0
    assert report.facts["logprob_share_checked"] == 1.0
    assert report.facts["logprob_gap_max"] <= report.facts["logprob_bound_max"]


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_corruption_is_found(run: Path, name: str) -> None:
    corrupt, expected = PLANTS[name]
    stored = Stored(run)
    corrupt(run, stored)
    stored.save()
    report = run_audit(run)
    assert expected <= found_by(report), [str(breach) for breach in report.breaches]


@pytest.mark.parametrize(
    "name", [name for name, (_, checks) in PLANTS.items() if "ledger" in checks and len(checks) > 1]
)
def test_it_is_found_without_the_ledger_too(run: Path, name: str) -> None:
    """Runs from before there was a ledger are proven by recomputation alone."""
    corrupt, expected = PLANTS[name]
    (run / LEDGER).unlink()
    stored = Stored(run)
    corrupt(run, stored)
    stored.save()
    report = run_audit(run)
    assert expected - {"ledger"} <= found_by(report)
    assert "ledger" not in found_by(report)
    assert sum(report.tallies["ledger"].not_checked.values()) > 0


def test_a_changed_answer_of_a_tool_is_found_by_running_it_again(run: Path) -> None:
    """Record, observation and their tokens agree with each other and with nothing that was ever searched."""
    stored = Stored(run)
    turn = next(turn for row in stored.rows for turn in row["turns"] if turn["tool_records"])
    turn["tool_records"][0]["observation"] = turn["observations"][0]["content"][0]["text"] = "no passages found\n\n"
    stored.save()
    assert "tools" not in found_by(run_audit(run))
    report = run_audit(run, replay_tools=True)
    assert "tools" in found_by(report)
    assert "on record is 'no passages found" in str(report.tallies["tools"].breaches[0])


def test_a_breach_says_where(run: Path) -> None:
    stored = Stored(run)
    a_wrong_reward(run, stored)
    stored.save()
    row = stored.row()
    [breach] = run_audit(run).tallies["rewards"].breaches
    assert str(breach).startswith(
        f"[rewards] step 2, trajectory {row['group_id']}/{row['member']}: the stored reward is "
    )


def test_a_step_in_flight_is_left_alone(run: Path) -> None:
    """Ledger and trajectories of step 2 are there, its metrics are not yet; the file of step 2 is half written."""
    rewrite(run / "metrics.jsonl", lambda rows: rows[:1])
    (run / "trajectories" / "step_000002.npz").write_bytes(b"")
    report = run_audit(run)
    assert (report.breaches, report.steps) == ([], 1)


def test_what_was_not_checked_is_said(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step_000000")
    report = run_audit(run)
    assert report.breaches == []
    ledgers = load_ledgers(run)
    share = ledgers[2].sampled / (ledgers[1].sampled + ledgers[2].sampled)
    assert report.facts["logprob_share_checked"] == pytest.approx(share)
    lines = audit_lines(report.to_json())
    assert (
        f"not checked (logprobs): {ledgers[1].sampled} tokens sampled by weights of which no checkpoint is kept"
        in lines
    )
    assert any(line.startswith("not checked (tools)") for line in lines)
    assert lines[-1] == "no breach found"


def test_the_command_prints_and_exits_by_the_verdict(run: Path) -> None:
    result = CliRunner().invoke(app, ["audit", str(run), "--json"])
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True)
    stored = Stored(run)
    a_shifted_mask(run, stored)
    stored.save()
    result = CliRunner().invoke(app, ["audit", str(run)])
    assert result.exit_code == 1
    assert "[masks] step 2, trajectory step2/task0/0: loss mask at stored token" in result.stdout
