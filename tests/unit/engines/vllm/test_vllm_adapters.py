"""Adapters as versions: the base stays, log-probabilities are the trainer's, faults are found, and what vLLM cannot
hold is refused.

With TURNWISE_VLLM=PYTHON the tests without a planted fault run on the real vLLM of that interpreter (`make test-vllm`).
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from served_model import PROMPT, decode, make_model, score
from served_model import change as change_all
from transformers import PreTrainedModel
from vllm_engines import StandIn, ask, open_engine

from turnwise.config.load import load_config
from turnwise.core.errors import EngineError
from turnwise.core.types import Completion
from turnwise.engines.vllm import VllmEngine
from turnwise.models.build import load_model
from turnwise.models.checksums import BASE, compute_checksums
from turnwise.models.lora import add_adapter, list_adapter, load_adapter
from turnwise.models.staging import Staging
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.journal import read_journal

pytest.importorskip("peft")


def make_adapted(*, tied: bool = True, rank: int = 5, layers: Any = "all-linear") -> PreTrainedModel:
    """A model with an adapter that adds nothing yet."""
    model = make_model(tied=tied)
    return add_adapter(model, rank=rank, alpha=8.0, dropout=0.0, target_modules=layers, base="", seed=1)


def change(model: PreTrainedModel, *, seed: int) -> None:
    """A step of a trainer: every matrix of the adapter moves."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in list_adapter(model).values():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)


def gap(model: PreTrainedModel, completion: Completion, temperature: float = 1.0) -> float:
    """The largest distance of a reply's log-probabilities from the trainer's, in nats."""
    return float(np.abs(completion.logprobs - score(model, PROMPT, completion, temperature)).max())


@dataclass(frozen=True)
class Subject:
    """An engine that works, of which a start is dear, and its model."""

    model: PreTrainedModel
    engine: VllmEngine
    run: Callable[..., Any]


@pytest.fixture(scope="module", params=["tied", pytest.param("untied", marks=pytest.mark.slow)])
def subject(python: Path, request: pytest.FixtureRequest) -> Iterator[Subject]:
    model = make_adapted(tied=request.param == "tied")
    with asyncio.Runner() as runner:
        engine = VllmEngine(
            model, python=python, num_workers=1, max_concurrency=8, max_context=128, cache_mib=64, decode=decode
        )
        yield Subject(model, engine, runner.run)
        runner.run(engine.close())


def test_logprobs_are_the_trainers_before_and_after_three_versions(subject: Subject) -> None:
    model, engine = subject.model, subject.engine
    start = engine.version
    base = {name: parameter.clone() for name, parameter in model.named_parameters() if ".lora_" not in name}

    async def play() -> list[float]:
        gaps = []
        for version in range(start, start + 4):
            if version > start:
                change(model, seed=version)
                assert await engine.adopt(version) == compute_checksums(model)
            for temperature in (1.0, 0.7):
                completion = await ask(engine, PROMPT, temperature=temperature)
                assert (completion.version_first, completion.version_last) == (version, version)
                gaps.append(gap(model, completion, temperature))
        return gaps

    assert max(subject.run(play())) < 1e-4
    assert engine.restart_causes == []
    assert all(torch.equal(dict(model.named_parameters())[name], tensor) for name, tensor in base.items())


def test_what_older_adapters_computed_is_not_read(subject: Subject) -> None:
    """A block of the cache has 32 tokens, and the prompt 40."""
    model, engine = subject.model, subject.engine

    async def count_cached(name: str) -> float:
        before = engine.statistics().get("num_cached_tokens", 0)
        await ask(engine, PROMPT, name=name)
        return float(engine.statistics()["num_cached_tokens"]) - float(before)

    async def play() -> list[bool]:
        await ask(engine, PROMPT, name="warm")
        found = [await count_cached("again") > 0]
        change(model, seed=9)
        await engine.adopt(engine.version + 1)
        return [*found, *[await count_cached(name) > 0 for name in ("new", "new again")]]

    assert subject.run(play()) == [True, False, True]


