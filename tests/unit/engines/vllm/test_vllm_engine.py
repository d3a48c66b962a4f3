"""vLLM as an engine: log-probabilities are the trainer's before and after weights change, and faults are found.

With TURNWISE_VLLM=PYTHON the tests without a planted fault run on the real vLLM of that interpreter (`make test-vllm`).
"""

import asyncio
import gc
import os
import stat
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_model import PROMPT, VOCAB, change, decode, make_model, score
from transformers import PreTrainedModel
from vllm_engines import StandIn, ask, open_engine

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, FinishReason, Grammar
from turnwise.engines.vllm import VllmEngine
from turnwise.hosts.leftovers import sweep
from turnwise.models.checksums import compute_checksums
from turnwise.models.staging import PREFIX, Staging


@dataclass(frozen=True)
class Subject:
    """An engine that works, of which a start is dear, and its model."""

    model: PreTrainedModel
    engine: VllmEngine
    run: Callable[..., Any]


@pytest.fixture(scope="module", params=["tied", pytest.param("untied", marks=pytest.mark.slow)])
def subject(python: Path, request: pytest.FixtureRequest) -> Iterator[Subject]:
    model = make_model(tied=request.param == "tied")
    with asyncio.Runner() as runner:
        engine = VllmEngine(
            model, python=python, num_workers=1, max_concurrency=8, max_context=128, cache_mib=64, decode=decode
        )
        yield Subject(model, engine, runner.run)
        runner.run(engine.close())


def test_logprobs_are_the_trainers_before_and_after_three_versions(subject: Subject) -> None:
    model, engine = subject.model, subject.engine
    start = engine.version

    async def play() -> list[float]:
        gaps = []
        for version in range(start, start + 4):
            if version > start:
                change(model, seed=version)
                assert await engine.adopt(version) == compute_checksums(model)
            for temperature in (1.0, 0.7):
                completion = await ask(engine, PROMPT, temperature=temperature)
                assert (completion.version_first, completion.version_last) == (version, version)
                gaps.append(np.abs(completion.logprobs - score(model, PROMPT, completion, temperature)).max())
        return gaps

    assert max(subject.run(play())) < 1e-4
    assert engine.restart_causes == []


def test_a_greedy_reply_is_the_most_likely_one_and_stops_at_its_token(subject: Subject) -> None:
    async def play() -> tuple[Completion, Completion]:
        whole = await ask(subject.engine, PROMPT, temperature=0.0)
        stop = int(whole.token_ids[3])
        return whole, await ask(subject.engine, PROMPT, temperature=0.0, stop_token_ids=(stop,))

    whole, stopped = subject.run(play())
    assert whole.finish_reason is FinishReason.LENGTH
    assert len(whole.token_ids) == 12
    assert np.allclose(whole.logprobs, score(subject.model, PROMPT, whole), atol=1e-4)
    first = whole.token_ids.tolist().index(int(whole.token_ids[3]))
    assert stopped.finish_reason is FinishReason.STOP
    assert stopped.token_ids.tolist() == whole.token_ids.tolist()[: first + 1]


def test_a_stop_string_ends_a_reply_with_the_token_that_completes_it(subject: Subject) -> None:
    async def play() -> tuple[Completion, Completion]:
        whole = await ask(subject.engine, PROMPT, temperature=0.0, max_tokens=40)
        text = decode(whole.token_ids.tolist()[4:6])
        return whole, await ask(subject.engine, PROMPT, temperature=0.0, max_tokens=40, stop=(text,))

    whole, cut = subject.run(play())
    ids = whole.token_ids.tolist()
    first = next(n for n in range(2, 41) if ids[n - 2 : n] == ids[4:6])
    assert cut.token_ids.tolist() == ids[:first]
    assert cut.finish_reason is FinishReason.STOP
    assert len(cut.logprobs) == first


