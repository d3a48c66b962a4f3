"""What holds for every loss in the table: on-policy gradients, splits, padding, extremes, scaling."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.aggregate import AGGREGATIONS, compute_weights
from turnwise.algorithms.losses import LOSSES, LossInputs, build_loss
from turnwise.algorithms.losses.covariance import select_random_covariance, select_top_covariance

torch.set_num_threads(1)
NAMES = sorted(LOSSES)
LENGTHS = [3, 1, 5, 2, 4]
SEQUENCE = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
PROMPTS, TRAJECTORIES = np.array([7, 7, 3, 3, 3]), np.array([0, 0, 1, 2, 2])


def draw(seed: int, *, spread: float = 0.5, per_sequence: bool = False) -> LossInputs:
    """Fifteen tokens of five ragged sequences, float64, with three different policies."""
    generator = torch.Generator().manual_seed(seed)
    random = lambda n: torch.rand(n, generator=generator, dtype=torch.float64)  # noqa: E731
    behavior = -3 * random(15) - 0.05
    advantages = (2 * random(5) - 1)[SEQUENCE] if per_sequence else 2 * random(15) - 1
    policy = (behavior + spread * (random(15) - 0.5)).clamp(max=-0.01)
    old = (behavior + spread * (random(15) - 0.5)).clamp(max=-0.01)
    selected = select_top_covariance(old, advantages, share=0.2)
    return LossInputs(
        policy_logprobs=policy.requires_grad_(),
        old_logprobs=old,
        behavior_logprobs=behavior,
        advantages=advantages,
        sequence=SEQUENCE,
        selected=selected,
    )


def take(inputs: LossInputs, tokens: torch.Tensor) -> LossInputs:
    """A micro-batch: some tokens, sequences numbered anew."""
    return LossInputs(
        policy_logprobs=inputs.policy_logprobs[tokens],
        old_logprobs=inputs.old_logprobs[tokens],
        behavior_logprobs=inputs.behavior_logprobs[tokens],
        advantages=inputs.advantages[tokens],
        sequence=inputs.sequence[tokens].unique(return_inverse=True)[1],
        selected=None if inputs.selected is None else inputs.selected[tokens],
    )


def gradient_of(value: torch.Tensor, inputs: LossInputs) -> torch.Tensor:
    (result,) = torch.autograd.grad(value, inputs.policy_logprobs)
    return result


@pytest.mark.parametrize("name", NAMES)
def test_on_policy_every_gradient_is_that_of_reinforce(name: str) -> None:
    inputs = draw(1, per_sequence=True)
    policy = inputs.behavior_logprobs.clone().requires_grad_()
    on_policy = LossInputs(
        policy_logprobs=policy,
        old_logprobs=inputs.behavior_logprobs,
        behavior_logprobs=inputs.behavior_logprobs,
        advantages=inputs.advantages,
        sequence=SEQUENCE,
        selected=torch.zeros(15, dtype=torch.bool) if name == "clip_cov" else None,
    )
    output = build_loss(name)(on_policy)
    torch.testing.assert_close(gradient_of(output.losses.sum(), on_policy), -inputs.advantages, rtol=1e-12, atol=1e-12)
    if name != "kl_cov":  # its `clipped` marks the penalised tokens, whose penalty is 0 here
        assert not output.clipped.any()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    part_of=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    kept=st.lists(st.booleans(), min_size=15, max_size=15),
    rejected=st.sampled_from(["in", "out"]),
    mode=st.sampled_from(sorted(AGGREGATIONS)),
)
def test_any_split_gives_the_same_loss_and_gradient(
    name: str, seed: int, part_of: list[int], kept: list[bool], rejected: str, mode: str
) -> None:
    inputs, loss = draw(seed), build_loss(name)
    weights = torch.from_numpy(
        compute_weights(
            mode,  # type: ignore[arg-type]
            sequence_of_token=SEQUENCE.numpy(),
            prompt_of_sequence=PROMPTS,
            trajectory_of_sequence=TRAJECTORIES,
            kept=np.array(kept),
            rejected=rejected,  # type: ignore[arg-type]
            constant=7.0,
        )
    )
    whole = (weights * loss(inputs).losses).sum()
    expected = gradient_of(whole, inputs)
    total, gradient = torch.zeros((), dtype=torch.float64), torch.zeros(15, dtype=torch.float64)
    for part in range(4):  # some are empty
        tokens = (torch.tensor(part_of)[SEQUENCE] == part).nonzero().reshape(-1)
        value = (weights[tokens] * loss(take(inputs, tokens)).losses).sum()
        total, gradient = total + value.detach(), gradient + gradient_of(value, inputs)
    torch.testing.assert_close(total, whole.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_padding_full_of_nonsense_gets_exactly_zero_gradient(name: str) -> None:
    inputs, loss = draw(2), build_loss(name)
    expected = gradient_of(loss(inputs).losses.sum(), inputs)
    mask = torch.zeros(5, 9, dtype=torch.bool)
    for row, length in enumerate(LENGTHS):
        mask[row, 2 : 2 + length] = True  # two tokens of prompt, the rest is padding
    junk = (
        torch.tensor([float("nan"), float("inf"), -float("inf"), -100.0], dtype=torch.float64)
        .repeat(12)[:45]
        .reshape(5, 9)
    )
    padded = junk.masked_scatter(mask, inputs.policy_logprobs.detach()).requires_grad_()
    packed = LossInputs(
        policy_logprobs=padded[mask],
        old_logprobs=junk.masked_scatter(mask, inputs.old_logprobs)[mask],
        behavior_logprobs=junk.masked_scatter(mask, inputs.behavior_logprobs)[mask],
        advantages=inputs.advantages,
        sequence=torch.arange(5)[:, None].expand(5, 9)[mask],
        selected=inputs.selected,
    )
    loss(packed).losses.sum().backward()
    assert padded.grad is not None
    assert (padded.grad[~mask] == 0).all()
    assert torch.equal(padded.grad[mask], expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_anchor_column_says_which_logprobs_a_loss_reads(name: str) -> None:
    inputs, loss = draw(6), build_loss(name)

    def moved(old: float, behavior: float) -> bool:
        shifted = LossInputs(
            policy_logprobs=inputs.policy_logprobs,
            old_logprobs=inputs.old_logprobs - old,
            behavior_logprobs=inputs.behavior_logprobs - behavior,
            advantages=inputs.advantages,
            sequence=SEQUENCE,
            selected=inputs.selected,
        )
        return not torch.equal(loss(shifted).losses, loss(inputs).losses)

    assert moved(old=0.05, behavior=0.0) == (LOSSES[name].anchor in ("old", "both"))
    assert moved(old=0.0, behavior=0.05) == (LOSSES[name].anchor in ("behavior", "both"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_extreme_log_ratios_stay_finite(name: str, advantage: float) -> None:
    # One token grew from e^-1000 to 1, one shrank the other way, beside an ordinary one; each also in a sequence of its
    # own.
    policy = torch.tensor([0.0, -1e3, -1.0, 0.0, -1e3], requires_grad=True)
    old = torch.tensor([-1e3, 0.0, -1.1, -1e3, 0.0])
    inputs = LossInputs(
        policy_logprobs=policy,
        old_logprobs=old,
        behavior_logprobs=old,
        advantages=torch.full((5,), advantage),
        sequence=torch.tensor([0, 0, 0, 1, 2]),
    )
    losses = build_loss(name)(inputs).losses
    losses.sum().backward()
    assert policy.grad is not None
    assert torch.isfinite(losses).all()
    assert torch.isfinite(policy.grad).all()


@pytest.mark.parametrize("name", NAMES)
def test_no_advantage_no_gradient_and_no_tokens_no_loss(name: str) -> None:
    inputs = draw(3)
    silent = LossInputs(
        policy_logprobs=inputs.policy_logprobs,
        old_logprobs=inputs.old_logprobs,
        behavior_logprobs=inputs.behavior_logprobs,
        advantages=torch.zeros(15, dtype=torch.float64),
        sequence=SEQUENCE,
        selected=torch.zeros(15, dtype=torch.bool),  # the penalty of kl_cov does not hang on the advantage
    )
    assert (gradient_of(build_loss(name)(silent).losses.sum(), inputs) == 0).all()
    empty = build_loss(name)(take(inputs, torch.zeros(0, dtype=torch.long)))
    assert empty.losses.shape == empty.clipped.shape == (0,)
    assert float(empty.losses.detach().sum()) == 0.0


@pytest.mark.parametrize("name", [n for n in NAMES if n != "kl_cov"])
@given(scale=st.floats(0.1, 10), seed=st.integers(0, 1000))
@settings(max_examples=5)
def test_losses_are_linear_in_positive_multiples_of_the_advantage(name: str, scale: float, seed: int) -> None:
    inputs, loss = draw(seed), build_loss(name)
    scaled = LossInputs(
        policy_logprobs=inputs.policy_logprobs,
        old_logprobs=inputs.old_logprobs,
        behavior_logprobs=inputs.behavior_logprobs,
        advantages=scale * inputs.advantages,
        sequence=SEQUENCE,
        selected=inputs.selected,
    )
    torch.testing.assert_close(loss(scaled).losses, scale * loss(inputs).losses, rtol=1e-12, atol=1e-12)


def test_batch_rules_depend_on_the_split_only_without_a_selection() -> None:
    for name in NAMES:
        assert LOSSES[name].batch_rule == (name in ("clip_cov", "kl_cov"))
    # Without `selected`, each single-token micro-batch penalises its own token: more than the batch's top one.
    inputs = draw(4)
    alone = LossInputs(
        policy_logprobs=inputs.policy_logprobs.detach(),
        old_logprobs=inputs.old_logprobs,
        behavior_logprobs=inputs.behavior_logprobs,
        advantages=inputs.advantages,
        sequence=SEQUENCE,
    )
    loss = build_loss("kl_cov")
    assert int(loss(alone).clipped.sum()) == 1
    assert sum(int(loss(take(alone, torch.tensor([i]))).clipped.sum()) for i in range(15)) == 15


@given(share=st.floats(0.01, 1), seed=st.integers(0, 100))
def test_the_covariance_draw_never_exceeds_its_share_nor_leaves_its_bounds(share: float, seed: int) -> None:
    inputs = draw(seed)
    eligible = inputs.advantages > 0
    selected = select_random_covariance(
        inputs.policy_logprobs, inputs.advantages, share=share, low=0.01, high=0.5, seed=seed, eligible=eligible
    )
    covariance = (inputs.advantages - inputs.advantages.mean()) * (
        inputs.policy_logprobs - inputs.policy_logprobs.mean()
    ).detach()
    allowed = (covariance > 0.01) & (covariance < 0.5) & eligible
    assert not (selected & ~allowed).any()
    assert int(selected.sum()) == min(max(1, int(share * 15)), int(allowed.sum()))


def test_inputs_that_do_not_fit_are_refused() -> None:
    good = draw(5)
    with pytest.raises(ValueError, match="old_logprobs has shape"):
        LossInputs(
            policy_logprobs=good.policy_logprobs,
            old_logprobs=good.old_logprobs[:3],
            behavior_logprobs=good.behavior_logprobs,
            advantages=good.advantages,
            sequence=SEQUENCE,
        )
    with pytest.raises(ValueError, match="old_logprobs has a gradient"):
        LossInputs(
            policy_logprobs=good.policy_logprobs,
            old_logprobs=good.policy_logprobs,
            behavior_logprobs=good.behavior_logprobs,
            advantages=good.advantages,
            sequence=SEQUENCE,
        )
    with pytest.raises(ValueError, match="must be an integer"):
        LossInputs(
            policy_logprobs=good.policy_logprobs,
            old_logprobs=good.old_logprobs,
            behavior_logprobs=good.behavior_logprobs,
            advantages=good.advantages,
            sequence=good.advantages,
        )