@pytest.mark.parametrize("interrupt", ["finish", "continue", "restart"])
def test_replies_under_way_when_the_adapter_changes(subject: Subject, interrupt: Any) -> None:
    model, engine = subject.model, subject.engine
    old = engine.version

    async def play() -> tuple[list[Completion], int]:
        before = engine.statistics().get("num_sampled_tokens", 0)
        asks = [ask(engine, PROMPT, max_tokens=80, name=f"{n}", stop=("never",)) for n in range(2)]
        replies = [asyncio.create_task(each) for each in asks]
        while not replies[0].done() and engine.statistics().get("num_sampled_tokens", 0) <= before + 2:
            await asyncio.sleep(0.005)
        num_dropped = await engine.pause(interrupt)
        change(model, seed=5)
        await engine.adopt(old + 1)
        late = asyncio.create_task(ask(engine, PROMPT, name="late"))
        await asyncio.sleep(0.02)
        assert not late.done()
        await engine.resume()
        return [*await asyncio.gather(*replies), await late], num_dropped

    (*completions, late), num_dropped = subject.run(play())
    assert engine.restart_causes == []
    assert late.version_first == old + 1
    assert gap(model, late) < 1e-4
    for completion in completions:
        assert len(completion.token_ids) == 80
        versions = [completion.version_first] * 80 if completion.versions is None else completion.versions.tolist()
        assert versions == sorted(versions)
        match interrupt:
            case "finish":
                assert set(versions) == {old}
                assert num_dropped == 0
            case "restart":
                assert set(versions) == {old + 1}
                assert num_dropped > 0
            case _:
                assert set(versions) == {old, old + 1}
                assert num_dropped == 0
                # Tokens of the new version are scored behind those of the old one, which the new one computed again.
                new = [index for index, version in enumerate(versions) if version == old + 1]
                assert np.allclose(completion.logprobs[new], score(model, PROMPT, completion)[new], atol=1e-4)


def test_a_reply_that_waits_for_the_new_adapter_can_be_cancelled(subject: Subject) -> None:
    model, engine = subject.model, subject.engine

    async def play() -> Completion:
        before = engine.statistics().get("num_sampled_tokens", 0)
        reply = asyncio.create_task(ask(engine, PROMPT, max_tokens=80))
        while engine.statistics().get("num_sampled_tokens", 0) <= before:
            await asyncio.sleep(0.005)
        await engine.pause("continue")
        change(model, seed=6)
        await engine.adopt(engine.version + 1)
        reply.cancel()
        await asyncio.gather(reply, return_exceptions=True)
        await engine.resume()
        return await ask(engine, PROMPT)

    assert gap(model, subject.run(play())) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "layers"), [(300, "all-linear"), (4, ["q_proj", "v_proj", "up_proj"])])
def test_other_ranks_and_layers(python: Path, rank: int, layers: Any) -> None:
    model = make_adapted(rank=rank, layers=layers)

    async def play() -> float:
        async with open_engine(model, python) as engine:
            change(model, seed=1)
            await engine.adopt(1)
            await ask(engine, PROMPT)
            change(model, seed=2)
            await engine.adopt(2)
            return gap(model, await ask(engine, PROMPT))

    assert asyncio.run(play()) < 1e-4


@pytest.mark.slow
def test_an_engine_that_was_killed_is_replaced_on_the_adapter_of_now(python: Path) -> None:
    model = make_adapted()

    async def play() -> tuple[list[int], float]:
        async with open_engine(model, python) as engine:
            await ask(engine, PROMPT)
            change(model, seed=1)
            await engine.adopt(1)
            pids = engine.pids()
            os.kill(pids[0], 9)
            while engine.pids():
                await asyncio.sleep(0.01)
            completion = await ask(engine, PROMPT)
            assert completion.version_first == 1
            return [*pids, *engine.pids()], gap(model, completion)

    pids, distance = asyncio.run(play())
    assert len(set(pids)) == 2
    assert distance < 1e-4


@pytest.mark.parametrize("is_adapted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_process_that_starts_while_a_version_is_adopted_takes_it_over(
    stand_in: StandIn, tmp_path: Path, is_adapted: bool
) -> None:
    model = make_adapted() if is_adapted else make_model()

    async def play() -> tuple[int, float]:
        async with open_engine(model, stand_in(""), staging=tmp_path) as engine:
            reply = asyncio.create_task(ask(engine, PROMPT))
            while not list(tmp_path.glob("*/*.log")):  # a process has begun to start
                await asyncio.sleep(0.01)
            await engine.pause()
            if is_adapted:
                change(model, seed=1)
            else:
                change_all(model, seed=1)
            await engine.adopt(1)
            assert engine.pids() == []
            await engine.resume()
            completion = await reply
            return completion.version_first, gap(model, completion)

    version, distance = asyncio.run(play())
    assert version == 1
    assert distance < 1e-4


