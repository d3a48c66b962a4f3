"""Compare the memory plan with what a run takes, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/memory.py [--cases 2M bfloat16 served ...]

Each case is a recipe in a separate process, whose models, engine, trainer and publication are built as a run builds
them: sample until every conversation is as long as it may be, then take three optimizer steps on full micro-batches (of
groups that share a prefix where the case says so), with the scores that the credit method needs before each, and
publish. If the recipe lets rollouts continue during a step, both run at once.

The measured value is the peak of resident memory since the libraries were loaded and warmed up (Linux), with the memory
that engine workers do not share (their proportional set size); the prediction is `forecast.memory.plan_memory` before
anything is allocated, with the models measured on torch's meta device. Prints the share by which the plan is off."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

MODEL = {"num_key_value_heads": 2, "tie_word_embeddings": True, "max_position_embeddings": 8192}
SIZES: dict[str, dict[str, Any]] = {
    "2M": {
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "head_dim": 32,
    },
    "20M": {
        "hidden_size": 384,
        "intermediate_size": 1152,
        "num_hidden_layers": 9,
        "num_attention_heads": 6,
        "head_dim": 64,
    },
    "60M": {
        "hidden_size": 768,
        "intermediate_size": 2304,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "head_dim": 64,
    },
    "wide": {
        "hidden_size": 768,
        "intermediate_size": 2304,
        "num_hidden_layers": 2,
        "num_attention_heads": 12,
        "head_dim": 64,
    },
    "hybrid": {  # short convolutions, and attention in every third layer
        "hidden_size": 384,
        "intermediate_size": 1152,
        "num_hidden_layers": 9,
        "num_attention_heads": 6,
        "layer_types": 3 * ["conv", "conv", "full_attention"],
    },
    "seeing": {  # a tower of 11M on pictures of 64 patches and 64 places, text of 16M
        "scale_factor": 1,
        "text_config": {
            **MODEL,
            "model_type": "llama",
            "hidden_size": 384,
            "intermediate_size": 1152,
            "num_hidden_layers": 6,
            "num_attention_heads": 6,
        },
        "vision_config": {
            "hidden_size": 384,
            "intermediate_size": 1536,
            "num_hidden_layers": 6,
            "num_attention_heads": 6,
            "image_size": 128,
            "patch_size": 16,
        },
        "image_token_id": 1,
    },
    "135M": {  # SmolLM2-135M's
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
    },
}
Tree = Mapping[str, Mapping[str, Any]]


def sections(max_concurrency: int, max_context: int, micro_batch_tokens: int, **more: Any) -> dict[str, Any]:
    """Sections of a recipe."""
    engine = {"max_concurrency": max_concurrency, "max_context": max_context, **more.pop("engine", {})}
    train = {"micro_batch_tokens": micro_batch_tokens, "shared_prefix": False, **more.pop("train", {})}
    return {"engine": engine, "train": train, **more}


CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "2M": ("2M", 1000, sections(64, 512, 4096)),
    "20M": ("20M", 8000, sections(32, 512, 2048)),
    "vocabulary": ("2M", 32000, sections(64, 256, 1024)),
    "cache": ("2M", 1000, sections(128, 2048, 2048)),
    "60M": ("60M", 8000, sections(8, 512, 1024)),
    "135M": ("135M", 49152, sections(8, 384, 1024)),
    "large": ("60M", 8000, sections(8, 512, 4096)),
    "long": ("wide", 8000, sections(8, 512, 16384)),
    "shared": ("2M", 1000, sections(64, 512, 4608, train={"shared_prefix": True})),
    "plain": ("20M", 8000, sections(32, 512, 2048, engine={"options": {"fused": False}})),
    "bfloat16": ("60M", 8000, sections(8, 512, 2048, model={"dtype": "bfloat16"})),
    "served": ("60M", 8000, sections(8, 512, 1024, schedule={"max_staleness": 1})),
    "reference": ("20M", 16000, sections(16, 512, 2048, loss={"kl": {"coefficient": 0.01}})),
    "critic": ("60M", 8000, sections(8, 512, 1024, critic={"kind": "separate"}, credit={"method": "gae"})),
    "prime": ("60M", 8000, sections(8, 512, 1024, credit={"method": "prime"})),
    "updates": ("60M", 8000, sections(8, 512, 1024, loss={"updates_per_step": 2})),
    "lora": ("60M", 8000, sections(8, 512, 2048, model={"lora": {"rank": 16}}, loss={"kl": {"coefficient": 0.01}})),
    "recompute": ("20M", 8000, sections(16, 512, 8192, train={"recompute_activations": True})),
    "hybrid": ("hybrid", 8000, sections(16, 256, 1024, model={"model_type": "lfm2"})),
    "seeing": ("seeing", 8000, sections(8, 512, 2048, model={"model_type": "smolvlm"})),
    "frozen": ("seeing", 8000, sections(8, 512, 2048, model={"model_type": "smolvlm", "freeze_vision": True})),
    "workers": ("20M", 8000, sections(32, 512, 2048, engine={"kind": "workers", "options": {"num_workers": 2}})),
}
"""Name to model, vocabulary and sections. In "seeing" and "frozen" prompts consist of pictures, each shown once.
"plain" runs the model's modules; in "shared" groups of 8 share their prompt."""
TURN_TOKENS = 64


