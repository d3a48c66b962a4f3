"""A real vLLM server on a Unix socket (`make test-vllm`)."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from served_model import PROMPT, change, decode, make_model, score
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.server import ServerEngine
from turnwise.models.checksums import compute_checksums

SCRIPT = Path(__file__).parents[4] / "peers" / "vllm_server.sh"
PYTHON = os.environ.get("TURNWISE_VLLM", "")
OPTIONS = "--dtype float32 --max-model-len 256 --enforce-eager --block-size 32 --kv-cache-memory-bytes 67108864"

pytestmark = pytest.mark.skipif(not PYTHON, reason="TURNWISE_VLLM names no interpreter with vLLM")


@contextlib.contextmanager
def vllm_server(model: PreTrainedModel, folder: Path, *options: str) -> Iterator[str]:
    """The address of a server that is ready."""
    model.save_pretrained(folder / "model")
    socket, log = folder / "server.sock", folder / "server.log"
    command = [str(SCRIPT), str(folder / "model"), f"unix:{socket}", *OPTIONS.split(), *options]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env={**os.environ, "PYTHON": PYTHON}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        client = httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)))
        deadline = time.monotonic() + 300
        while True:
            assert server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            with contextlib.suppress(httpx.HTTPError):
                if client.get("http://localhost/health").status_code == 200:
                    break
            time.sleep(0.5)
        yield f"unix:{socket}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


async def ask(engine: ServerEngine, *, name: str = "0", **params: Any) -> Completion:
    settings = SamplingParams(**{"max_tokens": 12, **params})
    return await engine.generate(to_ids(PROMPT), settings, session=Session("g", name))


EXPECTED = {"continue": (False, True, False), "restart": (True, True, True), "finish": (False, False, False)}
"""By interrupt, of a reply that is under way: whether tokens were dropped, and whether some or all tokens are of the
new version."""


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_real_server_samples_what_the_trainer_would(tmp_path: Path, tied: bool) -> None:
    model = make_model(tied=tied)

    async def play(url: str) -> None:
        engine = ServerEngine(
            model, urls=[url], speaks="vllm", max_concurrency=8, max_context=256, timeout_s=60.0, decode=decode
        )
        version = 0
        for version in range(4):
            if version:
                change(model, seed=version)
                assert await engine.adopt(version) == compute_checksums(model)
            for temperature in (1.0, 0.7):
                reply = await ask(engine, temperature=temperature)
                assert (reply.version_first, reply.version_last) == (version, version)
                assert np.abs(reply.logprobs - score(model, PROMPT, reply, temperature)).max() < 1e-4
        narrow = await asyncio.gather(*(ask(engine, name=str(n), top_k=2, top_p=0.9) for n in range(4)))
        assert max(float(reply.logprobs.max()) for reply in narrow) <= 1e-5
        greedy = await ask(engine, temperature=0.0, max_tokens=80)
        text = decode(greedy.token_ids.tolist()[62:66])
        cut = await ask(engine, temperature=0.0, max_tokens=80, stop=(text,))
        assert cut.token_ids.tolist() == greedy.token_ids.tolist()[: len(cut.token_ids)]
        assert decode(cut.token_ids.tolist()).endswith(text)
        began = time.monotonic()
        await ask(engine, max_tokens=200, name="1")
        whole_s = time.monotonic() - began
        for interrupt in ("continue", "restart", "finish"):
            seen: set[tuple[bool, bool, bool]] = set()
            for share in 4 * (0.2, 0.4, 0.6):
                if EXPECTED[interrupt] in seen:
                    break
                under_way = asyncio.create_task(ask(engine, max_tokens=200, name="1"))
                await asyncio.sleep(share * whole_s)
                num_dropped = await engine.pause(interrupt)  # type: ignore[arg-type]
                old, version = version, version + 1
                change(model, seed=version)
                await engine.adopt(version)
                await engine.resume()
                reply = await under_way
                assert len(reply.token_ids) == 200
                versions = np.full(200, reply.version_first) if reply.versions is None else reply.versions
                new = versions == version
                assert set(versions[~new].tolist()) <= {old}
                assert np.allclose(reply.logprobs[new], score(model, PROMPT, reply)[new], atol=1e-4)
                seen.add((bool(num_dropped), bool(new.any()), bool(new.all())))
            assert EXPECTED[interrupt] in seen
            assert not any(dropped for dropped, *_ in seen) or interrupt == "restart"
        assert engine.losses == []
        await engine.close()

    with vllm_server(model, tmp_path) as url:
        asyncio.run(play(url))


def test_a_real_server_whose_logprobs_are_raw_is_refused(tmp_path: Path) -> None:
    model = make_model()

    async def play(url: str) -> None:
        engine = ServerEngine(model, urls=[url], speaks="vllm", max_concurrency=8, max_context=256, timeout_s=60.0)
        with pytest.raises(EngineError, match="not belong to the distribution that it samples from"):
            await ask(engine)
        await engine.close()

    with vllm_server(model, tmp_path, "--logprobs-mode", "raw_logprobs") as url:
        asyncio.run(play(url))
