"""How far Turnwise is from transformers alone on one tiny model: log-probabilities, samples, an optimizer step.

What is compared with is plain: the model's own eager attention on one sequence at a time without a cache, and PyTorch's
AdamW on its gradients. Nothing of Turnwise computes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from every_model import build_tiny, draw_words, why_not_built
from transformers import PreTrainedModel

from turnwise.core.errors import TurnwiseError
from turnwise.core.protocols import Engine
from turnwise.core.types import (
    Completion,
    Origin,
    Sample,
    SamplingParams,
    Session,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.check import check_steps
from turnwise.engines.registry import build_engine
from turnwise.engines.settings import EngineSettings
from turnwise.models.attention import register_attention
from turnwise.models.check import choose_path
from turnwise.models.paths import find_path
from turnwise.models.rope import pin_length
from turnwise.training.forward import score_logprobs
from turnwise.training.optimizer import build_optimizer
from turnwise.training.sft import run_sft_step

LR, BETAS, WEIGHT_DECAY, MAX_GRAD_NORM = 1e-3, (0.9, 0.95), 0.01, 1.0
MICRO_BATCH = 10_000
"""Tokens: all sequences in one."""
MAX_CONTEXT = 96
"""Tokens of the longest sequence that may come."""
BOUNDS = {"packed": 1e-4, "shared": 1e-4, "sampled": 1e-4, "cached": 1e-4, "step": 1e-2}
"""What is measured, and what of it is arithmetic in float32; `measure_model` explains each. A step of AdamW divides by
the gradient's own size, so that the few weights whose gradient is noise go either way: 0.2% of a step at most was seen,
and 30% and more where a gradient is wrong."""
FAILURES = (
    TurnwiseError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a model raises that does not fit; anything else is a fault of this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One model, by `every_model.list_names`."""

    name: str
    path: str
    """fast, generic, refused, or "not built"."""
    reason: str
    """Why it is not the fast path; empty for the fast one."""
    gaps: Mapping[str, float] = field(default_factory=dict)
    """By what was measured; inf where it failed."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """What was raised, by the gap that is inf."""
    bfloat16: str = ""
    """The path in bfloat16."""
    seconds: float = 0.0
    """Of all of it."""


def measure_model(name: str) -> Measured:
    """Measure one model.

    packed:  four sequences in one micro-batch, against each alone
    shared:  the same as a prefix tree of what they begin with
    sampled: replies of three conversations at a time, as recorded when they were sampled
    cached:  the replies of their second turns, which read what the first left in the cache
    step:    the weights after one optimizer step on the four sequences, against transformers and AdamW alone

    The first four are the largest difference of a token's log-probability, in nats; `step` is the part of the change of
    the weights that differs.
    """
    started = time.perf_counter()
    if (why := why_not_built(name)) is not None:
        return Measured(name=name, path="not built", reason=why)
    chosen, reason, model = choose(build_tiny(name))
    bfloat16 = choose(build_tiny(name, dtype=torch.bfloat16))[0]
    gaps: dict[str, float] = {}
    failures: dict[str, str] = {}
    if model is not None:
        measures: Mapping[tuple[str, ...], Callable[[PreTrainedModel, PreTrainedModel], tuple[float, ...]]] = {
            ("packed",): lambda ours, alone: compare_scores(ours, alone, shared_prefix=False),
            ("shared",): lambda ours, alone: compare_scores(ours, alone, shared_prefix=True),
            ("sampled", "cached"): compare_replies,
            ("step",): compare_steps,
        }
        for names, measure in measures.items():
            try:
                gaps |= zip(names, measure(model, build_alone(name)), strict=True)
            except FAILURES as error:
                gaps |= dict.fromkeys(names, float("inf"))
                failures |= dict.fromkeys(names, describe(error))
    return Measured(
        name=name,
        path=chosen,
        reason=reason,
        gaps=gaps,
        failures=failures,
        bfloat16=bfloat16,
        seconds=time.perf_counter() - started,
    )


def choose(model: PreTrainedModel) -> tuple[str, str, PreTrainedModel | None]:
    """The path that Turnwise takes for a model, why it is not the fast one, and the model; None where it is refused."""
    register_attention()
    try:
        model = choose_path(model)
        pin_length(model, MAX_CONTEXT)
        model = check_steps(model)
    except TurnwiseError as error:
        return "refused", describe(error), None
    path = find_path(model)
    return path.kind, path.reason, model


def open_engine(model: PreTrainedModel) -> Engine:
    """The default engine for a model, with room for three conversations."""
    common = EngineSettings(max_concurrency=3, max_context=MAX_CONTEXT)
    return build_engine("paged", model, common=common, options={})


def build_alone(name: str) -> PreTrainedModel:
    """The model as transformers has it, but for a rope that turns by the length of the sequence, or of the longest so
    far: as a run does it, it turns all by `MAX_CONTEXT` tokens."""
    model = build_tiny(name)
    score_alone(model, draw_words(MAX_CONTEXT).numpy())
    for module in model.modules():
        kind = getattr(module, "rope_type", None)  # "default" leaves the frequencies of the call above
        if kind is not None:
            module.rope_type = dict.fromkeys(kind, "default") if isinstance(kind, dict) else "default"
    return model


def describe(error: BaseException) -> str:
    """Class and message in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:300]


