"""What every weight sync keeps: after `publish` engines sample with the trainer's weights, and faults are named."""

import asyncio
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from small_model import CONFIG, VOCAB
from transformers import PreTrainedModel

from turnwise.core.batch import Receipt
from turnwise.core.errors import EngineError
from turnwise.core.protocols import Interrupt
from turnwise.core.types import Completion, IntArray, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.engines.workers import WorkerEngine
from turnwise.models.build import build_model
from turnwise.models.checksums import compute_checksums
from turnwise.sync import copied
from turnwise.sync.copied import CopiedParameters, copy_for_serving
from turnwise.sync.publication import check_receipt
from turnwise.sync.shared import SharedParameters

SHAPE: dict[str, Any] = {"max_concurrency": 4, "max_context": 2000}
LENGTHS = {"paged": 300, "workers": 1800}
"""Tokens of a reply that is under way when weights change; of a worker more than it samples in the half second after
which it says how many there are."""
PROMPT = to_ids(np.random.default_rng(5).integers(0, VOCAB, 24))
ENGINES: Mapping[str, Callable[[PreTrainedModel], Any]] = {
    "paged": lambda model: PagedEngine(model, **SHAPE),
    "workers": lambda model: WorkerEngine(model, num_workers=1, **SHAPE),
}


def build_trained() -> PreTrainedModel:
    return build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)


def train(model: PreTrainedModel, factor: float = 1.2) -> None:
    """A step, as far as an engine can tell."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


def ask(engine: Any, member: int, max_tokens: int = LENGTHS["paged"]) -> asyncio.Task[Completion]:
    params = SamplingParams(max_tokens=max_tokens, seed=member)
    return asyncio.ensure_future(engine.generate(PROMPT, params, session=Session("g", str(member))))


async def sampled(engine: Any, count: int) -> None:
    """Wait until the engine has sampled so many tokens since now."""
    start, deadline = engine.statistics().num_sampled_tokens, time.monotonic() + 60
    while engine.statistics().num_sampled_tokens < start + count:
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)


@functools.cache
def sample_alone(is_trained: bool, length: int) -> Completion:
    """The reply of a fresh engine with the weights before or after the step."""
    model = build_trained()
    if is_trained:
        train(model)
    engine = PagedEngine(model, **SHAPE)

    async def run() -> Completion:
        reply = await ask(engine, 0, length)
        await engine.close()
        return reply

    return asyncio.run(run())


def score(model: PreTrainedModel, reply: Completion) -> list[float]:
    """The trainer's log-probabilities of the reply's tokens."""
    engine_ids = [*PROMPT.tolist(), *reply.token_ids.tolist()]
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([engine_ids]), use_cache=False).logits[0]
    finally:
        model.set_attn_implementation("turnwise")
    rows = torch.arange(len(PROMPT) - 1, len(engine_ids) - 1)
    return logits.log_softmax(-1)[rows, torch.tensor(engine_ids[len(PROMPT) :])].tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publication in the middle of a reply led to."""

    reply: Completion
    late: Completion
    """Asked for while the weights changed."""
    receipt: Receipt
    num_restarted: int


def publish_during_a_reply(model: PreTrainedModel, kind: str, way: str, interrupt: Interrupt) -> Published:
    served = model if way == "shared" else copy_for_serving(model)
    engine = ENGINES[kind](served)
    pause, begun = engine.pause, asyncio.Event()

    async def run() -> Published:
        def note_pause(interrupt: Interrupt) -> Any:
            begun.set()
            return pause(interrupt)

        engine.pause = note_pause
        reply = ask(engine, 0, LENGTHS[kind])
        await sampled(engine, 5)
        if way == "shared":
            shared = SharedParameters({"sampler": engine}, interrupt=interrupt, deadline_s=60)
            held = asyncio.create_task(shared.hold())
            await begun.wait()
            late = ask(engine, 1, max_tokens=5)
            await held
            train(model)
            receipt = await shared.publish(1)
        else:
            train(model)
            sync = CopiedParameters(model, served, {"sampler": engine}, interrupt=interrupt, deadline_s=60)
            published = asyncio.create_task(sync.publish(1))
            await begun.wait()
            late = ask(engine, 1, max_tokens=5)
            receipt = await published
        outcome = Published(
            reply=await reply,
            late=await late,
            receipt=receipt,
            num_restarted=engine.statistics().num_restarted_tokens,
        )
        await engine.close()
        return outcome

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "way", "interrupt"),
    [
        *(("paged", way, interrupt) for way in ("shared", "copied") for interrupt in ("finish", "continue", "restart")),
        ("workers", "copied", "continue"),
        # What a worker does with a pause and what it is told of the weights are two things; each was tried above.
        pytest.param("workers", "copied", "finish", marks=pytest.mark.slow),
        pytest.param("workers", "copied", "restart", marks=pytest.mark.slow),
        pytest.param("workers", "shared", "continue", marks=pytest.mark.slow),
    ],
)
def test_versions_are_exact_and_the_engine_holds_the_trainers_weights(
    kind: str, way: Literal["shared", "copied"], interrupt: Interrupt
) -> None:
    model = build_trained()
    length = LENGTHS[kind]
    old, new = sample_alone(False, length), sample_alone(True, length)
    done = publish_during_a_reply(model, kind, way, interrupt)
    check_receipt(done.receipt, compute_checksums(model), 1)
    assert done.receipt.num_restarted == done.num_restarted
    assert (done.num_restarted > 0) is (interrupt == "restart")
    assert set(done.late.versions.tolist()) == {1}  # type: ignore[union-attr]
    versions = done.reply.versions.tolist()  # type: ignore[union-attr]
    num_old = versions.count(0)
    assert versions == [0] * num_old + [1] * (length - num_old)
    if interrupt == "continue":
        assert 0 < num_old < length
        # Up to the change as if nothing changed; after it every token as the new weights score it, prefix and all.
        assert done.reply.token_ids[:num_old].tolist() == old.token_ids[:num_old].tolist()
        assert done.reply.logprobs[:num_old].tolist() == old.logprobs[:num_old].tolist()
        assert done.reply.logprobs[num_old:].tolist() == pytest.approx(score(model, done.reply)[num_old:], abs=2e-5)
    else:
        expected = old if interrupt == "finish" else new
        assert num_old == (length if interrupt == "finish" else 0)
        assert done.reply.token_ids.tolist() == expected.token_ids.tolist()
        assert done.reply.logprobs.tolist() == expected.logprobs.tolist()


