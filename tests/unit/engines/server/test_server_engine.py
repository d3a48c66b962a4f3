"""Servers by URL as an engine: what is sampled is the trainer's, interrupts lose nothing, and faults are found."""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_server import FIRST_VERSION, Served, generation_server
from served_model import PROMPT, VOCAB, change, decode, make_model, score
from transformers import PreTrainedModel

from turnwise.config.engine_kinds.kind import read_options
from turnwise.config.engine_kinds.server import ServerOptions
from turnwise.core.errors import ConfigError, EngineError
from turnwise.core.types import Completion, FinishReason, Grammar, SamplingParams, Session, to_ids
from turnwise.engines.registry import build_engine
from turnwise.engines.server import ServerEngine
from turnwise.engines.settings import EngineSettings
from turnwise.models.checksums import compute_checksums


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as servers are started with it."""
    path = tmp_path_factory.mktemp("model")
    make_model().save_pretrained(path)
    return path


@pytest.fixture(params=["vllm", "sglang"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def servers(folder: Path, kind: str, tmp_path: Path) -> Iterator[list[Served]]:
    """One on loopback and one on a Unix socket."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(generation_server(folder, kind)),
            stack.enter_context(generation_server(folder, kind, socket=tmp_path / "server.sock")),
        ]


@asynccontextmanager
async def open_engine(
    model: PreTrainedModel, kind: str, servers: Sequence[Served], **options: Any
) -> AsyncIterator[ServerEngine]:
    settings = {"max_concurrency": 8, "max_context": 128, "timeout_s": 20.0, **options}
    engine = ServerEngine(model, urls=[each.url for each in servers], speaks=kind, decode=decode, **settings)
    try:
        yield engine
    finally:
        await engine.close()


async def ask(engine: ServerEngine, prompt: Sequence[int], *, name: str = "0", **params: Any) -> Completion:
    settings = SamplingParams(**{"max_tokens": 12, **params})
    return await engine.generate(to_ids(prompt), settings, session=Session(f"g{name}", name))


async def sampling(served: Served) -> None:
    """Wait until a server has sampled a token of a reply and goes on."""
    async with asyncio.timeout(60):
        while served.num_running == 0 or served.num_sampled == 0:
            await asyncio.sleep(0.002)


def gap(model: PreTrainedModel, completion: Completion, temperature: float = 1.0) -> float:
    return float(np.abs(completion.logprobs - score(model, PROMPT, completion, temperature)).max())


def test_logprobs_are_the_trainers_on_every_server_before_and_after_versions(kind: str, servers: list[Served]) -> None:
    model = make_model()
    for served in servers:
        served.forget()  # started with other weights

    async def play() -> float:
        gaps = []
        async with open_engine(model, kind, servers) as engine:
            for version in range(3):
                if version:
                    change(model, seed=version)
                    assert await engine.adopt(version) == compute_checksums(model)
                for temperature in (1.0, 0.7):
                    replies = await asyncio.gather(
                        *(ask(engine, PROMPT, name=str(n), temperature=temperature) for n in range(4))
                    )
                    assert {(reply.version_first, reply.version_last) for reply in replies} == {(version, version)}
                    gaps += [gap(model, reply, temperature) for reply in replies]
        return max(gaps)

    assert asyncio.run(play()) < 1e-4
    assert all(served.version == "2" for served in servers)
    sampled = [sum("generate" in path for path in served.paths) for served in servers]
    # 24 replies, half on each, and of each of three versions one or two calls for its canary.
    assert min(sampled) >= 12 + 3


def test_replies_stop_at_tokens_strings_and_lengths(kind: str, servers: list[Served]) -> None:
    model = make_model()

    async def play() -> None:
        async with open_engine(model, kind, servers[:1]) as engine:
            whole = await ask(engine, PROMPT, temperature=0.0, max_tokens=80)
            ids = whole.token_ids.tolist()
            assert whole.finish_reason is FinishReason.LENGTH
            assert len(ids) == 80
            assert gap(model, whole) < 1e-4
            stopped = await ask(engine, PROMPT, temperature=0.0, stop_token_ids=(ids[3],))
            assert stopped.token_ids.tolist() == ids[: ids.index(ids[3]) + 1]
            assert stopped.finish_reason is FinishReason.STOP
            # A stop string across the border of two parts, of 64 tokens each.
            text = decode(ids[62:66])
            end = next(n for n in range(4, 81) if ids[n - 4 : n] == ids[62:66])
            cut = await ask(engine, PROMPT, temperature=0.0, max_tokens=80, stop=(text,))
            assert cut.token_ids.tolist() == ids[:end]
            assert len(cut.logprobs) == end
            assert cut.finish_reason is FinishReason.STOP

    asyncio.run(play())