# ---------------------------------------------------------------------------------------------------- what is compared


def draw_samples() -> list[Sample]:
    """Four sequences of 17 to 31 tokens, three of which begin with the same 9; all tokens but the first train."""
    start, first = draw_words(9, seed=1), draw_words(15, seed=2)
    sequences = [
        torch.cat([start, first]),
        torch.cat([start, draw_words(22, seed=3)]),
        draw_words(17, seed=4),
        torch.cat([start, first[:5], draw_words(9, seed=5)]),
    ]
    return [_to_sample(ids.numpy(), index) for index, ids in enumerate(sequences)]


def _to_sample(ids: np.ndarray, index: int) -> Sample:
    trained = np.arange(len(ids)) > 0
    return Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask(trained),
        behavior_logprobs=to_floats(np.where(trained, -1.0, 0.0)),
        advantages=to_floats(np.where(trained, 1.0, 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=index), task_id="t"),
    )


def compare_scores(ours: PreTrainedModel, alone: PreTrainedModel, *, shared_prefix: bool) -> tuple[float]:
    """Largest gap of the log-probabilities that training reads."""
    samples = draw_samples()
    scores = score_logprobs(ours, samples, 1.0, micro_batch_tokens=MICRO_BATCH, shared_prefix=shared_prefix)
    gaps = [largest(score, score_alone(alone, s.token_ids)[1:]) for score, s in zip(scores, samples, strict=True)]
    return (max(gaps),)


def compare_replies(ours: PreTrainedModel, alone: PreTrainedModel) -> tuple[float, ...]:
    """Largest gap of the log-probabilities recorded with the replies of each turn."""
    gaps: list[list[float]] = [[], []]
    for prompts, completions in asyncio.run(converse(open_engine(ours))):
        for turn, (before, completion) in enumerate(zip(prompts, completions, strict=True)):
            expected = score_alone(alone, np.concatenate([before, completion.token_ids]))[len(before) :]
            gaps[turn].append(largest(completion.logprobs, expected))
    return tuple(max(turn) for turn in gaps)


async def converse(engine: Engine) -> list[tuple[list[np.ndarray], list[Completion]]]:
    """Three conversations of two turns at a time, of prompts of 11 to 21 tokens: prompts and replies of each."""

    async def talk(index: int) -> tuple[list[np.ndarray], list[Completion]]:
        session = Session(f"group{index}", "0")
        ids = draw_words((15, 21, 11)[index], seed=10 + index).numpy()
        prompts, completions = [], []
        for turn in range(2):
            params = SamplingParams(max_tokens=8, seed=100 * index + turn)
            prompts.append(ids)
            completions.append(await engine.generate(to_ids(ids), params, session=session))
            ids = np.concatenate([ids, completions[-1].token_ids, draw_words(7, seed=20 + index).numpy()])
        await engine.release(session)
        return prompts, completions

    return await asyncio.gather(*(talk(index) for index in range(3)))


def compare_steps(ours: PreTrainedModel, alone: PreTrainedModel) -> tuple[float]:
    """How far the weights are apart after one step of cross-entropy each, as a part of how far they went."""
    samples = draw_samples()
    before = _weights_of(alone)
    optimizer = build_optimizer(ours, lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY)
    run_sft_step(
        ours, optimizer, samples, lr=LR, max_grad_norm=MAX_GRAD_NORM, micro_batch_tokens=MICRO_BATCH, shared_prefix=True
    )
    train_alone(alone, [sample.token_ids for sample in samples])
    after = _weights_of(alone)
    return (float((_weights_of(ours) - after).norm() / (after - before).norm()),)


def _weights_of(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])


def train_alone(model: PreTrainedModel, sequences: Sequence[np.ndarray]) -> None:
    """One step of AdamW on the mean cross-entropy of all tokens but the first, by one sequence at a time."""
    total = sum(len(ids) - 1 for ids in sequences)
    step_alone(model, (-_run_alone(model, ids).sum() / total for ids in sequences))


def step_alone(model: PreTrainedModel, losses: Iterable[torch.Tensor]) -> None:
    """One step of AdamW on the sum of losses."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, foreach=False)
    for loss in losses:
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()


@torch.no_grad()
def score_alone(model: PreTrainedModel, ids: np.ndarray) -> np.ndarray:
    """Log-probability `[N]` of every token of one sequence; 0 for the first."""
    return np.concatenate([[0.0], _run_alone(model, ids).numpy()])


def _run_alone(model: PreTrainedModel, ids: np.ndarray) -> torch.Tensor:
    """Log-probability `[N - 1]` of every token but the first, by the model's own forward."""
    row = torch.from_numpy(np.asarray(ids, np.int64))[None]
    logits: torch.Tensor = model(input_ids=row, use_cache=False).logits
    return logits[0, :-1].log_softmax(-1).gather(-1, row[0, 1:, None])[:, 0]


def largest(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest absolute difference; inf where anything is not finite."""
    gap = float(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64)).max())
    return gap if np.isfinite(gap) else float("inf")
