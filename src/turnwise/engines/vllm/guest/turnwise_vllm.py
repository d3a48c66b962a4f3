"""One vLLM engine behind a socket, in one process: no HTTP, no children.

    PYTHON turnwise_vllm.py SOCKET_FD PARENT_PID

Messages are those of `turnwise.engines.workers.messages`; the first one contains the settings. Nothing is computed
between `pause` and `resume`, and a token carries the version under which it was sampled."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnwise_errors import describe_error
from turnwise_messages import LENGTH, Message, Request, read_all
from turnwise_pictures import make_prompt, use_pillow

PR_SET_PDEATHSIG = 1


class Worker:
    """The requests and the engine that samples them. Everything happens on one thread, except reading the socket."""

    def __init__(self, end: socket.socket, settings: Message) -> None:
        self._end = end
        self._alive_s = settings["alive_s"]
        self._folder: str = settings["adapter" if settings["lora"] is not None else "folder"]
        """Folder of the weights that change: the adapter's, or all weights."""
        if settings["is_blank"]:
            self._folder = ""
        self._staged_folder: str | None = None
        self._version = settings["version"]
        self._requests: dict[str, Request] = {}
        """Running requests by the name that vLLM knows."""
        self._held: list[Request] = []
        """Requests that wait for `resume`, with what was sampled of each."""
        self._is_paused = False
        self._pause_number: int | None = None
        """Number of the pause that waits for running replies to end; None if there is none."""
        self._num_started = 0
        self._counts = {"num_sampled_tokens": 0, "num_prompt_tokens": 0, "num_cached_tokens": 0}
        self._engine = build_engine(settings)
        if settings["eyes"] is not None:
            self._call("turnwise_silence", settings["eyes"]["placeholder"])
        self._adapter = None if settings["lora"] is None else build_adapter(self._engine)
        """The adapter; None if all weights change."""
        if self._adapter is not None:
            self._stage(self._folder)
            self._adapter.replace(self._folder)

    def serve(self, inbox: queue.SimpleQueue[Message | None]) -> None:
        """Answer messages until the other side closes the socket."""
        self._say(id=0, answer=None)
        said = time.monotonic()
        while True:
            runs = bool(self._requests) and not self._is_paused
            try:
                message = inbox.get(block=not runs, timeout=self._alive_s)
            except queue.Empty:
                if runs:
                    self._step()
                if time.monotonic() - said > self._alive_s and (self._requests or self._held):
                    self._say()
                    said = time.monotonic()
                continue
            if message is None:
                return
            self._handle(message)

    def _say(self, **fields: Any) -> None:
        body = json.dumps({**fields, "statistics": self._counts}, separators=(",", ":")).encode()
        self._end.sendall(LENGTH.pack(len(body)) + body)

    def _handle(self, message: Message) -> None:
        number = message.get("id")
        with self._telling_errors(number):
            self._do(message, number)

    @contextmanager
    def _telling_errors(self, number: int | None) -> Iterator[None]:
        """Answer with the error that ends the body; if there is no `id` to answer, raise it."""
        try:
            yield
        except Exception as error:
            if number is None:
                raise
            self._say(id=number, error=f"vLLM: {describe_error(error)}")

    def _do(self, message: Message, number: int | None) -> None:
        match message["kind"]:
            case "generate":
                assert number is not None
                request = Request(number=number, message=message)
                if self._is_paused or self._pause_number is not None:
                    self._held.append(request)
                else:
                    self._begin(request)
            case "cut":
                self._cut(message["request"], message["num_tokens"])
            case "cancel":
                self._drop(message["request"])
            case "pause":
                self._pause(message["interrupt"], number)
            case "resume":
                self._is_paused, held, self._held = False, self._held, []
                for request in held:
                    with self._telling_errors(request.number):
                        self._begin(request)
                self._say(id=number, answer=None)
            case "sum":
                self._say(id=number, answer=self._call("turnwise_sum", message["folder"]))
            case "stage":
                self._say(id=number, answer=self._stage(message["folder"]))
            case "receive":
                self._say(id=number, answer=self._receive(message))
            case "adopt":
                self._adopt(message, number)
            case "score":
                self._say(id=number, answer=self._score(message["token_ids"], message["shown"]))
            case "release":
                pass  # the prefix cache drops old entries by itself
            case kind:
                raise ValueError(f"unknown message kind {kind!r}")

    def _begin(self, request: Request) -> None:
        """Let vLLM sample a reply, or the rest of one."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        message, self._num_started = request.message, self._num_started + 1
        params, name = message["params"], str(self._num_started)
        self._engine.add_request(
            name,
            make_prompt(
                self._engine,
                [*message["prompt_ids"], *request.token_ids],
                message["shown"],
                cache_salt=str(self._version),
            ),
            SamplingParams(
                max_tokens=params["max_tokens"] - len(request.token_ids),
                temperature=params["temperature"],
                top_p=params["top_p"],
                top_k=params["top_k"] or -1,
                min_p=params["min_p"],
                stop_token_ids=list(params["stop_token_ids"]),
                ignore_eos=True,
                logprobs=0,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            ),
            lora_request=None if self._adapter is None else self._adapter.request,
        )
        self._requests[name] = request
        if not request.token_ids:
            self._counts["num_prompt_tokens"] += len(message["prompt_ids"])

    def _step(self) -> None:
        for output in self._engine.step():
            request = self._requests.get(output.request_id)
            if request is None:
                continue
            self._take(request, output)
        if self._pause_number is not None and not self._requests:
            number, self._pause_number, self._is_paused = self._pause_number, None, True
            self._say(id=number, answer=0)

    def _take(self, request: Request, output: Any) -> None:
        delta = output.outputs[0]
        if not request.token_ids:
            self._counts["num_cached_tokens"] += output.num_cached_tokens or 0
        request.token_ids += delta.token_ids
        request.logprobs += [each[token].logprob for token, each in zip(delta.token_ids, delta.logprobs, strict=True)]
        request.versions += [self._version] * len(delta.token_ids)
        self._counts["num_sampled_tokens"] += len(delta.token_ids)
        if output.finished:
            del self._requests[output.request_id]
            self._say(id=request.number, answer=request.answer("length" if delta.finish_reason == "length" else "stop"))
        elif request.message["watch"] and delta.token_ids:
            self._say(id=request.number, part=list(delta.token_ids))

    def _find(self, number: int) -> Request | None:
        return next((each for each in (*self._requests.values(), *self._held) if each.number == number), None)

    def _drop(self, number: int) -> None:
        """Forget the request with this number, if any."""
        self._held = [held for held in self._held if held.number != number]
        for name in [name for name, request in self._requests.items() if request.number == number]:
            del self._requests[name]
            self._engine.abort_request([name])

    def _hold_all(self) -> None:
        """Take the running requests back from vLLM; they wait for `resume` with what was sampled of them."""
        self._engine.abort_request(list(self._requests))
        self._held = [*self._requests.values(), *self._held]
        self._requests = {}

    def _cut(self, number: int, num_tokens: int) -> None:
        """End a reply after its first `num_tokens` tokens, which complete a stop string. A reply that has ended
        meanwhile is cut by the other side, and one that began again continues."""
        request = self._find(number)
        if request is not None and len(request.token_ids) >= num_tokens:
            self._drop(number)
            for column in (request.token_ids, request.logprobs, request.versions):
                del column[num_tokens:]
            self._say(id=number, answer=request.answer("stop"))

    def _pause(self, interrupt: str, number: int | None) -> None:
        if interrupt == "finish" and self._requests:
            self._pause_number = number
            return
        num_dropped, self._is_paused = 0, True
        if interrupt == "restart":
            under_way = list(self._requests.values())
            self._hold_all()
            for request in under_way:
                num_dropped += request.begin_anew()
                if request.message["watch"]:
                    self._say(id=request.number, part=None)
        if number is not None:
            self._say(id=number, answer=num_dropped)

    def _stage(self, folder: str) -> dict[str, int]:
        self._staged_folder = None
        sums: dict[str, int] = self._call("turnwise_stage", folder)
        self._staged_folder = folder
        return sums

    def _receive(self, message: Message) -> dict[str, int]:
        self._staged_folder = None
        fields = {name: message[name] for name in ("manifest", "host", "port", "size", "deadline_s")}
        sums: dict[str, int] = self._engine.collective_rpc("turnwise_receive", kwargs=fields)[0]
        self._staged_folder = message["label"]
        return sums

    def _adopt(self, message: Message, number: int | None) -> None:
        folder: str = message.get("folder", self._folder)
        if folder != self._folder:
            if folder != self._staged_folder:
                self._stage(folder)
            # Keys and values that older weights computed for running requests are computed again; none of them is read.
            self._hold_all()
            if self._adapter is None:
                self._call("turnwise_commit")
            else:
                self._adapter.replace(folder)
            if not self._engine.reset_prefix_cache():
                raise RuntimeError("the prefix cache could not be emptied")
            # Features of pictures are kept by picture alone.
            self._engine.reset_encoder_cache()
            self._folder, self._staged_folder = folder, None
        self._version = message["version"]
        if number is not None:
            self._say(id=number, answer=None)

    def _score(self, token_ids: list[int], shown: Message | None) -> list[float]:
        """Return log-probabilities at temperature 1 of every token but the first; `shown` is that of `make_prompt`.

        Call this only while no request is running: if the output layer has room for an adapter, vLLM 0.32 fails on a
        prompt's log-probabilities beside other requests."""
        from vllm import SamplingParams

        if self._requests:
            raise RuntimeError(f"the canary must be scored alone, but {len(self._requests)} requests are in progress")
        self._engine.add_request(
            "score",
            make_prompt(self._engine, token_ids, shown),
            SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False),
            lora_request=None if self._adapter is None else self._adapter.request,
        )
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                if output.finished:
                    return [
                        each[token].logprob
                        for token, each in zip(token_ids[1:], output.prompt_logprobs[1:], strict=True)
                    ]
        raise RuntimeError("the prompt was not scored")

    def _call(self, method: str, *args: Any) -> Any:
        return self._engine.collective_rpc(method, args=args)[0]


