"""Compare the local engine with the engines people use today, on this machine, as JSON on standard output.

    python benchmarks/engine.py [--sizes 2M 20M] [--sequences 64] [--new-tokens 48] [--rounds 3] [--turns 10] [--skip
    NAME ...]
                                [--only NAME ...]

Single turn: every contender samples `--new-tokens` tokens for each of `--sequences` prompts of `PROMPT` tokens, all of
one length (the best case for padding). Multi-turn: 64 trajectories in groups of 8, a system prompt of 300 tokens, a
task of 30 tokens per group, `--turns` replies of 24 tokens with observations of 32 between them; every contender but
the local engine gets the whole history each turn. "through_vllm" and "through_server" are `engine.kind = "vllm"` and
"server", which start vLLM and speak with it as a run does. vLLM runs the same weights in the environment of
`peers/vllm_setup.sh`, "vllm" in its own process, "vllm_http" as a server with prefix caching; if the environment is
missing, its columns say so.
Contenders take turns within a round, the first round does not count, and everything runs on one thread, except for two:
"paged_2_threads", and "paged_workers", the paged engine in two processes of one thread each. Those two must be judged
by the wall clock. "paged_long_steps" computes up to 8192 tokens in a step, where the default is 1024.

Two clocks: seconds on the wall, and processor seconds of the contender's processes, which other programs disturb less.
Ratios are given for both. The limit is what the fastest matrix product of this machine (1024 x 1024 x 1024, float32,
same thread, same rounds) would need for the multiply-adds of the weights, each sampled or prompt token once."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.engines.server import ServerEngine
from turnwise.engines.vllm import VllmEngine
from turnwise.engines.workers import WorkerEngine
from turnwise.models.build import build_model, num_parameters

PROMPT, SYSTEM, TASK, REPLY, OBSERVATION, GROUPS, GROUP_SIZE = 64, 300, 30, 24, 32, 8, 8
SIZES: dict[str, tuple[int, dict[str, int]]] = {
    "2M": (
        1000,
        {
            "hidden_size": 192,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "head_dim": 32,
        },
    ),
    "20M": (
        8000,
        {
            "hidden_size": 384,
            "intermediate_size": 1152,
            "num_hidden_layers": 9,
            "num_attention_heads": 6,
            "head_dim": 64,
        },
    ),
    "150M": (
        16000,
        {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 10,
            "num_attention_heads": 16,
            "head_dim": 64,
        },
    ),
}

ROOT = Path(__file__).parents[1]
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
NAMES = [
    "paged",
    "paged_long_steps",
    "paged_2_threads",
    "paged_workers",
    "paged_modules",
    "slots",
    "generate",
    "generate_batch",
    "through_vllm",
    "through_server",
    "vllm",
    "vllm_http",
]

Prompts = list[list[int]]
Turn = Callable[[Prompts, int], Prompts]
"""Takes prompts and the number of new tokens, and returns replies."""


@dataclass(frozen=True)
class Contender:
    """One engine to be measured."""

    turn: Turn
    finish: Callable[[], None] = lambda: None
    """Called when all conversations are over."""
    processor_s: Callable[[], float] = time.process_time
    close: Callable[[], None] = lambda: None


def build(size: str, attention: str | None = None) -> PreTrainedModel:
    """The model of one size, with the same weights whatever the attention."""
    vocab_size, config = SIZES[size]
    shape = {**config, "num_key_value_heads": 2, "tie_word_embeddings": True, "max_position_embeddings": 8192}
    model = build_model("qwen3", shape, vocab_size=vocab_size, seed=1)
    if attention is not None:
        model.set_attn_implementation(attention)
    return model


def engine_turn(
    engine: Any, pids: Callable[[], Iterable[int]] = lambda: (), end: Callable[[], None] = lambda: None
) -> Contender:
    """A contender from an object with `generate`, `release` and `adopt`, and the processes that work for it; `end` is
    called after it is closed."""
    version = 0
    # Engines with workers belong to one event loop.
    loop = asyncio.Runner()

    def session(i: int) -> Session:
        return Session(str(i // GROUP_SIZE), str(i % GROUP_SIZE))

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        async def run() -> Prompts:
            params = [SamplingParams(max_tokens=new_tokens, seed=len(p) * 1000 + i) for i, p in enumerate(prompts)]
            done = await asyncio.gather(
                *(
                    engine.generate(to_ids(p), s, session=session(i))
                    for i, (p, s) in enumerate(zip(prompts, params, strict=True))
                )
            )
            return [c.token_ids.tolist() for c in done]

        return loop.run(run())

    def finish() -> None:
        nonlocal version
        version += 1

        async def run() -> None:
            for i in range(1024):
                await engine.release(session(i))
            await engine.adopt(version)

        loop.run(run())

    def close() -> None:
        if hasattr(engine, "close"):
            loop.run(engine.close())
        end()

    return Contender(turn, finish, lambda: time.process_time() + sum(map(processor_s_of, pids())), close)


def workers_turn(engine: WorkerEngine) -> Contender:
    """The paged engine in worker processes."""
    return engine_turn(engine, engine.worker_pids)


def processor_s_of(pid: int) -> float:
    """Processor seconds of a process so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def through_vllm(size: str, shape: dict[str, Any]) -> Contender:
    """`engine.kind = "vllm"` with one process."""
    engine = VllmEngine(build(size), python=VLLM_PYTHON, num_workers=1, cache_mib=2048, **shape)
    return engine_turn(engine, engine.pids)