@pytest.mark.parametrize("interrupt", ["finish", "continue", "restart"])
def test_replies_under_way_when_weights_change(subject: Subject, interrupt: Any) -> None:
    model, engine = subject.model, subject.engine
    old = engine.version

    async def play() -> tuple[Completion, int]:
        before = engine.statistics()["num_sampled_tokens"] if engine.pids() else 0
        reply = asyncio.create_task(ask(engine, PROMPT, max_tokens=80, name="1"))
        while not reply.done() and engine.statistics().get("num_sampled_tokens", 0) <= before:
            await asyncio.sleep(0.005)
        num_dropped = await engine.pause(interrupt)
        change(model, seed=5)
        await engine.adopt(old + 1)
        await engine.resume()
        return await reply, num_dropped

    completion, num_dropped = subject.run(play())
    assert len(completion.token_ids) == 80
    versions = [completion.version_first] * 80 if completion.versions is None else completion.versions.tolist()
    assert versions == sorted(versions)
    match interrupt:
        case "finish":
            assert set(versions) == {old}
            assert num_dropped == 0
        case "restart":
            assert set(versions) in ({old}, {old + 1})
            assert (num_dropped > 0) == (versions[0] == old + 1)
        case _:
            new = [index for index, version in enumerate(versions) if version == old + 1]
            scores = score(model, PROMPT, completion)
            assert np.allclose(completion.logprobs[new], scores[new], atol=1e-4)


def test_what_cannot_be_sampled_ends_one_request(subject: Subject) -> None:
    async def play() -> Completion:
        with pytest.raises(EngineError, match=r"token id outside the vocabulary of 96"):
            await ask(subject.engine, [VOCAB + 5])
        with pytest.raises(EngineError, match=r"exceeds engine.max_context=128"):
            await ask(subject.engine, PROMPT, max_tokens=100)
        with pytest.raises(EngineError, match="cannot sample with a grammar"):
            await ask(subject.engine, PROMPT, grammar=Grammar(kind="regex", text="a"))
        return await ask(subject.engine, PROMPT)

    assert len(subject.run(play()).token_ids) == 12


@pytest.mark.slow
def test_two_engines_share_the_load_and_one_that_is_killed_is_replaced(python: Path) -> None:
    model = make_model()

    async def play() -> tuple[list[int], list[int]]:
        async with open_engine(model, python, num_workers=2, max_concurrency=2) as engine:
            await asyncio.gather(*(ask(engine, PROMPT, name=str(n), max_tokens=40) for n in range(4)))
            before = engine.pids()
            os.kill(before[0], 9)
            while len(engine.pids()) == 2:
                await asyncio.sleep(0.01)
            change(model, seed=1)
            await engine.adopt(1)
            replies = await asyncio.gather(*(ask(engine, PROMPT, name=f"y{n}", max_tokens=40) for n in range(4)))
            for reply in replies:
                assert reply.version_first == 1
                assert np.allclose(reply.logprobs, score(model, PROMPT, reply), atol=1e-4)
            return before, engine.pids()

    before, after = asyncio.run(play())
    assert len(before) == len(after) == 2
    assert before[0] not in after
    assert before[1] in after


@pytest.mark.slow
def test_nothing_is_left(python: Path, tmp_path: Path) -> None:
    model = make_model()

    async def play() -> list[int]:
        async with open_engine(model, python, staging=tmp_path / "staged") as engine:
            await ask(engine, PROMPT)
            assert list((tmp_path / "staged").iterdir())
            return engine.pids()

    (pid,) = asyncio.run(play())
    assert list((tmp_path / "staged").iterdir()) == []
    assert not Path(f"/proc/{pid}").exists()


# ------------------------------------------------------------------------------------------------ planted faults

CAUSES = {
    "stale_head": "load all new weights",
    "dropped_tensor": "scores the canary",
    "broken_load": "half of it is loaded",
    "stale_cache": "the prefix cache could not be emptied",
}


@pytest.mark.parametrize(
    "fault", ["stale_head", *(pytest.param(name, marks=pytest.mark.slow) for name in CAUSES if name != "stale_head")]
)
def test_a_process_that_fails_after_staging_is_started_anew(stand_in: StandIn, tmp_path: Path, fault: str) -> None:
    """Each of these leaves the checksums of what was received right."""
    model, once = make_model(), tmp_path / "once"

    async def play() -> tuple[list[str], float]:
        async with open_engine(model, stand_in(fault if fault == "stale_head" else f"{fault}@{once}")) as engine:
            await ask(engine, PROMPT)
            if fault != "stale_head":
                once.touch()
            change(model, seed=1)
            assert await engine.adopt(1) == compute_checksums(model)
            completion = await ask(engine, PROMPT)
            assert completion.version_first == 1
            return engine.restart_causes, float(np.abs(completion.logprobs - score(model, PROMPT, completion)).max())

    [cause], gap = asyncio.run(play())
    assert CAUSES[fault] in cause
    assert gap < 1e-4


