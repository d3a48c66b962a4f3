"""One rank, in this process: FSDP2 on everything changes no bit of what is trained, scored and stored."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks_world import VOCAB, Case, build_sharded, make_batch, make_samples, train

from turnwise.core.batch import TrainingBatch
from turnwise.core.errors import TrainingError
from turnwise.core.types import to_floats
from turnwise.models import head
from turnwise.models.checksums import compute_checksums
from turnwise.models.rows import own_rows
from turnwise.training.ranks.communication import join_group

CASES = {
    "grpo": Case(),
    "grpo, end to end, reference": Case(shared_prefix=False, kl=0.1),
    "gspo": Case(loss="gspo", aggregation="sequence_mean"),
    "kl_cov": Case(loss="kl_cov", batch_rule=True),
    "ppo, head": Case(critic="head"),
    "ppo, separate": Case(critic="separate", num_updates=2),
    "recomputed": Case(critic="separate", recomputes=True),
    "implicit": Case(has_implicit=True),
    "teacher": Case(has_teacher=True),
    "supervised": Case(objective="supervised"),
    "preference": Case(objective="preference"),
    "hybrid": Case(is_hybrid=True, critic="head", kl=0.1),
    "hybrid, separate, recomputed": Case(is_hybrid=True, critic="separate", recomputes=True),
    "mixture": Case(is_mixture=True, critic="head", kl=0.1),
    "adapter": Case(is_adapted=True, critic="separate", kl=0.1),
    "bfloat16": Case(dtype="bfloat16", kl=0.1),
    "bfloat16, head": Case(dtype="bfloat16", critic="head"),
    "bfloat16, separate": Case(dtype="bfloat16", critic="separate", num_updates=2),
    "bfloat16, implicit": Case(dtype="bfloat16", has_implicit=True),
    "bfloat16, supervised": Case(dtype="bfloat16", objective="supervised"),
    "bfloat16, preference": Case(dtype="bfloat16", objective="preference"),
    "bfloat16, mixture": Case(dtype="bfloat16", is_mixture=True, critic="head", kl=0.1),
    "bfloat16, adapter": Case(dtype="bfloat16", is_adapted=True, critic="separate", kl=0.1),
    "float16": Case(dtype="float16"),
    "float16, separate": Case(dtype="float16", critic="separate", num_updates=2),
    "float16, adapter": Case(dtype="float16", is_adapted=True, critic="separate"),
}
FAST = ("grpo", "hybrid", "gspo", "ppo, head", "ppo, separate", "mixture", "bfloat16", "bfloat16, separate", "float16")


@pytest.fixture(autouse=True, scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    store = dist.FileStore(str(tmp_path_factory.mktemp("ranks") / "meeting"), 1)  # type: ignore[attr-defined]
    join_group(store, 0, 1, deadline_s=10.0, device=torch.device("cpu"))
    yield
    dist.destroy_process_group()
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name not in FAST else ()) for name in CASES]
)
def test_one_rank_is_bit_equal_to_one_process(name: str) -> None:
    case = CASES[name]
    if case.is_adapted:
        pytest.importorskip("peft")
    alone, (sharded, placement) = case.build_local(), build_sharded(case)
    for step in (1, 2, 3):
        mine, theirs = train(alone, case, step), train(sharded, case, step)
        assert mine.sums == theirs.sums
        # Rows of ranks are float32: what of a change a short format keeps is not known there.
        assert "train/served_share" not in theirs.metrics
        for metric, value in mine.metrics.items():
            if "second" not in metric and "per_s" not in metric and metric != "train/served_share":
                assert theirs.metrics[metric].value == value.value, metric
        placement.publish(sharded.model)
        assert compute_checksums(placement.source) == dict(mine.sums)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_warm_up_is_bit_equal_too(dtype: str) -> None:
    case = Case(dtype=dtype)
    alone, (sharded, _) = case.build_local(), build_sharded(case)
    whole = (tuple(range(9)),)
    batch = TrainingBatch(step=1, objective="warmup", samples=tuple(make_samples(1)), updates=whole)
    for _ in range(2):
        mine, theirs = alone.step(batch), sharded.step(batch)
        assert mine.sums == theirs.sums
        assert mine.metrics["sft/loss"] == theirs.metrics["sft/loss"]
    assert train(alone, case, 2).sums == train(sharded, case, 2).sums


@pytest.mark.parametrize(
    "name", ["ppo, head", "bfloat16", *(pytest.param(n, marks=pytest.mark.slow) for n in ("implicit", "adapter"))]
)
def test_logits_in_chunks_are_bit_equal_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    if case.is_adapted:
        pytest.importorskip("peft")
    monkeypatch.setattr(head, "CHUNK_NUMBERS", 8 * VOCAB)
    alone, (sharded, _) = case.build_local(), build_sharded(case)
    for step in (1, 2, 3):
        assert train(alone, case, step).sums == train(sharded, case, step).sums


def test_a_rank_that_drifted_from_what_engines_sample_with_is_found() -> None:
    sharded, placement = build_sharded(Case())
    assert placement.find_drift(sharded.model) is None
    train(sharded, Case(), 1)
    assert placement.find_drift(sharded.model) == "model.embed_tokens.weight"
    placement.publish(sharded.model)
    assert placement.find_drift(sharded.model) is None


@pytest.mark.parametrize(
    "name",
    [
        "ppo, separate",
        "bfloat16, separate",
        "float16",
        pytest.param("bfloat16, adapter", marks=pytest.mark.slow),
        pytest.param("bfloat16, implicit", marks=pytest.mark.slow),
        pytest.param("adapter", marks=pytest.mark.slow),
        pytest.param("implicit", marks=pytest.mark.slow),
    ],
)
def test_checkpoints_of_ranks_and_of_one_process_are_read_by_either(name: str, tmp_path: Path) -> None:
    case = replace(CASES[name], kl=0.0)  # a reference starts where it is loaded
    if case.is_adapted:
        pytest.importorskip("peft")
    # The base of an adapter is not stored.
    (first, _), alone = build_sharded(case), case.build_local(seed=0 if case.is_adapted else 3)
    train(first, case, 1)
    by_ranks, by_one = tmp_path / "by_ranks", tmp_path / "by_one"
    by_ranks.mkdir()
    by_one.mkdir()
    first.save(by_ranks, {"step": 0, "tasks": 4})
    assert alone.load(by_ranks) == {"step": 0, "tasks": 4, "optimizer_steps": case.num_updates}
    alone.save(by_one, {"step": 0})
    second, _ = build_sharded(case, seed=0 if case.is_adapted else 4)
    second.load(by_one)
    reports = [train(trainer, case, 2) for trainer in (first, alone, second)]
    assert reports[0].sums == reports[1].sums == reports[2].sums


def test_bfloat16_keeps_weights_and_moments_in_float32_and_publishes_bfloat16() -> None:
    case = Case(dtype="bfloat16", critic="separate", kl=0.1)
    sharded, placement = build_sharded(case)
    assert {p.dtype for p in sharded.model.parameters()} == {torch.float32}
    wide = Case(critic="separate", kl=0.1)
    exact = wide.build_local()
    with torch.no_grad():
        for mine, theirs in zip(exact.model.parameters(), case.build_policy().parameters(), strict=True):
            mine.copy_(theirs)
    for step in (1, 2, 3):
        report = train(sharded, case, step)
        train(exact, wide, step)
        placement.publish(sharded.model)
        assert compute_checksums(placement.source) == dict(report.sums)
    assert {p.dtype for p in placement.source.parameters()} == {torch.bfloat16}
    # Three steps of AdamW at up to 1e-2; a bfloat16 forward pass turns the sign of few of them.
    gaps = [
        (own_rows(mine.detach()) - theirs.detach()).abs().mean()
        for mine, theirs in zip(sharded.model.parameters(), exact.model.parameters(), strict=True)
    ]
    assert max(map(float, gaps)) < 5e-3
    moments = {m.dtype for state in sharded._policy.optimizer.state.values() for m in state.values()}
    assert moments == {torch.float32}


def test_a_loss_that_is_not_finite_changes_nothing_and_training_goes_on() -> None:
    case = Case()
    alone, (sharded, placement) = case.build_local(), build_sharded(case)
    samples = make_samples(1)
    broken = replace(samples[4], advantages=to_floats(np.full(len(samples[4].advantages), np.inf)))
    batch = make_batch(sharded, case, 1, [*samples[:4], broken, *samples[5:]])
    with pytest.raises(TrainingError, match="1/1"):
        sharded.step(batch)
    assert placement.find_drift(sharded.model) is None
    assert train(sharded, case, 2).sums == train(alone, case, 2).sums
