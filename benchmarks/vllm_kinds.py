"""Test which models vLLM samples as the trainer computes them: windows, caps, sinks, hybrids, recurrent models.

    make vllm
    python benchmarks/vllm_kinds.py [--python .venv-vllm/bin/python] [--kinds lfm2 "gemma2"]

Each is a small model (`tests/served_kinds.py`) whose windows are shorter than the prompt. Replies are sampled before
and after each of three new versions, at two temperatures, two conversations at once; gaps are the distances between
vLLM's log-probabilities and the trainer's (`score_logprobs` by the path of the model), in nats. Refusals are printed in
the engine's words. `started anew` is how many versions the process could not take while it ran."""

from __future__ import annotations

import argparse
import asyncio
import sys
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
"""Prompts, and the number of tokens sampled after each."""


async def measure(model: PreTrainedModel, python: Path) -> tuple[list[float], int]:
    """Gaps of all sampled tokens in nats, and how often the process had to be restarted for a version. Raises
    EngineError if vLLM does not sample the model."""
    gaps: list[float] = []
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
                    gaps += np.abs(reply.logprobs - score(model, prompt, reply, temperature)).tolist()
        return gaps, len(engine.restart_causes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, default=Path(".venv-vllm/bin/python"))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    given = parser.parse_args()
    print("| kind | path | vLLM | mean gap, nats | largest | started anew |")
    print("|---|---|---|---|---|---|")
    for kind in given.kinds:
        model = make_kind(kind, given.dtype)
        try:
            gaps, num_restarts = asyncio.run(measure(model, given.python))
            said = f"sampled | {np.mean(gaps):.1e} | {max(gaps):.1e} | {num_restarts} of {VERSIONS - 1}"
        except TurnwiseError as error:
            said = f"{error} | | "
        print(f"| {kind} | {find_path(model).kind} | {said} |", flush=True)


if __name__ == "__main__":
    main()