def test_the_base_is_written_once_and_versions_are_small(stand_in: StandIn, tmp_path: Path) -> None:
    model = make_adapted()

    async def play() -> list[list[Path]]:
        found = []
        async with open_engine(model, stand_in(""), staging=tmp_path) as engine:
            await ask(engine, PROMPT)
            for version in range(1, 4):
                change(model, seed=version)
                await engine.adopt(version)
                found.append(sorted(tmp_path.glob("*/*/*.safetensors")))
        return found

    found = asyncio.run(play())
    assert len({next(path for path in paths if path.name == "model.safetensors") for paths in found}) == 1
    assert [[path.name for path in paths] for paths in found] == [
        ["model.safetensors", "adapter_model.safetensors", "adapter_model.safetensors"]
    ] * 3
    assert len({paths[-1] for paths in found}) == 3


def test_what_is_staged_is_the_model_to_peft(tmp_path: Path) -> None:
    model, staging = make_adapted(tied=False), Staging(tmp_path)
    change(model, seed=1)
    base = staging.write_base(model)
    staged = staging.write_adapter(model, base)
    assert staged.sums == compute_checksums(model)
    assert base.sums == {BASE: compute_checksums(model)[BASE]}
    plain = load_model(base.folder)
    assert base.file_sums == compute_checksums(plain)
    again = load_adapter(plain, staged.folder, base="")
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter)
    staging.remove()


RUN = [
    "environment.name=turnwise.testing:NotesFamily",
    "model.config={hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, "
    "num_key_value_heads=1, head_dim=32, tie_word_embeddings=true, initializer_range=0.1}",
    "model.lora={rank=4}",
    "tokenizer.vocab_size=400",
    "tokenizer.num_texts=60",
    "engine.kind=vllm",
    "engine.max_context=64",
    "engine.max_concurrency=16",
    "rollout.max_tokens=64",
    "rollout.max_turn_tokens=10",
    "rollout.tasks_per_step=2",
    "rollout.group_size=4",
    "sft.steps=6",
    "sft.num_demonstrations=64",
    "schedule.max_staleness=1",
    "train.steps=3",
    "train.num_threads=1",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=9",
    "evaluate.tasks=0",
]


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_run_trains_an_adapter_through_it_and_an_audit_finds_nothing(
    python: Path, tmp_path: Path, num_processes: int
) -> None:
    own = [f"run.output={tmp_path}", f"engine.options.python={python}", f"rollout.num_workers={num_processes}"]
    run = run_train(load_config([], [*RUN, *own]), resume=None, display=False)
    report = audit_run(run)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked > 0
    assert report.tallies["logprobs"].not_checked.total() == 0
    assert len({trained.sums[BASE] for trained in read_journal(run).trained.values()}) == 1


# ------------------------------------------------------------------------------------------------ planted faults

CAUSES = {
    "never_arrives": r"vLLM holds the adapters \[1\] instead of only \d",
    "old_matrices": "vLLM computes with another A of model.layers.0.self_attn.q_proj than is staged",
    "dropped_matrix": "vLLM computes with another B of model.layers.0.self_attn.v_proj than is staged",
    "unscaled": "vLLM computes with another B of model.layers.0.self_attn.q_proj than is staged",
    "stale_cache": "the prefix cache could not be emptied",
}


@pytest.mark.slow
def test_a_process_that_does_not_take_over_an_adapter_is_started_anew(stand_in: StandIn, tmp_path: Path) -> None:
    """Each of these leaves the checksums of what was received right. One engine meets all, a version each."""
    model = make_adapted()
    faults = stand_in(",".join(f"{fault}@{tmp_path / fault}" for fault in CAUSES))

    async def play() -> list[str]:
        async with open_engine(model, faults) as engine:
            change(model, seed=0)
            await ask(engine, PROMPT)
            for version, fault in enumerate(CAUSES, 1):
                (tmp_path / fault).touch()
                change(model, seed=version)
                assert await engine.adopt(version) == compute_checksums(model)
                assert not (tmp_path / fault).exists()
                completion = await ask(engine, PROMPT)
                assert completion.version_first == version
                assert gap(model, completion) < 1e-4
            return engine.restart_causes

    for cause, (fault, words) in zip(asyncio.run(play()), CAUSES.items(), strict=True):
        assert re.search(words, cause), fault