@pytest.fixture
def model() -> PreTrainedModel:
    return build_trained()


@pytest.fixture
def served(model: PreTrainedModel) -> PreTrainedModel:
    return copy_for_serving(model)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_a_served_copy_is_not_what_the_trainer_changes(model: PreTrainedModel, served: PreTrainedModel) -> None:
    before = compute_checksums(served)
    assert before == compute_checksums(model)
    train(model)
    assert compute_checksums(served) == before
    assert not any(parameter.requires_grad for parameter in served.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_shared_parameters_are_refused_while_requests_are_open(model: PreTrainedModel) -> None:
    engine = PagedEngine(model, **SHAPE)

    async def run() -> None:
        reply = ask(engine, 0, max_tokens=100)
        await sampled(engine, 3)
        sync = SharedParameters({"sampler": engine})
        with pytest.raises(EngineError, match=r"engine 'sampler' cannot adopt version 1: .* 1 requests are being"):
            await sync.publish(1)
        await reply
        assert (await sync.publish(1)).version == 1
        await engine.close()

    asyncio.run(run())


def test_a_step_that_failed_lets_the_engines_go_on(model: PreTrainedModel) -> None:
    engine = PagedEngine(model, **SHAPE)

    async def run() -> Completion:
        sync = SharedParameters({"sampler": engine}, interrupt="continue")
        reply = ask(engine, 0)
        await sampled(engine, 3)
        await sync.hold()
        await sync.hold()
        assert not reply.done()
        await sync.let_go()
        return await reply

    expected = sample_alone(False, LENGTHS["paged"])
    assert asyncio.run(run()).logprobs.tolist() == expected.logprobs.tolist()


# ------------------------------------------------------------------------------------------------ planted faults


@pytest.mark.parametrize("kind", ENGINES)
def test_a_dropped_tensor_is_named(
    kind: str,
    model: PreTrainedModel,
    served: PreTrainedModel,
    loop: asyncio.Runner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ENGINES[kind](served)
    sync = CopiedParameters(model, served, {"sampler": engine})
    loop.run(_reply(engine))
    names = [name for name, _ in model.named_parameters()]
    copy_tensors, dropped = copied._copy_tensors, names[3]
    monkeypatch.setattr(copied, "_copy_tensors", lambda pairs: copy_tensors(pairs[:3] + pairs[4:]))
    train(model)
    receipt = loop.run(sync.publish(1))
    with pytest.raises(EngineError, match=rf"the values of {dropped} in version 1"):
        check_receipt(receipt, compute_checksums(model), 1)
    loop.run(engine.close())


async def _reply(engine: Any) -> Completion:
    return await ask(engine, 0, max_tokens=3)


def test_packed_weights_that_stay_stale_are_named(
    model: PreTrainedModel, served: PreTrainedModel, loop: asyncio.Runner
) -> None:
    engine = PagedEngine(served, **SHAPE)
    sync = CopiedParameters(model, served, {"sampler": engine})
    loop.run(_reply(engine))
    engine._runner.renew = lambda: None  # type: ignore[method-assign]
    train(model)
    receipt = loop.run(sync.publish(1))
    # The norms are read in place and so are new; the embedding, which is the output layer too, is packed.
    with pytest.raises(EngineError, match=r"the values of model.embed_tokens.weight in version 1"):
        check_receipt(receipt, compute_checksums(model), 1)
    sums = compute_checksums(model)
    stale = {name.split(".")[-2] for name in sums if sums[name] != receipt.sums[name]}
    assert stale >= {"embed_tokens", "q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "q_norm"}
    assert "input_layernorm" not in stale


class Stub:
    """An engine that answers what it is given."""

    def __init__(self, sums: Mapping[str, int], *, adopts: bool = True, pause_s: float = 0.0) -> None:
        self.sums, self.adopts, self.pause_s = sums, adopts, pause_s
        self.version = 0
        self.is_paused = False

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        raise NotImplementedError

    async def release(self, session: Session) -> None: ...

    async def close(self) -> None: ...

    async def pause(self, interrupt: Interrupt) -> int:
        self.is_paused = True
        await asyncio.sleep(self.pause_s)
        return 0

    async def adopt(self, version: int) -> Mapping[str, int]:
        if self.adopts:
            self.version = version
        return self.sums

    async def resume(self) -> None:
        self.is_paused = False


def test_an_engine_that_ignores_a_version_is_named(model: PreTrainedModel, served: PreTrainedModel) -> None:
    stub = Stub({}, adopts=False)
    sync = CopiedParameters(model, served, {"a": Stub({}), "b": stub})
    with pytest.raises(EngineError, match=r"engine 'b' serves version 0 after being told to adopt 4"):
        asyncio.run(sync.publish(4))
    # Its weights are unknown, so nothing is sampled with it.
    assert stub.is_paused


def test_engines_that_differ_are_named(model: PreTrainedModel, served: PreTrainedModel) -> None:
    sync = CopiedParameters(model, served, {"a": Stub({"x": 1, "y": 2}), "b": Stub({"x": 1, "y": 3})})
    with pytest.raises(EngineError, match=r"engines 'b' and 'a' differ in y in version 4"):
        asyncio.run(sync.publish(4))


def test_an_engine_that_does_not_answer_is_named_and_the_others_go_on(
    model: PreTrainedModel, served: PreTrainedModel
) -> None:
    quick, slow = Stub({}), Stub({}, pause_s=30)
    sync = CopiedParameters(model, served, {"quick": quick, "slow": slow}, deadline_s=0.1)
    train(model)
    before = compute_checksums(served)
    with pytest.raises(EngineError, match=r"engine 'slow' did not stop for version 2 within 0.1 s"):
        asyncio.run(sync.publish(2))
    assert not quick.is_paused
    assert compute_checksums(served) == before


def test_models_that_do_not_fit_are_refused_with_the_tensor(model: PreTrainedModel) -> None:
    deeper = build_model("qwen3", {**CONFIG, "num_hidden_layers": 3}, vocab_size=VOCAB, seed=1)
    wider = build_model("qwen3", {**CONFIG, "intermediate_size": 32}, vocab_size=VOCAB, seed=1)
    stub = Stub({})
    for trained, other, words in (
        (deeper, model, r"copy has no tensor model.layers.2.\S+; version 7"),
        (model, deeper, r"the trainer has no tensor model.layers.2.\S+; version 7"),
        (model, wider, r"layers.0.mlp.gate_proj.weight has shape \(64, 32\) in the trainer but \(32, 32\)"),
    ):
        with pytest.raises(EngineError, match=words):
            asyncio.run(CopiedParameters(trained, other, {"a": stub}).publish(7))
    assert stub.version == 0


def test_receipts_are_compared_tensor_by_tensor() -> None:
    sums = {"a": 1, "b": 2, "c": 3}

    def receipt(**changes: int) -> Receipt:
        return Receipt(version=3, sums={**sums, **changes}, seconds=0.1)

    check_receipt(receipt(), sums, 3)
    for wrong, given, version, words in (
        (receipt(), sums, 4, "acknowledged version 3, but the trainer published 4"),
        (receipt(b=9, c=9), sums, 3, "the values of b in version 3"),
        (receipt(), {**sums, "d": 4}, 3, "have no tensor d in version 3"),
        (receipt(e=1), sums, 3, "have e in version 3, a tensor that the trainer does not have"),
    ):
        with pytest.raises(EngineError, match=words):
            check_receipt(wrong, given, version)


@pytest.mark.slow
def test_a_dead_worker_does_not_stop_a_publication_and_the_next_request_restarts_it(
    model: PreTrainedModel, served: PreTrainedModel, loop: asyncio.Runner
) -> None:
    engine = WorkerEngine(served, num_workers=1, **SHAPE)
    sync = CopiedParameters(model, served, {"sampler": engine})

    async def kill() -> None:
        await _reply(engine)
        os.kill(engine.worker_pids()[0], signal.SIGKILL)
        while engine.worker_pids():
            await asyncio.sleep(0.01)
        train(model)
        check_receipt(await sync.publish(1), compute_checksums(model), 1)
        assert (await _reply(engine)).version_first == 1
        train(model)
        check_receipt(await sync.publish(2), compute_checksums(model), 2)
        assert (await _reply(engine)).version_first == 2
        await engine.close()

    loop.run(kill())
