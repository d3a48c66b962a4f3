"""Several ranks in processes of their own: the numbers of one process, and one clear error when a rank is lost."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks_world import Case, compare_on_ranks, find_gap, make_batch, make_samples, train
from safetensors.torch import load_file

from turnwise.core.batch import StepReport, TrainingBatch
from turnwise.core.errors import CheckpointError, TrainingError
from turnwise.core.types import to_floats
from turnwise.models.checksums import compute_checksums
from turnwise.training.forward import score_logprobs
from turnwise.training.local import LocalTrainer
from turnwise.training.ranks.trainer import RankedTrainer

FIRST_LOSS, EIGHT_STEPS = 2e-6, 1e-4
PAIR = Case(critic="separate", kl=0.1)


@dataclass(frozen=True, kw_only=True)
class Both:
    """The same trainer in this process and on two ranks, and what both said of held-out conversations at first."""

    alone: LocalTrainer
    ranked: RankedTrainer
    heldout: list[StepReport]
    start: Path
    """A checkpoint before the first step."""


@pytest.fixture(scope="module")
def started() -> Iterator[list[Both]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pairs: list[Both] = []
    yield pairs
    for pair in pairs:
        pair.ranked.close()
    torch.set_num_threads(before)


@pytest.fixture
def both(started: list[Both], tmp_path_factory: pytest.TempPathFactory) -> Both:
    """As before the first step; other ranks only if the last test ended one, because a start is dear."""
    if not started or not all(map(is_alive, started[-1].ranked.group.pids)):
        started.append(start_both(tmp_path_factory.mktemp("start")))
    pair = started[-1]
    for trainer in (pair.alone, pair.ranked):
        trainer.load(pair.start)
    return pair


def start_both(folder: Path) -> Both:
    alone, ranked = PAIR.build_local(), PAIR.build_ranked(2)
    heldout = TrainingBatch(step=0, objective="warmup", samples=tuple(make_samples(1)))
    reports = [trainer.step(heldout) for trainer in (alone, ranked)]  # what belongs to the warm-up comes first
    return Both(alone=alone, ranked=ranked, heldout=reports, start=save(alone, folder))


def check_equal(alone: LocalTrainer, ranked: RankedTrainer, case: Case, step: int, bound: float) -> None:
    mine, theirs = train(alone, case, step), train(ranked, case, step)
    assert dict(theirs.sums) == compute_checksums(ranked.model)
    for name in ("train/loss", "train/value_loss", "train/entropy", "train/kl_reference"):
        if name in mine.metrics:
            assert theirs.metrics[name].value == pytest.approx(mine.metrics[name].value, abs=bound), name
    assert theirs.metrics.keys() == mine.metrics.keys()


def test_the_loss_on_held_out_conversations_is_that_of_all_ranks_rows_and_changes_nothing(both: Both) -> None:
    samples, policy = make_samples(1), PAIR.build_policy()  # nine of different lengths: the ranks' shares differ
    assert [dict(report.sums) for report in both.heldout] == [compute_checksums(policy)] * 2
    assert [set(report.metrics) for report in both.heldout] == [{"sft/heldout_loss"}] * 2
    one_by_one = [score_logprobs(policy, [sample], 1.0, micro_batch_tokens=1000)[0] for sample in samples]
    loss = -np.concatenate(one_by_one).mean()  # per token of all, not the mean of two ranks' means
    for report in both.heldout:
        assert report.metrics["sft/heldout_loss"].value == pytest.approx(loss, abs=FIRST_LOSS)


def test_two_ranks_train_as_one_process_does(both: Both) -> None:
    check_equal(both.alone, both.ranked, PAIR, 1, FIRST_LOSS)
    check_equal(both.alone, both.ranked, PAIR, 2, EIGHT_STEPS)
    assert find_gap(both.alone.model, both.ranked.model) < EIGHT_STEPS


def find_listening(pids: list[int]) -> set[str]:
    """Address, as the kernel writes it, of every TCP socket on which these processes listen."""
    held = {os.readlink(link) for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listen = "0A"
    return {row[1].split(":")[0] for row in rows if row[3] == listen and f"socket:[{row[9]}]" in held}


def test_other_machines_reach_no_rank(both: Both) -> None:
    loopback = "0100007F"
    assert find_listening(both.ranked.group.pids) == {loopback}


def test_a_loss_that_is_not_finite_on_one_rank_takes_the_step_back_on_all(both: Both) -> None:
    before = compute_checksums(both.ranked.model)
    samples = make_samples(3)
    samples[7] = replace(samples[7], advantages=to_floats(np.full(len(samples[7].advantages), np.inf)))
    batch = make_batch(both.ranked, PAIR, 3, samples)
    with pytest.raises(TrainingError, match=r"micro-batch that starts with .*2/1"):
        both.ranked.step(batch)
    assert compute_checksums(both.ranked.model) == before
    check_equal(both.alone, both.ranked, PAIR, 3, EIGHT_STEPS)


def test_a_rank_with_other_weights_is_named_and_trains_nothing(both: Both) -> None:
    weight, published = both.ranked.model.get_input_embeddings().weight, compute_checksums(both.ranked.model)
    before = weight[-1, 0].item()
    with torch.no_grad():
        weight[-1, 0] += 1  # what the second rank holds is now another row than the published one
    with pytest.raises(TrainingError, match=r"rank 1 of 2 \(process \d+\) holds another model.embed_tokens.weight"):
        train(both.ranked, PAIR, 4)
    with torch.no_grad():
        weight[-1, 0] = before
    assert compute_checksums(both.ranked.model) == published
    for trainer in (both.alone, both.ranked):
        assert train(trainer, PAIR, 4).sums != published


def test_a_checkpoint_of_two_ranks_goes_on_in_one_process_and_back(both: Both, tmp_path: Path) -> None:
    by_ranks, by_one = tmp_path / "by_ranks", tmp_path / "by_one"
    by_ranks.mkdir()
    by_one.mkdir()
    train(both.alone, PAIR, 1)
    both.ranked.load(save(both.alone, by_one))
    assert compute_checksums(both.ranked.model) == compute_checksums(both.alone.model)
    other = PAIR.build_local(seed=5)
    assert other.load(save(both.ranked, by_ranks))["optimizer_steps"] == both.alone.optimizer_steps
    assert compute_checksums(other.model) == compute_checksums(both.alone.model)
    exported = load_file(by_ranks / "model.safetensors")
    assert all(torch.equal(exported[name], p) for name, p in both.alone.model.named_parameters())
    check_equal(other, both.ranked, PAIR, 5, EIGHT_STEPS)


def save(trainer: LocalTrainer | RankedTrainer, folder: Path) -> Path:
    trainer.save(folder, {"step": 0})
    return folder


def test_a_broken_shard_is_refused_by_all_ranks_and_they_go_on(both: Both, tmp_path: Path) -> None:
    save(both.ranked, tmp_path)
    before = compute_checksums(both.ranked.model)
    shard = sorted((tmp_path / "ranks").glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="cannot read"):
        both.ranked.load(tmp_path)
    assert compute_checksums(both.ranked.model) == before


def test_a_rank_that_is_killed_in_a_step_ends_the_group_with_one_message(both: Both) -> None:
    pids = both.ranked.group.pids
    before = compute_checksums(both.ranked.model)
    os.kill(pids[1], signal.SIGSTOP)  # so that it is in the middle of the step, whatever the load
    threading.Timer(1.0, os.kill, (pids[1], signal.SIGKILL)).start()
    with pytest.raises(TrainingError, match=r"rank 1 of 2 \(process \d+\) was ended by signal 9 .*with --resume"):
        train(both.ranked, PAIR, 6)
    assert compute_checksums(both.ranked.model) == before
    wait_for(lambda: not any(map(is_alive, pids)))
    with pytest.raises(TrainingError, match="was ended by signal 9"):
        train(both.ranked, PAIR, 7)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_silent_rank_is_named_after_the_deadline() -> None:
    ranked = Case().build_ranked(2, deadline_s=5.0)
    train(ranked, Case(), 1)
    pid = ranked.group.pids[1]
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(TrainingError, match=rf"rank 1 of 2 \(process {pid}\)"):
        train(ranked, Case(), 2)
    assert time.monotonic() - began < 20
    wait_for(lambda: not is_alive(pid))


@pytest.mark.slow
def test_a_trainer_that_cannot_be_built_says_why() -> None:
    ranked = RankedTrainer(Case().build_policy(), None, f"{__name__}:refuse_to_build", {}, num_ranks=2)
    with pytest.raises(TrainingError, match=r"rank \d of 2: ZeroDivisionError"):
        train(ranked, Case(), 1)


def refuse_to_build(recipe: object, model: object, placement: object) -> LocalTrainer:
    raise ZeroDivisionError


@pytest.mark.slow
def test_a_step_that_was_remembered_is_put_back() -> None:
    ranked = PAIR.build_ranked(2)
    train(ranked, PAIR, 1)
    undo, before = ranked.remember(), compute_checksums(ranked.model)
    after = train(ranked, PAIR, 2).sums
    undo()
    assert compute_checksums(ranked.model) == before
    assert train(ranked, PAIR, 2).sums == after
    ranked.close()


EQUAL_CASES = {
    "GRPO": Case(num_updates=2),
    "GRPO, end to end": Case(num_updates=2, shared_prefix=False),
    "GSPO, reference": Case(loss="gspo", aggregation="sequence_mean", kl=0.1),
    "GSPO, reference, end to end": Case(loss="gspo", aggregation="sequence_mean", kl=0.1, shared_prefix=False),
    "PPO, separate critic": Case(critic="separate"),
    "PPO, separate critic, end to end": Case(critic="separate", shared_prefix=False),
}
OTHER_CASES = {
    "PPO, critic on the policy": Case(critic="head"),
    "PRIME": Case(has_implicit=True),
    "teacher, kl_cov": Case(has_teacher=True, loss="kl_cov", batch_rule=True),
    "supervised": Case(objective="supervised"),
    "DPO": Case(objective="preference"),
    "a hybrid, reference": Case(is_hybrid=True, critic="separate", kl=0.1),
    "a mixture of experts": Case(is_mixture=True, critic="separate", kl=0.1, recomputes=True),
    "PPO, reference, rows offloaded": Case(critic="separate", kl=0.1, offloads=True),
    "LoRA, PPO, reference": Case(is_adapted=True, critic="separate", kl=0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_eight_steps_on_ranks_are_those_of_one_process(num_ranks: int, tmp_path: Path) -> None:
    check_gaps(num_ranks, compare_on_ranks(num_ranks, EQUAL_CASES, tmp_path, steps=8))


@pytest.mark.slow
def test_ranks_repeat_the_experts_of_a_mixture() -> None:
    """As a run builds them: from the description of a model."""
    case = OTHER_CASES["a mixture of experts"]
    ranked = case.build_ranked(2)
    check_equal(case.build_local(), ranked, case, 1, FIRST_LOSS)
    ranked.close()


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_every_model_and_objective_is_shared_by_ranks(num_ranks: int, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    check_gaps(num_ranks, compare_on_ranks(num_ranks, OTHER_CASES, tmp_path, steps=3))


def check_gaps(num_ranks: int, gaps: dict[str, list[float]]) -> None:
    for name, (first, later, weights) in gaps.items():
        print(f"| {num_ranks} | {name} | {first:.1e} | {later:.1e} | {weights:.1e} |")
    assert {name: gap for name, gap in gaps.items() if gap[0] > FIRST_LOSS or gap[1] > EIGHT_STEPS} == {}
