"""Which kinds of models vLLM samples as the trainer computes them: windows, caps, sinks, hybrids and recurrent models.

    make vllm
    python benchmarks/vllm_kinds.py [--python .venv-vllm/bin/python] [--kinds lfm2 "gemma2"]

Each is a small model (`tests/served_kinds.py`) whose windows are shorter than the prompt. Replies are sampled before and
after each of three new versions, at two temperatures, two conversations at once; the gap is the largest distance
between vLLM's log-probabilities and the trainer's (`score_logprobs` by the path of the model), in nats. What is refused
is printed as the engine says it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from served_kinds import KINDS, make_kind
from served_model import PROMPT, change, score
from transformers import PreTrainedModel
from vllm_engines import ask, open_engine

from turnwise.core.errors import TurnwiseError
from turnwise.models.paths import find_path

VERSIONS = 4
TEMPERATURES = (1.0, 0.7)
TURNS = ((PROMPT, 24), (PROMPT[:21], 40))
"""Prompts, and how many tokens are sampled after each."""


async def measure(model: PreTrainedModel, python: Path) -> float:
    """The largest gap over all versions, in nats. Raises EngineError where vLLM does not sample the model."""
    gap = 0.0
    async with open_engine(model, python) as engine:
        for version in range(VERSIONS):
            if version:
                change(model, seed=version)
                await engine.adopt(version)
            for temperature in TEMPERATURES:
                replies = await asyncio.gather(
                    *(
                        ask(engine, prompt, name=str(n), max_tokens=count, temperature=temperature)
                        for n, (prompt, count) in enumerate(TURNS)
                    )
                )
                for (prompt, _), reply in zip(TURNS, replies, strict=True):
                    gap = max(gap, float(np.abs(reply.logprobs - score(model, prompt, reply, temperature)).max()))
        for cause in engine.restart_causes:
            print(f"  restarted: {cause}", file=sys.stderr)
    return gap


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, default=Path(".venv-vllm/bin/python"))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    given = parser.parse_args()
    print("| kind | path | vLLM | largest gap, nats | seconds |")
    print("|---|---|---|---|---|")
    for kind in given.kinds:
        model, began = make_kind(kind, given.dtype), time.monotonic()
        try:
            said, gap = "sampled", f"{asyncio.run(measure(model, given.python)):.1e}"
        except TurnwiseError as error:
            said, gap = str(error), ""
        print(f"| {kind} | {find_path(model).kind} | {said} | {gap} | {time.monotonic() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
