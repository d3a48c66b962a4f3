"""The optimizer step: splits change nothing, masked tokens have no gradient, failures leave the weights alone."""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.corrections import compute_correction
from turnwise.algorithms.losses.custom import try_loss
from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.table import build_loss
from turnwise.batching.collate import TokenColumns, collate
from turnwise.core.errors import CheckpointError, TrainingError
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.training.forward import compute_logprobs
from turnwise.training.optimizer import build_optimizer, compute_lr
from turnwise.training.policy_step import PolicyLoss, run_policy_step
from turnwise.training.sft import run_sft_step

VOCAB = 50
CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
GEOMETRIC = partial(compute_correction, mode="mask", level="geometric", low=0.9, high=1.1)
LOSS = PolicyLoss(function=build_loss("ppo"), temperature=1.0)


def build(seed: int = 0) -> PreTrainedModel:
    return build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=seed, dtype="float64")


def make_sample(seed: int, length: int, *, advantage: float = 1.0, train: bool = True) -> Sample:
    rng = np.random.default_rng(seed)
    mask = rng.random(length) < 0.4 if train else np.zeros(length, bool)
    mask[0] = False
    if train:
        mask[-1] = True
    return Sample(
        token_ids=to_ids(rng.integers(0, VOCAB, length)),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB) + rng.normal(0, 0.1, length), 0.0)),
        advantages=to_floats(np.where(mask, advantage * rng.normal(), 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=seed), task_id=f"t{seed}"),
        context_mask=to_mask(np.zeros(length, bool)),
    )


def weights_of(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def weights_after(
    samples: list[Sample],
    micro_batch_tokens: int,
    loss: PolicyLoss = LOSS,
    reference: PreTrainedModel | None = None,
    columns: TokenColumns | None = None,
) -> torch.Tensor:
    model = build()
    # Plain SGD, so that a difference in the gradient is a difference in the weights.
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    run_policy_step(
        model,
        optimizer,
        samples,
        loss=loss,
        lr=1.0,
        max_grad_norm=1e9,
        micro_batch_tokens=micro_batch_tokens,
        reference=reference,
        columns=columns,
    )
    return weights_of(model)


def test_any_micro_batch_split_gives_the_same_step() -> None:
    samples = [make_sample(i, length) for i, length in enumerate([5, 30, 8, 17, 3, 24, 12])]
    samples.append(make_sample(99, 20, train=False))
    loss = PolicyLoss(function=build_loss("clip_higher"), kl_coefficient=0.1, entropy_coefficient=0.01, temperature=0.8)
    whole = weights_after(samples, 10_000, loss, build(3))
    for tokens in (1, 20, 40):
        assert torch.allclose(weights_after(samples, tokens, loss, build(3)), whole, atol=1e-12, rtol=0)
    assert torch.allclose(weights_after(samples[::-1], 25, loss, build(3)), whole, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("gspo", {"aggregation": "sequence_mean"}),
        ("gmpo", {"aggregation": "prompt_mean"}),
        ("kl_cov", {"batch_rule": True}),
        ("clip_cov", {"batch_rule": True}),
        ("dapo", {"aggregation": "trajectory_mean", "rejected": "out", "correct": GEOMETRIC}),
        ("dr_grpo", {"aggregation": "constant", "constant": 30.0, "kl_coefficient": 0.1, "kl_kind": "k3_weighted"}),
    ],
)
def test_any_split_gives_the_same_step_whatever_the_loss_needs_to_know_of_the_batch(
    name: str, fields: dict[str, Any]
) -> None:
    samples = [make_sample(i, length) for i, length in enumerate([15, 30, 8, 17, 3, 24, 12])]
    options: dict[str, Any] = {"kl_cov": {"share": 0.2}, "clip_cov": {"share": 0.2, "low": 0.0, "high": 100.0}}.get(
        name, {}
    )
    loss = PolicyLoss(function=build_loss(name, options), temperature=1.0, **fields)
    noise = np.random.default_rng(5)
    columns = {
        "old_logprobs": [
            s.behavior_logprobs[s.loss_mask] + noise.normal(0, 0.05, int(s.loss_mask.sum())) for s in samples
        ]
    }
    whole = weights_after(samples, 10_000, loss, build(3), columns)
    assert not torch.allclose(whole, weights_of(build()), atol=1e-6)
    for tokens in (1, 20, 40):
        assert torch.allclose(weights_after(samples, tokens, loss, build(3), columns), whole, atol=1e-8, rtol=0)


