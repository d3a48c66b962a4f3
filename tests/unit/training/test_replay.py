"""Training repeats the experts of sampling: the gap to the sampler closes, and what has no experts is refused."""

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from ranks_world import Case
from small_model import CONFIG, MIXTURE, VOCAB
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.batching.collate import Packing, collate
from turnwise.batching.samples import forget_experts
from turnwise.core.batch import Wanted
from turnwise.core.errors import ConfigError, TrainingError
from turnwise.core.types import (
    Origin,
    Sample,
    SamplingParams,
    Session,
    TrajectoryId,
    to_experts,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.paged import PagedEngine
from turnwise.engines.registry import check_recording
from turnwise.models.build import build_model
from turnwise.models.experts import prepare_experts
from turnwise.models.invariant import InvariantAttention
from turnwise.training.forward import score_exact, score_logprobs
from turnwise.training.parity import collect_evidence
from turnwise.training.policy_step import PolicyLoss, run_policy_step
from turnwise.training.routing import check_routing

ALONE = Packing(micro_batch_tokens=10_000, shared_prefix=False)
SHARED = Packing(micro_batch_tokens=10_000, shared_prefix=True)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(dtype: str = "float32") -> PreTrainedModel:
    return build_model("qwen3_moe", MIXTURE, vocab_size=VOCAB, seed=1, dtype=dtype)


def sample(model: PreTrainedModel, num: int = 8, num_tokens: int = 24) -> list[Sample]:
    """Replies of pairs to one prompt of 30 tokens, with advantages of 1 and -1."""
    engine = PagedEngine(model, max_concurrency=8, max_context=128)

    async def run() -> list[Sample]:
        async def one(member: int) -> Sample:
            prompt = np.random.default_rng(member // 2).integers(0, VOCAB, 30)
            params = SamplingParams(max_tokens=num_tokens, seed=member)
            reply = await engine.generate(to_ids(prompt), params, session=Session(str(member // 2), str(member)))
            rest = np.zeros(30)
            return Sample(
                token_ids=to_ids(np.concatenate([prompt, reply.token_ids])),
                loss_mask=to_mask([False] * 30 + [True] * num_tokens),
                behavior_logprobs=to_floats(np.concatenate([rest, reply.logprobs])),
                advantages=to_floats(np.concatenate([rest, np.full(num_tokens, 1 - 2 * (member % 2))])),
                version_first=0,
                version_last=0,
                origin=Origin(trajectory=TrajectoryId(draw=member // 2, member=member), task_id="t"),
                experts=reply.experts,
            )

        samples = await asyncio.gather(*map(one, range(num)))
        await engine.close()
        return samples

    return asyncio.run(run())


def find_gaps(model: PreTrainedModel, samples: list[Sample], packing: Packing = ALONE) -> np.ndarray:
    """|trainer - sampler| of every sampled token."""
    scores = np.concatenate(score_logprobs(model, samples, 1.0, **packing))
    return np.abs(scores - np.concatenate([s.behavior_logprobs[s.loss_mask] for s in samples]))


def step(model: PreTrainedModel, samples: list[Sample], packing: Packing = ALONE, lr: float = 0.0) -> dict[str, float]:
    metrics = run_policy_step(
        model,
        torch.optim.SGD(model.parameters(), lr=lr),
        samples,
        loss=PolicyLoss(function=build_loss("reinforce", {}), temperature=1.0),
        lr=lr,
        max_grad_norm=1e9,
        **packing,
    )
    return {name: metric.value for name, metric in metrics.items()}


def test_rounding_moves_experts_and_replay_closes_the_gap() -> None:
    """A sampler in bfloat16 and a trainer in float32 with the same weights."""
    model = build("bfloat16")
    samples = sample(model, num=16, num_tokens=40)
    trainer = copy.deepcopy(model).float()
    free, replayed = find_gaps(trainer, forget_experts(samples)), find_gaps(trainer, samples)
    assert free.max() > 0.25
    assert replayed.max() < 0.1
    assert replayed.mean() < free.mean()
    exact = np.concatenate(score_exact(model, samples, 1.0, **ALONE))
    assert np.array_equal(exact, np.concatenate(score_logprobs(trainer, samples, 1.0, **ALONE)))


def test_with_equal_weights_both_sides_agree_in_every_bit() -> None:
    model = build()
    evidence = collect_evidence(model, sample(model), temperature=1.0, attention=InvariantAttention)
    assert np.array_equal(evidence.trainer_logprobs, evidence.sampler_logprobs)


def test_another_expert_at_one_position_is_seen() -> None:
    """Planted: the last prompt token of one sample takes an expert that it did not take."""
    model = build()
    samples = sample(model)
    assert find_gaps(model, samples).max() < 1e-5
    experts = np.array(samples[3].experts)
    experts[29, 0, 0] = next(i for i in range(8) if i not in experts[29, 0])
    samples[3] = replace(samples[3], experts=to_experts(experts))
    gaps = find_gaps(model, samples)
    assert gaps[: 3 * 24].max() < 1e-5
    assert gaps[3 * 24] > 1e-3, "the first token of the reply is predicted from it"
    assert gaps[4 * 24 :].max() < 1e-5
    assert step(build(), samples)["train/logprob_gap_max"] == pytest.approx(gaps.max(), rel=1e-4)


def test_after_updates_routers_have_moved_and_replay_keeps_log_probabilities_smooth() -> None:
    """Two updates in one direction: the routers would now take other experts for some tokens."""
    model = build()
    samples = sample(model)
    assert step(model, samples, lr=0.02)["train/moved_experts"] == 0
    assert step(model, samples, lr=0.02)["train/moved_experts"] > 0
    assert 0.02 < step(model, samples)["train/moved_experts"] < 0.5
    free, replayed = find_gaps(model, forget_experts(samples)), find_gaps(model, samples)
    assert replayed.mean() < free.mean()
    assert "train/moved_experts" not in step(model, forget_experts(samples))


def test_a_shared_prefix_changes_nothing() -> None:
    """Beginnings that several samples share, of which one took other experts."""
    samples = sample(build())
    experts = np.array(samples[1].experts)
    experts[5] = experts[5, ::-1]
    samples[1] = replace(samples[1], experts=to_experts(experts))
    models = build("float64"), build("float64")
    for model, packing in zip(models, (ALONE, SHARED), strict=True):
        step(model, samples, packing, lr=0.5)
    parts = [torch.cat([p.detach().reshape(-1) for p in model.parameters()]) for model in models]
    before = torch.cat([p.detach().reshape(-1) for p in build("float64").parameters()])
    assert float((parts[0] - parts[1]).abs().max()) < 1e-7  # routers weigh in float32
    assert float((parts[0] - before).abs().max()) > 1e-4
    assert len(collate(samples, shared_prefix=True).token_ids) < len(collate(samples).token_ids)
    free = build()
    assert np.abs(find_gaps(free, samples) - find_gaps(free, samples, SHARED)).max() < 1e-5


def test_a_router_learns_from_the_experts_that_were_taken() -> None:
    """Two of 8 experts are recorded for all tokens: the others have no gradient, and the router has one."""
    model = build()
    samples = take_first_two(sample(model))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    step(model, samples, lr=0.5)
    changed = {name: parameter.detach() - before[name] for name, parameter in model.named_parameters()}
    moved = changed["model.layers.0.mlp.experts.down_proj"].abs().amax((1, 2)) > 0
    # The last token of a sample has no record and takes what the router likes; nothing depends on it.
    assert moved.nonzero()[:, 0].tolist() == [0, 1]
    assert float(changed["model.layers.0.mlp.gate.weight"].abs().max()) > 0


def test_reference_and_critic_choose_for_themselves() -> None:
    """The policy at the start is its own reference; with experts it would not take, their log-probabilities part."""
    trainer = Case(kl=0.1, critic="separate").build(build())
    samples = take_first_two(sample(build(), num=2))
    free = forget_experts(samples)
    wanted = frozenset[Wanted]({"policy_logprobs", "reference_logprobs", "values"})
    scored, of_free = trainer.score(samples, wanted), trainer.score(free, wanted)
    assert scored.values is not None
    assert of_free.values is not None
    assert np.array_equal(np.concatenate(scored.values), np.concatenate(of_free.values))
    assert scored.reference_logprobs is not None
    assert scored.policy_logprobs is not None
    assert of_free.policy_logprobs is not None
    own = np.concatenate(of_free.policy_logprobs)
    assert np.array_equal(np.concatenate(scored.reference_logprobs), own)
    assert np.abs(np.concatenate(scored.policy_logprobs) - own).max() > 1e-2


def take_first_two(samples: list[Sample]) -> list[Sample]:
    """As if every token had taken experts 0 and 1."""
    return [
        replace(each, experts=to_experts(np.tile(np.arange(2), (len(each.token_ids) - 1, 2, 1)))) for each in samples
    ]


def test_a_step_without_experts_is_refused() -> None:
    model = build()
    samples = sample(model, num=2)
    check_routing(model, samples)
    with pytest.raises(TrainingError, match=r"uses 2 experts in each of 2 layers.*0/1 recorded none.*engine.kind"):
        check_routing(model, [samples[0], *forget_experts(samples[1:])])
    other = replace(samples[0], experts=to_experts(np.zeros((53, 3, 2))))
    with pytest.raises(TrainingError, match=r"recorded \(3, 2\)"):
        check_routing(model, [other])
    check_routing(build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1), forget_experts(samples))


def test_routers_that_would_not_follow_are_refused() -> None:
    model = build()
    samples = sample(model, num=2)
    bare = AutoModelForCausalLM.from_config(model.config)
    with pytest.raises(TrainingError, match="cannot replay recorded experts"):
        check_routing(bare, samples)
    prepare_experts(bare, torch.device("cpu"))
    check_routing(bare, samples)


def test_engines_that_record_nothing_are_refused_for_a_mixture() -> None:
    for kind in ("paged", "workers", "math:sqrt"):
        check_recording(kind, build())
    for kind in ("local", "vllm"):
        check_recording(kind, build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1))
        with pytest.raises(ConfigError, match=rf"engine.kind='{kind}' does not record.*paged or workers"):
            check_recording(kind, build())
