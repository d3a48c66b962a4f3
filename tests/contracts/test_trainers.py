"""What every trainer must do: scores change nothing, a step changes all models or none, checkpoints restore every bit.

Each case of `CASES` is one trainer in this process, each of `RANKED` one of two ranks."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks_world
import torch

from turnwise.algorithms.losses.table import build_loss
from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss
from turnwise.batching.collate import Packing
from turnwise.core.batch import Columns, Objective, Pair, TrainingBatch, Wanted
from turnwise.core.errors import CheckpointError, TrainingError
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.models.checksums import compute_checksums
from turnwise.models.lora import add_adapter, list_adapter
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.store.checkpoint_folder import checkpoint_writer
from turnwise.training.critic import build_critic
from turnwise.training.implicit_reward import build_implicit_reward
from turnwise.training.local import LocalTrainer, TrainerSettings
from turnwise.training.optimizer import Schedule
from turnwise.training.policy_step import PolicyLoss
from turnwise.training.ranks.trainer import RankedTrainer

VOCAB = 300
NUM_TOKENS = ranks_world.VOCAB
"""Every model here knows the first so many tokens."""
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
TOKENIZER = train_tokenizer(["some text"], vocab_size=VOCAB, special_tokens=TAG_SPECIAL_TOKENS)
ADAM: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.0}
LOSS = PolicyLoss(function=build_loss("ppo"), temperature=1.0)
SETTINGS = TrainerSettings(
    schedule=Schedule(base=1e-2, warmup_steps=2, total_steps=20, decay="linear"),
    warmup=Schedule(base=1e-2, warmup_steps=0, total_steps=10, decay="cosine"),
    pretraining=Schedule(base=1e-2, warmup_steps=0, total_steps=10, decay="cosine"),
    **ADAM,
    max_grad_norm=1.0,
    packing=Packing(micro_batch_tokens=1000, shared_prefix=False),
    temperature=1.0,
)


def build_policy(seed: int = 0) -> Any:
    return build_model("qwen3", SIZES, vocab_size=VOCAB, seed=seed, dtype="float64")


def compute_pair_loss(
    policy: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, in_step: torch.Tensor, num_pairs: int
) -> PairOutput:
    return compute_dpo_loss(policy, reference, sequence, num_pairs=num_pairs, beta=0.5)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to build a trainer, and the steps it takes."""

    wanted: frozenset[Wanted] = frozenset({"old_logprobs"})
    objective: Objective = "policy_gradient"
    loss: PolicyLoss = LOSS
    critic: str | None = None
    has_implicit: bool = False
    has_teacher: bool = False
    needs_reference: bool = False
    num_updates: int = 1
    is_adapted: bool = False

    def build(self, seed: int = 0, *, micro_batch_tokens: int = 1000) -> LocalTrainer:
        packing = Packing(micro_batch_tokens=micro_batch_tokens, shared_prefix=False)
        critic = partial(build_critic, kind=self.critic, lr=1e-2, clip=None, coefficient=0.5, **ADAM)  # type: ignore[arg-type]
        policy = build_policy(seed)
        if self.is_adapted:
            pytest.importorskip("peft")
            # On one base, because a checkpoint holds the adapter only.
            policy = add_adapter(
                build_policy(), rank=2, alpha=4, dropout=0.0, target_modules="all-linear", base="", seed=seed
            )
            # B is 0 at first, and then A has no gradient; this adapter adds something.
            generator = torch.Generator().manual_seed(seed)
            for name, parameter in list_adapter(policy).items():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.1, generator=generator)
        return LocalTrainer(
            policy,
            TOKENIZER,
            replace(SETTINGS, packing=packing, critic_epochs=2, needs_reference=self.needs_reference),
            loss=self.loss,
            pair_loss=compute_pair_loss,
            build_critic=critic if self.critic else None,
            build_implicit=partial(build_implicit_reward, lr=1e-2, beta=0.5, **ADAM) if self.has_implicit else None,
            teacher=build_policy(9).requires_grad_(False) if self.has_teacher else None,
        )


