"""Engine workers: the samples of one process, weights shared in place, and faults that cost one worker's requests."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_model import CONFIG, VOCAB
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, FinishReason, Grammar, SamplingParams, Session, to_ids
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged import PagedEngine
from turnwise.engines.workers import WorkerEngine
from turnwise.models.build import build_model
from turnwise.models.paths import is_fast
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer

LOOP = asyncio.Runner()
"""An engine with workers belongs to one event loop."""
SHAPE: dict[str, Any] = {"max_concurrency": 16, "max_context": 4000}
LONG = 3900
"""Tokens of a reply that takes seconds."""


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(["the cat sat on 12 mats"] * 20, vocab_size=330, special_tokens=QWEN3_SPECIAL_TOKENS)


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    return build_model("qwen3", CONFIG, vocab_size=len(tokenizer), seed=1)


@pytest.fixture(scope="module")
def settings(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    return {
        **SHAPE,
        "max_draft_tokens": 3,
        "decode": tokenizer.decode,
        "grammars": GrammarCompiler(tokenizer, vocab_size=len(tokenizer)),
    }


@pytest.fixture(scope="module")
def shared(model: PreTrainedModel, settings: dict[str, Any]) -> Iterator[WorkerEngine]:
    """Two workers, started once for all tests; a test that ends one leaves it to be replaced."""
    built = WorkerEngine(model, num_workers=2, **settings, silence_s=5.0)
    yield built
    LOOP.run(built.close())


@pytest.fixture
def engine(shared: WorkerEngine) -> WorkerEngine:
    """Both workers run, and no conversation is kept anywhere, so that two go to two workers."""
    if len(shared.worker_pids()) < 2:
        crowd(shared)
    LOOP.run(shared.adopt(shared.version + 1))
    return shared


@pytest.fixture
def alone(model: PreTrainedModel, settings: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> PagedEngine:
    # One that has compiled something cannot go to a new worker.
    return PagedEngine(model, **{**settings, "grammars": GrammarCompiler(tokenizer, vocab_size=len(tokenizer))})


def prompt_of(seed: int, length: int = 20) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


async def converse(engine: WorkerEngine | PagedEngine, group: int, member: int) -> list[Completion]:
    """Two turns of a group's member; the first member samples truncated, the second stops early where it can."""
    session, ids, completions = Session(f"task{group}", str(member)), prompt_of(group), []
    changes = {"top_p": 0.9} if member == 0 else {"stop": ("e", "xy"), "stop_token_ids": tuple(range(50))}
    for turn in range(2):
        params = SamplingParams(max_tokens=8, temperature=0.8, seed=100 * group + 10 * member + turn, **changes)
        completions.append(await engine.generate(to_ids(ids), params, session=session))
        ids = [*ids, *completions[-1].token_ids.tolist(), *prompt_of(1000 + group, 6)]
    await engine.release(session)
    return completions


def crowd(engine: WorkerEngine | PagedEngine) -> list[Completion]:
    """Four groups of two."""

    async def run() -> list[list[Completion]]:
        return await asyncio.gather(*(converse(engine, group, member) for group in range(4) for member in range(2)))

    return [completion for conversation in LOOP.run(run()) for completion in conversation]


def assert_same(mine: list[Completion], theirs: list[Completion]) -> None:
    assert [c.token_ids.tolist() for c in mine] == [c.token_ids.tolist() for c in theirs]
    assert [c.logprobs.tolist() for c in mine] == [c.logprobs.tolist() for c in theirs]
    assert [c.finish_reason for c in mine] == [c.finish_reason for c in theirs]
    assert [(c.version_first, c.version_last) for c in mine] == [(c.version_first, c.version_last) for c in theirs]


def test_two_workers_sample_what_one_process_samples(engine: WorkerEngine, alone: PagedEngine) -> None:
    LOOP.run(alone.adopt(engine.version))
    before = engine.num_computed_tokens
    one, two = crowd(alone), crowd(engine)
    assert_same(two, one)
    assert len(set(engine.worker_pids())) == 2
    assert os.getpid() not in engine.worker_pids()
    assert FinishReason.STOP in {c.finish_reason for c in two}
    # Members of a group and turns of a conversation share a worker: no prompt of 20 tokens is computed by both. Drafts
    # depend on timing.
    assert abs(engine.num_computed_tokens - before - alone.num_computed_tokens) < 20
    assert engine.statistics().num_held_pages == 0


def test_workers_see_weights_that_change_in_place(
    engine: WorkerEngine, alone: PagedEngine, model: PreTrainedModel
) -> None:
    before, version = crowd(engine), engine.version + 1
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    LOOP.run(alone.adopt(version))
    LOOP.run(engine.adopt(version))
    after = crowd(engine)
    assert_same(after, crowd(alone))
    assert {c.version_first for c in after} == {version}
    assert [c.logprobs.tolist() for c in after] != [c.logprobs.tolist() for c in before]
    with torch.no_grad():
        for parameter, old in zip(model.parameters(), kept, strict=True):
            parameter.copy_(old)
    # They change back without `adopt`: that is noticed all the same.
    repeated = crowd(engine)
    assert [c.logprobs.tolist() for c in repeated] == [c.logprobs.tolist() for c in before]