def through_server(size: str, shape: dict[str, Any]) -> Contender:
    """`engine.kind = "server"` on vLLM's own server on a Unix socket."""
    folder = tempfile.TemporaryDirectory()
    model, socket = build(size), Path(folder.name) / "server.sock"
    model.save_pretrained(folder.name)
    options = ["--dtype", "float32", "--enforce-eager", "--block-size", "32", "--kv-cache-memory-bytes", str(2 << 30)]
    options += ["--max-model-len", str(shape["max_context"]), "--max-num-seqs", str(shape["max_concurrency"])]
    options += ["--disable-uvicorn-access-log"]
    with (Path(folder.name) / "server.log").open("w") as log:
        server = subprocess.Popen(
            [ROOT / "peers" / "vllm_server.sh", folder.name, f"unix:{socket}", *options],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def end() -> None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        folder.cleanup()

    deadline = time.monotonic() + 600
    while True:
        if server.poll() is not None or time.monotonic() > deadline:
            raise Missing("the server did not start: " + (Path(folder.name) / "server.log").read_text()[-400:])
        try:
            engine = ServerEngine(model, urls=[f"unix:{socket}"], speaks="vllm", **shape)
            return engine_turn(engine, lambda: find_family(server.pid), end)
        except EngineError:
            time.sleep(1)


def generate_turn(model: PreTrainedModel) -> Contender:
    """transformers `generate`: one batch, padded on the left, whole history."""

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=_generation(model, new_tokens, min_new_tokens=new_tokens),
        )
        return out[:, longest:].tolist()  # type: ignore[no-any-return]

    return Contender(turn)


def generate_batch_turn(model: PreTrainedModel) -> Contender:
    """transformers' continuous batching, whole history."""

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        done = model.generate_batch(
            inputs=prompts, generation_config=_generation(model, new_tokens), progress_bar=False
        )
        return [list(r.generated_tokens) for r in sorted(done.values(), key=lambda r: int(r.request_id.split("_")[-1]))]

    return Contender(turn)


def _generation(model: PreTrainedModel, new_tokens: int, **more: Any) -> GenerationConfig:
    return GenerationConfig(
        max_new_tokens=new_tokens, do_sample=True, top_k=0, top_p=1.0, pad_token_id=0, eos_token_id=-1, **more
    )


def signal_all(pid: int, number: int) -> None:
    """Send a signal to a process and all its descendants (Linux)."""
    for each in find_family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