def test_rejected_tokens_leave_the_denominator_only_when_asked() -> None:
    # The correction drops every token of the first sample: with "out" the step is that of the second sample alone.
    kept, dropped = make_sample(1, 12), make_sample(2, 20)
    columns = {
        "old_logprobs": [
            np.asarray(s.behavior_logprobs[s.loss_mask]) + shift for s, shift in ((dropped, 3.0), (kept, 0.0))
        ],
    }
    both = [dropped, kept]
    share = int(kept.loss_mask.sum()) / sum(int(s.loss_mask.sum()) for s in both)
    alone = weights_after([kept], 100) - weights_of(build())
    for rejected, scale in (("out", 1.0), ("in", share)):
        loss = replace(LOSS, correct=GEOMETRIC, rejected=rejected)  # type: ignore[arg-type]
        moved = weights_after(both, 100, loss, None, columns) - weights_of(build())
        assert torch.allclose(moved, scale * alone, atol=1e-7)


def test_distillation_by_the_exact_divergence_moves_towards_the_teacher() -> None:
    samples = [
        replace(s, advantages=to_floats(np.zeros(len(s.token_ids)))) for s in (make_sample(1, 30), make_sample(2, 25))
    ]
    model, teacher = build(), build(9)
    optimizer = build_optimizer(model, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
    loss = replace(LOSS, teacher_coefficient=1.0)
    metrics = [
        run_policy_step(
            model, optimizer, samples, loss=loss, lr=3e-3, max_grad_norm=1.0, micro_batch_tokens=100, teacher=teacher
        )
        for _ in range(30)
    ]
    assert metrics[-1]["train/teacher_kl"].value < 0.2 * metrics[0]["train/teacher_kl"].value


def test_tokens_outside_the_mask_have_exactly_no_gradient() -> None:
    model = build()
    batch = collate([make_sample(1, 20)])
    embeddings = model.get_input_embeddings()(batch.token_ids[None]).detach()
    logits_rows: list[torch.Tensor] = []
    model.lm_head.register_full_backward_hook(lambda _m, grad_in, _out: logits_rows.append(grad_in[0]))
    logprobs, _ = compute_logprobs(model, batch, 1.0)
    logprobs.sum().backward()
    # The head only ever saw the rows that predict trained tokens.
    assert logits_rows[0].shape[1] == len(batch.targets) < embeddings.shape[1]


def test_what_stands_in_masked_places_changes_nothing() -> None:
    sample = make_sample(1, 20)
    junk = Sample(
        token_ids=sample.token_ids,
        loss_mask=sample.loss_mask,
        behavior_logprobs=to_floats(np.where(sample.loss_mask, sample.behavior_logprobs, np.nan)),
        advantages=to_floats(np.where(sample.loss_mask, sample.advantages, np.inf)),
        version_first=0,
        version_last=0,
        origin=sample.origin,
        context_mask=sample.context_mask,
    )
    assert torch.equal(weights_after([sample], 100), weights_after([junk], 100))


def test_on_policy_gradient_equals_reinforce() -> None:
    sample = make_sample(4, 16)
    model = build()
    batch = collate([sample])
    with torch.no_grad():
        on_policy, _ = compute_logprobs(model, batch, 1.0)
    logprobs, _ = compute_logprobs(model, batch, 1.0)
    (-(logprobs * batch.advantages).sum() / len(batch.targets)).backward()
    expected = torch.cat([(p - p.grad).detach().reshape(-1) for p in model.parameters() if p.grad is not None])
    exact = np.zeros(len(sample.token_ids))
    exact[np.flatnonzero(sample.loss_mask)] = on_policy.numpy()
    same = Sample(
        token_ids=sample.token_ids,
        loss_mask=sample.loss_mask,
        behavior_logprobs=to_floats(exact),
        advantages=sample.advantages,
        version_first=0,
        version_last=0,
        origin=sample.origin,
        context_mask=sample.context_mask,
    )
    # Behaviour log-probabilities are stored in float32: the ratio differs from 1 by 1e-7.
    assert torch.allclose(weights_after([same], 100), expected, atol=1e-6)


def test_a_loss_that_is_not_finite_names_the_trajectory_and_keeps_the_weights() -> None:
    model = build()
    before = copy.deepcopy(model.state_dict())
    bad = make_sample(7, 10)
    broken = Sample(
        token_ids=bad.token_ids,
        loss_mask=bad.loss_mask,
        behavior_logprobs=bad.behavior_logprobs,
        advantages=to_floats(np.where(bad.loss_mask, np.nan, 0.0)),
        version_first=0,
        version_last=0,
        origin=bad.origin,
        context_mask=bad.context_mask,
    )
    optimizer = build_optimizer(model, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    with pytest.raises(TrainingError, match="trajectories 0/7;"):
        run_policy_step(
            model, optimizer, [make_sample(1, 9), broken], loss=LOSS, lr=1.0, max_grad_norm=1.0, micro_batch_tokens=10
        )
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_nothing_to_train_on_is_an_error() -> None:
    model = build()
    optimizer = build_optimizer(model, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    with pytest.raises(TrainingError, match="no token to train on"):
        run_policy_step(model, optimizer, [], loss=LOSS, lr=1.0, max_grad_norm=1.0, micro_batch_tokens=10)


def test_sft_learns_to_copy_a_demonstration() -> None:
    model = build()
    optimizer = build_optimizer(model, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
    sample = make_sample(1, 24)
    losses = [
        run_sft_step(model, optimizer, [sample], lr=3e-3, max_grad_norm=1.0, micro_batch_tokens=100)["sft/loss"].value
        for _ in range(60)
    ]
    assert losses[0] > 2.5
    assert losses[-1] < 0.2


@pytest.mark.parametrize(
    ("step", "decay", "expected"),
    # base 1.0, 4 warm-up steps, 12 in all: 8 steps of decay after step 4.
    [
        (0, "linear", 0.25),
        (3, "linear", 1.0),
        (4, "linear", 1.0),
        (8, "linear", 0.5),
        (12, "linear", 0.0),
        (8, "cosine", 0.5),
        (10, "none", 1.0),
    ],
)
def test_learning_rate_by_hand(step: int, decay: str, expected: float) -> None:
    got = compute_lr(step, base=1.0, warmup_steps=4, total_steps=12, decay=decay)  # type: ignore[arg-type]
    assert got == pytest.approx(expected)


def test_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
    from turnwise.training.state import load_training_state, save_training_state

    model = build()
    optimizer = build_optimizer(model, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    run_sft_step(model, optimizer, [make_sample(1, 24)], lr=1e-3, max_grad_norm=1.0, micro_batch_tokens=100)
    tokenizer = train_tokenizer(["some text"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS)
    counters = {"step": 3, "optimizer_steps": 5, "version": 4}
    save_training_state(tmp_path, model, tokenizer, optimizer, counters)

    twin = build(seed=9)
    twin_optimizer = build_optimizer(twin, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    assert load_training_state(tmp_path, twin, twin_optimizer) == counters
    for one, other in ((model, optimizer), (twin, twin_optimizer)):
        run_sft_step(one, other, [make_sample(2, 30)], lr=1e-3, max_grad_norm=1.0, micro_batch_tokens=100)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))

    wider = build_model("qwen3", {**CONFIG, "hidden_size": 64}, vocab_size=VOCAB, seed=0)
    with pytest.raises(CheckpointError, match="belongs to a different model"):
        load_training_state(tmp_path, wider, twin_optimizer)
    data = (tmp_path / "state.safetensors").read_bytes()
    (tmp_path / "state.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="cannot read"):
        load_training_state(tmp_path, twin, twin_optimizer)


def test_a_loss_of_ones_own_reports_the_mean_of_what_it_measures_whatever_the_split() -> None:
    samples = [make_sample(i, length) for i, length in enumerate([5, 30, 8])]
    num_trained = sum(int(sample.loss_mask.sum()) for sample in samples)
    expected = sum(float(sample.advantages[sample.loss_mask].sum()) for sample in samples) / num_trained

    def measure(inputs: LossInputs) -> LossOutput:
        return LossOutput(
            losses=-inputs.advantages * inputs.policy_logprobs,
            clipped=torch.zeros_like(inputs.advantages, dtype=torch.bool),
            metrics={"credit": inputs.advantages},
        )

    for tokens in (1, 10_000):
        model = build()
        metrics = run_policy_step(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            samples,
            loss=PolicyLoss(function=try_loss(measure), temperature=1.0),
            lr=1.0,
            max_grad_norm=1e9,
            micro_batch_tokens=tokens,
        )
        assert metrics["loss/credit"].value == pytest.approx(expected)


def test_a_loss_of_ones_own_that_fails_in_the_second_micro_batch_changes_no_weight() -> None:
    model, seen = build(), []

    def fail(inputs: LossInputs) -> LossOutput:
        seen.append(len(inputs.advantages))
        if len(seen) == 2:
            raise TrainingError("loss.method='own:fail': IndexError: only one")
        return LossOutput(losses=-inputs.policy_logprobs, clipped=torch.zeros_like(inputs.advantages).bool())

    before = weights_of(model)
    with pytest.raises(TrainingError, match="only one"):
        run_policy_step(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            [make_sample(0, 5), make_sample(1, 30)],
            loss=PolicyLoss(function=fail, temperature=1.0),
            lr=1.0,
            max_grad_norm=1e9,
            micro_batch_tokens=1,
        )
    assert torch.equal(weights_of(model), before)
    assert all(parameter.grad is None for parameter in model.parameters())