def build_config(case: str) -> Any:
    """The recipe of a case."""
    from turnwise.config.run import RunConfig

    size, vocab_size, tree = CASES[case]
    context = tree["engine"]["max_context"]
    rollout = {"group_size": 8, "max_tokens": context, "max_turns": 4, "max_turn_tokens": TURN_TOKENS}
    engine = tree["engine"]
    engine = {**engine, "options": {"max_batch_tokens": 2048, **engine.get("options", {})}}
    own = {} if "vision_config" in SIZES[size] else MODEL
    model = {"config": {**own, **SIZES[size]}, **tree.get("model", {})}
    return RunConfig.model_validate(
        {**tree, "engine": engine, "model": model, "tokenizer": {"vocab_size": vocab_size}, "rollout": rollout}
    )


def read_memory(name: str) -> int:
    """Bytes: "VmRSS" resident now, "VmHWM" at most since the last reset."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


class Album:
    """Pictures in memory, a new one for every place that is asked for."""

    def __init__(self, model: Any) -> None:
        from turnwise.models.measured import read_tower
        from turnwise.models.vision.eyes import Eyes, place_eyes
        from turnwise.models.vision.sight import build_sight
        from turnwise.models.vision.table import is_seeing
        from turnwise.pictures.store import PictureStore

        self._num_places, self._count, self._pictures = 0, 0, PictureStore(None)
        if is_seeing(model.config.model_type):
            self._num_places, self._side = read_tower(model.config, 0).places, model.config.vision_config.image_size
            place_eyes(model, Eyes(build_sight(model.config), self._pictures))

    def cover(self, num_tokens: int) -> tuple[Any, ...]:
        """Spans over the tokens of a prompt, the first one apart; none for a model of text only."""
        from turnwise.core.keys import Span
        from turnwise.core.messages import ImagePart, hash_pixels

        spans = []
        for start in range(1, num_tokens - self._num_places, self._num_places) if self._num_places else ():
            self._count += 1
            pixels = np.random.default_rng(self._count).integers(0, 256, 3 * self._side**2, np.uint8).tobytes()
            digest = hash_pixels(pixels, self._side, self._side)
            self._pictures.put(ImagePart(digest=digest, width=self._side, height=self._side, pixels=pixels))
            spans.append(Span(start=start, length=self._num_places, digest=digest))
        return tuple(spans)


def build_samples(config: Any, draw: np.random.Generator, album: Album) -> list[Any]:
    """Trajectories with their full budget for two micro-batches of every update, and a shorter one that fills each."""
    from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask

    length, limit = config.rollout.max_tokens, config.train.micro_batch_tokens
    most = min(length - 1, config.rollout.max_turns * config.rollout.max_turn_tokens)
    members = config.rollout.group_size if config.train.shared_prefix else 1
    computed = length - most + members * most
    rest = limit % computed if members == 1 else 0
    lengths = 2 * config.loss.updates_per_step * (max(1, limit // computed) * [length] + ([rest] if rest > 1 else []))
    samples = []
    for group, tokens in enumerate(lengths):
        num_sampled = max(1, round(most * tokens / length))
        trained = np.arange(tokens) >= tokens - num_sampled
        prompt = draw.integers(0, config.tokenizer.vocab_size, tokens - num_sampled)
        images = album.cover(len(prompt))
        for member in range(members):
            reply = draw.integers(0, config.tokenizer.vocab_size, num_sampled)
            samples.append(
                Sample(
                    token_ids=to_ids(np.concatenate([prompt, reply])),
                    loss_mask=to_mask(trained),
                    behavior_logprobs=to_floats(np.where(trained, -np.log(config.tokenizer.vocab_size), 0.0)),
                    advantages=to_floats(np.where(trained, 1.0, 0.0)),
                    version_first=0,
                    version_last=0,
                    origin=Origin(trajectory=TrajectoryId(draw=group, member=member), task_id="t"),
                    context_mask=to_mask(np.zeros(tokens, bool)),
                    images=images,
                )
            )
    return samples


class Watch:
    """The peak memory of this process and its workers, sampled every 20 ms; workers count what they do not share."""

    def __init__(self, pids: Any) -> None:
        self._pids = pids
        self.peak = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The peak memory of the workers alone, in bytes."""
        self._is_over.set()
        self._thread.join()
        return self.peak

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            self.peak = max(self.peak, sum(map(read_private, self._pids())))


