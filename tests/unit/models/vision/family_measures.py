"""How far Turnwise is from transformers alone on one tiny vision-language model: prompts, log-probabilities, samples,
an optimizer step.

What is compared with is plain: the model's own forward from ids and pixels with its eager attention, one conversation
at a time without a cache, and PyTorch's AdamW on its gradients. Ours has the placeholder's probability at 0; so has the
plain one, whose logit of that token is set by hand."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from conversations import Seen, compute_packed, compute_whole, list_places, look, write
from model_measures import BETAS, LR, MAX_GRAD_NORM, MICRO_BATCH, WEIGHT_DECAY, largest, step_alone
from PIL import Image
from their_processors import build_processor
from tiny_seeing import build_seeing, draw
from transformers import PreTrainedModel

from turnwise.core.positions import number_positions
from turnwise.core.types import (
    ImagePart,
    Origin,
    Prompt,
    Sample,
    SamplingParams,
    Session,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.check import check_steps
from turnwise.engines.paged.engine import PagedEngine
from turnwise.models.build import load_model
from turnwise.models.check import choose_path, to_logprobs
from turnwise.models.paths import ModelPath, find_path, is_fast, set_path
from turnwise.models.vision.eyes import Eyes, place_eyes, save_processor
from turnwise.models.vision.inputs import embed
from turnwise.models.vision.placeholder import NEVER
from turnwise.models.vision.sight import load_sight
from turnwise.training.forward import score_logprobs
from turnwise.training.optimizer import build_optimizer
from turnwise.training.sft import run_sft_step

SIZES = ((32, 32), (40, 20), (5, 90), (64, 64), (200, 150), (1, 1), (3, 40), (40, 3))
"""Widths and heights of the pictures whose prompts are compared."""
MAX_CONTEXT = 512
NAMES = ("two steps", "packed", "shared", "reloaded", "sampled", "scored", "step", "after a step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One family, by a name in `tiny_seeing.CONFIGS`."""

    name: str
    path: str
    parameters: int
    prompts: int
    """Pictures of `SIZES` whose prompts are those of the family's processor."""
    gaps: Mapping[str, float]
    """Nats, by `NAMES`; "step" is a part of the change of the weights."""


def measure_family(name: str, *, dtype: str = "float32") -> Measured:
    """Measure one family.

    two steps:    features first, then the layers, against the model's own forward from pixels, both eager
    packed:       three conversations in one micro-batch, as training scores them
    shared:       the same as a prefix tree of what they begin with
    reloaded:     saved with its processor and loaded again, against itself
    sampled:      five turns with three pictures of two conversations at a time, as recorded when they were sampled
    scored:       the same against what training scores
    step:         the weights after one optimizer step on the three conversations, against transformers and AdamW alone
    after a step: the five turns once more, sampled by the changed weights, against the changed model's own forward

    All but `step` are the largest difference of a token's log-probability, in nats; "reloaded" of a logit.
    """
    ours, eyes = build_checked(name, dtype)
    alone = set_alone(copy.deepcopy(ours))
    conversations = write_conversations(eyes)
    samples = [to_sample(each, eyes, index) for index, each in enumerate(conversations)]
    expected = [score_whole(alone, eyes, each) for each in conversations]
    gaps = {"two steps": compare_two_steps(alone, eyes, conversations[1])}
    for key, shared in (("packed", False), ("shared", True)):
        scores = score_logprobs(ours, samples, 1.0, micro_batch_tokens=MICRO_BATCH, shared_prefix=shared)
        pairs = zip(scores, expected, samples, strict=True)
        gaps[key] = max(largest(score, whole[sample.loss_mask]) for score, whole, sample in pairs)
    gaps["reloaded"] = compare_reloaded(ours, eyes, conversations[1], dtype)
    engine = PagedEngine(ours, max_concurrency=2, max_context=MAX_CONTEXT)
    gaps["sampled"], gaps["scored"] = compare_replies(engine, ours, alone, eyes)
    gaps["step"] = compare_steps(ours, alone, eyes, conversations, samples)
    asyncio.run(engine.adopt(1))
    gaps["after a step"], _ = compare_replies(engine, ours, set_alone(copy.deepcopy(ours)), eyes)
    return Measured(
        name=name,
        path=find_path(ours).kind,
        parameters=sum(parameter.numel() for parameter in ours.parameters()),
        prompts=count_prompts(name),
        gaps=gaps,
    )