def find_family(pid: int) -> set[int]:
    """A process and all its descendants (Linux)."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


class Missing(Exception):
    """Raised for a contender that is missing; the message says why."""


def start_vllm(size: str, mode: str, sequences: int, context: int) -> Contender:
    """vLLM in its own environment on the same weights; raises Missing.

    It is stopped when it is not its turn, because its processes wait by spinning and would take the processor from the
    others."""
    if not VLLM_PYTHON.exists():
        raise Missing("vLLM is not installed; sh peers/vllm_setup.sh makes .venv-vllm")
    folder = tempfile.TemporaryDirectory()
    build(size, "sdpa").save_pretrained(folder.name)
    log = Path(folder.name) / "vllm.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [VLLM_PYTHON, ROOT / "peers" / "vllm_decode.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    spent = 0.0

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        if process.poll() is not None:
            raise Missing(f"vLLM has ended with status {process.returncode}")
        process.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        line = process.stdout.readline()  # type: ignore[union-attr]
        answer = (
            json.loads(line) if line else {"error": "it ended: " + " ".join(log.read_text().splitlines()[-3:])[-400:]}
        )
        if "error" in answer:
            close()
            raise Missing(f"vLLM: {answer['error']}")
        return answer  # type: ignore[no-any-return]

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        nonlocal spent
        request = {
            "kind": "decode",
            "prompts": prompts,
            "max_tokens": new_tokens,
            "temperature": 1.0,
            "return_replies": True,
        }
        signal_all(process.pid, signal.SIGCONT)
        answer = ask(request)
        signal_all(process.pid, signal.SIGSTOP)
        spent += answer["processor_s"]
        return answer["replies"]  # type: ignore[no-any-return]

    def close() -> None:
        signal_all(process.pid, signal.SIGCONT)
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(60)
        folder.cleanup()

    settings = {"max_context": context + 1, "max_sequences": sequences, "threads": 1, "cache_gib": 2, "block_size": 32}
    ask({"mode": mode, "model": folder.name, **settings})
    signal_all(process.pid, signal.SIGSTOP)
    return Contender(turn, processor_s=lambda: spent, close=close)


def contenders(size: str, sequences: int, context: int, names: list[str]) -> dict[str, Contender]:
    """Name to contender, for those in this process."""
    shape: dict[str, Any] = {"max_concurrency": sequences, "max_context": context}
    makers: dict[str, Callable[[], Contender]] = {
        "paged": lambda: engine_turn(PagedEngine(build(size), **shape)),
        "paged_long_steps": lambda: engine_turn(PagedEngine(build(size), **shape, max_batch_tokens=8192)),
        "paged_2_threads": lambda: engine_turn(PagedEngine(build(size), **shape, num_threads=2)),
        "paged_workers": lambda: workers_turn(WorkerEngine(build(size), num_workers=2, **shape)),
        "through_vllm": lambda: through_vllm(size, shape),
        "through_server": lambda: through_server(size, shape),
        "paged_modules": lambda: engine_turn(PagedEngine(build(size), **shape, fused=False)),
        "slots": lambda: engine_turn(LocalEngine(build(size), **shape)),
        "generate": lambda: generate_turn(build(size, "sdpa")),
        "generate_batch": lambda: generate_batch_turn(build(size, "sdpa")),
    }
    return {name: makers[name]() for name in names if name in makers}


def start_peers(
    size: str, sequences: int, context: int, names: list[str]
) -> tuple[dict[str, Contender], dict[str, str]]:
    """vLLM, which takes minutes to start: once for all comparisons of a size. Returns name to contender, and name to
    reason for missing ones."""
    peers, missing = {}, {}
    for name, mode in (("vllm", "offline"), ("vllm_http", "http")):
        try:
            if name in names:
                peers[name] = start_vllm(size, mode, sequences, context)
        except Missing as cause:
            missing[name] = str(cause)
    return peers, missing


def matmul_flops_per_s() -> float:
    """Operations per second of the faster of PyTorch's two matrix libraries."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    products: list[Callable[[], torch.Tensor]] = [lambda: a @ b]
    if torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(b, None)
        products.append(lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], ""))
    best = 0.0
    for product in products:
        for _ in range(3):
            started = time.process_time()
            product()
            best = max(best, 2 * 1024**3 / (time.process_time() - started))
    return best


def measure(run: Callable[[], int], processor_s: Callable[[], float]) -> dict[str, float]:
    """Sampled tokens per second on both clocks."""
    wall, cpu = time.perf_counter(), processor_s()
    tokens = run()
    wall, cpu = time.perf_counter() - wall, processor_s() - cpu
    return {"wall_s": wall, "cpu_s": cpu, "tokens_per_cpu_s": tokens / cpu, "tokens_per_wall_s": tokens / wall}


def single_turn(size: str, sequences: int, new_tokens: int) -> Callable[[Turn, int], int]:
    """Sample every sequence once."""
    vocab_size = SIZES[size][0]

    def run(turn: Turn, number: int) -> int:
        prompts = np.random.default_rng(number).integers(0, vocab_size, (sequences, PROMPT)).tolist()
        return sum(len(r) for r in turn(prompts, new_tokens))

    return run


