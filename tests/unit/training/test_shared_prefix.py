"""Shared-prefix training: the same gradients, log-probabilities and values as computing every trajectory by itself."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from turnwise.algorithms.corrections import compute_correction
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.algorithms.preference.dpo import compute_dpo_loss
from turnwise.batching.collate import Packing, TokenColumns, collate
from turnwise.core.batch import Pair
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.attention import PackedAttention
from turnwise.models.build import build_model
from turnwise.models.invariant import InvariantAttention
from turnwise.training.critic import Critic, build_critic, compute_value_columns, run_critic_step, score_values
from turnwise.training.forward import compute_logprobs, score_logprobs
from turnwise.training.implicit_reward import build_implicit_reward, run_implicit_reward_step
from turnwise.training.parity import collect_evidence
from turnwise.training.policy_step import PolicyLoss, run_policy_step
from turnwise.training.preference_step import run_pair_step
from turnwise.training.sft import run_sft_step

VOCAB = 40
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
MODELS = ("qwen3", "llama")
ALONE = Packing(micro_batch_tokens=10_000, shared_prefix=False)
SHARED = Packing(micro_batch_tokens=10_000, shared_prefix=True)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(model_type: str = "qwen3", seed: int = 0, dtype: str = "float64") -> PreTrainedModel:
    return build_model(model_type, {**SIZES, "initializer_range": 0.2}, vocab_size=VOCAB, seed=seed, dtype=dtype)


def make_tree(
    seed: int, *, num_groups: int = 2, group_size: int = 4, prompt: int = 12, prompt_trains: bool = False
) -> list[Sample]:
    """Groups with a common system prompt and their own prompts; members branch at random places, so prefixes nest."""
    rng = np.random.default_rng(seed)
    system = rng.integers(0, VOCAB, 5).tolist()
    samples = []
    for group in range(num_groups):
        start = system + rng.integers(0, VOCAB, prompt).tolist()
        rows: list[list[int]] = []
        for _ in range(group_size):
            parent = rows[rng.integers(len(rows))] if rows and rng.random() < 0.5 else start
            cut = int(rng.integers(len(start), len(parent) + 1))
            rows.append(parent[:cut] + rng.integers(0, VOCAB, int(rng.integers(1, 14))).tolist())
        for member, row in enumerate(rows):
            mask = rng.random(len(row)) < 0.6
            mask[: 1 if prompt_trains else len(start)] = False
            mask[-1] = True
            samples.append(
                Sample(
                    token_ids=to_ids(row),
                    loss_mask=to_mask(mask),
                    behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB) + rng.normal(0, 0.3, len(row)), 0.0)),
                    advantages=to_floats(np.where(mask, rng.normal(), 0.0)),
                    version_first=0,
                    version_last=0,
                    origin=Origin(trajectory=TrajectoryId(draw=group, member=member), task_id=f"t{group}"),
                )
            )
    return samples


def count_nodes(samples: list[Sample]) -> int:
    return len({s.token_ids[: end + 1].tobytes() for s in samples for end in range(len(s.token_ids))})


def parameters_of(*modules: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for module in modules for p in module.parameters()])


def compute_step(
    samples: list[Sample],
    packing: Packing,
    loss: PolicyLoss,
    *,
    model_type: str = "qwen3",
    columns: TokenColumns | None = None,
    with_critic: bool = False,
) -> torch.Tensor:
    """The gradient of a step: what plain SGD at rate 1 takes off the parameters of policy and value head."""
    model = build(model_type)
    step_columns = dict(columns or {})
    critic: Critic | None = None
    if with_critic:
        critic = _make_critic(model, "head")
        old, _ = score_values(critic, samples, **packing)
        step_columns |= compute_value_columns(old, _make_returns(samples))
    modules = [model] if critic is None else [model, critic.module]
    before = parameters_of(*modules)
    run_policy_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        samples,
        loss=loss,
        lr=1.0,
        max_grad_norm=1e9,
        columns=step_columns,
        reference=build(model_type, 3),
        teacher=build(model_type, 4),
        critic=critic,
        **packing,
    )
    return before - parameters_of(*modules)


def _make_critic(model: PreTrainedModel, kind: str) -> Critic:
    critic = build_critic(model, kind=kind, lr=1.0, clip=0.2, coefficient=0.5, betas=(0.9, 0.95), weight_decay=0.0)  # type: ignore[arg-type]
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        critic.head.weight.normal_()
    return replace(critic, optimizer=torch.optim.SGD(critic.module.parameters(), lr=1.0))


def _make_returns(samples: list[Sample]) -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [rng.normal(size=int(s.loss_mask.sum())) for s in samples]


def make_columns(samples: list[Sample]) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(5)
    return {
        "old_logprobs": [s.behavior_logprobs[s.loss_mask] + rng.normal(0, 0.2, int(s.loss_mask.sum())) for s in samples]
    }


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-6 of the gradient's norm.

    Float64 weights leave about 1e-7: transformers' norms and rotary embeddings compute in float32.
    """
    assert expected.norm() > 1e-3
    assert float((actual - expected).norm() / expected.norm()) < 1e-6


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_has_the_same_gradient(name: str) -> None:
    method = LOSSES[name]
    options: dict[str, Any] = {"kl_cov": {"share": 0.2}, "clip_cov": {"share": 0.2, "low": 0.0, "high": 100.0}}.get(
        name, {}
    )
    loss = PolicyLoss(
        function=build_loss(name, options),
        temperature=0.8,
        aggregation=method.default_aggregation,
        batch_rule=method.batch_rule,
        constant=30.0,
    )
    samples = make_tree(1)
    columns = make_columns(samples)
    expected = compute_step(samples, ALONE, loss, columns=columns)
    for tokens in (10_000, 40, 1):
        packing = Packing(micro_batch_tokens=tokens, shared_prefix=True)
        assert_same(compute_step(samples, packing, loss, columns=columns), expected)


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("with_critic", [False, True])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), group_size=st.integers(1, 6), tokens=st.sampled_from([1, 50, 10_000]))
def test_random_trees_with_every_term_of_the_loss(
    model_type: str, with_critic: bool, seed: int, group_size: int, tokens: int
) -> None:
    loss = PolicyLoss(
        function=build_loss("gspo" if seed % 2 else "ppo"),
        temperature=0.7,
        kl_coefficient=0.1,
        entropy_coefficient=0.02,
        teacher_coefficient=0.3,
        correct=partial(compute_correction, mode="truncate", level="token", low=0.5, high=1.5),
    )
    samples = make_tree(seed, group_size=group_size, prompt_trains=seed % 3 == 0)
    step = partial(
        compute_step, samples, loss=loss, model_type=model_type, columns=make_columns(samples), with_critic=with_critic
    )
    assert_same(step(Packing(micro_batch_tokens=tokens, shared_prefix=True)), step(ALONE))


