"""SGLang's server, as the public sources of AReaL and slime call it.

Tested only against a stand-in: SGLang's kernels need a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.core.errors import EngineError
from turnwise.core.types import SamplingParams
from turnwise.engines.server.calls import Call, Reply, make_reply, read_nothing, reading


class SglangDialect:
    """Implements `Dialect`."""

    def refuse(self, params: SamplingParams) -> str | None:
        """See `Dialect.refuse`: SGLang's log-probabilities are taken before unlikely tokens are cut off."""
        cuts = {"top_p": params.top_p < 1, "top_k": params.top_k > 0, "min_p": params.min_p > 0}
        names = [name for name, is_set in cuts.items() if is_set]
        return f"SGLang's log-probabilities leave out {', '.join(names)}" if names else None

    def generate(self, name: str, prompt_ids: Sequence[int], params: SamplingParams, version: str) -> Call[Reply]:
        """See `Dialect.generate`: the cache is emptied with every version, so it need not know the version."""
        sampling = {
            "max_new_tokens": params.max_tokens,
            "temperature": params.temperature,
            "stop_token_ids": list(params.stop_token_ids),
            "ignore_eos": True,
            "no_stop_trim": True,
        }
        body = {"rid": name, "input_ids": list(prompt_ids), "sampling_params": sampling, "return_logprob": True}
        return Call(path="/generate", body=body, read=_read_reply)

    def abort(self, name: str) -> Call[None]:
        """See `Dialect.abort`."""
        return Call(path="/abort_request", body={"rid": name}, read=read_nothing)

    def stage(self, folder: str) -> None:
        """See `Dialect.stage`: SGLang reads weights only to load them."""
        return

    def commit(self, folder: str, version: str) -> Sequence[Call[None]]:
        """See `Dialect.commit`."""
        body = {"model_path": folder, "weight_version": version, "flush_cache": True}
        return (Call(path="/update_weights_from_disk", body=body, read=_check_update),)

    def score(self, token_ids: Sequence[int]) -> Call[list[float]]:
        """See `Dialect.score`."""
        body = {
            "input_ids": list(token_ids),
            "sampling_params": {"max_new_tokens": 1, "temperature": 1.0, "ignore_eos": True},
            "return_logprob": True,
            "logprob_start_len": 0,
        }

        def read(answer: Any) -> list[float]:
            with reading(answer):
                table = answer["meta_info"]["input_token_logprobs"]
                if [int(row[1]) for row in table] != list(token_ids):
                    raise EngineError("its answer scores other tokens than those requested")
                return [float(row[0]) for row in table[1:]]

        return Call(path="/generate", body=body, read=read)


def _read_reply(answer: Any) -> Reply:
    with reading(answer):
        about = answer["meta_info"]
        reason, version = about["finish_reason"]["type"], about.get("weight_version")
        # A request that is aborted before its prompt was computed has no list.
        rows = about.get("output_token_logprobs", [] if reason == "abort" else None)
        token_ids = [int(row[1]) for row in rows or ()]
        logprobs = None if rows is None else [row[0] for row in rows]
        return make_reply(token_ids, logprobs, reason, None if version is None else str(version))


def _check_update(answer: Any) -> None:
    with reading(answer):
        if answer["success"] is not True:
            raise EngineError(f"it did not load the weights: {str(answer.get('message'))[:300]}")
