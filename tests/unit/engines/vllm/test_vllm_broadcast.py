"""Weights of vLLM engines sent over gloo: what arrives is what the trainer holds, and who is missing is left behind.

With TURNWISE_VLLM=PYTHON the tests without a planted fault run on the real vLLM of that interpreter (`make test-vllm`).
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_model import PROMPT, change, make_model, score
from transformers import PreTrainedModel
from vllm_engines import StandIn, ask, open_engine

from turnwise.core.errors import EngineError
from turnwise.engines.vllm import VllmEngine
from turnwise.engines.vllm.broadcast import find_own_address
from turnwise.models.checksums import compute_checksums
from turnwise.models.lora import add_adapter
from turnwise.models.staging import Staging

SENT: dict[str, Any] = {"transport": "broadcast", "num_workers": 2}


async def measure_gaps(engine: VllmEngine, model: PreTrainedModel, version: int) -> list[float]:
    """Of two replies at the same time, one of each process."""
    replies = await asyncio.gather(*(ask(engine, PROMPT, name=f"{version}/{n}") for n in range(2)))
    assert [reply.version_first for reply in replies] == [version, version]
    async with asyncio.timeout(100):  # one process may answer both while the other one starts
        while len(engine.pids()) < SENT["num_workers"]:
            await asyncio.sleep(0.02)
    return [float(np.abs(reply.logprobs - score(model, PROMPT, reply)).max()) for reply in replies]


def test_three_versions_arrive_by_broadcast_and_no_file_is_read(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, write = make_model(), Staging.write

    def write_damaged(self: Staging, *given: Any) -> Any:
        staged = write(self, *given)
        os.truncate(staged.folder / "model.safetensors", 20_000)
        return staged

    async def play() -> list[float]:
        async with open_engine(model, python, **SENT) as engine:
            gaps, pids = await measure_gaps(engine, model, 0), engine.pids()
            monkeypatch.setattr(Staging, "write", write_damaged)
            for version in range(1, 4):
                change(model, seed=version)
                assert await engine.adopt(version) == compute_checksums(model)
                gaps += await measure_gaps(engine, model, version)
            assert engine.pids() == pids
            return gaps

    assert max(asyncio.run(play())) < 1e-4


@pytest.mark.parametrize(
    ("fault", "tensor"),
    [
        ("lost_bits", "model.embed_tokens.weight"),
        pytest.param("wrong_order", "model.layers.0.input_layernorm.weight", marks=pytest.mark.slow),
    ],
)
def test_what_arrived_changed_is_refused_before_it_is_loaded(stand_in: StandIn, fault: str, tensor: str) -> None:
    model = make_model()

    async def play() -> None:
        async with open_engine(model, stand_in(fault), **SENT) as engine:
            await measure_gaps(engine, model, 0)
            before = make_model()
            change(model, seed=1)
            with pytest.raises(EngineError, match=f"read {tensor} with other values than the trainer wrote"):
                await engine.adopt(1)
            assert max(await measure_gaps(engine, before, 0)) < 1e-4

    asyncio.run(play())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["dies", "never_comes"])
def test_one_that_is_lost_on_the_way_is_replaced_and_the_others_are_sent_all_anew(
    stand_in: StandIn, tmp_path: Path, fault: str
) -> None:
    model, once = make_model(), tmp_path / "once"

    async def play() -> tuple[list[int], list[int], list[float]]:
        async with open_engine(model, stand_in(f"{fault}@{once}"), silence_s=6.0, **SENT) as engine:
            await measure_gaps(engine, model, 0)
            before = engine.pids()
            once.touch()
            change(model, seed=1)
            assert await engine.adopt(1) == compute_checksums(model)
            assert len(engine.pids()) == 1
            gaps = await measure_gaps(engine, model, 1)
            async with asyncio.timeout(60):
                while len(engine.pids()) == 1:
                    await asyncio.sleep(0.05)
            return before, engine.pids(), gaps + await measure_gaps(engine, model, 1)

    before, after, gaps = asyncio.run(play())
    assert len(set(before) & set(after)) == 1
    assert len(after) == 2
    assert max(gaps) < 1e-4


def test_an_adapter_goes_as_files(python: Path) -> None:
    pytest.importorskip("peft")
    model = add_adapter(make_model(), rank=2, alpha=4, dropout=0.0, target_modules="all-linear", base="", seed=0)
    with pytest.raises(EngineError, match="transport='files'"):
        VllmEngine(model, python=python, num_workers=1, max_concurrency=1, max_context=64, transport="broadcast")


def test_processes_of_this_machine_meet_on_loopback() -> None:
    assert find_own_address({"127.0.0.1"}) == "127.0.0.1"
    assert find_own_address(set()) == "127.0.0.1"