@pytest.mark.parametrize("model_type", MODELS)
def test_scores_and_values_come_back_in_the_samples_order(model_type: str) -> None:
    samples = make_tree(2)[::-1]
    model = build(model_type)
    critic = _make_critic(model, "head")
    for tokens in (10_000, 45):
        packing = Packing(micro_batch_tokens=tokens, shared_prefix=True)
        for shared, expected in zip(
            score_logprobs(model, samples, 1.0, **packing), score_logprobs(model, samples, 1.0, **ALONE), strict=True
        ):
            assert shared == pytest.approx(expected, abs=1e-6)
        values, finals = score_values(critic, samples, **packing)
        plain, plain_finals = score_values(critic, samples, **ALONE)
        assert np.concatenate(values) == pytest.approx(np.concatenate(plain), abs=1e-5)
        assert finals == pytest.approx(plain_finals, abs=1e-5)


def test_as_many_tokens_are_computed_as_the_tree_has_nodes() -> None:
    samples = make_tree(3, group_size=8, prompt=40)
    model = build()
    metrics = run_policy_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        samples,
        loss=PolicyLoss(function=build_loss("ppo"), temperature=1.0),
        lr=1.0,
        max_grad_norm=1.0,
        **SHARED,
    )
    assert metrics["train/computed_tokens"].value == count_nodes(samples)
    assert metrics["train/tokens"].value == sum(len(s.token_ids) for s in samples) > 3 * count_nodes(samples)


def test_a_shared_sampled_token_takes_the_sum_of_its_advantages() -> None:
    # Two members sampled the same reply, with advantages 1 and -1: what they agree on cancels, and nothing else is
    # there.
    (sample,) = make_tree(4, num_groups=1, group_size=1)
    pair = [replace(sample, advantages=to_floats(np.where(sample.loss_mask, sign, 0.0))) for sign in (1.0, -1.0)]
    model = build()
    batch = collate(pair, shared_prefix=True)
    assert len(batch.token_ids) == len(sample.token_ids)
    logprobs, _ = compute_logprobs(model, batch, 1.0)
    (logprobs * batch.advantages).sum().backward()
    assert all(float(p.grad.abs().max()) < 1e-12 for p in model.parameters() if p.grad is not None)
    model.zero_grad()
    logprobs, _ = compute_logprobs(model, batch, 1.0)
    (logprobs * batch.advantages.abs()).sum().backward()
    doubled = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    logprobs, _ = compute_logprobs(model, collate(pair[:1]), 1.0)
    logprobs.sum().backward()
    assert_same(doubled, 2 * torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]))


