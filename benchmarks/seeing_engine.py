"""Measure encoding and sampling with pictures, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/seeing_engine.py [--sizes pages 28M] [--rounds 3]

64 conversations of four turns, each turn with a new picture before it and a reply of 8 tokens after it. Three kinds of
rounds alternate in one process:

- "new": pictures that the engine has not seen. "encode_share" is the part of the computing time that encoding took.
- "known": the same pictures again, encoded before: what a stage that encodes everything in advance, for nothing, would
  leave. "new_over_known" is therefore the most that such a stage can save.
- "text": as many tokens of text in place of the pictures.
- "ahead": new pictures with `engine.options.encode_ahead`, by the clock; "new_s" are the "new" rounds by the clock.

The model has random weights. Encoding alone is measured in batches, in places of prompts per second; "prepare_share" is
the part of it that transformers' image processor takes."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from memory import MODEL, SIZES

from turnwise.core.asking import ask_engine
from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart, hash_pixels
from turnwise.core.types import Prompt, SamplingParams, Session, to_ids
from turnwise.engines.paged.engine import PagedEngine
from turnwise.models.build import build_model, num_parameters
from turnwise.models.measured import read_tower
from turnwise.models.vision.eyes import Eyes, place_eyes
from turnwise.models.vision.sight import build_sight
from turnwise.pictures.store import PictureStore

CONVERSATIONS, TURNS, REPLY, VOCABULARY = 64, 4, 8, 400
PAGES = {
    "scale_factor": 1,
    "image_token_id": 1,
    "text_config": {
        **MODEL,
        "model_type": "llama",
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 24,
    },
    "vision_config": {
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    },
}
CONFIGS: dict[str, dict[str, Any]] = {"pages": PAGES, "28M": SIZES["seeing"]}
"""The model of recipes/seeing/pages.toml, and that of the case "seeing" of benchmarks/memory.py."""


class Bench:
    """One model, its pictures and its engine."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.model = build_model("smolvlm", config, vocab_size=VOCABULARY, seed=0)
        self.pictures = PictureStore(None)
        self.eyes = Eyes(build_sight(self.model.config), self.pictures)
        place_eyes(self.model, self.eyes)
        self.places, self.side = read_tower(self.model.config, 0).places, config["vision_config"]["image_size"]
        context = TURNS * (self.places + REPLY + 4)
        sizes: dict[str, Any] = {"max_concurrency": CONVERSATIONS, "max_context": context}
        self.engine = PagedEngine(self.model, **sizes)
        self.ahead = PagedEngine(self.model, **sizes, encode_ahead=True)
        self.count = 0

    def draw(self, count: int) -> list[str]:
        """Put new pictures into the store; returns their digests."""
        digests = []
        for _ in range(count):
            self.count += 1
            pixels = np.random.default_rng(self.count).integers(0, 256, 3 * self.side**2, np.uint8).tobytes()
            digests.append(hash_pixels(pixels, self.side, self.side))
            self.pictures.put(ImagePart(digest=digests[-1], width=self.side, height=self.side, pixels=pixels))
        return digests

    def show(self) -> list[list[str]]:
        """New pictures for every turn of every conversation."""
        return [self.draw(TURNS) for _ in range(CONVERSATIONS)]

    async def converse(self, engine: PagedEngine, name: str, digests: Sequence[str | None]) -> None:
        """Play one conversation; None in place of a picture is as much text."""
        prompt = Prompt(token_ids=to_ids([2, 3]))
        session = Session(name, "0")
        for turn, digest in enumerate(digests):
            text = np.random.default_rng([zlib.crc32(name.encode()), turn]).integers(2, VOCABULARY, self.places)
            start = len(prompt.token_ids)
            added = text if digest is None else np.ones(self.places)
            spans = [] if digest is None else [Span(start=start, length=self.places, digest=digest)]
            prompt = Prompt(
                token_ids=to_ids(np.concatenate([prompt.token_ids, added, [4]])), images=(*prompt.images, *spans)
            )
            params = SamplingParams(max_tokens=REPLY, seed=turn)
            completion = await ask_engine(engine, prompt, params, session)
            prompt = Prompt(
                token_ids=to_ids(np.concatenate([prompt.token_ids, completion.token_ids])), images=prompt.images
            )
        await engine.release(session)

    async def play(
        self, name: str, shown: Sequence[Sequence[str | None]], *, ahead: bool = False
    ) -> tuple[float, float, float]:
        """Play all conversations at once, with nothing in the cache of tokens; returns the seconds by the clock, of
        computing steps, and of encoding."""
        engine = self.ahead if ahead else self.engine
        engine._scheduler.cache.clear(0)
        before, started = engine.statistics(), time.perf_counter()
        await asyncio.gather(*(self.converse(engine, f"{name} {at}", digests) for at, digests in enumerate(shown)))
        after, seconds = engine.statistics(), time.perf_counter() - started
        return seconds, after.computing_s - before.computing_s, after.encode_s - before.encode_s


def measure_encoding(bench: Bench) -> dict[str, float]:
    """Encode 256 pictures in batches."""
    digests = bench.draw(256)
    pixels = [bench.pictures.read(digest) for digest in digests]
    with torch.inference_mode():
        bench.eyes.encode(bench.model, digests)
        started = time.perf_counter()
        bench.eyes.encode(bench.model, digests)
        whole = time.perf_counter() - started
        started = time.perf_counter()
        for each in pixels:
            bench.eyes.sight.prepare(each)
        prepare = time.perf_counter() - started
    return {
        "places_per_s": round(256 * bench.places / whole),
        "ms_per_picture": round(1000 * whole / 256, 3),
        "prepare_share": round(prepare / whole, 3),
    }


async def measure_sampling(bench: Bench, rounds: int) -> dict[str, Any]:
    """Alternate the kinds of rounds; medians over rounds, and ratios of each."""
    seconds: dict[str, list[float]] = {"new": [], "known": [], "text": [], "new_s": [], "ahead_s": []}
    shares = []
    for number in range(-1, rounds):
        new, ahead = (bench.show() for _ in range(2))
        new_s, new_computing, encoding = await bench.play(f"new {number}", new)
        ahead_s, _, _ = await bench.play(f"ahead {number}", ahead, ahead=True)
        _, known, _ = await bench.play(f"known {number}", new)
        _, text, _ = await bench.play(f"text {number}", [[None] * TURNS] * CONVERSATIONS)
        if number >= 0:
            values = {"new": new_computing, "known": known, "text": text, "new_s": new_s, "ahead_s": ahead_s}
            for name, value in values.items():
                seconds[name].append(value)
            shares.append(encoding / new_computing)

    def divide(one: str, other: str) -> list[float]:
        return [round(a / b, 3) for a, b in zip(seconds[one], seconds[other], strict=True)]

    return {
        "seconds": {name: round(statistics.median(values), 3) for name, values in seconds.items()},
        "encode_share": round(statistics.median(shares), 3),
        "image_places": CONVERSATIONS * TURNS * bench.places,
        "new_over_known": divide("new", "known"),
        "known_over_text": divide("known", "text"),
        "ahead_over_new": divide("ahead_s", "new_s"),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=list(CONFIGS), choices=list(CONFIGS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = {}
    for size in options.sizes:
        bench = Bench(CONFIGS[size])
        report[size] = {
            "parameters": num_parameters(bench.model),
            "places_per_picture": bench.places,
            "encoding": measure_encoding(bench),
            "sampling": asyncio.run(measure_sampling(bench, options.rounds)),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
