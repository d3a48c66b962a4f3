"""Everything that computes, once on the CPU and once on the device that is not there; prints both as JSON.

    python tests/unit/runs/pretend_checks.py FOLDER RECIPE [section.key=value ...]

The device computes on the CPU: what runs without a gradient must be equal in every bit. With one, torch picks another
attention kernel for it, which rounds otherwise."""

import asyncio
import copy
import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from pretend_device import DEVICE, Pretending, check_the_device, is_refused
from transformers import PreTrainedModel

from turnwise.algorithms.corrections import compute_correction
from turnwise.algorithms.losses.inputs import LossInputs
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.config.load import load_config
from turnwise.core.batch import Pair
from turnwise.core.errors import EngineError
from turnwise.core.metrics import record
from turnwise.core.types import (
    Completion,
    Grammar,
    Origin,
    Sample,
    SamplingParams,
    Session,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model
from turnwise.models.checksums import compute_checksums
from turnwise.models.invariant import InvariantAttention
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer
from turnwise.runs import build
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder
from turnwise.training.concentration import CONCENTRATIONS, score_concentration
from turnwise.training.critic import build_critic, compute_value_columns, run_critic_step, score_values
from turnwise.training.forward import score_logprobs
from turnwise.training.implicit_reward import build_implicit_reward, run_implicit_reward_step
from turnwise.training.optimizer import build_optimizer
from turnwise.training.parity import collect_evidence
from turnwise.training.policy_step import PolicyLoss, run_policy_step
from turnwise.training.preference_step import run_pair_step
from turnwise.training.sft import run_sft_step

CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
}
CLOCKS = ("time", "seconds", "per_s")
BETAS = (0.9, 0.95)
TOKENIZER = train_tokenizer(["the cat sat on 7 mats\n"] * 20, vocab_size=300, special_tokens=QWEN3_SPECIAL_TOKENS)
VOCAB = len(TOKENIZER)
Device = torch.device | str


def build_policy(device: Device, dtype: str = "float32", seed: int = 0) -> PreTrainedModel:
    model = build_model(
        "qwen3", {**CONFIG, "initializer_range": 0.1}, vocab_size=VOCAB, seed=seed, dtype=dtype, device=device
    )
    model.tie_weights()  # moving a model there makes new parameters, moving it to a GPU does not
    return model


def sample_replies(kind: str, device: Device) -> list[list[float]]:
    """Token ids and log-probabilities of a group that shares half a page, of their second turns, and of every kind of
    settings."""
    name, dtype = kind.split()
    model = build_policy(device, dtype)
    shape: dict[str, Any] = {"max_concurrency": 8, "max_context": 128, "max_batch_tokens": 40}
    engine: Any
    if name == "local":
        engine = LocalEngine(model, **shape)
    else:
        grammars = GrammarCompiler(TOKENIZER, vocab_size=VOCAB)
        engine = PagedEngine(model, **shape, fused=name == "fused", max_draft_tokens=4, page_size=16, grammars=grammars)
    settings: list[dict[str, Any]] = [
        {},
        {"temperature": 0.0},
        {"temperature": 0.7, "top_k": 9},
        {"top_p": 0.8, "min_p": 0.01},
        {},
    ]
    if name != "local":
        settings[-1] = {"grammar": Grammar(kind="regex", text="[0-9]{9}")}
    prompt = [7, 8, 9] * 8

    async def run() -> list[Completion]:
        def ask(i: int, ids: list[int]) -> Any:
            params = SamplingParams(max_tokens=6, seed=i, **settings[i])
            return engine.generate(to_ids(ids), params, session=Session("g", str(i)))

        first = await asyncio.gather(*(ask(i, prompt) for i in range(5)))
        return [
            *first,
            *(await asyncio.gather(*(ask(i, [*prompt, *c.token_ids.tolist(), 5, 6]) for i, c in enumerate(first)))),
        ]

    done = asyncio.run(run())
    full = [[] if c.full_logprobs is None else c.full_logprobs.tolist() for c in done]
    return [[*c.token_ids.tolist(), *c.logprobs.tolist(), *more] for c, more in zip(done, full, strict=True)]