def test_shared_weights_have_no_name_that_another_process_could_open(engine: WorkerEngine) -> None:
    address = next(iter(engine._runner.model.parameters())).data_ptr()
    rows = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    [row] = [row for row in rows if int(row[0].split("-")[0], 16) <= address < int(row[0].split("-")[1], 16)]
    assert row[1] == "rw-s"
    assert row[5].startswith("/dev/shm/")
    assert row[5].endswith("(deleted)")


def test_a_grammar_holds_in_a_worker(engine: WorkerEngine, alone: PagedEngine) -> None:
    pytest.importorskip("llguidance")
    params = SamplingParams(max_tokens=12, seed=4, grammar=Grammar(kind="regex", text="[0-9]{1,3} cats"))
    impossible = SamplingParams(max_tokens=12, grammar=Grammar(kind="json_schema", text="{"))
    LOOP.run(alone.adopt(engine.version))
    mine, theirs = (
        LOOP.run(each.generate(to_ids(prompt_of(1)), params, session=Session("g", "0"))) for each in (engine, alone)
    )
    assert_same([mine], [theirs])
    assert mine.full_logprobs is not None
    assert theirs.full_logprobs is not None
    assert mine.full_logprobs.tolist() == theirs.full_logprobs.tolist()
    assert mine.full_logprobs.tolist() != mine.logprobs.tolist()
    with pytest.raises(EngineError, match=r"cannot read the json_schema"):
        LOOP.run(engine.generate(to_ids(prompt_of(1)), impossible, session=Session("g", "1")))


def request(engine: WorkerEngine, group: str, max_tokens: int = LONG, seed: int = 1) -> asyncio.Task[Completion]:
    params = SamplingParams(max_tokens=max_tokens, seed=seed)
    return asyncio.get_running_loop().create_task(
        engine.generate(to_ids(prompt_of(seed)), params, session=Session(group, "0"))
    )


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


def test_a_paused_request_goes_on_under_new_weights_and_says_which_token_had_which(engine: WorkerEngine) -> None:
    first = engine.version

    async def run() -> Completion:
        start = engine.statistics().num_sampled_tokens
        task = request(engine, "paused", max_tokens=600)
        await until(lambda: engine.statistics().num_sampled_tokens > start + 5)
        with pytest.raises(EngineError, match="wait for them or pause"):
            await engine.adopt(first + 1)
        await engine.pause()
        stopped = engine.statistics().num_sampled_tokens
        await asyncio.sleep(0.1)
        # No worker samples while weights may change.
        assert engine.statistics().num_sampled_tokens == stopped
        await engine.adopt(first + 1)
        waiting = request(engine, "late", max_tokens=3)
        await asyncio.sleep(0.05)
        assert not task.done()
        assert not waiting.done()
        await engine.resume()
        assert (await waiting).version_first == first + 1
        return await task

    done = LOOP.run(run())
    assert (done.version_first, done.version_last) == (first, first + 1)
    assert done.versions is not None
    assert sorted(done.versions.tolist()) == done.versions.tolist()
    assert len(done.token_ids) == 600


def test_what_is_wrong_with_one_request_is_its_own_error(engine: WorkerEngine) -> None:
    async def run() -> tuple[Completion | BaseException, ...]:
        unsendable = SamplingParams(max_tokens=3, seed=object())  # type: ignore[arg-type]
        good = SamplingParams(max_tokens=3)
        return await asyncio.gather(
            engine.generate(to_ids(prompt_of(1)), good, session=Session("a", "0")),
            engine.generate(to_ids([5000]), good, session=Session("b", "0")),
            engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=9999), session=Session("c", "0")),
            engine.generate(to_ids(prompt_of(1)), unsendable, session=Session("d", "0")),
            engine.generate(to_ids(prompt_of(1)), good, session=Session("e", "0")),
            return_exceptions=True,
        )

    first, outside, long, odd, last = LOOP.run(run())
    for completion in (first, last):
        assert isinstance(completion, Completion)
    for error, text in (
        (outside, "outside the vocabulary"),
        (long, "exceeds engine.max_context=4000"),
        (odd, "not plain data"),
    ):
        assert isinstance(error, EngineError)
        assert text in str(error)


def test_weights_that_are_not_finite_fail_requests_and_not_workers(
    engine: WorkerEngine, model: PreTrainedModel
) -> None:
    weight = model.get_input_embeddings().weight
    old = weight[prompt_of(1)[-1]].clone()
    pids = engine.worker_pids()
    with torch.no_grad():
        weight[prompt_of(1)[-1]] = float("nan")
    LOOP.run(engine.adopt(engine.version + 1))
    # The embedding is tied to the output layer, so every row of logits holds the broken number.
    with pytest.raises(EngineError, match="logits are not finite"):
        LOOP.run(engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=3), session=Session("nan", "0")))
    with torch.no_grad():
        weight[prompt_of(1)[-1]] = old
    LOOP.run(engine.adopt(engine.version + 1))
    assert len(crowd(engine)) == 16
    assert engine.worker_pids() == pids


