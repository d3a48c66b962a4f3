"""Test which models that see vLLM samples as the trainer computes them.

    make vllm
    python benchmarks/vllm_pictures.py [--python .venv-vllm/bin/python] [--kinds qwen3_vl smolvlm]

Each is a small model (`tests/served_seeing.py`). Two conversations at once show two pictures each, before and after
each of three new versions of the tower; gaps are the distances between vLLM's log-probabilities and the trainer's, in
nats. Refusals are printed in the engine's words. `started anew` is how many versions the process could not take while
it ran."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from served_seeing import build_served, change_tower, lay_out, list_gaps
from tiny_seeing import CONFIGS, draw
from transformers import PreTrainedModel
from vllm_engines import open_engine

from turnwise.core.errors import TurnwiseError
from turnwise.core.types import SamplingParams, Session
from turnwise.models.vision.eyes import Eyes

VERSIONS = 4
NUM_TOKENS = 24
MAX_CONTEXT = 512


async def measure(model: PreTrainedModel, eyes: Eyes, python: Path) -> tuple[list[float], int]:
    """Gaps of all sampled tokens in nats, and how often the process had to be restarted for a version. Raises
    EngineError if vLLM does not sample the model."""
    prompts = [lay_out(eyes, [5, 6], draw(seed), [7], draw(seed + 1, 61, 45), [8, 9]) for seed in (1, 3)]
    params = SamplingParams(max_tokens=NUM_TOKENS)
    gaps: list[float] = []
    async with open_engine(model, python, max_context=MAX_CONTEXT) as engine:
        for version in range(VERSIONS):
            if version:
                change_tower(model)
                await engine.adopt(version)
            replies = await asyncio.gather(
                *(
                    engine.generate_seeing(prompt, params, session=Session("g", str(n)))
                    for n, prompt in enumerate(prompts)
                )
            )
            for prompt, reply in zip(prompts, replies, strict=True):
                gaps += list_gaps(model, prompt, reply)
        return gaps, len(engine.restart_causes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, default=Path(".venv-vllm/bin/python"))
    parser.add_argument("--kinds", nargs="*", default=list(CONFIGS), choices=list(CONFIGS))
    given = parser.parse_args()
    print("| kind | vLLM | tokens | mean gap, nats | largest | started anew |")
    print("|---|---|---|---|---|---|")
    for kind in given.kinds:
        model, eyes = build_served(kind)
        try:
            gaps, num_restarts = asyncio.run(measure(model, eyes, given.python))
            gap = f"{np.mean(gaps):.1e} | {max(gaps):.1e}"
            said = f"sampled | {len(gaps)} | {gap} | {num_restarts} of {VERSIONS - 1}"
        except TurnwiseError as error:
            said = f"{error} | | | |"
        print(f"| {kind} | {said} |", flush=True)


if __name__ == "__main__":
    main()