@pytest.mark.parametrize("interrupt", ["finish", "continue", "restart"])
def test_replies_under_way_when_weights_change(kind: str, servers: list[Served], interrupt: Any) -> None:
    model = make_model()

    async def play() -> tuple[Completion, int]:
        async with open_engine(model, kind, servers[:1]) as engine:
            await ask(engine, PROMPT)
            servers[0].hold_at = None if interrupt == "finish" else 20
            reply = asyncio.create_task(ask(engine, PROMPT, max_tokens=80, name="1"))
            await sampling(servers[0])
            num_dropped = await engine.pause(interrupt)
            servers[0].hold_at = None
            assert reply.done() == (interrupt == "finish")
            late = asyncio.create_task(ask(engine, PROMPT, name="2"))
            change(model, seed=5)
            await engine.adopt(1)
            assert not late.done()
            await engine.resume()
            assert (await late).version_first == 1
            return await reply, num_dropped

    completion, num_dropped = asyncio.run(play())
    assert len(completion.token_ids) == len(completion.logprobs) == 80
    versions = [completion.version_first] * 80 if completion.versions is None else completion.versions.tolist()
    match interrupt:
        case "finish":
            assert set(versions) == {0}
            assert num_dropped == 0
        case "restart":
            assert set(versions) == {1}
            assert num_dropped > 0
            assert gap(model, completion) < 1e-4
        case _:
            assert versions == sorted(versions)
            assert set(versions) == {0, 1}
            new = [index for index, version in enumerate(versions) if version == 1]
            assert np.allclose(completion.logprobs[new], score(model, PROMPT, completion)[new], atol=1e-4)


