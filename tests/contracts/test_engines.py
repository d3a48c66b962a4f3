"""What every engine keeps: the contract of `core.protocols.Engine`, and of `PausableEngine` where there is a model."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from small_model import CONFIG, VOCAB
from transformers import PreTrainedModel

from turnwise.config.engine_kinds.table import ENGINE_KINDS
from turnwise.core.errors import EngineError
from turnwise.core.protocols import Engine
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One implementation."""

    build: Callable[[PreTrainedModel], Any]
    has_model: bool = True


def build_kind(name: str) -> Callable[[PreTrainedModel], Engine]:
    """As a recipe builds it, with its default options."""
    common = EngineSettings(**SHAPE)
    return lambda model: build_engine(name, model, common=common, options={}, decode=decode)


KINDS = {
    "scripted": Kind(build=lambda model: ScriptedEngine(Letters(), script), has_model=False),  # type: ignore[arg-type]
    **{name: Kind(build=build_kind(name)) for name, row in ENGINE_KINDS.items() if not row.has_weights_outside},
}
"""The fake, and every built-in kind whose weights are this process's: a new row is held to the contract."""
WITH_MODEL = [name for name, kind in KINDS.items() if kind.has_model]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An engine, and the event loop it lives on."""

    name: str
    engine: Any
    model: PreTrainedModel
    run: Callable[..., Any]
    sessions: set[Session] = field(default_factory=set)
    """Asked in and not yet released."""

    def ask(self, prompt: list[int], *, session: Session = SESSION, **params: Any) -> Any:
        """A coroutine of one reply."""
        settings = SamplingParams(**{"max_tokens": 8, **params})
        self.sessions.add(session)
        return self.engine.generate(to_ids(prompt), settings, session=session)


@pytest.fixture(scope="module", params=KINDS)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    model = build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)
    with asyncio.Runner() as runner:
        engine = KINDS[request.param].build(model)
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


async def begun(engine: Any) -> None:
    """Wait until an engine samples; one without statistics does so with the next turns of this loop."""
    await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        while hasattr(engine, "statistics") and engine.statistics().num_held_pages == 0:
            await asyncio.sleep(0.01)


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
    alone = [sampler.run(sampler.ask(prompt_of(3), seed=seed)) for seed in range(3)]
    assert len({tuple(reply.token_ids.tolist()) for reply in alone}) == 3

    async def crowd() -> list[Completion]:
        asked = [sampler.ask(prompt_of(3), seed=seed, session=Session("crowd", str(seed))) for seed in range(3)]
        others = [sampler.ask(prompt_of(9 + i), seed=i, session=Session("other", str(i))) for i in range(4)]
        return list(await asyncio.gather(*asked, *others))[:3]

    assert all(same(a, b) for a, b in zip(alone, sampler.run(crowd()), strict=True))


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
        doomed = asyncio.create_task(sampler.ask(prompt_of(7), session=Session("c", "doomed"), max_tokens=1900))
        other = asyncio.create_task(sampler.ask(prompt_of(6), session=Session("c", "other"), seed=3, max_tokens=60))
        await asyncio.sleep(0.02)
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
                await sampler.ask(prompt_of(8), session=Session("d", "0"), max_tokens=1900)

    sampler.run(hurry())
    sampler.run(sampler.engine.release(Session("d", "0")))
    assert len(sampler.run(sampler.ask(prompt_of(8))).token_ids) == 8


def test_adopting_needs_a_pause_while_requests_are_open_and_later_tokens_carry_the_version(sampler: Subject) -> None:
    before = sampler.engine.version

    async def adopt() -> tuple[Completion, Completion, dict[str, int]]:
        asked = asyncio.create_task(sampler.ask(prompt_of(1), session=Session("v", "0"), max_tokens=1500))
        await begun(sampler.engine)
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
    assert list(sums) == [name for name, _ in sampler.model.named_parameters()]
    assert sorted(asked.versions.tolist()) == asked.versions.tolist()
    assert (asked.version_first, asked.version_last) == (before, before + 1)
    assert (waiting.version_first, waiting.version_last) == (before + 1, before + 1)


@pytest.mark.parametrize("name", KINDS)
def test_close_fails_what_is_pending_and_refuses_what_comes_later(name: str) -> None:
    engine = KINDS[name].build(build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1))

    async def close() -> Any:
        pending = asyncio.create_task(
            engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=1900), session=Session("g", "0"))
        )
        await asyncio.sleep(0.05)
        await engine.close()
        await engine.close()
        with pytest.raises(EngineError, match="engine is closed"):
            await engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=1), session=Session("g", "1"))
        return (await asyncio.gather(pending, return_exceptions=True))[0]

    outcome = asyncio.run(close())
    if KINDS[name].has_model:
        assert isinstance(outcome, EngineError)
        assert "the engine was closed" in str(outcome)


@pytest.mark.parametrize("name", ["local", "paged"])
def test_the_event_loop_stays_responsive_while_a_step_runs(name: str) -> None:
    model = build_model("gemma", CONFIG, vocab_size=VOCAB, seed=1)
    model.get_input_embeddings().register_forward_pre_hook(lambda module, args: time.sleep(0.2))
    engine = KINDS[name].build(model)

    async def run() -> float:
        asked = asyncio.create_task(
            engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=3), session=Session("g", "0"))
        )
        longest, last = 0.0, time.monotonic()
        while not asked.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        await engine.close()
        assert len((await asked).token_ids) == 3
        return longest

    # Three steps of at least 0.2 s; on the event loop one of them alone would be a gap that long.
    assert asyncio.run(run()) < 0.15


@pytest.mark.parametrize("name", ["local", "paged"])
def test_arithmetic_has_its_own_number_of_threads(name: str) -> None:
    model = build_model("gemma", CONFIG, vocab_size=VOCAB, seed=1)
    seen: set[int] = set()
    build = {"local": LocalEngine, "paged": PagedEngine}[name]
    before = torch.get_num_threads()
    engine: Any = build(model, **SHAPE, num_threads=3)
    model.get_input_embeddings().register_forward_pre_hook(lambda module, args: seen.add(torch.get_num_threads()))
    asyncio.run(engine.generate(to_ids([1, 2]), SamplingParams(max_tokens=2), session=Session("g", "0")))
    assert seen == {3}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["local", "paged"])
@pytest.mark.parametrize("action", ["cancel", "release", "submit", "ask again"])
def test_what_happens_during_a_step_changes_no_sample(name: str, action: str) -> None:
    """A request that shares its beginning with the one sampled is cancelled, released, submitted, or cancelled and made
    again in its session, while a step of both is computed."""

    def run(disturb: bool) -> tuple[Completion, Completion]:
        model = build_model("gemma", CONFIG, vocab_size=VOCAB, seed=1)
        engine = KINDS[name].build(model)
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
                time.sleep(0.05)
                assert events, "nothing happened during the step"

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