def build_engine(settings: Message) -> Any:
    """Build vLLM's engine on the weights of the folder that the settings name, with room for an adapter if they ask for
    it."""
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    lora: Message | None = settings["lora"]
    options: Message = {"worker_extension_cls": "turnwise_loader.Loader"}
    if lora is not None:
        options = {
            "worker_extension_cls": "turnwise_adapter.AdapterLoader",
            "enable_lora": True,
            "max_loras": 1,
            "max_lora_rank": lora["max_rank"],
            "lora_target_modules": lora["layers"],
        }
    eyes: Message | None = settings["eyes"]
    if eyes is not None:
        use_pillow()
        options |= {
            "limit_mm_per_prompt": {"image": eyes["max_pictures"], "video": 0},
            "skip_mm_profiling": True,
            "mm_device_do_normalize": False,  # its mean would be meaningless in a process that starts without weights
        }
    if settings["is_hybrid"]:
        # On a CPU vLLM 0.32 rotates only the first query head if a model passes queries head by head, as LFM2 does.
        options["compilation_config"] = {"custom_ops": ["-rotary_embedding"]}
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=settings["folder"],
            dtype=settings["dtype"],
            skip_tokenizer_init=eyes is None,  # processors of pictures need it
            max_model_len=settings["max_context"],
            max_num_seqs=settings["max_concurrency"],
            kv_cache_memory_bytes=settings["cache_bytes"],
            block_size=settings["block_size"],
            load_format="dummy" if settings["is_blank"] else "auto",
            enable_prefix_caching=not settings["is_hybrid"],
            logprobs_mode="processed_logprobs",
            enforce_eager=True,
            async_scheduling=False,
            generation_config="vllm",
            seed=settings["seed"],
            disable_log_stats=True,
            **options,
        )
    )


def build_adapter(engine: Any) -> Any:
    """Build the engine's adapter slot."""
    from turnwise_adapter import Adapter

    return Adapter(engine)


def main() -> None:
    """See the module's docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descriptor, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        return
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # else vLLM's process group of one listens on the host's address
    end = socket.socket(fileno=descriptor)
    inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    threading.Thread(target=read_all, args=(end, inbox), daemon=True).start()
    settings = inbox.get()
    if settings is None:
        return
    try:
        worker = Worker(end, settings)
    except Exception as error:
        body = json.dumps({"id": 0, "error": f"vLLM cannot start: {describe_error(error, settings)}"}).encode()
        end.sendall(LENGTH.pack(len(body)) + body)
        raise
    worker.serve(inbox)


if __name__ == "__main__":
    main()