def test_a_server_that_goes_away_loses_no_request_and_comes_back(
    kind: str, servers: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.engines.server.engine.RETURN_S", 0.05)
    model = make_model()

    async def play() -> list[str]:
        async with open_engine(model, kind, servers) as engine:
            await asyncio.gather(*(ask(engine, PROMPT, name=str(n)) for n in range(4)))
            servers[0].faults.add("away")
            replies = await asyncio.gather(*(ask(engine, PROMPT, name=f"x{n}") for n in range(6)))
            change(model, seed=1)
            await engine.adopt(1)
            servers[0].faults.clear()
            servers[0].forget()
            while len(engine._ready) < 2:
                await asyncio.sleep(0.01)
            servers[1].faults.add("away")
            replies = [await ask(engine, PROMPT, name="y")]
            assert replies[0].version_first == 1
            assert gap(model, replies[0]) < 1e-4
            return engine.losses

    losses = asyncio.run(play())
    assert any("did not answer" in loss for loss in losses)
    assert servers[0].version == "1"


def test_a_server_that_restarts_between_two_requests_is_noticed(
    kind: str, servers: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers at once, with other weights: nothing but the version tells."""
    monkeypatch.setattr("turnwise.engines.server.engine.RETURN_S", 0.05)
    model = make_model()

    async def play() -> tuple[Completion, list[str]]:
        async with open_engine(model, kind, servers[:1]) as engine:
            await ask(engine, PROMPT)
            servers[0].forget()
            return await ask(engine, PROMPT, name="1"), engine.losses

    completion, losses = asyncio.run(play())
    assert gap(model, completion) < 1e-4
    assert losses == [
        f"{servers[0].url} sampled with weights {FIRST_VERSION} instead of 0; was it restarted?",
    ]


def test_requests_wait_for_the_only_server_and_then_say_so(
    kind: str, servers: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.engines.server.engine.RETURN_S", 0.05)

    async def play() -> None:
        async with open_engine(make_model(), kind, servers[:1], timeout_s=0.8) as engine:
            await ask(engine, PROMPT)
            servers[0].faults.add("away")
            with pytest.raises(EngineError, match=r"no server was available for 0.8 s.*did not answer"):
                await ask(engine, PROMPT)
            servers[0].faults.clear()
            assert (await ask(engine, PROMPT)).version_first == 0
            servers[0].faults.add("silent")
            with pytest.raises(EngineError, match=r"did not answer within 0.8 s"):
                await ask(engine, PROMPT)

    asyncio.run(play())


def test_a_request_that_waits_for_a_server_begins_only_after_a_pause(
    kind: str, servers: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.engines.server.engine.RETURN_S", 0.05)
    model = make_model()

    async def play() -> Completion:
        async with open_engine(model, kind, servers[:1]) as engine:
            await ask(engine, PROMPT)
            servers[0].faults.add("away")
            waiting = asyncio.create_task(ask(engine, PROMPT, name="1", max_tokens=80))
            while engine._ready:
                await asyncio.sleep(0.01)
            await engine.pause("continue")
            servers[0].faults.clear()
            while not engine._ready:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            change(model, seed=1)
            await engine.adopt(1)
            await engine.resume()
            return await waiting

    completion = asyncio.run(play())
    assert (completion.version_first, completion.version_last) == (1, 1)
    assert gap(model, completion) < 1e-4


def test_a_server_that_ends_requests_by_itself_is_left_also_during_a_pause(kind: str, servers: list[Served]) -> None:
    async def play() -> None:
        async with open_engine(make_model(), kind, servers[:1], timeout_s=1.0) as engine:
            await ask(engine, PROMPT)
            servers[0].hold_at = 20
            under_way = asyncio.create_task(ask(engine, PROMPT, name="1", max_tokens=80))
            await sampling(servers[0])
            pausing = asyncio.create_task(engine.pause("finish"))
            await asyncio.sleep(0)
            servers[0].faults.add("aborts")
            with pytest.raises(EngineError, match="ended a request without being told to; is"):
                await asyncio.wait_for(under_way, 10)
            assert await pausing == 0

    asyncio.run(play())


def test_a_request_that_is_cancelled_holds_up_no_version(kind: str, servers: list[Served]) -> None:
    """The server goes on with it for a while, with its cache in use."""
    model = make_model()

    async def play() -> list[str]:
        async with open_engine(model, kind, servers[:1]) as engine:
            await ask(engine, PROMPT)
            cut = asyncio.create_task(ask(engine, PROMPT, name="1", max_tokens=80))
            await sampling(servers[0])
            cut.cancel()
            await asyncio.wait([cut])
            change(model, seed=1)
            await engine.adopt(1)
            assert (await ask(engine, PROMPT)).version_first == 1
            return engine.losses

    assert asyncio.run(play()) == []


def test_a_server_that_returns_slowly_holds_up_no_version(
    kind: str, servers: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.engines.server.engine.RETURN_S", 0.05)
    model = make_model()

    async def play() -> float:
        async with open_engine(model, kind, servers) as engine:
            await ask(engine, PROMPT)
            servers[0].faults.add("away")
            await asyncio.gather(*(ask(engine, PROMPT, name=f"x{n}") for n in range(6)))
            servers[0].faults = {"silent"}
            num_calls = len(servers[0].paths)
            while len(servers[0].paths) == num_calls:
                await asyncio.sleep(0.01)
            change(model, seed=1)
            began = time.monotonic()
            await engine.adopt(1)
            took = time.monotonic() - began
            servers[0].faults.clear()
            while len(engine._ready) < 2:
                await asyncio.sleep(0.01)
            assert servers[0].version == "1"
            return took

    assert asyncio.run(play()) < 2.5  # an answer of the silent server takes 3


# -------------------------------------------------------------------------------------------- what is refused

WRONG = {
    "stale_tensor": "scores the canary",
    "load_fails": "half of it is loaded",
    "raw_logprobs": "not belong to the distribution that it samples from",
    "no_logprobs": "no log-probabilities",
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_server_that_cannot_be_trained_with_is_refused_at_the_first_request(
    kind: str, servers: list[Served], fault: str
) -> None:
    servers[1].forget()
    servers[1].faults.add(fault)

    async def play() -> None:
        async with open_engine(make_model(), kind, servers) as engine:
            with pytest.raises(EngineError, match=WRONG[fault]) as error:
                await ask(engine, PROMPT)
            assert servers[1].url in str(error.value)

    asyncio.run(play())


@pytest.mark.parametrize("fault", ["stale_tensor", "load_fails"])
def test_a_server_that_fails_to_load_is_left_until_it_does(
    kind: str, servers: list[Served], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.engines.server.engine.RETURN_S", 0.05)
    model = make_model()

    async def play() -> None:
        async with open_engine(model, kind, servers) as engine:
            await ask(engine, PROMPT)
            servers[0].faults.add(fault)
            change(model, seed=1)
            await engine.adopt(1)
            assert engine._ready == {1}
            replies = await asyncio.gather(*(ask(engine, PROMPT, name=str(n)) for n in range(4)))
            assert max(gap(model, reply) for reply in replies) < 1e-4
            servers[1].faults.add(fault)
            old = copy.deepcopy(model)
            change(model, seed=2)
            with pytest.raises(EngineError, match=WRONG[fault]):
                await engine.adopt(2)
            # Half loaded: nothing is sampled from it before it has the version that is in force.
            assert engine._ready == set()
            for served in servers:
                served.faults.clear()
            reply = await ask(engine, PROMPT)
            assert reply.version_first == 1
            assert gap(old, reply) < 1e-4

    asyncio.run(play())


@pytest.mark.parametrize("kind", ["vllm"], indirect=True)
def test_bits_that_were_lost_are_found_before_anything_is_loaded(kind: str, servers: list[Served]) -> None:
    model = make_model()

    async def play() -> None:
        async with open_engine(model, kind, servers) as engine:
            await ask(engine, PROMPT)
            servers[1].faults.add("lost_bits")
            old = make_model()
            change(model, seed=1)
            with pytest.raises(EngineError, match=r"read model.norm.weight with other values than the trainer wrote"):
                await engine.adopt(1)
            replies = await asyncio.gather(*(ask(engine, PROMPT, name=str(n)) for n in range(4)))
            assert {reply.version_first for reply in replies} == {0}
            assert max(gap(old, reply) for reply in replies) < 1e-4

    asyncio.run(play())


@pytest.mark.parametrize("kind", ["vllm"], indirect=True)
def test_a_cache_that_is_not_emptied_is_an_error(kind: str, servers: list[Served]) -> None:
    servers[0].faults.add("stale_cache")

    async def play() -> None:
        async with open_engine(make_model(), kind, servers) as engine:
            with pytest.raises(EngineError, match="prefix cache could not be emptied"):
                await ask(engine, PROMPT)

    asyncio.run(play())


def test_what_cannot_be_sampled_ends_one_request(kind: str, servers: list[Served]) -> None:
    async def play() -> Completion:
        async with open_engine(make_model(), kind, servers[:1]) as engine:
            with pytest.raises(EngineError, match=r"token id outside the vocabulary of 96"):
                await ask(engine, [VOCAB + 5])
            with pytest.raises(EngineError, match="cannot sample with a grammar"):
                await ask(engine, PROMPT, grammar=Grammar(kind="regex", text="a"))
            if kind == "sglang":
                with pytest.raises(EngineError, match="leave out top_p, min_p"):
                    await ask(engine, PROMPT, top_p=0.9, min_p=0.1)
            return await ask(engine, PROMPT)

    assert len(asyncio.run(play()).token_ids) == 12


def test_a_server_that_is_not_there_or_not_ready_is_named_at_the_start(servers: list[Served]) -> None:
    limits: dict[str, Any] = {"max_concurrency": 1, "max_context": 64}
    with pytest.raises(EngineError, match=r"no server answers at http://127.0.0.1:9 .*start it"):
        ServerEngine(make_model(), urls=["http://127.0.0.1:9"], speaks="vllm", **limits)
    with pytest.raises(EngineError, match=r"no server answers at unix:/nowhere.sock"):
        ServerEngine(make_model(), urls=["unix:/nowhere.sock"], speaks="vllm", **limits)
    servers[0].faults.add("starting")
    with pytest.raises(EngineError, match=r"answers /health with status 503; wait until it is ready"):
        ServerEngine(make_model(), urls=[servers[0].url], speaks="vllm", **limits)


def test_options_are_checked_before_a_model_is_loaded() -> None:
    def check(**options: Any) -> None:
        read_options("server", ServerOptions, options).check(device="cpu", num_threads=1)

    check(urls=["http://127.0.0.1:8000", "unix:/run/x.sock"])
    with pytest.raises(ConfigError, match=r"engine.options.urls has '127.0.0.1:8000'; it must be http"):
        check(urls=["127.0.0.1:8000"])
    with pytest.raises(ConfigError, match="the key is read from OPENAI_API_KEY"):
        check(urls=["http://me:secret@host:1"])
    with pytest.raises(ConfigError, match="has a server twice"):
        check(urls=["http://a:1", "http://a:1"])
    with pytest.raises(ConfigError, match=r"engine.options.urls is \[\]"):
        check(urls=[])


def test_a_recipe_builds_it_by_name(servers: list[Served], kind: str) -> None:
    common = EngineSettings(max_concurrency=4, max_context=64)
    options = {"urls": [served.url for served in servers], "speaks": kind}
    engine = build_engine("server", make_model(), common=common, options=options)
    assert isinstance(engine, ServerEngine)

    async def play() -> Completion:
        try:
            return await ask(engine, PROMPT)
        finally:
            await engine.close()

    assert replace(asyncio.run(play()), version_first=0).version_last == 0