def test_the_other_steps_have_the_same_gradient() -> None:
    samples = make_tree(5)
    returns = _make_returns(samples)

    def critic_step(packing: Packing) -> torch.Tensor:
        critic = _make_critic(build(), "separate")
        before = parameters_of(critic.module)
        columns = compute_value_columns(score_values(critic, samples, **packing)[0], returns)
        run_critic_step(critic, samples, columns, max_grad_norm=1e9, **packing)
        return before - parameters_of(critic.module)

    def sft_step(packing: Packing) -> torch.Tensor:
        model = build()
        run_sft_step(model, torch.optim.SGD(model.parameters(), lr=1.0), samples, lr=1.0, max_grad_norm=1e9, **packing)
        return parameters_of(build()) - parameters_of(model)

    def pair_step(packing: Packing) -> torch.Tensor:
        everything = [(to_mask(np.ones(int(s.loss_mask.sum()), bool)),) for s in samples]
        pairs = [
            Pair(
                chosen=(i,),
                rejected=(i + 1,),
                chosen_in_step=everything[i],
                rejected_in_step=everything[i + 1],
            )
            for i in range(0, len(samples), 2)
        ]
        model, loss = build(), partial(compute_dpo_loss, beta=0.1)

        def mean(
            policy: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, _: torch.Tensor, num_pairs: int
        ) -> Any:
            return loss(policy, reference, sequence, num_pairs=num_pairs)

        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        run_pair_step(
            model,
            build(seed=3),
            optimizer,
            samples,
            pairs,
            loss=mean,
            temperature=1.0,
            lr=1.0,
            max_grad_norm=1e9,
            **packing,
        )
        return parameters_of(build()) - parameters_of(model)

    def implicit_step(packing: Packing) -> torch.Tensor:
        built = build_implicit_reward(build(), lr=1.0, beta=0.1, betas=(0.9, 0.95), weight_decay=0.0)
        built = replace(built, optimizer=torch.optim.SGD(built.module.parameters(), lr=1.0))
        reference = score_logprobs(build(seed=3), samples, 1.0, **ALONE)
        outcomes = [float(s.origin.trajectory.member % 2) for s in samples]
        run_implicit_reward_step(built, samples, outcomes, reference, temperature=1.0, max_grad_norm=1e9, **packing)
        return parameters_of(build()) - parameters_of(built.module)

    for step in (critic_step, sft_step, pair_step, implicit_step):
        expected = step(ALONE)
        for tokens in (10_000, 60):
            assert_same(step(Packing(micro_batch_tokens=tokens, shared_prefix=True)), expected)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_over_paths_is_attention_over_whole_sequences(kv_heads: int) -> None:
    torch.manual_seed(0)
    samples = make_tree(6, group_size=5)
    tree, plain = collate(samples, shared_prefix=True), collate(samples)
    query, key, value = (
        torch.randn(len(tree.token_ids), heads, 8, dtype=torch.float64) for heads in (4, kv_heads, kv_heads)
    )
    paths = np.split(np.arange(len(plain.token_ids)), np.cumsum(plain.lengths)[:-1])
    # Each token of the plain layout is the tree's token with the same beginning.
    beginnings: dict[int, bytes] = {}
    for run, path in zip(samples, paths, strict=True):
        beginnings |= {int(place): run.token_ids[: depth + 1].tobytes() for depth, place in enumerate(path)}
    order: dict[bytes, int] = {}
    start = 0
    for length, num_seen in zip(tree.lengths, tree.num_seen, strict=True):
        seen = tree.seen[start : start + num_seen] if tree.seen is not None else torch.arange(start, start + length)
        ids = tree.token_ids[seen].to(torch.int32).numpy()
        order |= {ids[: end + 1].tobytes(): int(seen[end]) for end in range(num_seen)}
        start += num_seen
    at = torch.tensor([order[beginnings[place]] for place in range(len(plain.token_ids))])
    for attention in (PackedAttention, InvariantAttention):
        shared = attention(tree.lengths, tree.seen, tree.num_seen).attend(0, query, key, value, 0.3)
        alone = attention(plain.lengths).attend(0, query[at], key[at], value[at], 0.3)
        assert torch.allclose(shared[at], alone, atol=1e-12)


def test_exact_mode_gives_the_same_bits_with_and_without_sharing() -> None:
    # float32, CPU, one thread, invariant rows: neither the layout nor the company changes a bit.
    model = build(dtype="float32")
    samples = make_tree(7, num_groups=3, group_size=6, prompt=90)
    assert count_nodes(samples) < 0.5 * sum(len(s.token_ids) for s in samples)
    alone = collect_evidence(model, samples, temperature=0.7, attention=InvariantAttention)
    shared = collect_evidence(model, samples, temperature=0.7, attention=InvariantAttention, shared_prefix=True)
    assert np.array_equal(shared.trainer_logprobs, alone.trainer_logprobs)
    assert np.array_equal(shared.logits, alone.logits)
    assert shared.lengths.tolist() == alone.lengths.tolist()