@pytest.mark.slow
def test_a_fault_that_stays_ends_the_adoption(stand_in: StandIn) -> None:
    model = make_model()

    async def play() -> None:
        async with open_engine(model, stand_in("lost_bits")) as engine:
            await ask(engine, PROMPT)
            change(model, seed=1)
            with pytest.raises(EngineError, match=r"read model.embed_tokens.weight with other values than the trainer"):
                await engine.adopt(1)
            # Nothing was loaded: it goes on with what it had.
            assert (await ask(engine, PROMPT)).version_first == 0

    asyncio.run(play())


DAMAGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "half a file": ("vLLM: Safetensor", lambda folder: os.truncate(folder / "model.safetensors", 20_000)),
    "no such tensor": ("lack model.*norm.wait", lambda folder: rewrite(folder, "norm.weight", "norm.wait")),
    "another dtype": ("the manifest says", lambda folder: rewrite(folder, "float32", "bfloat16")),
}


def rewrite(folder: Path, old: str, new: str) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(old, new))


def test_damaged_weights_are_refused_before_any_is_loaded(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    model, write = make_model(), Staging.write

    async def play() -> None:
        async with open_engine(model, stand_in("")) as engine:
            pids: list[int] = []
            for words, damage in DAMAGES.values():
                completion = await ask(engine, PROMPT)
                assert completion.version_first == 0
                pids.append(*engine.pids())

                def write_damaged(self: Staging, *given: Any) -> Any:
                    staged = write(self, *given)
                    damage(staged.folder)  # noqa: B023 - called in this round
                    return staged

                monkeypatch.setattr(Staging, "write", write_damaged)
                with pytest.raises(EngineError, match=words):
                    await engine.adopt(1)
            assert len(set(pids)) == 1

    asyncio.run(play())


def test_one_that_cannot_start_says_why(stand_in: StandIn) -> None:
    async def play() -> None:
        async with open_engine(make_model(), stand_in("cannot_start")) as engine:
            with pytest.raises(EngineError, match=r"vLLM cannot start: RuntimeError: no memory for the cache"):
                await ask(engine, PROMPT)

    asyncio.run(play())


@pytest.mark.slow
def test_one_that_says_nothing_is_ended(stand_in: StandIn) -> None:
    async def play() -> float:
        async with open_engine(make_model(), stand_in("hang"), silence_s=1.0, start_s=20.0) as engine:
            began = time.monotonic()
            with pytest.raises(EngineError, match=r"was silent for 1 s|was not ready within 20 s"):
                await ask(engine, PROMPT)
            return time.monotonic() - began

    assert asyncio.run(play()) < 60


def test_an_engine_that_nobody_closed_is_collected_with_its_folder(stand_in: StandIn, tmp_path: Path) -> None:
    engine = VllmEngine(
        make_model(),
        python=stand_in(""),
        num_workers=1,
        max_concurrency=1,
        max_context=64,
        staging=tmp_path / "staged",
    )
    gone = weakref.ref(engine)
    assert list((tmp_path / "staged").iterdir())
    del engine
    gc.collect()
    assert gone() is None
    assert list((tmp_path / "staged").iterdir()) == []


def test_staged_weights_are_for_this_user_alone(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    assert stat.S_IMODE(staging.root.stat().st_mode) == 0o700
    staging.remove()


def test_folders_of_dead_processes_are_swept(tmp_path: Path) -> None:
    dead, alive, other = tmp_path / f"{PREFIX}999999999-a", tmp_path / f"{PREFIX}{os.getpid()}-b", tmp_path / "other"
    for folder in (dead, alive, other):
        folder.mkdir()
    sweep(tmp_path, PREFIX)
    assert sorted(tmp_path.iterdir()) == sorted([alive, other])