def build_checked(name: str, dtype: str) -> tuple[PreTrainedModel, Eyes]:
    """Build a model whose pictures show in its logits, on the path that a run takes."""
    model, _, eyes = build_seeing(name, dtype=dtype, visible=True)
    return check_steps(choose_path(model)), eyes


def set_alone(model: PreTrainedModel) -> PreTrainedModel:
    """Make a model compute with its own attention; returns it."""
    return set_path(model, ModelPath(kind="generic", reason="what is compared with"))


# ---------------------------------------------------------------------------------------------------- what is compared


def write_conversations(eyes: Eyes) -> list[Seen]:
    """Three conversations, two of which begin with the same words and picture."""
    first, second, third = draw(0, 40, 20), draw(1), draw(2, 20, 70)
    return [
        write(eyes, [40, 41, 42], first, [50, 51]),
        write(eyes, [40, 41, 42], first, [50, 60], second, [61, 62]),
        write(eyes, [43], third, [44, 45, 46]),
    ]


def to_sample(seen: Seen, eyes: Eyes, index: int) -> Sample:
    """A sample that trains on every token of text but the first."""
    trained = np.arange(len(seen.token_ids)) > 0
    trained &= np.array(seen.token_ids) != eyes.layout.place_id
    return Sample(
        token_ids=to_ids(seen.token_ids),
        loss_mask=to_mask(trained),
        behavior_logprobs=to_floats(np.where(trained, -1.0, 0.0)),
        advantages=to_floats(np.where(trained, 1.0, 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=index), task_id="t"),
        images=tuple(seen.spans),
    )


def run_whole(model: PreTrainedModel, eyes: Eyes, seen: Seen) -> torch.Tensor:
    """Log-probability `[N - 1]` of every token but the first, by the model's own forward from pixels."""
    logits = compute_whole(model, eyes, seen)[:-1]
    place = torch.tensor([eyes.layout.place_id])
    targets = torch.tensor(seen.token_ids[1:])[:, None]
    return to_logprobs(logits.index_fill(-1, place, NEVER)).gather(-1, targets)[:, 0]


@torch.no_grad()
def score_whole(model: PreTrainedModel, eyes: Eyes, seen: Seen) -> np.ndarray:
    """The same as an array `[N]`; 0 for the first token."""
    return np.concatenate([[0.0], run_whole(model, eyes, seen).numpy()])


@torch.no_grad()
def compare_two_steps(alone: PreTrainedModel, eyes: Eyes, seen: Seen) -> float:
    """Largest difference of log-probabilities with features first."""
    ids = torch.tensor([seen.token_ids])
    inputs = embed(alone, ids, torch.tensor(list_places(seen.spans)), look(alone, eyes, seen.spans))
    positions = torch.from_numpy(number_positions(ids.shape[1], seen.spans))[..., None, :]
    logits = alone(**inputs, position_ids=positions, use_cache=False).logits[0]
    return float((to_logprobs(logits) - to_logprobs(compute_whole(alone, eyes, seen))).abs().max())


@torch.no_grad()
def compare_reloaded(ours: PreTrainedModel, eyes: Eyes, seen: Seen, dtype: str) -> float:
    """Largest difference of logits from those of the model that is saved and loaded again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours.save_pretrained(folder)
        save_processor(ours, folder)
        loaded = load_model(folder, dtype=dtype)
        sight = load_sight(folder, "saved")
    set_path(loaded, find_path(ours))
    other = Eyes(sight, eyes.pictures, eyes.layout)
    place_eyes(loaded, other)
    compute = compute_packed if is_fast(ours) else compute_whole
    return float((compute(loaded, other, seen) - compute(ours, eyes, seen)).abs().max())


def compare_replies(
    engine: PagedEngine, ours: PreTrainedModel, alone: PreTrainedModel, eyes: Eyes
) -> tuple[float, float]:
    """Largest gaps of the log-probabilities recorded with replies, to the model's own forward and to training."""
    gaps: list[float] = []
    samples: list[Sample] = []
    for seen, mask, logprobs in asyncio.run(converse(engine, eyes)):
        gaps.append(largest(logprobs[mask], score_whole(alone, eyes, seen)[mask]))
        sample = to_sample(seen, eyes, len(samples))
        behavior = np.where(mask, logprobs, 0.0)
        samples.append(replace(sample, loss_mask=to_mask(mask), behavior_logprobs=to_floats(behavior)))
    scores = score_logprobs(ours, samples, 1.0, micro_batch_tokens=MICRO_BATCH)
    scored = [
        largest(sample.behavior_logprobs[sample.loss_mask], score)
        for sample, score in zip(samples, scores, strict=True)
    ]
    return max(gaps), max(scored)