VALUES: frozenset[Wanted] = frozenset({"values"})
CASES = {
    "plain": Case(),
    "several updates": Case(num_updates=2),
    "head": Case(wanted=VALUES, critic="head"),
    "separate": Case(wanted=VALUES, critic="separate"),
    "implicit": Case(
        wanted=frozenset({"implicit_rewards", "reference_logprobs"}), has_implicit=True, needs_reference=True
    ),
    "reference": Case(loss=replace(LOSS, kl_coefficient=0.1), needs_reference=True),
    "teacher": Case(
        wanted=frozenset({"teacher_logprobs"}), has_teacher=True, loss=replace(LOSS, teacher_coefficient=0.5)
    ),
    "supervised": Case(wanted=frozenset(), objective="supervised", num_updates=2),
    "preference": Case(wanted=frozenset(), objective="preference", needs_reference=True),
    "adapter": Case(loss=replace(LOSS, kl_coefficient=0.1), needs_reference=True, num_updates=2, is_adapted=True),
    "adapter, supervised": Case(wanted=frozenset(), objective="supervised", is_adapted=True),
    "adapter, head": Case(wanted=VALUES, critic="head", is_adapted=True),
    "adapter, separate": Case(wanted=VALUES, critic="separate", is_adapted=True),
    "adapter, implicit": Case(
        wanted=frozenset({"implicit_rewards", "reference_logprobs"}),
        has_implicit=True,
        needs_reference=True,
        is_adapted=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class RankedCase(ranks_world.Case):
    """The same for two ranks."""

    def build(self, seed: int = 0, *, micro_batch_tokens: int = 1000) -> RankedTrainer:  # type: ignore[override]
        trainer = replace(self, micro_batch_tokens=micro_batch_tokens).build_ranked(2, seed)
        STARTED.append(trainer)
        return trainer


RANKED = {
    "plain, two ranks": RankedCase(),
    "several updates, two ranks": RankedCase(num_updates=2),
    "separate, two ranks": RankedCase(critic="separate"),
    "reference, two ranks": RankedCase(kl=0.1),
}
STARTED: list[RankedTrainer] = []


@pytest.fixture(params=[*sorted(CASES), *(pytest.param(name, marks=pytest.mark.slow) for name in RANKED)])
def case(request: pytest.FixtureRequest) -> Iterator[Case | RankedCase]:
    yield CASES[request.param] if request.param in CASES else RANKED[request.param]
    while STARTED:
        STARTED.pop().close()


def make_samples(step: int, count: int = 4) -> list[Sample]:
    samples = []
    for member in range(count):
        rng = np.random.default_rng(10 * step + member)
        length = 8 + 2 * member
        mask = np.arange(length) >= 4
        samples.append(
            Sample(
                token_ids=to_ids(rng.integers(0, NUM_TOKENS, length)),
                loss_mask=to_mask(mask),
                behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB), 0.0)),
                advantages=to_floats(np.where(mask, rng.normal(), 0.0)),
                version_first=step - 1,
                version_last=step - 1,
                origin=Origin(trajectory=TrajectoryId(draw=step, member=member), task_id="t"),
            )
        )
    return samples


def score(trainer: LocalTrainer | RankedTrainer, case: Case | RankedCase, samples: list[Sample]) -> Columns:
    return trainer.score(samples, case.wanted, outcomes=[float(i % 2) for i in range(len(samples))])


def make_batch(case: Case | RankedCase, samples: list[Sample], columns: Columns, step: int) -> TrainingBatch:
    counts = [int(s.loss_mask.sum()) for s in samples]
    returns = tuple(np.linspace(-1, 1, count) for count in counts) if columns.values is not None else None
    marks = [(to_mask(np.ones(count, bool)),) for count in counts]
    pairs = tuple(
        Pair(chosen=(i,), rejected=(i + 1,), chosen_in_step=marks[i], rejected_in_step=marks[i + 1])
        for i in range(0, len(samples), 2)
    )
    order = list(range(len(samples)))
    return TrainingBatch(
        step=step,
        objective=case.objective,
        samples=tuple(samples),
        columns=replace(columns, returns=returns),
        updates=tuple(tuple(order[i :: case.num_updates]) for i in range(case.num_updates)),
        pairs=pairs if case.objective == "preference" else (),
    )


