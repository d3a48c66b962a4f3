"""Checks a request before it queues, and a change of weights before it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import IntArray, SamplingParams, Session


def check_request(
    prompt: Sequence[int],
    params: SamplingParams,
    session: Session,
    *,
    max_context: int,
    cache_tokens: int,
    vocab_size: int,
    knows_text: bool,
    knows_grammars: bool,
) -> None:
    """Raise EngineError naming the request, the value and the remedy. `cache_tokens` is the largest number of tokens
    that one request may hold."""
    who = f"request of '{session}'"
    if not prompt:
        raise EngineError(f"{who} has an empty prompt; render at least one token")
    if params.max_tokens < 1:
        raise EngineError(f"{who} asks for max_tokens={params.max_tokens}; ask for at least 1")
    for limit, name in ((max_context, "engine.max_context"), (cache_tokens, "cache_tokens")):
        if len(prompt) + params.max_tokens > limit:
            raise EngineError(
                f"{who}: prompt of {len(prompt)} tokens plus max_tokens={params.max_tokens} exceeds "
                f"{name}={limit}; shorten the task or raise the limit"
            )
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        raise EngineError(
            f"{who} contains a token id outside the vocabulary of {vocab_size}: {min(prompt)}..{max(prompt)}"
        )
    if any(not 0 <= token < vocab_size for token in params.stop_token_ids):
        raise EngineError(f"{who} has a stop token outside the vocabulary of {vocab_size}: {params.stop_token_ids}")
    if not (
        0 <= params.temperature < float("inf")
        and 0 < params.top_p <= 1
        and 0 <= params.min_p <= 1
        and params.top_k >= 0
    ):
        raise EngineError(
            f"{who} cannot be sampled with temperature={params.temperature}, top_p={params.top_p}, "
            f"min_p={params.min_p}, top_k={params.top_k}; use a temperature of at least 0, 0 < top_p <= 1, 0 <= min_p "
            "<= 1 and top_k of at least 0"
        )
    if params.stop and not knows_text:
        raise EngineError(f"{who} has stop strings {params.stop} but the engine was built without `decode`")
    if params.grammar is not None and not knows_grammars:
        raise EngineError(
            f"{who} has a grammar but the engine was built without `grammars`: pip install 'turnwise[guided]' and "
            "pass them"
        )


def check_plain_request(
    kind: str,
    prompt_ids: IntArray,
    params: SamplingParams,
    session: Session,
    model: PreTrainedModel,
    max_context: int,
    decode: Callable[[Sequence[int]], str] | None,
) -> None:
    """`check_request` for engines without a tokenizer or grammars, which accept any token id and return some
    completion."""
    if params.grammar is not None:
        raise EngineError(f"engine.kind={kind!r} cannot sample with a grammar; use engine.kind='paged'")
    check_request(
        prompt_ids.tolist(),
        params,
        session,
        vocab_size=model.config.get_text_config().vocab_size,
        max_context=max_context,
        cache_tokens=max_context,
        knows_text=decode is not None,
        knows_grammars=False,
    )


def check_idle(version: int, num_open: int) -> None:
    """Raise EngineError if weights would change to `version` while an engine that is not paused still samples
    `num_open` requests."""
    if num_open:
        raise EngineError(
            f"weights changed to version {version} while {num_open} requests are being sampled; wait for them or pause "
            "the engine first"
        )
