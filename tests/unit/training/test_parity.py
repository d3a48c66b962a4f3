"""Parity: the numbers by hand, every cause planted and named, and exact mode equal in every bit."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from turnwise.batching.samples import to_samples
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine
from turnwise.core.types import (
    Sample,
    SamplingParams,
    Scored,
    Session,
    StopReason,
    Trajectory,
    TrajectoryId,
    Turn,
    text_message,
    to_ids,
)
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model
from turnwise.models.checksums import compute_checksums, count_changed
from turnwise.models.invariant import InvariantAttention
from turnwise.training.parity import BOUNDS, Bound, Evidence, collect_evidence, compute_parity, diagnose

BOUND = Bound(mean=1e-5, max=2e-4)
END = 0
VOCAB = 40


# ------------------------------------------------------------------------------------------------ the numbers


def test_the_measures_by_hand() -> None:
    # d = [0, ln 2]: mean ln2 / 2, max ln 2; k3 = (0 + 2 - ln 2 - 1) / 2; w = [1, 2]: (1 + 2)^2 / (2 * (1 + 4)) = 0.9.
    parity = compute_parity(np.array([-1.0, -1.0 + math.log(2)]), np.array([-1.0, -1.0]))
    assert parity.mean == pytest.approx(math.log(2) / 2)
    assert parity.max == pytest.approx(math.log(2))
    assert parity.k3 == pytest.approx((1 - math.log(2)) / 2)
    assert parity.effective_share == pytest.approx(0.9)


def test_equal_scores_have_no_difference_and_nothing_is_lost() -> None:
    scores = np.array([-0.1, -3.0, -20.0], np.float32)
    parity = compute_parity(scores, scores)
    assert (parity.mean, parity.max, parity.k3, parity.effective_share) == (0.0, 0.0, 0.0, 1.0)


def test_what_is_not_finite_is_never_within_a_bound() -> None:
    parity = compute_parity(np.array([-1.0, math.nan]), np.array([-1.0, -1.0]))
    assert not parity.within(Bound(mean=1e9, max=1e9))
    assert compute_parity(np.zeros(0), np.zeros(0)).within(BOUND)
    with pytest.raises(ValueError, match="same tokens"):
        compute_parity(np.zeros(2), np.zeros(3))


# ------------------------------------------------------------------------------------------------ planted causes


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))


def make_evidence(temperature: float = 1.0, within: float = 1.0) -> Evidence:
    """Eight sequences of two replies of six tokens from random logits; each reply ends with the end token.

    `within` keeps tokens in the nucleus of that mass.
    """
    rng = np.random.default_rng(5)
    count = 8 * 12
    logits = rng.normal(0, 2, (count, VOCAB))
    position = np.arange(count) % 6
    logits[:, END] = np.where(position == 5, 4.0, -1.0)
    distribution = np.exp(log_softmax(logits / temperature))
    tokens = np.array([draw(rng, row, within) for row in distribution])
    tokens[position == 5] = END
    logprobs = log_softmax(logits / temperature)[np.arange(count), tokens]
    return Evidence(
        sampler_logprobs=logprobs,
        trainer_logprobs=logprobs.copy(),
        logits=logits,
        token_ids=tokens,
        sequence=np.arange(count) // 12,
        turn=np.arange(count) // 6 % 2,
        lengths=np.array([30, 24, 30, 19, 22, 28, 30, 17]),
        temperature=temperature,
        end_token_ids=(END,),
    )


def draw(rng: np.random.Generator, row: np.ndarray, within: float) -> int:
    order = np.argsort(-row)
    kept = order[np.cumsum(row[order]) - row[order] < within]
    return int(rng.choice(kept[kept != END], p=None))


def named(evidence: Evidence) -> str:
    return diagnose(evidence, BOUND).cause


def noise(size: int, scale: float = 0.5) -> np.ndarray:
    """Not small anywhere, and to both sides."""
    rng = np.random.default_rng(9)
    return np.asarray(rng.choice([-1.0, 1.0], size) * rng.uniform(0.4, 1.0, size) * scale)


def test_agreement_has_no_cause() -> None:
    assert named(make_evidence()) == "none"


@pytest.mark.parametrize("recipe", [0.7, 1.3])
def test_a_sampler_that_ignores_the_temperature(recipe: float) -> None:
    evidence = make_evidence(recipe)
    plain = log_softmax(evidence.logits)[np.arange(len(evidence.token_ids)), evidence.token_ids]
    diagnosis = diagnose(replace(evidence, sampler_logprobs=plain), BOUND)
    assert diagnosis.cause == "temperature"
    assert f"temperature 1, the recipe says {recipe}" in diagnosis.text


@pytest.mark.parametrize("top_p", [0.8, 0.95])
def test_a_truncated_distribution(top_p: float) -> None:
    evidence = make_evidence(within=top_p)
    distribution = np.exp(log_softmax(evidence.logits))
    order = np.argsort(-distribution, axis=-1)
    ordered = np.take_along_axis(distribution, order, -1)
    kept = np.cumsum(ordered, -1) - ordered < top_p
    # The end token is put in at the sixth place: it has the most mass there, so it is in every nucleus.
    truncated = evidence.trainer_logprobs - np.log((ordered * kept).sum(-1))
    diagnosis = diagnose(replace(evidence, sampler_logprobs=truncated), BOUND)
    assert (diagnosis.cause, f"top_p={top_p:g}" in diagnosis.text) == ("top_p", True)


def test_where_only_the_mean_is_too_large_the_end_token_is_not_blamed() -> None:
    """Every token is 1e-4 off, either way: above the mean's bound of 1e-5 and below 2e-4 each."""
    evidence = make_evidence()
    shift = np.resize([1e-4, -1e-4], len(evidence.trainer_logprobs))
    assert diagnose(replace(evidence, sampler_logprobs=evidence.trainer_logprobs + shift), BOUND).cause == "dtype"


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_masked_end_token(value: float) -> None:
    evidence = make_evidence()
    masked = np.where(evidence.token_ids == END, value, evidence.trainer_logprobs)
    diagnosis = diagnose(replace(evidence, trainer_logprobs=masked), BOUND)
    assert diagnosis.cause == "end_token"
    assert "16 of 16" in diagnosis.text, "eight sequences with two replies each"


