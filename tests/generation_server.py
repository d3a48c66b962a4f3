"""Stands in for a vLLM or SGLang server on loopback or a Unix socket: its routes, Hugging Face's model, a token a step.

Faults are names in a set that a test changes as it likes."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.models.checksums import compute_checksum

FIRST_VERSION = "default"


@dataclass
class Served:
    """What a server holds."""

    model: PreTrainedModel
    version: str = FIRST_VERSION
    staged: dict[str, torch.Tensor] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    paths: list[str] = field(default_factory=list)
    """Of the calls so far."""
    token_s: float = 0.001
    url: str = ""
    num_running: int = 0
    """Requests that are being sampled."""
    num_sampled: int = 0
    """Tokens of the request that began last."""
    hold_at: int | None = None
    """Number of tokens after which a reply goes no further until it is aborted; None holds none."""

    def forget(self) -> None:
        """As after a restart."""
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.normal_()
        self.version = FIRST_VERSION

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if not ("stale_tensor" in self.faults and "layers.1" in name):
                    parameter.copy_(tensors[name])

    @torch.no_grad()
    def sample(
        self, name: str, prompt: list[int], *, max_tokens: int, temperature: float, stops: list[int]
    ) -> tuple[list[int], list[float], str]:
        self.num_sampled = 0
        self.num_running += 1
        try:
            return self._sample(name, prompt, max_tokens=max_tokens, temperature=temperature, stops=stops)
        finally:
            self.num_running -= 1

    def _sample(
        self, name: str, prompt: list[int], *, max_tokens: int, temperature: float, stops: list[int]
    ) -> tuple[list[int], list[float], str]:
        reply: list[int] = []
        logprobs: list[float] = []
        while len(reply) < max_tokens:
            if name in self.aborted or "aborts" in self.faults:
                return reply, logprobs, "abort"
            logits = self.model(input_ids=torch.tensor([prompt + reply])).logits[0, -1].float()
            scores = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
            token = int(scores.argmax() if temperature == 0 else torch.multinomial(scores.exp(), 1))
            said = torch.log_softmax(logits, dim=-1) if "raw_logprobs" in self.faults else scores
            reply.append(token)
            logprobs.append(float(said[token]))
            self.num_sampled = len(reply)
            if token in stops:
                return reply, logprobs, "stop"
            time.sleep(self.token_s)
            while len(reply) == self.hold_at and name not in self.aborted and "aborts" not in self.faults:
                time.sleep(self.token_s)
        return reply, logprobs, "length"

    @torch.no_grad()
    def score(self, ids: list[int]) -> list[float | None]:
        table = torch.log_softmax(self.model(input_ids=torch.tensor([ids])).logits[0].float(), dim=-1)
        return [None, *(float(table[index, token]) for index, token in enumerate(ids[1:]))]


def answer_vllm(served: Served, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """As vLLM 0.32."""
    match path:
        case "/inference/v1/generate":
            ask = body["sampling_params"]
            version = served.version
            ids, logprobs, reason = served.sample(
                f"generate-tokens-{body.get('request_id')}",
                body["token_ids"],
                max_tokens=ask["max_tokens"],
                temperature=ask.get("temperature", 1.0),
                stops=ask.get("stop_token_ids", []),
            )
            content = [{"token_id": i, "logprob": p, "rank": 1} for i, p in zip(ids, logprobs, strict=True)]
            scores = served.score(body["token_ids"]) if "prompt_logprobs" in ask else None
            choice = {
                "index": 0,
                "token_ids": ids,
                "finish_reason": reason,
                "logprobs": None if "no_logprobs" in served.faults else {"content": content},
                "weight_versions": [{"version": version, "start": 0, "end": len(ids)}] if ids else None,
            }
            table: Any = scores and [
                None if row is None else {str(token): {"logprob": row, "rank": 1}}
                for token, row in zip(body["token_ids"], scores, strict=True)
            ]
            return 200, {"choices": [choice], "prompt_logprobs": table}
        case "/abort_requests":
            served.aborted |= set(body["request_ids"])
            return 200, {"status": "aborted"}
        case "/collective_rpc" if body["method"] == "turnwise_stage":
            served.staged = load_file(str(Path(body["args"][0]) / "model.safetensors"))
            sums = {name: compute_checksum(tensor) for name, tensor in served.staged.items()}
            if "lost_bits" in served.faults:
                sums["model.norm.weight"] += 1
            return 200, {"results": [sums]}
        case "/collective_rpc" if body["method"] == "turnwise_commit":
            if "load_fails" in served.faults:
                return 500, {"error": {"message": "half of it is loaded"}}
            served.load(served.staged)
            return 200, {"results": [None]}
        case "/reset_prefix_cache?reset_running_requests=true":
            return 200, {"success": "stale_cache" not in served.faults}
        case "/reset_prefix_cache":
            return 200, {"success": served.num_running == 0}
        case "/update_weight_version":
            served.version = body["new_version"]
            return 200, {"success": True, "new_version": served.version}
    return 404, {"detail": "Not Found"}


def answer_sglang(served: Served, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """As AReaL and slime read SGLang's answers."""
    match path:
        case "/generate":
            ask, version = body["sampling_params"], served.version
            ids, logprobs, reason = served.sample(
                body.get("rid", ""),
                body["input_ids"],
                max_tokens=ask["max_new_tokens"],
                temperature=ask["temperature"],
                stops=ask.get("stop_token_ids", []),
            )
            about: dict[str, Any] = {"finish_reason": {"type": reason}, "weight_version": version}
            if "no_logprobs" not in served.faults and not (reason == "abort" and not ids):
                about["output_token_logprobs"] = [[p, i, None] for i, p in zip(ids, logprobs, strict=True)]
            if body.get("logprob_start_len") == 0:
                scores = served.score(body["input_ids"])
                about["input_token_logprobs"] = [[p, i, None] for i, p in zip(body["input_ids"], scores, strict=True)]
            return 200, {"text": "", "output_ids": ids, "meta_info": about}
        case "/abort_request":
            served.aborted.add(body["rid"])
            return 200, None
        case "/update_weights_from_disk":
            if "load_fails" in served.faults:
                return 200, {"success": False, "message": "half of it is loaded"}
            served.load(load_file(str(Path(body["model_path"]) / "model.safetensors")))
            served.version = body["weight_version"]
            return 200, {"success": True, "message": "Succeeded"}
    return 404, {"detail": "Not Found"}


KINDS = {"vllm": answer_vllm, "sglang": answer_sglang}


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[Any, Any]:
        request, _ = super().get_request()
        return request, ("local", 0)


@contextlib.contextmanager
def generation_server(folder: Path, kind: str, *, socket: Path | None = None) -> Iterator[Served]:
    """A server on the weights of a Hugging Face directory; `socket` None is a port of loopback."""
    served = Served(AutoModelForCausalLM.from_pretrained(folder).eval())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(503 if "starting" in served.faults else 200, None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            served.paths.append(self.path)
            if "away" in served.faults:
                self.close_connection = True
                return
            if "silent" in served.faults:
                time.sleep(3)
            status, answer = KINDS[kind](served, self.path, body)
            with contextlib.suppress(BrokenPipeError):
                self._answer(status, answer)

        def _answer(self, status: int, answer: Any) -> None:
            text = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server: socketserver.BaseServer
    if socket is None:
        tcp = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server, served.url = tcp, f"http://127.0.0.1:{tcp.server_address[1]}"
    else:
        server, served.url = _UnixServer(str(socket), Handler), f"unix:{socket}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