def test_a_cancelled_request_leaves_its_worker(engine: WorkerEngine) -> None:
    async def run() -> None:
        task = request(engine, "cancelled")
        await until(lambda: engine.statistics().num_held_pages > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: engine.statistics().num_held_pages == 0)

    LOOP.run(run())


def test_a_killed_worker_fails_its_requests_only_and_is_replaced(engine: WorkerEngine, alone: PagedEngine) -> None:
    LOOP.run(alone.adopt(engine.version))
    expected = crowd(alone)

    async def run() -> tuple[Completion | BaseException, ...]:
        start = engine.statistics().num_sampled_tokens
        tasks = [request(engine, f"killed{i}", max_tokens=400, seed=i) for i in range(2)]
        await until(lambda: engine.statistics().num_sampled_tokens > start + 2)
        os.kill(engine.worker_pids()[0], signal.SIGKILL)
        return tuple(await asyncio.gather(*tasks, return_exceptions=True))

    pids = engine.worker_pids()
    results = LOOP.run(run())
    errors = [r for r in results if isinstance(r, BaseException)]
    assert len(errors) == 1
    assert isinstance(errors[0], EngineError)
    assert f"engine worker 0 (process {pids[0]}) was killed by signal 9" in str(errors[0])
    assert [len(r.token_ids) for r in results if isinstance(r, Completion)] == [400]
    assert_same(crowd(engine), expected)
    assert engine.worker_pids()[1] == pids[1]
    assert engine.worker_pids()[0] not in pids


def test_closing_fails_what_is_open(model: PreTrainedModel) -> None:
    engine = WorkerEngine(model, num_workers=2, **SHAPE)

    async def run() -> None:
        task = request(engine, "closed")
        await asyncio.sleep(0.1)  # long before a worker is ready
        await engine.close()
        with pytest.raises(EngineError, match="the engine was closed"):
            await task

    LOOP.run(run())


@pytest.mark.parametrize(
    ("settings", "text"), [({"decode": lambda ids: ""}, "cannot be started"), ({"start_s": 0.01}, "not ready within")]
)
def test_a_worker_that_cannot_start_says_why(model: PreTrainedModel, settings: dict[str, Any], text: str) -> None:
    engine = WorkerEngine(model, num_workers=1, **SHAPE, **settings)
    with pytest.raises(EngineError, match=text):
        LOOP.run(engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=2), session=Session("a", "0")))


@pytest.mark.slow
def test_workers_sample_from_a_models_own_cache(settings: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    sizes = {**CONFIG, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
    other = build_model("lfm2", sizes, vocab_size=len(tokenizer), seed=1)
    assert not is_fast(other)
    theirs = crowd(PagedEngine(other, **settings))
    engine = WorkerEngine(other, num_workers=2, **settings)
    mine = crowd(engine)
    LOOP.run(engine.close())
    assert [reply.token_ids.tolist() for reply in mine] == [reply.token_ids.tolist() for reply in theirs]
    gaps = [np.abs(one.logprobs - two.logprobs).max() for one, two in zip(mine, theirs, strict=True)]
    assert max(gaps) < 1e-5


SCRIPT = f"""
import asyncio, sys, time
from turnwise.core.types import SamplingParams, Session, to_ids
from turnwise.engines.workers import WorkerEngine
from turnwise.models.build import build_model

async def main():
    model = build_model("qwen3", {CONFIG!r}, vocab_size={VOCAB}, seed=1)
    engine = WorkerEngine(model, num_workers=1, max_concurrency=2, max_context=4000)
    await engine.generate(to_ids([1, 2, 3]), SamplingParams(max_tokens=2), session=Session("a", "0"))
    long = SamplingParams(max_tokens=3900)
    task = asyncio.create_task(engine.generate(to_ids([1, 2, 3]), long, session=Session("b", "0")))
    async with asyncio.timeout(60):
        while engine.statistics().num_held_pages == 0:
            await asyncio.sleep(0.01)
    print(*engine.worker_pids(), flush=True)
    await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


def is_running(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_workers_do_not_outlive_a_killed_trainer(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    trainer = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    with trainer:
        pids = [int(word) for word in trainer.stdout.readline().split()]
        assert pids
        assert all(map(is_running, pids))
        trainer.kill()
    deadline = time.monotonic() + 30
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def test_a_worker_that_hangs_is_ended_after_its_time(engine: WorkerEngine) -> None:
    async def run() -> None:
        start = engine.statistics().num_sampled_tokens
        tasks = [request(engine, f"hung{i}", seed=i) for i in range(2)]
        await until(lambda: engine.statistics().num_sampled_tokens > start + 2)
        hung = engine.worker_pids()[1]
        os.kill(hung, signal.SIGSTOP)
        # A pause hears from every worker that it stopped, or ends it.
        await engine.pause()
        assert hung not in engine.worker_pids()
        await until(tasks[1].done)
        with pytest.raises(EngineError, match="was silent for 5 s"):
            await tasks[1]
        with pytest.raises(ProcessLookupError):
            os.kill(hung, 0)
        assert not tasks[0].done()
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        await engine.resume()

    LOOP.run(run())
