"""What every engine keeps: the contract of `core.protocols.Engine`, and of `PausableEngine` where there is a model.

Every kind of the table runs through it, built from its row. vLLM and the servers are the stand-ins of their own tests.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract_table import list_names, read_contract
from generation_server import generation_server
from small_model import CONFIG, VOCAB
from transformers import PreTrainedModel
from vllm_engines import write_stand_in
from waiting import wait_outside

from turnwise.config.engine_kinds.table import ENGINE_KINDS, GROUP
from turnwise.core.errors import EngineError
from turnwise.core.offers import list_offers
from turnwise.core.protocols import StreamingEngine
from turnwise.core.types import Completion, FinishReason, IntArray, Message, SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.engines.registry import build_engine
from turnwise.engines.scripted import ScriptedEngine
from turnwise.engines.settings import EngineSettings
from turnwise.models.build import build_model

SHAPE: dict[str, Any] = {"max_concurrency": 12, "max_context": 2000}
SESSION = Session("g", "0")
REFUSED, LATE = 13, 14
"""First tokens of prompts: one that the scripted engine refuses, one whose text cannot be decoded in time."""


def decode(ids: Sequence[int]) -> str:
    """As slow as a service that is away."""
    raise TimeoutError("no answer")


class Letters:
    """A renderer of single letters, as far as the scripted engine needs one."""

    def encode_reply(self, message: Message) -> IntArray:
        return to_ids([ord(letter) % VOCAB for letter in message.text])


def script(prompt: IntArray) -> str:
    if prompt[0] == REFUSED:
        raise EngineError("outside the vocabulary")
    if prompt[0] == LATE:
        raise TimeoutError("no answer")
    return "abcdefghijklmnopqrstuvwxyz"


def make_model(model_type: str = "qwen3") -> PreTrainedModel:
    return build_model(model_type, CONFIG, vocab_size=VOCAB, seed=1)


def serve(stack: ExitStack, folder: Path, speaks: str) -> dict[str, Any]:
    """A server that stands in for a real one."""
    make_model().save_pretrained(folder / "model")
    served = stack.enter_context(generation_server(folder / "model", speaks))
    return {"urls": [served.url], "speaks": speaks, "timeout_s": 60.0}


Prepare = Callable[[ExitStack, Path], dict[str, Any]]
"""From what outlives a test, and a folder, to `engine.options`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a kind is built where its defaults do not do, and what its tests need to know of it."""

    row: str = ""
    """Its name in the table; empty is the case's own."""
    prepare: Prepare = lambda stack, folder: {}
    has_model: bool = True
    seedless: str = ""
    """Why a seed does not determine what is sampled; empty where it does."""
    long: int = 1500
    """Tokens of a reply that lasts while a test does something else."""


SPECIAL: Mapping[str, Kind] = {
    "vllm": Kind(
        prepare=lambda stack, folder: {"python": str(write_stand_in(folder)), "cache_mib": 64},
        seedless="one generator of its process draws for all requests",
        long=1500,
    ),
    "server": Kind(
        prepare=lambda stack, folder: serve(stack, folder, "vllm"), seedless="servers draw as they like", long=200
    ),
    "server, SGLang": Kind(
        row="server",
        prepare=lambda stack, folder: serve(stack, folder, "sglang"),
        seedless="servers draw as they like",
        long=200,
    ),
    "scripted": Kind(has_model=False),
}
"""Kinds that need more than their row, and the one that is no row: the public fake."""
ROWS = [*ENGINE_KINDS, *(offer.name for offer in list_offers(GROUP) if offer.package.startswith("turnwise"))]
"""The table, and the kinds that Turnwise's own packages offer."""
KINDS = {name: Kind() for name in ROWS} | dict(SPECIAL)
IN_PROCESS: Mapping[str, Callable[..., Any]] = {"local": LocalEngine, "paged": PagedEngine}
"""Engines that compute on a thread of this process."""
STREAMING = {"paged", "workers", "vllm", "scripted"}
"""Those that tell tokens while they sample."""
WITH_MODEL = [name for name, kind in KINDS.items() if kind.has_model]