def test_stale_weights_are_recognised_by_their_scores() -> None:
    evidence = make_evidence()
    older = evidence.sampler_logprobs + noise(len(evidence.token_ids))
    changed = replace(evidence, sampler_logprobs=older)
    assert named(changed) == "unknown"
    assert named(replace(changed, alternatives={"stale_weights": older + 1e-7})) == "stale_weights"


def test_a_template_that_rewrites_history() -> None:
    evidence = make_evidence()
    later = np.where(evidence.turn > 0, noise(len(evidence.turn)), 0.0)
    assert named(replace(evidence, sampler_logprobs=evidence.sampler_logprobs + later)) == "template"


def test_padding_on_the_wrong_side() -> None:
    evidence = make_evidence()
    short = np.asarray(evidence.lengths)[evidence.sequence] < 30
    assert (
        named(replace(evidence, sampler_logprobs=evidence.sampler_logprobs + np.where(short, noise(len(short)), 0.0)))
        == "padding_side"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_another_dtype(dtype: torch.dtype) -> None:
    evidence = make_evidence()
    coarse = torch.from_numpy(evidence.logits).to(dtype).double().numpy()
    scores = log_softmax(coarse)[np.arange(len(evidence.token_ids)), evidence.token_ids]
    diagnosis = diagnose(replace(evidence, sampler_logprobs=scores), BOUND)
    assert diagnosis.cause == "dtype"
    assert str(dtype).removeprefix("torch.") in diagnosis.text


@pytest.mark.parametrize("shift", [-1, 1])
def test_scores_of_the_neighbouring_token(shift: int) -> None:
    evidence = make_evidence()
    assert named(replace(evidence, sampler_logprobs=np.roll(evidence.trainer_logprobs, shift))) == "shifted"


def test_diverged_numbers_and_an_unexplained_bias() -> None:
    evidence = make_evidence()
    broken = evidence.trainer_logprobs.copy()
    broken[3] = -math.inf
    assert named(replace(evidence, trainer_logprobs=broken)) == "not_finite"
    assert named(replace(evidence, sampler_logprobs=evidence.sampler_logprobs - 0.3)) == "unknown"


# ------------------------------------------------------------------------------------------------ real engines


def make_model(dtype: str = "float32") -> PreTrainedModel:
    config = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "initializer_range": 0.15,
        "tie_word_embeddings": True,
        "max_position_embeddings": 512,
    }
    return build_model("qwen3", config, vocab_size=64, seed=3, dtype=dtype)


def sample_conversations(
    engine: Engine, *, temperature: float = 1.0, top_p: float = 1.0, stop_token_ids: tuple[int, ...] = ()
) -> list[Sample]:
    """Six conversations of three replies with observations, sampled side by side; all share their first 30 tokens."""

    async def converse(member: int) -> Trajectory:
        rng, session = np.random.default_rng(member), Session("parity", str(member))
        context = prompt = to_ids(np.concatenate([np.arange(1, 31), rng.integers(1, 64, 11 + 13 * member)]))
        turns: list[Turn] = []
        for number in range(3):
            seed = 100 * member + number
            params = SamplingParams(
                max_tokens=16 + member, temperature=temperature, top_p=top_p, stop_token_ids=stop_token_ids, seed=seed
            )
            completion = await engine.generate(prompt, params, session=session)
            parent = number - 1 if number else None
            turns.append(
                Turn(parent=parent, context_ids=context, completion=completion, message=text_message("assistant", ""))
            )
            context = to_ids(rng.integers(1, 64, 7))
            prompt = to_ids(np.concatenate([prompt, completion.token_ids, context]))
        await engine.release(session)
        return Trajectory(
            id=TrajectoryId(draw=0, member=member),
            task_id="t",
            turns=tuple(turns),
            stop=StopReason.DONE,
            reward=Scored(total=0.0),
        )

    async def converse_all() -> list[Trajectory]:
        return await asyncio.gather(*(converse(member) for member in range(6)))

    torch.set_num_threads(1)
    return [sample for trajectory in asyncio.run(converse_all()) for sample in to_samples(trajectory)]