async def converse(engine: PagedEngine, eyes: Eyes) -> list[tuple[Seen, np.ndarray, np.ndarray]]:
    """Two conversations at a time of five turns, with pictures in the first, the second and the fourth: the tokens,
    which of them were sampled, and their log-probabilities."""

    async def talk(member: int) -> tuple[Seen, np.ndarray, np.ndarray]:
        session, seen = Session("group", str(member)), Seen([], [])
        mask: list[bool] = []
        logprobs: list[float] = []
        for turn in range(5):
            parts: list[list[int] | ImagePart] = [[40 + turn, 41]]
            if turn in (0, 1, 3):
                parts += [draw(10 * member * (turn > 0) + turn, 20 + 10 * turn, 40), [50]]
            seen = extend(seen, write(eyes, *parts))
            prompt = Prompt(token_ids=to_ids(seen.token_ids), images=tuple(seen.spans))
            params = SamplingParams(max_tokens=4, seed=100 * member + turn)
            completion = await engine.generate_seeing(prompt, params, session=session)
            mask += [False] * (len(seen.token_ids) - len(mask)) + [True] * len(completion.token_ids)
            logprobs += [0.0] * (len(seen.token_ids) - len(logprobs)) + completion.logprobs.tolist()
            seen = extend(seen, Seen(completion.token_ids.tolist(), []))
        await engine.release(session)
        return seen, np.array(mask), np.array(logprobs)

    return list(await asyncio.gather(talk(0), talk(1)))


def extend(seen: Seen, more: Seen) -> Seen:
    """Lay one piece of a conversation after another."""
    start = len(seen.token_ids)
    return Seen(seen.token_ids + more.token_ids, seen.spans + [span.shift(start) for span in more.spans])


def compare_steps(
    ours: PreTrainedModel, alone: PreTrainedModel, eyes: Eyes, conversations: list[Seen], samples: list[Sample]
) -> float:
    """How far the weights are apart after one step of cross-entropy each, as a part of how far they went."""
    before = _weights_of(alone)
    optimizer = build_optimizer(ours, lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY)
    run_sft_step(
        ours, optimizer, samples, lr=LR, max_grad_norm=MAX_GRAD_NORM, micro_batch_tokens=MICRO_BATCH, shared_prefix=True
    )
    total = sum(int(sample.loss_mask.sum()) for sample in samples)
    pairs = zip(conversations, samples, strict=True)
    step_alone(
        alone, (-run_whole(alone, eyes, seen)[sample.loss_mask[1:].tolist()].sum() / total for seen, sample in pairs)
    )
    after = _weights_of(alone)
    return float((_weights_of(ours) - after).norm() / (after - before).norm())


def count_prompts(name: str) -> int:
    """Return how many pictures of `SIZES` have the tokens that the family's processor gives them."""
    _, tokenizer, eyes = build_seeing(name)
    processor, found = build_processor(name, eyes, tokenizer), 0
    for size in SIZES:
        eyes.pictures.put(part := draw(3, *size))
        text = f"the {eyes.layout.marker} cat"
        made = processor(text=[text], images=[[Image.fromarray(eyes.pictures.read(part.digest))]], return_tensors="pt")
        ours: list[int] = []
        for token in tokenizer.encode(text, add_special_tokens=False):
            ours += eyes.layout.lay_out(part).token_ids.tolist() if token == eyes.layout.marker_id else [token]
        found += ours == made["input_ids"][0].tolist()
    return found


def _weights_of(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().double() for parameter in model.parameters()])