def read_private(pid: int) -> int:
    """Bytes that a process shares with no other; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * sum(int(number) for number in re.findall(r"Private_(?:Clean|Dirty):\s+(\d+) kB", text))


def measure(case: str) -> dict[str, int]:
    """Measure in a separate process: peaks of sampling and of training, in bytes above what the libraries take."""
    import torch

    from turnwise.models.allocator import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()  # as `runs.build.build_system` does
    # Libraries load parts of themselves at their first use: a small model on few tokens, whose arrays are no matter.
    config = build_config(case)
    layers = config.model.config.get("layer_types")
    small = {**TINY, **({} if layers is None else {"num_hidden_layers": 3, "layer_types": layers[:3]})}
    if "vision_config" in config.model.config:
        small = dict(config.model.config)
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        small |= {name: {**small[name], **sizes} for name in ("text_config", "vision_config")}
    few = {
        "model": config.model.model_copy(update={"config": small}),
        "tokenizer": config.tokenizer.model_copy(update={"vocab_size": 300}),
        "engine": config.engine.model_copy(update={"max_concurrency": 2, "max_context": 128}),
        "rollout": config.rollout.model_copy(update={"max_tokens": 128, "max_turns": 1}),
        "train": config.train.model_copy(update={"micro_batch_tokens": 640}),
    }
    asyncio.run(play(config.model_copy(update=few)))
    before = read_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    return {name: peak - before for name, peak in asyncio.run(play(config)).items()}


async def play(config: Any) -> dict[str, int]:
    """Sample, train and publish three times; returns the largest resident memory up to the first step, and overall."""
    from turnwise.building.resolved import resolve
    from turnwise.building.trainer import build_local_trainer
    from turnwise.core.asking import ask_engine
    from turnwise.core.batch import Columns, TrainingBatch
    from turnwise.core.types import Prompt, SamplingParams, Session, to_ids
    from turnwise.engines.registry import build_engine
    from turnwise.models.build import build_model
    from turnwise.models.lora import add_adapter
    from turnwise.runs.build import engine_settings
    from turnwise.runs.model_path import settle_model
    from turnwise.sync.copied import CopiedParameters, copy_for_serving
    from turnwise.sync.shared import SharedParameters

    copies, vocab_size = resolve(config).copies, config.tokenizer.vocab_size
    model: Any = build_model(
        config.model.model_type, config.model.config, vocab_size=vocab_size, seed=1, dtype=config.model.dtype
    )
    settle_model(config, model)
    album = Album(model)
    if config.model.lora is not None:
        lora = config.model.lora
        model = add_adapter(
            model,
            rank=lora.rank,
            alpha=lora.alpha,
            dropout=lora.dropout,
            target_modules=lora.target_modules,
            base="",
            seed=2,
        )
    served = copy_for_serving(model) if copies.has_served else model
    engine: Any = build_engine(
        config.engine.kind, served, common=engine_settings(config), options=config.engine.options
    )
    sync: Any = (
        CopiedParameters(model, served, {"engine": engine})
        if copies.has_served
        else SharedParameters({"engine": engine})
    )
    trainer = build_local_trainer(resolve(config), model, None)
    draw = np.random.default_rng(0)
    watch = Watch(lambda: engine._pool.pids() if config.engine.kind == "workers" else [])

    async def sample(name: str) -> None:
        shape = config.engine
        prompts = draw.integers(0, vocab_size, (shape.max_concurrency, shape.max_context - 8))
        sessions = [Session(f"{name} {number}", "0") for number in range(len(prompts))]
        await asyncio.gather(
            *(
                ask_engine(
                    engine,
                    Prompt(token_ids=to_ids(prompt), images=album.cover(len(prompt))),
                    SamplingParams(max_tokens=8, seed=number),
                    session,
                )
                for number, (prompt, session) in enumerate(zip(prompts, sessions, strict=True))
            )
        )
        for session in sessions:
            await engine.release(session)

    await sample("first")
    sampling = read_memory("VmHWM")
    samples = tuple(build_samples(config, draw, album))
    needs = resolve(config).build_credit().method.needs
    wanted: Any = frozenset(needs) & {"values", "implicit_rewards"}
    parts = config.loss.updates_per_step
    updates = tuple(tuple(range(part, len(samples), parts)) for part in range(parts))

    def step(number: int) -> None:
        columns: Columns = trainer.score(samples, wanted, outcomes=[1.0] * len(samples))
        returns = tuple(np.ones(int(each.loss_mask.sum())) for each in samples)
        given = Columns(values=columns.values, returns=returns) if "values" in wanted else Columns()
        trainer.step(
            TrainingBatch(step=number, objective="policy_gradient", samples=samples, columns=given, updates=updates)
        )

    for version in (1, 2, 3):
        if copies.has_served:
            await asyncio.gather(asyncio.to_thread(step, version), sample(f"beside {version}"))
        else:
            await sync.hold()
            await asyncio.to_thread(step, version)
        await sync.publish(version)
        await sample(f"after {version}")
    workers = watch.stop()
    await engine.close()
    return {"sampling": sampling, "training": read_memory("VmHWM") + workers}


TINY = {
    **MODEL,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 8,
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--measure", choices=list(CASES))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    from turnwise.building.forecasting import read_forecast_settings
    from turnwise.building.resolved import resolve
    from turnwise.building.sizes import measure_recipe
    from turnwise.forecast.memory import plan_memory

    report: dict[str, Any] = {}
    for case in options.cases:
        config = build_config(case)
        resolved = resolve(config)
        shapes = measure_recipe(config, resolved.copies)
        plan = plan_memory(read_forecast_settings(resolved), shapes=shapes)
        assert plan is not None
        answer = subprocess.run(
            [sys.executable, __file__, "--measure", case], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            raise SystemExit(f"{case}: {answer.stderr[-2000:]}")
        measured = json.loads(answer.stdout)
        peak = max(measured.values())
        report[case] = {
            "measured_mib": {name: round(value / 2**20, 1) for name, value in measured.items()},
            "predicted_peak_mib": round(plan.peak / 2**20, 1),
            "off_by": round(plan.peak / peak - 1, 3),
        }
        print(case, report[case], file=sys.stderr, flush=True)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