def local(model: PreTrainedModel) -> LocalEngine:
    return LocalEngine(model, max_concurrency=8, max_context=256)


def test_the_local_engine_is_within_the_bound_and_its_faults_are_named() -> None:
    model = make_model()
    sound = collect_evidence(model, sample_conversations(local(model)), temperature=1.0)
    assert compute_parity(sound.trainer_logprobs, sound.sampler_logprobs).within(BOUNDS["float32"])
    assert set(sound.turn.tolist()) == {0, 1, 2}
    hot = collect_evidence(model, sample_conversations(local(model), temperature=1.0), temperature=0.7)
    assert named(hot) == "temperature"
    cut = collect_evidence(model, sample_conversations(local(model), top_p=0.9), temperature=1.0)
    assert named(cut) == "top_p"
    half = PagedEngine(make_model("bfloat16"), max_concurrency=8, max_context=256, fused=False)
    coarse = collect_evidence(model, sample_conversations(half), temperature=1.0)
    assert named(coarse) == "dtype"


def test_an_engine_that_did_not_adopt_the_update_is_named() -> None:
    older = make_model()
    samples = sample_conversations(local(older))
    newer = make_model()
    with torch.no_grad():
        for parameter in newer.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    evidence = collect_evidence(newer, samples, temperature=1.0)
    before = collect_evidence(older, samples, temperature=1.0).trainer_logprobs
    assert named(replace(evidence, alternatives={"stale_weights": before})) == "stale_weights"


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.4])
def test_exact_mode_has_no_difference_in_any_bit(temperature: float) -> None:
    """Packed beside others, on a shared prefix, scored alone, decoded in company: the same float32 bits."""
    model = make_model()
    engine = PagedEngine(model, max_concurrency=8, max_context=256, fused=False)
    # The end token is the padding token here; nothing pads and nothing masks by id, so it scores like any other.
    samples = sample_conversations(engine, temperature=temperature, stop_token_ids=(END,))
    together = collect_evidence(
        model, samples, temperature=temperature, attention=InvariantAttention, end_token_ids=[END]
    )
    assert together.trainer_logprobs.tobytes() == together.sampler_logprobs.tobytes()
    assert (together.token_ids == END).any()
    assert (together.sampler_logprobs[together.token_ids == END] < -0.01).all(), "a masked token would have 0"
    shared = collect_evidence(model, samples, temperature=temperature, attention=InvariantAttention, shared_prefix=True)
    assert shared.trainer_logprobs.tobytes() == together.sampler_logprobs.tobytes()
    for sample in samples:
        alone = collect_evidence(model, [sample], temperature=temperature, attention=InvariantAttention)
        assert alone.trainer_logprobs.tobytes() == sample.behavior_logprobs[sample.loss_mask].tobytes()


def test_a_truncated_sampler_is_refused_for_training() -> None:
    """Its log-probabilities are of another distribution than the trainer's, so it has no exact mode."""
    with pytest.raises(ConfigError, match=r"'rollout\.top_p'; training samples from the whole distribution"):
        load_config([], ["rollout.top_p=0.9", 'model.path="somewhere"'])


def test_invariant_attention_has_the_same_gradient() -> None:
    from turnwise.models.attention import PackedAttention

    model = make_model("float64")
    ids = torch.randint(0, 64, (1, 90), generator=torch.Generator().manual_seed(0))
    gradients = []
    for plan in (PackedAttention([70, 20]), InvariantAttention([70, 20])):
        model.zero_grad()
        positions = torch.cat([torch.arange(70), torch.arange(20)])[None]
        model(input_ids=ids, position_ids=positions, use_cache=False, attention_plan=plan).logits.logsumexp(
            -1
        ).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) > 10
    for expected, gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


def test_an_update_that_changes_no_weight_is_seen() -> None:
    model = make_model("bfloat16")
    before = compute_checksums(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-8)  # lost in the rounding of bfloat16, wherever a weight is not that small
    unchanged = count_changed(before, compute_checksums(model))
    with torch.no_grad():
        next(model.parameters()).view(-1)[7].add_(1.0)
    assert count_changed(before, compute_checksums(model)) >= 1
    assert unchanged < len(before)
    assert count_changed(before, before) == 0