def build(name: str, model: PreTrainedModel, stack: ExitStack, folder: Path) -> Any:
    """The engine of a case."""
    if name == "scripted":
        return ScriptedEngine(Letters(), script)  # type: ignore[arg-type]
    kind = KINDS[name]
    common = EngineSettings(**SHAPE, num_threads=1)
    return build_engine(kind.row or name, model, common=common, options=kind.prepare(stack, folder), decode=decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An engine, and the event loop it lives on."""

    name: str
    engine: Any
    model: PreTrainedModel
    run: Callable[..., Any]
    sessions: set[Session] = field(default_factory=set)
    """Asked in and not yet released."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    def ask(self, prompt: list[int], *, session: Session = SESSION, **params: Any) -> Any:
        """A coroutine of one reply; the most likely one where seeds decide nothing."""
        settings = SamplingParams(**{"max_tokens": 8, "temperature": 0.0 if self.kind.seedless else 1.0, **params})
        self.sessions.add(session)
        return self.engine.generate(to_ids(prompt), settings, session=session)


@pytest.fixture(scope="module", params=KINDS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    model = make_model()
    with ExitStack() as stack, asyncio.Runner() as runner:
        engine = build(request.param, model, stack, tmp_path_factory.mktemp("engine"))
        yield Subject(name=request.param, engine=engine, model=model, run=runner.run)
        runner.run(engine.close())


@pytest.fixture(autouse=True)
def released(request: pytest.FixtureRequest) -> Iterator[None]:
    """A conversation holds its place in an engine until it is released."""
    yield
    if "subject" in request.fixturenames:
        subject = request.getfixturevalue("subject")
        while subject.sessions:
            subject.run(subject.engine.release(subject.sessions.pop()))


@pytest.fixture
def sampler(subject: Subject) -> Subject:
    if subject.name not in WITH_MODEL:
        pytest.skip("has no model")
    return subject


def prompt_of(seed: int, length: int = 20) -> list[int]:
    return np.random.default_rng(seed).integers(20, VOCAB, length).tolist()


def test_every_kind_of_engine_runs_through_this_contract_and_the_page_says_so() -> None:
    run_here = {kind.row or name for name, kind in KINDS.items()}
    assert run_here == {*ROWS, "scripted"}
    runs, left_out = read_contract("test_engines.py")
    assert set(list_names(runs)) == run_here
    assert left_out == "nothing"


async def begun(sampler: Subject, group: str) -> None:
    """Wait until an engine samples what a group was asked: once a later request of the group, which goes to the same
    process, has ended, an earlier one has begun."""
    # A task, because what is awaited at once would be asked before tasks that have not started.
    await asyncio.create_task(sampler.ask(prompt_of(2), session=Session(group, "later"), max_tokens=1))


def same(a: Completion, b: Completion) -> bool:
    return a.token_ids.tolist() == b.token_ids.tolist() and a.logprobs.tolist() == b.logprobs.tolist()


def test_a_reply_is_verbatim_and_of_one_version(subject: Subject) -> None:
    reply = subject.run(subject.ask(prompt_of(1), max_tokens=5))
    assert len(reply.token_ids) == len(reply.logprobs) == 5
    assert reply.finish_reason is FinishReason.LENGTH
    assert reply.version_first == reply.version_last == subject.engine.version
    assert reply.versions is None or reply.versions.tolist() == [subject.engine.version] * 5
    assert (reply.logprobs <= 0).all()


def test_releasing_an_unknown_session_does_nothing(subject: Subject) -> None:
    subject.run(subject.engine.release(Session("never", "seen")))
    session = Session("g", "released")
    first = subject.run(subject.ask(prompt_of(2), session=session))
    for _ in range(2):
        subject.run(subject.engine.release(session))
    assert same(subject.run(subject.ask(prompt_of(2), session=session)), first)


def test_an_error_of_one_request_leaves_the_others_alone(subject: Subject) -> None:
    async def three() -> list[Any]:
        bad = [REFUSED, VOCAB + 5]
        asked = [subject.ask(p, session=Session("e", str(i))) for i, p in enumerate((prompt_of(1), bad, prompt_of(2)))]
        return await asyncio.gather(*asked, return_exceptions=True)

    first, error, last = subject.run(three())
    assert isinstance(error, EngineError)
    assert "outside the vocabulary" in str(error)
    assert same(first, subject.run(subject.ask(prompt_of(1))))
    assert same(last, subject.run(subject.ask(prompt_of(2))))


def test_a_time_out_inside_an_engine_is_the_engines_error(subject: Subject) -> None:
    with pytest.raises(EngineError, match=r"engine.*TimeoutError: no answer") as caught:
        subject.run(subject.ask([LATE, *prompt_of(1)], stop=("x",)))
    assert not isinstance(caught.value, TimeoutError)


def test_seeds_decide_tokens_whatever_the_company_and_the_session(sampler: Subject) -> None:
    if sampler.kind.seedless:
        pytest.skip(sampler.kind.seedless)
    alone = [sampler.run(sampler.ask(prompt_of(3), seed=seed)) for seed in range(3)]
    assert len({tuple(reply.token_ids.tolist()) for reply in alone}) == 3

    async def crowd() -> list[Completion]:
        asked = [sampler.ask(prompt_of(3), seed=seed, session=Session("crowd", str(seed))) for seed in range(3)]
        others = [sampler.ask(prompt_of(9 + i), seed=i, session=Session("other", str(i))) for i in range(4)]
        return list(await asyncio.gather(*asked, *others))[:3]

    assert all(same(a, b) for a, b in zip(alone, sampler.run(crowd()), strict=True))


def test_tokens_are_told_in_their_order_while_a_reply_is_sampled(subject: Subject) -> None:
    assert isinstance(subject.engine, StreamingEngine) == (subject.name in STREAMING)
    if subject.name not in STREAMING:
        return
    told: list[int] = []
    counts: list[int] = []

    def receive(token_ids: Sequence[int]) -> None:
        told.extend(token_ids)
        counts.append(len(token_ids))

    settings = SamplingParams(max_tokens=12, temperature=0.0)
    session = Session("g", "told")
    subject.sessions.add(session)
    reply = subject.run(subject.engine.stream(to_ids(prompt_of(6)), settings, session=session, receive=receive))
    assert len(told) >= 11  # the last ones may come with the reply
    assert reply.token_ids.tolist()[: len(told)] == told
    assert len(counts) > 1
    assert same(reply, subject.run(subject.ask(prompt_of(6), max_tokens=12, temperature=0.0)))


def test_who_receives_tokens_wrongly_fails_alone(subject: Subject) -> None:
    if subject.name not in STREAMING:
        return

    def receive(token_ids: Sequence[int]) -> None:
        raise EngineError("cannot be read")

    async def two() -> list[Any]:
        settings = SamplingParams(max_tokens=8, temperature=0.0)
        session = Session("e", "told")
        subject.sessions.add(session)
        failing = subject.engine.stream(to_ids(prompt_of(6)), settings, session=session, receive=receive)
        return list(await asyncio.gather(failing, subject.ask(prompt_of(1)), return_exceptions=True))

    error, reply = subject.run(two())
    assert isinstance(error, EngineError)
    assert same(reply, subject.run(subject.ask(prompt_of(1))))


def test_a_conversation_goes_on_as_if_it_were_asked_whole(sampler: Subject) -> None:
    session = Session("turns", "0")
    first = sampler.run(sampler.ask(prompt_of(4), session=session))
    whole = [*prompt_of(4), *first.token_ids.tolist(), *prompt_of(5, 7)]
    second = sampler.run(sampler.ask(whole, session=session, seed=7))
    fresh = sampler.run(sampler.ask(whole, session=Session("fresh", "0"), seed=7))
    assert second.token_ids.tolist() == fresh.token_ids.tolist()
    assert second.logprobs.tolist() == pytest.approx(fresh.logprobs.tolist(), abs=5e-6)


def test_a_cancelled_request_leaves_the_others_alone(sampler: Subject) -> None:
    expected = sampler.run(sampler.ask(prompt_of(6), seed=3, max_tokens=60))

    async def cancel() -> Completion:
        ask, long = sampler.ask, sampler.kind.long
        doomed = asyncio.create_task(ask(prompt_of(7), session=Session("c", "doomed"), max_tokens=long))
        other = asyncio.create_task(sampler.ask(prompt_of(6), session=Session("c", "other"), seed=3, max_tokens=60))
        await begun(sampler, "c")
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        await sampler.engine.release(Session("c", "doomed"))
        # The session may be used again at once.
        again = await sampler.ask(prompt_of(6), session=Session("c", "doomed"), seed=3, max_tokens=60)
        assert same(again, expected)
        return await other

    assert same(sampler.run(cancel()), expected)


def test_the_callers_deadline_ends_one_request(sampler: Subject) -> None:
    async def hurry() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sampler.ask(prompt_of(8), session=Session("d", "0"), max_tokens=sampler.kind.long)

    sampler.run(hurry())
    sampler.run(sampler.engine.release(Session("d", "0")))
    assert len(sampler.run(sampler.ask(prompt_of(8))).token_ids) == 8


def test_adopting_needs_a_pause_while_requests_are_open_and_later_tokens_carry_the_version(sampler: Subject) -> None:
    before = sampler.engine.version

    async def adopt() -> tuple[Completion, Completion, dict[str, int]]:
        asked = asyncio.create_task(sampler.ask(prompt_of(1), session=Session("v", "0"), max_tokens=sampler.kind.long))
        await begun(sampler, "v")
        with pytest.raises(EngineError, match="wait for them or pause the engine"):
            await sampler.engine.adopt(before + 1)
        assert sampler.engine.version == before
        assert await sampler.engine.pause("continue") == 0
        sums = await sampler.engine.adopt(before + 1)
        waiting = asyncio.create_task(sampler.ask(prompt_of(1), session=Session("v", "1")))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await sampler.engine.resume()
        await sampler.engine.resume()
        return await asked, await waiting, sums

    asked, waiting, sums = sampler.run(adopt())
    assert set(sums) == {name for name, _ in sampler.model.named_parameters()}
    assert asked.versions is not None, asked
    assert sorted(asked.versions.tolist()) == asked.versions.tolist()
    assert (asked.version_first, asked.version_last) == (before, before + 1)
    assert (waiting.version_first, waiting.version_last) == (before + 1, before + 1)


@pytest.mark.parametrize("name", KINDS)
def test_close_fails_what_is_pending_and_refuses_what_comes_later(name: str, tmp_path: Path) -> None:
    async def close(engine: Any) -> Any:
        params = SamplingParams(max_tokens=KINDS[name].long)
        pending = asyncio.create_task(engine.generate(to_ids(prompt_of(1)), params, session=Session("g", "0")))
        await asyncio.sleep(0)  # asked, whether or not it has begun
        await engine.close()
        await engine.close()
        with pytest.raises(EngineError, match="engine is closed"):
            await engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=1), session=Session("g", "1"))
        return (await asyncio.gather(pending, return_exceptions=True))[0]

    with ExitStack() as stack:
        outcome = asyncio.run(close(build(name, make_model(), stack, tmp_path)))
    if KINDS[name].has_model:
        assert isinstance(outcome, EngineError)
        assert "the engine was closed" in str(outcome)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_the_event_loop_stays_responsive_while_a_step_runs(name: str) -> None:
    model = make_model("gemma")
    engine = IN_PROCESS[name](model, **SHAPE, decode=decode)
    turned: list[bool] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def wait_for_the_loop(*_: Any) -> None:
            turn = threading.Event()
            loop.call_soon_threadsafe(turn.set)
            turned.append(turn.wait(20))

        model.get_input_embeddings().register_forward_pre_hook(wait_for_the_loop)
        params = SamplingParams(max_tokens=3)
        assert len((await engine.generate(to_ids(prompt_of(1)), params, session=Session("g", "0"))).token_ids) == 3
        await engine.close()

    asyncio.run(run())
    assert len(turned) >= 3
    assert all(turned)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_arithmetic_has_its_own_number_of_threads(name: str) -> None:
    model = make_model("gemma")
    seen: set[int] = set()
    before = torch.get_num_threads()
    engine = IN_PROCESS[name](model, **SHAPE, num_threads=3)
    model.get_input_embeddings().register_forward_pre_hook(lambda module, args: seen.add(torch.get_num_threads()))
    asyncio.run(engine.generate(to_ids([1, 2]), SamplingParams(max_tokens=2), session=Session("g", "0")))
    assert seen == {3}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", IN_PROCESS)