def make_samples() -> list[Sample]:
    """Four, of which two and two share what they begin with."""
    draw = np.random.default_rng(3)
    samples = []
    for number in range(4):
        shared = np.random.default_rng(number // 2).integers(0, VOCAB, 6)
        ids = np.concatenate([shared, draw.integers(0, VOCAB, 5 + number)])
        mask = np.arange(len(ids)) >= 6
        samples.append(
            Sample(
                token_ids=to_ids(ids.tolist()),
                loss_mask=to_mask(mask),
                context_mask=to_mask(np.zeros(len(ids), bool)),
                behavior_logprobs=to_floats(np.where(mask, -5.0 + 0.3 * draw.normal(size=len(ids)), 0.0)),
                advantages=to_floats(np.where(mask, draw.normal(size=len(ids)), 0.0)),
                version_first=0,
                version_last=0,
                origin=Origin(trajectory=TrajectoryId(draw=number // 2, member=number), task_id="t"),
            )
        )
    return samples


def take_steps(device: Device) -> dict[str, Any]:
    """Every kind of optimizer step on one policy, one after the other, and every kind of score."""
    samples, policy, other = make_samples(), build_policy(device), build_policy(device, seed=1)
    packing: dict[str, Any] = {"micro_batch_tokens": 24, "shared_prefix": True}
    common: dict[str, Any] = {"max_grad_norm": 1.0, **packing}
    optimizer = build_optimizer(policy, lr=1e-2, betas=BETAS, weight_decay=0.1)
    about: dict[str, Any] = {"lr": 1e-2, "betas": BETAS, "weight_decay": 0.1}
    head = build_critic(policy, kind="head", clip=0.2, coefficient=0.5, **about)
    separate = build_critic(policy, kind="separate", clip=None, coefficient=1.0, **about)
    implicit = build_implicit_reward(policy, beta=0.1, **about)
    scores = score_logprobs(policy, samples, 0.9, **packing)
    values, finals = score_values(separate, samples, **packing)
    columns = compute_value_columns(values, [np.asarray(v, np.float64) + 1.0 for v in values])
    loss = PolicyLoss(
        function=build_loss("clip_cov"),
        temperature=0.9,
        batch_rule=True,
        correct=partial(compute_correction, mode="truncate", level="token", low=0.5, high=2.0),
        kl_coefficient=0.1,
        entropy_coefficient=0.01,
        teacher_coefficient=0.1,
    )
    step = partial(
        run_policy_step, policy, optimizer, samples, loss=loss, lr=1e-2, reference=other, teacher=other, critic=head
    )
    found: dict[str, Any] = {"policy": step(columns={**columns, "old_logprobs": scores}, **common)}
    plain = {**common, "shared_prefix": False}
    again = replace(loss, function=build_loss("gspo"), batch_rule=False)
    found["plain"] = run_policy_step(
        policy, optimizer, samples, loss=again, lr=1e-2, reference=other, teacher=other, **plain
    )
    found["sft"] = run_sft_step(policy, optimizer, samples, lr=1e-2, **common)
    found["critic"] = run_critic_step(separate, samples, columns, **common)
    found["implicit"] = run_implicit_reward_step(
        implicit, samples, [1.0, 0.0, 1.0, 0.0], scores, temperature=0.9, **common
    )
    steps = [to_mask(np.arange(int(sample.loss_mask.sum())) > 1) for sample in samples]
    pairs = [
        Pair(chosen=(i,), rejected=(i + 1,), chosen_in_step=(steps[i],), rejected_in_step=(steps[i + 1],))
        for i in (0, 2)
    ]

    def judge(
        own: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, in_step: torch.Tensor, num_pairs: int
    ) -> Any:
        return compute_step_dpo_loss(own, reference, sequence, in_step, num_pairs=num_pairs, beta=0.5)

    found["pairs"] = run_pair_step(
        policy, other, optimizer, samples, pairs, loss=judge, temperature=0.9, lr=1e-2, **common
    )
    reports = {
        name: {k: v for k, v in record(metrics).items() if not k.endswith(CLOCKS)} for name, metrics in found.items()
    }
    evidence = collect_evidence(policy, samples, temperature=0.9)
    concentrations = score_concentration(policy, samples, 0.9, CONCENTRATIONS.keys(), **packing)
    return {
        "metrics": reports,
        "weights": {
            name: float(p.double().norm())
            for own in (policy, separate.module, implicit.module)
            for name, p in own.named_parameters()
        },
        "checksums": sorted(compute_checksums(policy)),
        "scores": [array.tolist() for column in [scores, values, *concentrations.values()] for array in column],
        "finals": finals,
        "evidence": np.asarray(evidence.trainer_logprobs).tolist(),
    }


def apply_losses(device: Device) -> dict[str, Any]:
    """Value and gradient of every loss."""
    draw = np.random.default_rng(0)
    found = {}
    for name in LOSSES:
        old, behavior, advantages = (
            torch.from_numpy(draw.normal(size=6).astype(np.float32)).to(device) for _ in range(3)
        )
        policy = (old + 0.1 * behavior).requires_grad_()
        sequence = torch.tensor([0, 0, 0, 1, 1, 1], device=device)
        inputs = LossInputs(
            policy_logprobs=policy,
            old_logprobs=old,
            behavior_logprobs=behavior,
            advantages=advantages,
            sequence=sequence,
            entropy=old.abs(),
        )
        output = build_loss(name)(inputs)
        output.losses.sum().backward()
        assert policy.grad is not None
        found[name] = [output.losses.detach().tolist(), output.clipped.tolist(), policy.grad.tolist()]
    return found


def train_and_audit(folder: Path, recipe: Path, overrides: list[str]) -> dict[str, Any]:
    """Rows of metrics on the CPU and there, of the latter resumed, and what the audits say, there and back on the
    CPU."""

    def train(name: str) -> Path:
        settings = [*overrides, "model.device=cpu", f"run.output={folder / name}"]
        return run_train(load_config([recipe], settings), resume=None, display=False)

    def rows(run: Path) -> list[dict[str, Any]]:
        # A redone step has no schedule.
        return [
            {k: v for k, v in row.items() if not k.endswith(CLOCKS) and not k.startswith("schedule/")}
            for row in RunFolder.open(run).read_metrics()
        ]

    found: dict[str, Any] = {"here": rows(train("here"))}
    # No recipe names this device.
    with patch.object(build, "choose_device", lambda wanted: DEVICE), Pretending():
        there = train("there")
        found["there"] = rows(there)
        shutil.rmtree(there / "checkpoints" / "step_000002")
        run_train(None, resume=there, display=False)
        found["resumed"] = rows(there)
        found["breaches"] = [str(breach) for breach in audit_run(there).breaches]
    found["breaches"] += [str(breach) for breach in audit_run(there, device="cpu").breaches]
    found["events"] = (there / "events.jsonl").read_text(encoding="utf-8")
    return found


def refuse_exact_scoring() -> bool:
    """Whether exact mode says no there."""
    score = partial(
        collect_evidence, build_policy(DEVICE), make_samples(), temperature=1.0, attention=InvariantAttention
    )
    return is_refused(score, cause=EngineError)


def main() -> None:
    """Run and print."""
    torch.set_num_threads(1)
    engines = (
        "modules bfloat16",
        "fused float32",
        "fused bfloat16",
        "local bfloat16",
    )  # the run has the modules in float32
    jobs: dict[str, Any] = {f"replies, {kind}": partial(sample_replies, kind) for kind in engines}
    jobs |= {"steps": take_steps, "losses": apply_losses}
    found: dict[str, Any] = {"here": {name: job("cpu") for name, job in jobs.items()}}
    with Pretending():
        found["noticed"] = {**check_the_device(), "exact scoring": refuse_exact_scoring()}
        found["there"] = {name: job(DEVICE) for name, job in jobs.items()}
        assert copy.deepcopy(build_policy(DEVICE)).device == DEVICE
    found["run"] = train_and_audit(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