def test_checksums_that_are_not_the_trainers_end_the_adoption(stand_in: StandIn) -> None:
    model = make_adapted()

    async def play() -> None:
        async with open_engine(model, stand_in("lost_bits")) as engine:
            await ask(engine, PROMPT)
            change(model, seed=1)
            with pytest.raises(EngineError, match=r"read base_model\.model\..*lora_A.weight with other values"):
                await engine.adopt(1)
            # It goes on with what it had.
            assert (await ask(engine, PROMPT)).version_first == 0

    asyncio.run(play())


@pytest.mark.slow
def test_a_base_that_is_read_otherwise_ends_the_start(stand_in: StandIn) -> None:
    async def play() -> None:
        async with open_engine(make_adapted(), stand_in("lost_base")) as engine:
            with pytest.raises(EngineError, match=r"read model.embed_tokens.weight with other values than the trainer"):
                await ask(engine, PROMPT)

    asyncio.run(play())


DAMAGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "half a file": ("vLLM: Safetensor", lambda folder: os.truncate(folder / "adapter_model.safetensors", 20_000)),
    "no such tensor": ("lack base_model.*lora_C", lambda folder: rewrite(folder, "lora_A", "lora_C")),
    "another dtype": ("the manifest says", lambda folder: rewrite(folder, "float32", "bfloat16")),
    "fewer tensors": ("read base_model.*q_proj.lora_A.* with other values", lambda folder: forget_first(folder)),
}


def rewrite(folder: Path, old: str, new: str) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(old, new))


def forget_first(folder: Path) -> None:
    manifest = folder / "manifest.json"
    names = json.loads(manifest.read_text())
    del names[next(iter(names))]
    manifest.write_text(json.dumps(names))


@pytest.mark.slow
def test_a_damaged_adapter_is_refused_before_it_is_loaded(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    model, write = make_adapted(), Staging.write_adapter

    async def play() -> None:
        async with open_engine(model, stand_in("")) as engine:
            await ask(engine, PROMPT)
            pids = engine.pids()
            for words, damage in DAMAGES.values():

                def write_damaged(self: Staging, model: PreTrainedModel, base: Any) -> Any:
                    staged = write(self, model, base)
                    damage(staged.folder)  # noqa: B023 - called in this round
                    return staged

                monkeypatch.setattr(Staging, "write_adapter", write_damaged)
                with pytest.raises(EngineError, match=words):
                    await engine.adopt(1)
                completion = await ask(engine, PROMPT)
                assert completion.version_first == 0
                assert gap(model, completion) < 1e-4
            assert engine.pids() == pids

    asyncio.run(play())


# ------------------------------------------------------------------------------------------------ refused


def build(model: PreTrainedModel, python: Path) -> VllmEngine:
    return VllmEngine(model, python=python, num_workers=1, max_concurrency=1, max_context=64)


def test_adapters_that_vllm_cannot_hold_are_refused(stand_in: StandIn) -> None:
    python = stand_in("")
    with pytest.raises(EngineError, match=r"rank 512, but this one has 513; lower it or use engine.kind='paged'"):
        build(make_adapted(rank=513), python)
    with pytest.raises(EngineError, match="not support an adapter on the output layer lm_head"):
        build(make_adapted(tied=False, layers=["q_proj", "lm_head"]), python)
    for option in ("rank_pattern", "alpha_pattern"):
        model = make_adapted()
        setattr(model.peft_config["default"], option, {"q_proj": 4})
        with pytest.raises(EngineError, match=f"not support adapters with {option}={{'q_proj': 4}}"):
            build(model, python)


@pytest.mark.slow
def test_a_layer_that_vllm_has_no_place_for_ends_the_start(stand_in: StandIn) -> None:
    async def play() -> None:
        async with open_engine(make_adapted(), stand_in("no_place")) as engine:
            with pytest.raises(EngineError, match=r"vLLM cannot start: .*no module for A of model.*down_proj; leave"):
                await ask(engine, PROMPT)

    asyncio.run(play())