def multi_turn(size: str, turns: int) -> Callable[[Turn, int], int]:
    """Sample groups of conversations, lengthened by observations."""
    vocab_size = SIZES[size][0]

    def run(turn: Turn, number: int) -> int:
        draw = np.random.default_rng(number)
        system = draw.integers(0, vocab_size, SYSTEM).tolist()
        tasks = draw.integers(0, vocab_size, (GROUPS, TASK)).tolist()
        histories = [system + tasks[i // GROUP_SIZE] for i in range(GROUPS * GROUP_SIZE)]
        sampled = 0
        for _ in range(turns):
            replies = turn(histories, REPLY)
            sampled += sum(map(len, replies))
            histories = [
                h + r + draw.integers(0, vocab_size, OBSERVATION).tolist()
                for h, r in zip(histories, replies, strict=True)
            ]
        return sampled

    return run


def multi_turn_context(turns: int) -> int:
    """Number of tokens of a conversation at its end."""
    return SYSTEM + TASK + turns * (REPLY + OBSERVATION)


def unique_tokens(turns: int) -> int:
    """Tokens that a perfect prefix cache computes in a multi-turn run: the last sampled token of a trajectory is never
    computed."""
    return SYSTEM + GROUPS * TASK + GROUPS * GROUP_SIZE * (turns * REPLY + (turns - 1) * OBSERVATION - 1)


def compare(
    size: str,
    job: Callable[[Turn, int], int],
    entries: dict[str, Contender],
    missing: dict[str, str],
    rounds: int,
    tokens_needed: int,
) -> dict[str, Any]:
    """Measure all contenders, interleaved; one that fails is left out with its reason, and the others continue."""
    in_process = [entry for name, entry in entries.items() if not name.startswith("vllm")]
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in entries}
    limits = []
    for number in range(rounds + 1):
        limits.append(matmul_flops_per_s())
        for name, entry in tuple(entries.items()):
            try:
                rows[name].append(measure(partial(job, entry.turn, number), entry.processor_s))
            except Missing as cause:
                del entries[name]
                missing[name] = str(cause)
                continue
            entry.finish()
            last = rows[name][-1]
            print(
                f"{size} round {number} {name}: {last['cpu_s']:.2f} cpu s, {last['wall_s']:.2f} wall s",
                file=sys.stderr,
                flush=True,
            )
    report: dict[str, Any] = {
        "matmul_gflops_per_s": statistics.median(limits) / 1e9,
        **{n: {"skipped": why} for n, why in missing.items()},
    }
    parameters = num_parameters(build(size))
    for name in entries:
        kept = rows[name][1:]
        median = {key: statistics.median(row[key] for row in kept) for key in kept[0]}
        median["fraction_of_matmul_limit"] = (
            2 * parameters * tokens_needed / median["cpu_s"] / statistics.median(limits)
        )
        report[name] = median
        for clock in ("cpu_s", "wall_s"):
            ratios = [other[clock] / mine[clock] for other, mine in zip(kept, rows["paged"][1:], strict=True)]
            report[name][f"paged_is_faster_by_{clock}"] = {
                "median": statistics.median(ratios),
                "min": min(ratios),
                "max": max(ratios),
            }
        if "vllm" in entries and name != "vllm":
            ratios = [other["wall_s"] / mine["wall_s"] for other, mine in zip(rows["vllm"][1:], kept, strict=True)]
            report[name]["is_faster_than_vllm_by_wall_s"] = {
                "median": statistics.median(ratios),
                "min": min(ratios),
                "max": max(ratios),
            }
        if "paged_workers" in entries:
            ratios = [
                other["wall_s"] / mine["wall_s"] for other, mine in zip(kept, rows["paged_workers"][1:], strict=True)
            ]
            report[name]["paged_workers_is_faster_by_wall_s"] = statistics.median(ratios)
    for entry in in_process:
        entry.close()
    return report


def main() -> None:
    """Run and print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=["2M", "20M"], choices=sorted(SIZES))
    parser.add_argument("--sequences", nargs="*", type=int, default=[64])
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", nargs="*", type=int, default=[10])
    parser.add_argument("--skip", nargs="*", default=[], choices=NAMES)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES, help="beside paged")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in NAMES if name == "paged" or (name in options.only and name not in options.skip)]
    report: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": 1,
        "rounds": options.rounds,
        "single_turn": {},
        "multi_turn": {},
    }
    for size in options.sizes:
        context = max([PROMPT + options.new_tokens, *(multi_turn_context(turns) for turns in options.turns)])
        peers, missing = start_peers(size, max([GROUPS * GROUP_SIZE, *options.sequences]), context, names)
        try:
            for sequences in options.sequences:
                entries = contenders(size, sequences, PROMPT + options.new_tokens, names) | peers
                needed = sequences * (PROMPT + options.new_tokens - 1)
                job = single_turn(size, sequences, options.new_tokens)
                report["single_turn"][f"{size}/{sequences}"] = compare(
                    size, job, entries, missing, options.rounds, needed
                )
            for turns in options.turns:
                context = multi_turn_context(turns)
                entries = contenders(size, GROUPS * GROUP_SIZE, context, names) | peers
                needed = unique_tokens(turns)
                report["multi_turn"][f"{size}/{turns}"] = compare(
                    size, multi_turn(size, turns), entries, missing, options.rounds, needed
                )
                engine = PagedEngine(build(size), max_concurrency=64, max_context=context)
                multi_turn(size, turns)(engine_turn(engine).turn, 0)
                report["multi_turn"][f"{size}/{turns}"]["computed_per_unique_token"] = (
                    engine.num_computed_tokens / needed
                )
        finally:
            for peer in peers.values():
                peer.close()
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
