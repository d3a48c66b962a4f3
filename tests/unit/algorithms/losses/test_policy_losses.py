"""Every family by hand: values, exact gradients, and where a clip cuts."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.losses import LossFunction, LossInputs, build_loss
from turnwise.algorithms.losses.covariance import compute_covariance, select_random_covariance, select_top_covariance

torch.set_num_threads(1)


def pack(
    policy: list[float],
    old: list[float],
    advantages: list[float],
    *,
    behavior: list[float] | None = None,
    sequence: list[int] | None = None,
) -> LossInputs:
    """Tokens from *probabilities* in float64; behavior is old and every token its own sequence unless given."""
    as_log = lambda values: torch.tensor([math.log(v) for v in values], dtype=torch.float64)  # noqa: E731
    return LossInputs(
        policy_logprobs=as_log(policy).requires_grad_(),
        old_logprobs=as_log(old),
        behavior_logprobs=as_log(behavior or old),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        sequence=torch.tensor(list(range(len(policy))) if sequence is None else sequence),
    )


def gradient(loss: LossFunction, inputs: LossInputs) -> list[float]:
    (result,) = torch.autograd.grad(loss(inputs).losses.sum(), inputs.policy_logprobs)
    return list(result.tolist())


def test_clip_higher_leaves_room_above() -> None:
    inputs = pack([0.25, 0.26], [0.2, 0.2], [1.0, 1.0])
    # Ratios 1.25 and 1.3; the clip is at 1.28: -1.25 with gradient -1.25, and -1.28 with none.
    loss = build_loss("dapo")
    assert loss(inputs).losses.tolist() == pytest.approx([-1.25, -1.28])
    assert loss(inputs).clipped.tolist() == [False, True]
    assert gradient(loss, inputs) == pytest.approx([-1.25, 0.0])


def test_dual_clip_bounds_bad_tokens_only() -> None:
    inputs = pack([0.8, 0.4, 0.8, 0.1], [0.2, 0.2, 0.2, 0.2], [-1.0, -1.0, 1.0, -1.0])
    # Ratios 4 2 4 0.5, c = 3. A=-1 ratio 4: min(4, 3) = 3, cut. ratio 2: 2, gradient +2.
    # A=1 ratio 4: PPO's -1.2, cut. A=-1 ratio 0.5: PPO's max(0.5, 0.8) = 0.8, cut.
    loss = build_loss("dual_clip")
    assert loss(inputs).losses.tolist() == pytest.approx([3.0, 2.0, -1.2, 0.8])
    assert loss(inputs).clipped.tolist() == [True, False, True, True]
    assert gradient(loss, inputs) == pytest.approx([0.0, 2.0, 0.0, 0.0])
    far = build_loss("dual_clip", {"dual_clip": 1e6})
    assert far(inputs).losses.tolist() == build_loss("ppo")(inputs).losses.tolist()


def test_gspo_ratio_is_the_geometric_mean_and_reaches_every_token() -> None:
    # Sequence 0 has ratios 2 and 1/2: mean log-ratio 0, s = 1. Sequence 1 has 2 and 2: s = 2, clipped for A > 0.
    inputs = pack([0.4, 0.1, 0.4, 0.4], [0.2, 0.2, 0.2, 0.2], [3.0, 3.0, 1.0, 1.0], sequence=[0, 0, 1, 1])
    loss = build_loss("gspo")
    assert loss(inputs).losses.tolist() == pytest.approx([-3.0, -3.0, -1.0004, -1.0004])
    assert loss(inputs).clipped.tolist() == [False, False, True, True]
    # d(sum of two tokens' -s A)/d(log policy_t) = 2 * -A s / 2 = -3; the clipped sequence gives exactly 0.
    assert gradient(loss, inputs) == pytest.approx([-3.0, -3.0, 0.0, 0.0])


@given(
    log_ratios=st.lists(st.floats(-1, 1), min_size=6, max_size=6),
    advantages=st.lists(st.floats(-2, 2), min_size=2, max_size=2),
    scale=st.floats(0.1, 3),
)
def test_gspo_equals_gspo_token_for_one_advantage_per_sequence(
    log_ratios: list[float], advantages: list[float], scale: float
) -> None:
    # Sequences of 4 and 2 tokens; any weight per sequence stands for any aggregation.
    inputs = pack(
        [0.2 * math.exp(r) for r in log_ratios],
        [0.2] * 6,
        [advantages[0]] * 4 + [advantages[1]] * 2,
        sequence=[0, 0, 0, 0, 1, 1],
    )
    weights = torch.tensor([1.0] * 4 + [scale] * 2, dtype=torch.float64)
    results = []
    for name in ("gspo", "gspo_token"):
        losses = build_loss(name, {"clip_low": 0.3, "clip_high": 0.3})(inputs).losses
        (grad,) = torch.autograd.grad((weights * losses).sum(), inputs.policy_logprobs)
        results.append((losses.detach(), grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


def test_one_token_per_sequence_makes_gspo_ppo_and_unclipped_gmpo_is_gspo() -> None:
    single = pack([0.4, 0.1, 0.2], [0.2, 0.2, 0.2], [1.0, -2.0, 0.5])
    options = {"clip_low": 0.2, "clip_high": 0.2}
    torch.testing.assert_close(build_loss("gspo", options)(single).losses, build_loss("ppo", options)(single).losses)
    ragged = pack([0.3, 0.1, 0.25], [0.2, 0.2, 0.2], [1.5, 1.5, -2.0], sequence=[0, 0, 1])
    wide = {"clip_low": 5.0, "clip_high": 5.0}
    unclipped = {"clip_low": 1.0, "clip_high": 1e6}
    torch.testing.assert_close(build_loss("gmpo", wide)(ragged).losses, build_loss("gspo", unclipped)(ragged).losses)
    assert gradient(build_loss("gmpo", wide), ragged) == pytest.approx(gradient(build_loss("gspo", unclipped), ragged))


def test_gmpo_clips_tokens_in_log_space() -> None:
    # log-ratios ln 4 = 1.386 and ln 1 = 0, clip 0.4. A = 1: c = 0.4 and 0, mean 0.2: loss -e^0.2 for both tokens.
    inputs = pack([0.8, 0.2], [0.2, 0.2], [1.0, 1.0], sequence=[0, 0])
    loss = build_loss("gmpo")
    assert loss(inputs).losses.tolist() == pytest.approx([-math.exp(0.2)] * 2)
    assert loss(inputs).clipped.tolist() == [True, False]
    # Two tokens, each d(-e^mean)/d(log policy_1) = -e^0.2 / 2: together -e^0.2; the clipped token gets nothing.
    assert gradient(loss, inputs) == pytest.approx([0.0, -math.exp(0.2)])
    # A = -1 with a growing ratio is never cut: c = 1.386 / 2.
    bad = pack([0.8, 0.2], [0.2, 0.2], [-1.0, -1.0], sequence=[0, 0])
    assert loss(bad).losses.tolist() == pytest.approx([math.exp(math.log(4) / 2)] * 2)
    assert loss(bad).clipped.tolist() == [False, False]


def test_cispo_caps_weights_and_never_silences_a_token() -> None:
    # Ratios 10 and 0.01; weights min(10, 5) = 5 and 0.01 (no lower bound). Gradient -w A.
    inputs = pack([0.5, 0.002], [0.05, 0.2], [2.0, -1.0])
    loss = build_loss("cispo")
    assert gradient(loss, inputs) == pytest.approx([-10.0, 0.01])
    assert loss(inputs).clipped.tolist() == [True, False]
    # With a lower distance of 0.1 the small weight rises to 0.9.
    assert gradient(build_loss("cispo", {"clip_low": 0.1, "clip_high": 0.1}), inputs) == pytest.approx([-2.2, 0.9])


@given(temperature=st.floats(0.2, 5), advantage=st.floats(-3, 3))
def test_sapo_gate_has_slope_one_on_policy_for_any_temperature(temperature: float, advantage: float) -> None:
    inputs = pack([0.3], [0.3], [advantage])
    loss = build_loss("sapo", {"temperature_positive": temperature, "temperature_negative": temperature})
    assert gradient(loss, inputs) == pytest.approx([-advantage], abs=1e-12)
    assert loss(inputs).losses.item() == pytest.approx(-2 * advantage / temperature, abs=1e-12)


def test_sapo_uses_the_temperature_of_the_sign() -> None:
    # Ratio 2: A (4/tau) sigmoid(tau): tau 1: 4 * 0.731059 = 2.924234; tau 2: 2 * 0.880797 = 1.761594.
    inputs = pack([0.4, 0.4], [0.2, 0.2], [1.0, -1.0])
    losses = build_loss("sapo", {"temperature_positive": 1.0, "temperature_negative": 2.0})(inputs).losses
    assert losses.tolist() == pytest.approx([-2.924234, 1.761594], abs=1e-6)


def test_dppo_tv_regions_are_probabilities_of_the_behavior_policy() -> None:
    # Behaviour 0.5 0.001 0.5 0.5; policy 0.7 0.004 0.3 0.7: moved +0.2, +0.003, -0.2, +0.2, delta 0.15.
    inputs = pack([0.7, 0.004, 0.3, 0.7], [0.9] * 4, [1.0, 1.0, -1.0, -1.0], behavior=[0.5, 0.001, 0.5, 0.5])
    loss = build_loss("dppo_tv")
    # Up too far; a rare token may quadruple (weight 4); down too far; A < 0 but moved up: weight 1.4.
    assert loss(inputs).clipped.tolist() == [True, False, True, False]
    assert gradient(loss, inputs) == pytest.approx([0.0, -4.0, 0.0, 1.4])
    assert gradient(build_loss("dppo_tv", {"max_ratio": 3.0}), inputs) == pytest.approx([0.0, -3.0, 0.0, 1.4])


def test_dppo_kl_cuts_only_moves_in_the_direction_of_the_advantage() -> None:
    # Binary KL of 0.5 to 0.8: 0.5 ln(0.5/0.8) + 0.5 ln(0.5/0.2) = 0.2231 > 0.05. Of 0.5 to 0.6: 0.0204 < 0.05.
    inputs = pack([0.8, 0.6, 0.8, 0.2, 0.2], [0.5] * 5, [1.0, 1.0, -1.0, -1.0, 1.0])
    loss = build_loss("dppo_kl")
    assert loss(inputs).clipped.tolist() == [True, False, False, True, False]
    assert gradient(loss, inputs) == pytest.approx([0.0, -1.2, 1.6, 0.0, -0.4])
    tight = build_loss("dppo_kl", {"delta_low": 0.02, "delta_high": 0.02})
    assert tight(inputs).clipped.tolist() == [True, True, False, True, False]


def test_decoupled_weighs_by_proximal_over_behavior() -> None:
    # u = 0.3/0.2 = 1.5 and 0.2/0.2 = 1; w = 0.2/0.1 = 2 and 0.2/0.02 = 10 > 5.
    inputs = pack([0.3, 0.2], [0.2, 0.2], [-1.0, -1.0], behavior=[0.1, 0.02], sequence=[0, 0])
    mask, cap = build_loss("decoupled_ppo"), build_loss("decoupled_ppo", {"weight_mode": "truncate"})
    assert mask(inputs).losses.tolist() == pytest.approx([3.0, 0.0])
    assert mask(inputs).clipped.tolist() == [False, True]
    assert cap(inputs).losses.tolist() == pytest.approx([3.0, 5.0])
    # Unclipped and uncapped: -A policy / behavior = 3 and 10, whatever the proximal policy is.
    free = build_loss("decoupled_ppo", {"clip_low": 1.0, "clip_high": 1e6, "max_weight": math.inf})
    assert gradient(free, inputs) == pytest.approx([3.0, 10.0])
    other = pack([0.3, 0.2], [0.15, 0.7], [-1.0, -1.0], behavior=[0.1, 0.02])
    assert gradient(free, other) == pytest.approx([3.0, 10.0])


def test_decoupled_is_ppo_where_proximal_is_behavior() -> None:
    inputs = pack([0.4, 0.1, 0.2], [0.2, 0.2, 0.2], [1.0, -2.0, 0.5])
    assert gradient(build_loss("decoupled_ppo"), inputs) == gradient(build_loss("ppo"), inputs)


def test_covariance_selection() -> None:
    logprobs = torch.tensor([-1.0, -3.0, -1.0, -3.0], dtype=torch.float64)
    advantages = torch.tensor([2.0, -2.0, 0.0, 0.0], dtype=torch.float64)
    # Means -2 and 0: covariances 2*1, -2*-1, 0, 0.
    assert compute_covariance(logprobs, advantages).tolist() == [2.0, 2.0, 0.0, 0.0]
    assert int(select_top_covariance(logprobs, advantages, share=0.5).sum()) == 2
    assert select_top_covariance(logprobs, advantages, share=0.5).tolist() == [True, True, False, False]
    assert int(select_top_covariance(logprobs, advantages, share=1e-9).sum()) == 1
    draw = select_random_covariance(logprobs, advantages, share=0.25, low=1.0, high=5.0, seed=3)
    assert int(draw.sum()) == 1
    assert not draw[2:].any()
    assert (
        draw.tolist() == select_random_covariance(logprobs, advantages, share=0.25, low=1.0, high=5.0, seed=3).tolist()
    )
    # The bounds are exclusive and constant advantages have no covariance: nothing is drawn.
    assert not select_random_covariance(logprobs, advantages, share=1.0, low=2.0, high=5.0, seed=0).any()
    assert not select_random_covariance(
        logprobs, torch.full_like(advantages, 0.3), share=1.0, low=1.0, high=5.0, seed=0
    ).any()


def test_clip_cov_silences_the_drawn_tokens() -> None:
    inputs = pack(
        [math.exp(-1), math.exp(-3), math.exp(-1), math.exp(-3)],
        [math.exp(-1), math.exp(-3)] * 2,
        [2.0, -2.0, 0.0, 0.0],
    )
    loss = build_loss("clip_cov", {"share": 1.0})
    assert loss(inputs).clipped.tolist() == [True, True, False, False]
    assert gradient(loss, inputs) == [0.0, 0.0, 0.0, 0.0]


def test_kl_cov_penalises_the_top_tokens_whatever_the_advantages_scale() -> None:
    inputs = pack([0.4, 0.1, 0.1], [0.2, 0.2, 0.1], [2.0, -1.0, -1.0])
    # Ratios 2, 1/2, 1. Mean A 0; mean log-policy (ln 0.4 + 2 ln 0.1) / 3 = -1.8405: covariances 2 * 0.9242, -1 *
    # -0.4621 twice.
    loss = build_loss("kl_cov", {"share": 0.34, "coefficient": 3.0})
    # Losses -2*2 + 3 ln 2, +1 * 0.5, +1; gradients -4 + 3, 0.5, 1.
    assert loss(inputs).losses.tolist() == pytest.approx([-4.0 + 3 * math.log(2), 0.5, 1.0])
    assert gradient(loss, inputs) == pytest.approx([-1.0, 0.5, 1.0])
    assert gradient(build_loss("kl_cov", {"coefficient": 0.0}), inputs) == pytest.approx([-4.0, 0.5, 1.0])


def test_vespo_weight_is_one_on_policy_and_peaks_at_power_over_decay() -> None:
    ratios = [0.25, 0.5, 2 / 3, 0.8, 1.0, 1.5]
    inputs = pack([0.2 * r for r in ratios], [0.9] * 6, [1.0] * 6, behavior=[0.2] * 6)
    phi = [-g for g in gradient(build_loss("vespo"), inputs)]
    # phi(W) = e^{3 (1 - W)} W^2: phi(1) = 1, phi(0.5) = e^1.5 / 4 = 1.120422; largest at 2/3.
    assert phi[4] == pytest.approx(1.0)
    assert phi[1] == pytest.approx(math.exp(1.5) / 4)
    assert max(phi) == phi[2]
    # A sequence's weight is the product of its tokens' ratios: 2 * 0.25 = 0.5.
    pair = pack([0.4, 0.05], [0.2, 0.2], [1.0, 1.0], sequence=[0, 0])
    assert gradient(build_loss("vespo"), pair) == pytest.approx([-math.exp(1.5) / 4] * 2)
