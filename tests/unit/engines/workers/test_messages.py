"""Messages arrive as they were sent, bit for bit."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.keys import Span
from turnwise.core.types import (
    Completion,
    FinishReason,
    Grammar,
    Prompt,
    SamplingParams,
    Session,
    to_experts,
    to_floats,
    to_ids,
)
from turnwise.engines.workers.messages import (
    decode_completion,
    decode_request,
    encode_completion,
    encode_message,
    encode_request,
    read_message,
)


def carry(message: dict[str, object]) -> dict[str, object] | None:
    """Through the bytes of one message."""

    async def read() -> dict[str, object] | None:
        reader = asyncio.StreamReader()
        reader.feed_data(encode_message(message))
        reader.feed_eof()
        return await read_message(reader)

    return asyncio.run(read())


@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.floats(max_value=0, width=32), st.integers(0, 9)),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
)
def test_completions_arrive_in_every_bit(rows: list[tuple[int, float, int]], full: bool) -> None:
    ids, logprobs, versions = zip(*rows, strict=True)
    sent = Completion(
        token_ids=to_ids(ids),
        logprobs=to_floats(logprobs),
        finish_reason=FinishReason.STOP,
        version_first=min(versions),
        version_last=max(versions),
        versions=to_ids(versions),
        full_logprobs=to_floats(logprobs) if full else None,
        experts=to_experts(np.arange(4 * len(rows) + 4).reshape(-1, 2, 2) % 256) if full else None,
    )
    message = carry(encode_completion(sent))
    assert message is not None
    got = decode_completion(message)
    assert got.finish_reason is FinishReason.STOP
    assert (got.version_first, got.version_last) == (sent.version_first, sent.version_last)
    for name in ("token_ids", "logprobs", "versions", "full_logprobs", "experts"):
        mine, theirs = getattr(got, name), getattr(sent, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert mine.tobytes() == theirs.tobytes()


def test_requests_arrive_as_they_were() -> None:
    params = SamplingParams(
        max_tokens=7,
        temperature=0.1 + 0.2,
        top_p=1 / 3,
        stop=("\ud800 half a pair", "\n"),
        stop_token_ids=(1, 2),
        seed=2**63 + 1,
        grammar=Grammar(kind="regex", text="[^é]+"),
    )
    images = (Span(start=0, length=1, digest="ab"), Span(start=2, length=1, digest="ab", offset=1, grid=(1, 2, 1)))
    prompt = Prompt(token_ids=to_ids([5, 0, 2**31 - 1]), images=images)
    message = carry(encode_request(prompt, params, Session("g/\ud800", "0.1")))
    assert message is not None
    shown, got, session = decode_request(message)
    assert shown.token_ids.tolist() == [5, 0, 2**31 - 1]
    assert shown.token_ids.dtype == np.int32
    assert shown.images == images
    assert got == params
    assert session == Session("g/\ud800", "0.1")


@pytest.mark.parametrize("length", range(12))
def test_a_message_that_breaks_off_is_no_message(length: int) -> None:
    async def read() -> object:
        reader = asyncio.StreamReader()
        reader.feed_data(encode_message({"a": "bcd"})[:length])
        reader.feed_eof()
        return await read_message(reader)

    assert asyncio.run(read()) is None