@pytest.mark.parametrize("action", ["cancel", "release", "submit", "ask again"])
def test_what_happens_during_a_step_changes_no_sample(name: str, action: str) -> None:
    """A request that shares its beginning with the one sampled is cancelled, released, submitted, or cancelled and made
    again in its session, while a step of both is computed."""

    def run(disturb: bool) -> tuple[Completion, Completion]:
        model = make_model("gemma")
        engine = IN_PROCESS[name](model, **SHAPE, decode=decode)
        acts: list[Callable[[], Any]] = []
        num_steps = 0
        loop: asyncio.AbstractEventLoop
        events: list[bool] = []
        model.get_input_embeddings().register_forward_pre_hook(lambda module, args: wait())

        def wait() -> None:
            nonlocal num_steps
            num_steps += 1
            if num_steps == 5 and disturb:
                loop.call_soon_threadsafe(acts[0])
                wait_outside(lambda: events)

        def ask(member: int) -> asyncio.Task[Completion]:
            params = SamplingParams(max_tokens=12, seed=member)
            return asyncio.create_task(
                engine.generate(to_ids(prompt_of(1, 40)), params, session=Session("g", str(member)))
            )

        async def both() -> tuple[Completion, Completion]:
            nonlocal loop
            loop = asyncio.get_running_loop()
            first, second = ask(0), ask(1)
            later: list[asyncio.Task[Any]] = []

            async def ask_again() -> Completion:
                await asyncio.wait([second])
                return await ask(1)

            def replace_second() -> None:
                second.cancel()
                later.append(asyncio.ensure_future(ask_again()))

            actions: dict[str, Callable[[], Any]] = {
                "cancel": second.cancel,
                "release": lambda: later.append(asyncio.ensure_future(engine.release(Session("g", "1")))),
                "submit": lambda: later.append(ask(2)),
                "ask again": replace_second,
            }

            def act() -> None:
                events.append(second.done())
                actions[action]()

            acts.append(act)
            reply = await first
            outcomes = await asyncio.gather(second, *later, return_exceptions=True)
            await engine.close()
            assert events == ([False] if disturb else [])
            other = outcomes[-1] if action == "ask again" else reply
            assert isinstance(other, Completion)
            return reply, other

        return asyncio.run(both())

    assert all(same(a, b) for a, b in zip(run(disturb=True), run(disturb=False), strict=True))
