"""Models with windows and models with recurrent layers, sampled by vLLM: as the trainer computes them, or refused.

With TURNWISE_VLLM=PYTHON they run on the real vLLM of that interpreter (`make test-vllm`); `benchmarks/vllm_kinds.py`
measures more kinds."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
from served_kinds import KINDS, WINDOW, make_kind
from served_model import PROMPT, change, score
from vllm_engines import StandIn, ask, open_engine

from turnwise.config.load import load_config
from turnwise.core.errors import EngineRefusal
from turnwise.engines.canary import count_tokens
from turnwise.models.checksums import compute_checksums
from turnwise.models.paths import find_path
from turnwise.runs.rehearsal import rehearse_train
from turnwise.runs.train import run_train

TINY = Path(__file__).parents[4] / "recipes" / "search_r1" / "tiny.toml"
SAMPLED = {
    "mistral, window": "fast",
    "lfm2": "generic",
    "gemma2": "fast",
    "gemma3_text": "fast",
    "falcon_h1": "generic",
    "mamba2": "generic",
}
"""Paths by kind."""
REFUSED = {
    "mamba": "selective_scan_fwd",
    "qwen3, window": "Sliding window for some but all layers is not supported",
    "nemotron_h": "scores the canary",
}
"""What vLLM 0.32 says on a CPU, by kind."""
NEEDS_VLLM = pytest.mark.skipif("TURNWISE_VLLM" not in os.environ, reason="TURNWISE_VLLM names no interpreter")
MARKS = {"lfm2": (), "mistral, window": (pytest.mark.slow,)}


@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=MARKS.get(name, (pytest.mark.slow, NEEDS_VLLM))) for name in SAMPLED]
)
def test_logprobs_beyond_the_window_are_the_trainers_in_four_versions(python: Path, kind: str) -> None:
    """40 and 21 tokens before the replies, windows of 16."""
    model = make_kind(kind)
    assert find_path(model).kind == SAMPLED[kind]
    assert len(PROMPT) > 2 * WINDOW

    async def play() -> tuple[list[float], list[str]]:
        gaps = []
        async with open_engine(model, python) as engine:
            for version in range(4):
                if version:
                    change(model, seed=version)
                    assert await engine.adopt(version) == compute_checksums(model)
                replies = await asyncio.gather(
                    ask(engine, PROMPT, name="a", max_tokens=24), ask(engine, PROMPT[:21], name="b", max_tokens=40)
                )
                for prompt, reply in zip((PROMPT, PROMPT[:21]), replies, strict=True):
                    assert reply.version_first == reply.version_last == version
                    gaps.append(float(np.abs(reply.logprobs - score(model, prompt, reply)).max()))
            return gaps, engine.restart_causes

    gaps, causes = asyncio.run(play())
    assert max(gaps) < 1e-4
    assert causes == []


@NEEDS_VLLM
@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSED)
def test_what_vllm_does_not_compute_is_refused_in_one_line(python: Path, kind: str) -> None:
    model = make_kind(kind)

    async def play() -> str:
        async with open_engine(model, python) as engine:
            with pytest.raises(EngineRefusal) as caught:
                await engine.check()
            return str(caught.value)

    text = asyncio.run(play())
    assert text.startswith(f"vLLM cannot sample {type(model).__name__}")
    assert REFUSED[kind] in text
    assert "engine.kind='paged'" in text
    assert "\n" not in text


def test_one_that_cannot_start_is_refused_in_one_line_with_its_reason(stand_in: StandIn) -> None:
    async def play() -> str:
        async with open_engine(make_kind("lfm2"), stand_in("cannot_start")) as engine:
            with pytest.raises(EngineRefusal) as caught:
                await engine.check()
            return str(caught.value)

    text = asyncio.run(play())
    assert text.startswith("vLLM cannot sample Lfm2ForCausalLM: vLLM cannot start: RuntimeError: no memory")
    assert "engine.kind='paged'" in text
    assert "\n" not in text


@pytest.mark.slow
def test_one_that_leaves_a_window_out_is_refused_although_the_window_is_longer_than_a_canary(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, config = KINDS["mistral, window"]
    monkeypatch.setitem(KINDS, "long", (kind, {**config, "sliding_window": 60}))  # type: ignore[arg-type]
    model = make_kind("long")

    async def play() -> None:
        async with open_engine(model, stand_in("no_window")) as engine:
            with pytest.raises(EngineRefusal, match=r"MistralForCausalLM.* scores the canary"):
                await engine.check()

    asyncio.run(play())


def test_a_canary_is_longer_than_the_windows_that_a_conversation_crosses() -> None:
    model = make_kind("mistral, window")
    assert count_tokens(model, 128) == WINDOW + 48
    model.config.sliding_window = 100
    assert count_tokens(model, 128) == 127  # and one token is sampled
    model.config.sliding_window = 128
    assert count_tokens(model, 128) == 48  # no conversation crosses it
    assert count_tokens(make_kind("lfm2"), 128) == 48


def test_a_run_and_its_rehearsal_end_before_the_warm_up_where_vllm_does_not_sample_the_model(
    stand_in: StandIn, tmp_path: Path
) -> None:
    settings = [
        f"engine.options.python={str(stand_in('cannot_start'))!r}",
        f"run.output={str(tmp_path)!r}",
        *("engine.kind=vllm", "model.config.head_dim=32", "tokenizer.num_texts=100", "sft.num_demonstrations=8"),
    ]
    config = load_config([TINY], settings)
    assert config.sft.steps
    for start in (lambda: rehearse_train(config, resume=None), lambda: run_train(config, resume=None, display=False)):
        with pytest.raises(EngineRefusal, match="vLLM cannot sample Qwen3ForCausalLM"):
            start()
    assert list(tmp_path.iterdir()) == []
