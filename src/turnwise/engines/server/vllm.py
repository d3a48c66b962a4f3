"""vLLM's server, release 0.32, in development mode with `--enable-scale-out` and Turnwise's loader in its workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.errors import EngineError
from turnwise.core.types import SamplingParams
from turnwise.engines.server.calls import Call, Reply, make_reply, read_nothing, reading

GENERATE = "/inference/v1/generate"
RPC = "/collective_rpc"


class VllmDialect:
    """Implements `Dialect`."""

    def refuse(self, params: SamplingParams) -> str | None:
        """See `Dialect.refuse`: with `--logprobs-mode processed_logprobs`, log-probabilities are those of the sampling
        distribution."""
        return None

    def generate(self, name: str, prompt_ids: Sequence[int], params: SamplingParams, version: str) -> Call[Reply]:
        """See `Dialect.generate`."""
        sampling = {
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k or -1,
            "min_p": params.min_p,
            "stop_token_ids": list(params.stop_token_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "detokenize": False,
        }
        body = {
            "request_id": name,
            "token_ids": list(prompt_ids),
            "sampling_params": sampling,
            "cache_salt": f"turnwise-{version}",
        }
        return Call(path=GENERATE, body=body, read=_read_reply)

    def abort(self, name: str) -> Call[None]:
        """See `Dialect.abort`: vLLM adds a prefix to the name of a request."""
        return Call(path="/abort_requests", body={"request_ids": [f"generate-tokens-{name}"]}, read=read_nothing)

    def stage(self, folder: str) -> Call[list[Mapping[str, int]]]:
        """See `Dialect.stage`."""
        return Call(path=RPC, body={"method": "turnwise_stage", "args": [folder]}, read=_read_sums)

    def commit(self, folder: str, version: str) -> Sequence[Call[None]]:
        """See `Dialect.commit`."""
        return (
            Call(path=RPC, body={"method": "turnwise_commit"}, read=read_nothing),
            Call(path="/reset_prefix_cache?reset_running_requests=true", read=_check_cache),
            Call(path="/update_weight_version", body={"new_version": version}, read=read_nothing),
        )

    def score(self, token_ids: Sequence[int]) -> Call[list[float]]:
        """See `Dialect.score`."""
        sampling = {"max_tokens": 1, "prompt_logprobs": 0, "ignore_eos": True, "detokenize": False}

        def read(answer: Any) -> list[float]:
            with reading(answer):
                rows = answer["prompt_logprobs"][1:]
                return [float(row[str(token)]["logprob"]) for token, row in zip(token_ids[1:], rows, strict=True)]

        return Call(path=GENERATE, body={"token_ids": list(token_ids), "sampling_params": sampling}, read=read)


def _read_reply(answer: Any) -> Reply:
    with reading(answer):
        choice = answer["choices"][0]
        token_ids = [int(token) for token in choice["token_ids"] or ()]
        content = (choice["logprobs"] or {}).get("content") if token_ids else []
        versions = {str(span["version"]) for span in choice["weight_versions"] or ()}
        if len(versions) > 1:
            raise EngineError(
                f"it sampled one request from several versions of the weights: {', '.join(sorted(versions))}"
            )
        logprobs = None if content is None else [each["logprob"] for each in content]
        return make_reply(token_ids, logprobs, choice["finish_reason"], next(iter(versions), None))


def _read_sums(answer: Any) -> list[Mapping[str, int]]:
    with reading(answer):
        return [{name: int(value) for name, value in sums.items()} for sums in answer["results"]]


def _check_cache(answer: Any) -> None:
    with reading(answer):
        if answer["success"] is not True:
            raise EngineError("its prefix cache could not be emptied; is something else using the server?")