def train(trainer: LocalTrainer | RankedTrainer, case: Case | RankedCase, step: int) -> dict[str, int]:
    samples = make_samples(step)
    report = trainer.step(make_batch(case, samples, score(trainer, case, samples), step))
    assert report.sums == compute_checksums(trainer.model)
    return dict(report.sums)


def read_everything(trainer: LocalTrainer | RankedTrainer, folder: Path) -> dict[str, bytes]:
    """Every file of a checkpoint: weights, moments and counters of all models."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    trainer.save(folder, {"step": 0})
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file.relative_to(folder)): read_file(file) for file in files}


def read_file(path: Path) -> bytes:
    """Its bytes; of tensors in the order of their names, as ranks write them in any."""
    content = path.read_bytes()
    if path.suffix != ".safetensors":
        return content
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    rows = json.loads(header.pop("__metadata__", {}).get("DCP_SHARDING_INFO", "{}"))
    kinds = {name: (header[name]["dtype"], header[name]["shape"], rows.get(name)) for name in sorted(header)}
    places = [header[name]["data_offsets"] for name in sorted(header)]
    return json.dumps(kinds, sort_keys=True).encode() + b"".join(content[start + a : start + b] for a, b in places)


def test_scores_leave_every_model_as_it_is(case: Case | RankedCase, tmp_path: Path) -> None:
    trainer = case.build()
    train(trainer, case, 1)
    before = read_everything(trainer, tmp_path / "state")
    samples = make_samples(2)
    first, second = score(trainer, case, samples), score(trainer, case, samples)
    for name in case.wanted:
        one, other = getattr(first, name), getattr(second, name)
        assert [len(array) for array in one] == [int(s.loss_mask.sum()) for s in samples]
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert read_everything(trainer, tmp_path / "state") == before


def test_a_step_trains_and_reports_what_changed(case: Case | RankedCase) -> None:
    trainer = case.build()
    before = compute_checksums(trainer.model)
    samples = make_samples(1)
    report = trainer.step(make_batch(case, samples, score(trainer, case, samples), 1))
    changed = sum(before[name] != value for name, value in report.sums.items())
    assert report.metrics["train/changed_tensors"].value == changed > 0
    assert report.optimizer_steps == case.num_updates
    # The schedule counts its steps: a warm-up over two steps ends at the base rate.
    assert report.metrics["train/lr"].value == pytest.approx(1e-2 * min(case.num_updates, 2) / 2)


def test_a_batch_without_updates_changes_nothing(case: Case | RankedCase, tmp_path: Path) -> None:
    trainer = case.build()
    train(trainer, case, 1)
    before = read_everything(trainer, tmp_path / "state")
    report = trainer.step(TrainingBatch(step=2, objective="policy_gradient", samples=()))
    assert report.metrics["train/changed_tensors"].value == 0
    assert read_everything(trainer, tmp_path / "state") == before


def spoil_loss(trainer: LocalTrainer, batch: TrainingBatch) -> TrainingBatch:
    """The last update meets a number that is not finite: everything before it has been applied."""
    samples = list(batch.samples)
    bad = batch.updates[-1][-1]
    mask = samples[bad].loss_mask
    samples[bad] = replace(samples[bad], advantages=to_floats(np.where(mask, np.nan, 0.0)))
    return replace(batch, samples=tuple(samples))


def spoil_weights(trainer: LocalTrainer, batch: TrainingBatch) -> TrainingBatch:
    """Pairs that a reference without finite weights scores."""
    assert trainer._reference is not None
    with torch.no_grad():
        next(iter(trainer._reference.parameters())).fill_(float("nan"))
    return batch


FAULTS: list[tuple[str, Callable[[LocalTrainer, TrainingBatch], TrainingBatch]]] = [
    ("plain", spoil_loss),
    ("several updates", spoil_loss),
    ("head", spoil_loss),
    ("separate", spoil_loss),
    ("implicit", spoil_loss),
    ("preference", spoil_weights),
]


@pytest.mark.parametrize(("name", "spoil"), FAULTS)
def test_a_step_that_fails_changes_no_model(
    name: str, spoil: Callable[[LocalTrainer, TrainingBatch], TrainingBatch], tmp_path: Path
) -> None:
    case = CASES[name]
    trainer, twin = case.build(), case.build()
    for each in (trainer, twin):
        train(each, case, 1)
    before = read_everything(trainer, tmp_path / "state")
    samples = make_samples(2)
    batch = make_batch(case, samples, score(trainer, case, samples), 2)
    reference = trainer._reference
    kept = None if reference is None else [p.clone() for p in reference.parameters()]
    with pytest.raises(TrainingError):
        trainer.step(spoil(trainer, batch))
    assert read_everything(trainer, tmp_path / "state") == before
    if reference is not None and kept is not None:
        with torch.no_grad():
            for parameter, weight in zip(reference.parameters(), kept, strict=True):
                parameter.copy_(weight)
    # What follows is as if the failed step had never been tried.
    assert train(trainer, case, 2) == train(twin, case, 2)


def test_a_separate_critic_that_fails_takes_the_policy_back(tmp_path: Path) -> None:
    case = CASES["separate"]
    trainer = case.build()
    train(trainer, case, 1)
    samples = make_samples(2)
    batch = make_batch(case, samples, score(trainer, case, samples), 2)
    before = read_everything(trainer, tmp_path / "state")
    with torch.no_grad():
        assert trainer._critic is not None
        bias = trainer._critic.head.bias.clone()
        trainer._critic.head.bias.fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"value loss is nan.*Lower critic\.lr"):
        trainer.step(batch)
    with torch.no_grad():
        trainer._critic.head.bias.copy_(bias)
    assert read_everything(trainer, tmp_path / "state") == before


def test_a_shared_critic_with_an_infinite_gradient_stops_the_policy_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["head"]
    trainer = case.build()
    train(trainer, case, 1)
    before = read_everything(trainer, tmp_path / "state")
    samples = make_samples(2)
    batch = make_batch(case, samples, score(trainer, case, samples), 2)
    assert trainer._critic is not None
    # The loss and the policy's gradient are finite; only the head's is not.
    trainer._critic.head.weight.register_hook(lambda grad: grad * float("inf"))
    with pytest.raises(TrainingError, match="gradient norm"):
        trainer.step(batch)
    assert read_everything(trainer, tmp_path / "state") == before


@pytest.mark.parametrize("name", ["several updates", "separate", "implicit", "supervised"])
def test_an_interrupt_between_updates_takes_everything_back(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import turnwise.training.local as local

    case = CASES[name]
    trainer = case.build()
    train(trainer, case, 1)
    before = read_everything(trainer, tmp_path / "state")
    samples = make_samples(2)
    batch = make_batch(case, samples, score(trainer, case, samples), 2)
    at_call = {"several updates": 2, "separate": 2, "implicit": 1, "supervised": 2}[name]
    function = {"separate": "run_critic_step", "supervised": "run_sft_step"}.get(name, "run_policy_step")
    real, calls = getattr(local, function), []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == at_call:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(local, function, interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.step(batch)
    assert read_everything(trainer, tmp_path / "state") == before
    assert all(p.grad is None for p in trainer.model.parameters())


def test_a_checkpoint_restores_every_bit(case: Case | RankedCase, tmp_path: Path) -> None:
    trainer, other = case.build(), case.build(seed=5)
    for step in (1, 2):
        if step == 1:
            with checkpoint_writer(tmp_path, 0) as folder:
                trainer.save(folder, {"step": 0})
        train(trainer, case, step)
    with checkpoint_writer(tmp_path, 2) as folder:
        trainer.save(folder, {"step": 2, "tasks": 8, "credit": {"a": [1.5]}})
    counters = other.load(tmp_path / "checkpoints" / "step_000002")
    steps = 2 * case.num_updates
    assert counters == {"step": 2, "tasks": 8, "credit": {"a": [1.5]}, "optimizer_steps": steps}
    assert read_everything(other, tmp_path / "a") == read_everything(trainer, tmp_path / "b")
    # A step after a load equals the step without it.
    assert train(other, case, 3) == train(trainer, case, 3)
    assert read_everything(other, tmp_path / "a") == read_everything(trainer, tmp_path / "b")


def test_a_reference_is_read_from_where_rl_started(tmp_path: Path) -> None:
    case = CASES["reference"]
    trainer = case.build()
    with checkpoint_writer(tmp_path, 0) as folder:
        trainer.save(folder, {"step": 0})
    train(trainer, case, 1)
    with checkpoint_writer(tmp_path, 1) as folder:
        trainer.save(folder, {"step": 1})
    shutil.rmtree(tmp_path / "checkpoints" / "step_000000")
    with pytest.raises(CheckpointError):
        case.build().load(tmp_path / "checkpoints" / "step_000001")


def test_any_split_into_micro_batches_trains_alike(case: Case | RankedCase) -> None:
    whole, split = case.build(), case.build(micro_batch_tokens=1)
    for trainer in (whole, split):
        train(trainer, case, 1)
    for left, right in zip(whole.model.parameters(), split.model.parameters(), strict=True):
        # AdamW's first step moves a weight by its learning rate whatever the gradient's size; rounding shows where the
        # gradient is next to nothing.
        assert torch.allclose(left, right, atol=1e-6)


def test_the_warm_up_has_an_optimizer_of_its_own_and_comes_first() -> None:
    trainer = CASES["plain"].build()
    batch = TrainingBatch(step=1, objective="warmup", samples=tuple(make_samples(1)), updates=((0, 1, 2, 3),))
    losses = [trainer.step(batch).metrics["sft/loss"].value for _ in range(5)]
    assert losses[-1] < losses[0]
    assert trainer.optimizer_steps == 0
    assert not trainer._policy.optimizer.state
    train(trainer, CASES["plain"], 1)
    with pytest.raises(TrainingError, match="warm-up must run before"):
        trainer.step(batch)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(CASES["plain"].build, id="one process"),
        pytest.param(RANKED["plain, two ranks"].build, id="two ranks", marks=pytest.mark.slow),
    ],
)
def test_continual_pre_training_goes_on_from_its_middle(
    build: Callable[..., LocalTrainer | RankedTrainer], tmp_path: Path
) -> None:
    def read(step: int) -> TrainingBatch:
        return TrainingBatch(step=step, objective="cpt", samples=tuple(make_samples(step)), updates=((0, 1, 2, 3),))

    trainer, other = build(), build(seed=5)
    try:
        first = trainer.step(read(1))
        trained = sum(int(sample.loss_mask.sum()) for sample in make_samples(1))
        assert first.metrics["cpt/tokens"].value == trained
        assert (set(first.metrics), first.optimizer_steps) == (
            {"cpt/loss", "cpt/tokens", "cpt/lr", "cpt/seconds"},
            0,
        )
        with checkpoint_writer(tmp_path, 1) as folder:
            trainer.save(folder, {"phase": "cpt", "step": 0})
        counters = other.load(tmp_path / "checkpoints" / "step_000001")
        assert counters == {"phase": "cpt", "step": 0, "phase_steps": 1}
        left, right = trainer.step(read(2)), other.step(read(2))
        assert left.sums == right.sums
        assert left.metrics["cpt/lr"].value == right.metrics["cpt/lr"].value < 1e-2
        # The warm-up that follows begins with moments and a schedule of its own.
        warmup = replace(read(3), objective="warmup")
        assert trainer.step(warmup).sums == other.step(warmup).sums
    finally:
        for ranked in STARTED:
            ranked.close()
        STARTED.clear()


def test_a_warm_up_without_updates_measures_its_samples_and_changes_nothing() -> None:
    trainer, samples = CASES["plain"].build(), tuple(make_samples(1))
    before = compute_checksums(trainer.model)
    report = trainer.step(TrainingBatch(step=1, objective="warmup", samples=samples))
    assert compute_checksums(trainer.model) == before == report.sums
    again = (
        CASES["plain"].build().step(TrainingBatch(step=1, objective="warmup", samples=samples, updates=((0, 1, 2, 3),)))
    )
    assert set(report.metrics) == {"sft/heldout_loss"}
    assert report.metrics["sft/heldout_loss"].value == pytest.approx(again.metrics["sft/loss"].value, rel=1e-12)


def test_what_a_trainer_lacks_is_named() -> None:
    trainer = CASES["plain"].build()
    with pytest.raises(TrainingError, match=r"no model for values; set critic\.kind"):
        trainer.score(make_samples(1), frozenset({"values"}))
    implicit = CASES["implicit"]
    with pytest.raises(TrainingError, match="one outcome per sample; got none for 4 samples"):
        implicit.build().score(make_samples(1), implicit.wanted)
