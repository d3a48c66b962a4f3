"""vLLM on the tokens of `benchmarks/engine.py`: one process, measured as often as it is asked, so that engines can take
turns.

    .venv-vllm/bin/python peers/vllm_decode.py < requests > answers

One JSON object per line on standard input and output; whatever vLLM prints goes to standard error. The first line
starts the engine:

    {"mode": "offline" | "http", "model": FOLDER, "max_context": 1024, "max_sequences": 256, "threads": 1, "cache_gib":
    2}

and is answered with `{"ready": true, "version": ..., "start_s": ...}`. FOLDER is a Hugging Face directory:
`config.json`, the weights and, where there is one, a tokenizer. More `threads` than idle cores make vLLM many times
slower: they wait by spinning. Further keys: `bind` ("nobind"; vLLM's own is "auto", which keeps a core back and so uses
one of two whatever `threads` says), `dtype` ("float32"), `prefix_caching` (true), `block_size` (only whole blocks are
found again; vLLM's own is 128 tokens on a CPU, where it must be a multiple of 32), `random_weights` (false; true draws
weights instead of reading them, then FOLDER needs none). Every further line is one measurement, answered with one line:

    {"kind": "decode", "prompts": [[1, 2, ...], ...], "max_tokens": 64, "temperature": 1.0, "return_replies": false}
    -> {"seconds": 2.1, "processor_s": 3.9, "sampled_tokens": 4096, "tokens_per_s": 1950.2}

    {"kind": "turns", "prompts": [[...], ...], "observations": [[[...], ...], ...], "max_tokens": 16, "temperature":
    1.0}
    -> {"seconds": 9.8, "processor_s": 15.2, "turn_seconds": [...], "sampled_tokens": 10240, "tokens_per_s": ...,
    "unique_tokens": ...,
        "prompt_tokens": ..., "cached_tokens": ..., "computed_per_unique": ...}

`decode` is one batch, single turn. `turns` plays trajectories side by side, each at its own pace: `observations[i][t]`
are the token ids that trajectory i is given after reply t (one list for each turn but the last); the next request holds
the whole history, as clients of such a server send it. With `return_replies` the answer to "decode" holds `replies`,
the token ids: a client that makes up observations as it goes plays turns as one "decode" after another. End tokens are
ignored: every reply has exactly `max_tokens` tokens, so that all engines do the same work. `processor_s` is processor
time of this process and of vLLM's. `unique_tokens` counts every token of every trajectory once, and once for all what
several prompts start with; `computed_per_unique` is null where the server does not say what it took from its cache.
With "http" both go over HTTP to a server on the loopback address (`/v1/completions`, token ids in and out); with
"offline" both use the library in this process, the turns in lockstep. Errors are answered as {"error": TEXT}; the
process goes on.

Requests carry no seed, the engine has one: version 0.32 on a CPU dies of a seeded request whose prompt is computed in
parts ("CPU Generator does not use offset"), and draws seeded requests one by one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import dropwhile, zip_longest
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 900.0


def has_tokenizer(folder: str) -> bool:
    """Whether the model's folder holds one; token ids go in and out, so none is needed."""
    return (Path(folder) / "tokenizer_config.json").exists()


def count_unique(prompts: Sequence[Sequence[int]], num_added: int) -> int:
    """Tokens of the prompts, what several of them start with counted once, and `num_added` tokens of each trajectory's
    own."""
    total = num_added * len(prompts)
    before: Sequence[int] = ()
    for prompt in sorted(map(tuple, prompts)):  # in this order a prompt shares most with the one before it
        total += sum(1 for _ in dropwhile(lambda pair: pair[0] == pair[1], zip_longest(prompt, before[: len(prompt)])))
        before = prompt
    return total


def summarize(prompts: Sequence[Sequence[int]], request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What both kinds of answer say; all replies have `max_tokens` tokens."""
    turns = len(request["observations"][0]) + 1 if request["kind"] == "turns" else 1
    sampled = len(prompts) * turns * request["max_tokens"]
    return {"seconds": seconds, "sampled_tokens": sampled, "tokens_per_s": sampled / seconds}


class Offline:
    """The library in this process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from vllm import LLM

        self._llm = LLM(
            model=settings["model"],
            dtype=settings.get("dtype", "float32"),
            max_model_len=settings["max_context"],
            max_num_seqs=settings["max_sequences"],
            enable_prefix_caching=settings.get("prefix_caching", True),
            block_size=settings.get("block_size"),
            load_format="dummy" if settings.get("random_weights") else "auto",
            skip_tokenizer_init=not has_tokenizer(settings["model"]),
            seed=0,
        )

    def _sample(self, prompts: list[list[int]], request: dict[str, Any]) -> list[Any]:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        params = SamplingParams(
            max_tokens=request["max_tokens"], temperature=request["temperature"], ignore_eos=True, detokenize=False
        )
        return self._llm.generate([TokensPrompt(prompt_token_ids=prompt) for prompt in prompts], params, use_tqdm=False)

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """One batch."""
        started = time.perf_counter()
        outputs = self._sample(request["prompts"], request)
        seconds = time.perf_counter() - started
        replies = [list(output.outputs[0].token_ids) for output in outputs]
        check_lengths(list(map(len, replies)), request)
        return summarize(request["prompts"], request, seconds) | (
            {"replies": replies} if request.get("return_replies") else {}
        )

    def turns(self, request: dict[str, Any]) -> dict[str, Any]:
        """Turn by turn, all trajectories together: the library has no call that would let each go on alone."""
        histories = [list(prompt) for prompt in request["prompts"]]
        observations = request["observations"]
        turn_seconds: list[float] = []
        asked = cached = 0
        started = time.perf_counter()
        for turn in range(len(observations[0]) + 1):
            before = time.perf_counter()
            outputs = self._sample(histories, request)
            turn_seconds.append(time.perf_counter() - before)
            check_lengths([len(output.outputs[0].token_ids) for output in outputs], request)
            for index, output in enumerate(outputs):
                asked += len(histories[index])
                cached += output.num_cached_tokens or 0
                histories[index] += output.outputs[0].token_ids
                if turn < len(observations[index]):
                    histories[index] += observations[index][turn]
        seconds = time.perf_counter() - started
        return (
            summarize(request["prompts"], request, seconds)
            | count_computed(request, asked, cached)
            | {"turn_seconds": turn_seconds}
        )

    def close(self) -> None:
        """Nothing to end: the engine ends with the process."""


def processor_seconds() -> float:
    """User and system time of this process and of all that it started and that still run."""
    import psutil

    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def check_lengths(lengths: Sequence[int], request: dict[str, Any]) -> None:
    """Raises ValueError when a reply is shorter than asked for: the work would not be comparable."""
    if set(lengths) != {request["max_tokens"]}:
        raise ValueError(f"replies of {sorted(set(lengths))} tokens, but {request['max_tokens']} were asked for")


def count_computed(request: dict[str, Any], asked: int, cached: int | None) -> dict[str, Any]:
    """Tokens asked for as prompts, taken from the cache, and computed (with the sampled ones) per unique token."""
    prompts, replies = request["prompts"], len(request["observations"][0]) + 1
    added = sum(map(len, request["observations"][0])) + replies * request["max_tokens"]
    unique = count_unique(prompts, added)
    # The last token of every reply is sampled but never run through the model, unless an observation follows it.
    computed = None if cached is None else asked - cached + len(prompts) * replies * (request["max_tokens"] - 1)
    return {
        "unique_tokens": unique,
        "prompt_tokens": asked,
        "cached_tokens": cached,
        "computed_per_unique": None if computed is None else computed / unique,
    }


class Server:
    """vLLM's HTTP server as a child process, and a client with one connection per trajectory."""

    def __init__(self, settings: dict[str, Any]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._model = settings["model"]
        # Not `vllm serve`: the build for CPU has another distribution name, and that command looks its own version up
        # under "vllm".
        command = [
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            settings["model"],
            "--host",
            "127.0.0.1",
        ]
        command += [
            "--port",
            str(self._port),
            "--dtype",
            settings.get("dtype", "float32"),
            "--max-model-len",
            str(settings["max_context"]),
        ]
        command += ["--max-num-seqs", str(settings["max_sequences"]), "--seed", "0", "--enable-prompt-tokens-details"]
        command += ["--enable-prefix-caching" if settings.get("prefix_caching", True) else "--no-enable-prefix-caching"]
        command += ["--disable-uvicorn-access-log", "--no-enable-log-requests"]
        command += ["--block-size", str(settings["block_size"])] if settings.get("block_size") else []
        command += [] if has_tokenizer(settings["model"]) else ["--skip-tokenizer-init"]
        command += ["--load-format", "dummy"] if settings.get("random_weights") else []
        # A process group of its own: the server's workers outlive it where it ends while they compile.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr, start_new_session=True
        )
        self._wait()

    def _wait(self) -> None:
        import httpx

        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self._process.returncode}; its output is above")
            try:
                if httpx.get(f"http://127.0.0.1:{self._port}/health", timeout=2.0).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.5)
        self.close()
        raise RuntimeError(f"the server did not answer within {START_TIMEOUT_S:g} s")

    async def _complete(self, client: Any, history: list[int], request: dict[str, Any]) -> tuple[list[int], int | None]:
        """The reply's token ids, and how many of the history's came from the cache (None where the server does not
        say)."""
        body = {
            "model": self._model,
            "prompt": history,
            "max_tokens": request["max_tokens"],
            "temperature": request["temperature"],
            "ignore_eos": True,
            "return_token_ids": True,
        }
        answer = await client.post("/v1/completions", json=body)
        answer.raise_for_status()
        data = answer.json()
        details = data["usage"].get("prompt_tokens_details") or {}
        return data["choices"][0]["token_ids"], details.get("cached_tokens")

    async def _play(
        self, request: dict[str, Any], observations: list[list[list[int]]]
    ) -> tuple[list[list[int]], int, int | None]:
        """All trajectories; their tokens at the end, how many were sent as prompts, and how many of these the cache
        held."""
        import httpx

        histories = [list(prompt) for prompt in request["prompts"]]
        asked, cached, hits_known = 0, 0, True

        async def trajectory(index: int, client: Any) -> None:
            nonlocal asked, cached, hits_known
            history = histories[index]
            for turn in range(len(observations[index]) + 1):
                reply, hits = await self._complete(client, history, request)
                check_lengths([len(reply)], request)
                asked += len(history)
                cached += hits or 0
                hits_known = hits_known and hits is not None
                history += reply
                if turn < len(observations[index]):
                    history += observations[index][turn]

        limits = httpx.Limits(
            max_connections=len(request["prompts"]), max_keepalive_connections=len(request["prompts"])
        )
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._port}", timeout=600.0, limits=limits) as client:
            await asyncio.gather(*(trajectory(index, client) for index in range(len(request["prompts"]))))
        return histories, asked, cached if hits_known else None

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request per prompt, all at once."""
        started = time.perf_counter()
        histories, _, _ = asyncio.run(self._play(request, [[] for _ in request["prompts"]]))
        seconds = time.perf_counter() - started
        replies = [history[-request["max_tokens"] :] for history in histories]
        return summarize(request["prompts"], request, seconds) | (
            {"replies": replies} if request.get("return_replies") else {}
        )

    def turns(self, request: dict[str, Any]) -> dict[str, Any]:
        """Every trajectory at its own pace."""
        started = time.perf_counter()
        _, asked, cached = asyncio.run(self._play(request, request["observations"]))
        seconds = time.perf_counter() - started
        return summarize(request["prompts"], request, seconds) | count_computed(request, asked, cached)

    def close(self) -> None:
        """End the server and what it started."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def main() -> None:
    """See the module's docstring."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    os.environ["OMP_NUM_THREADS"] = str(settings["threads"])
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = settings.get("bind", "nobind")
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(settings.get("cache_gib", 2))
    os.environ["HF_HUB_OFFLINE"] = "1"
    started = time.perf_counter()
    engine = (Offline if settings["mode"] == "offline" else Server)(settings)
    from vllm import __version__

    answers.write(json.dumps({"ready": True, "version": __version__, "start_s": time.perf_counter() - started}) + "\n")
    try:
        while line := sys.stdin.readline().strip():
            request = json.loads(line)
            try:
                before = processor_seconds()
                answer = engine.turns(request) if request["kind"] == "turns" else engine.decode(request)
                answer["processor_s"] = processor_seconds() - before
            except Exception as cause:  # noqa: BLE001 - one measurement that fails is an answer; the others go on
                answer = {"error": f"{type(cause).__name__}: {cause}"}
            answers.write(json.dumps(answer) + "\n")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
