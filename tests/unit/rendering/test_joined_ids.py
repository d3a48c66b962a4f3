"""A format whose marks are text: read as the package alone reads it, in time linear in the length."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from turnwise.core.types import Message, ToolSpec, text_message, to_ids
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.joined_ids import decode_joined, join_ids
from turnwise.rendering.tokenizer import train_tokenizer

SEARCH = ToolSpec(
    name="search", description="Search.", parameters={"type": "object", "properties": {"query": {"type": "string"}}}
)
MARK, END = "｜DSML｜", "<｜end▁of▁sentence｜>"
TOKENS = (
    *(END, MARK, "<think>", "</think>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    *(f"<｜{name}｜>" for name in ("latest_reminder", "action", "query", "authority", "domain", "title", "read_url")),
)
CALL = (
    f'<{MARK}tool_calls>\n<{MARK}invoke name="search">\n<{MARK}parameter name="query" string="true">%s'
    f"</{MARK}parameter>\n</{MARK}invoke>\n</{MARK}tool_calls>"
)
PIECES = (
    *("", "I look. ", "é😀", "<think>", "</think>", END, MARK, f"<{MARK}", f"</{MARK}", CALL % "Lantern"),
    *(f"<{MARK}tool_calls>\n", f"</{MARK}tool_calls>", f'<{MARK}invoke name="search">\n', f"</{MARK}invoke>"),
    *(f'<{MARK}parameter name="query" string="false">', "[1]", f"</{MARK}parameter>\n"),
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """DeepSeek V4's special tokens."""
    return train_tokenizer(["Who wrote it? parameter query"] * 20, vocab_size=400, special_tokens=TOKENS)


@pytest.fixture(scope="module")
def renderer(tokenizer: PreTrainedTokenizerBase) -> ChatRenderer:
    return ChatRenderer(tokenizer, name="deepseek-v4")


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, 30))
@settings(max_examples=150, deadline=None)
def test_replies_are_read_as_the_package_reads_them(
    tokenizer: PreTrainedTokenizerBase, renderer: ChatRenderer, text: str, cut: int
) -> None:
    from renderers import config_from_name, create_renderer

    alone = create_renderer(tokenizer, config_from_name("deepseek-v4"))
    ids = encode(tokenizer, text)
    ids = ids[: len(ids) - cut]  # also inside a character
    for question in ("<think>", "</think>"):
        prompt = encode(tokenizer, f"<｜User｜>Who?<｜Assistant｜>{question}")
        theirs = alone.parse_response(ids, prompt_ids=prompt)
        mine: Any = renderer._renderer.parse_response(ids, prompt_ids=prompt)
        theirs.tool_calls = [replace(call, token_span=None) for call in theirs.tool_calls]
        assert mine == theirs


def test_ids_that_are_kept_part_the_joined_ones(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = encode(tokenizer, "ab<think>cd é</think></think>")
    keep = set(encode(tokenizer, "<think></think>"))
    joined = join_ids(ids, keep, tokenizer.decode)
    assert [each in keep for each in joined] == [False, True, False, True, True]
    assert decode_joined(joined, tokenizer.decode) == "ab<think>cd é</think></think>"
    assert decode_joined(joined[2:3], tokenizer.decode) == "cd é"


def measure(work: Callable[[], Message | object]) -> float:
    """Seconds of the fastest of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def test_four_times_the_tokens_take_no_sixteen_times_the_time(
    tokenizer: PreTrainedTokenizerBase, renderer: ChatRenderer
) -> None:
    """In a reply, before a call and in it, and in a tool's result."""
    prompt = renderer.open((text_message("user", "Who?"),), [SEARCH])
    seconds: dict[int, list[float]] = {}
    for count in (2_000, 8_000):
        value = "ab " * count
        ids = to_ids(encode(tokenizer, f"I look.</think>{value}{CALL % value}{END}"))
        message = renderer.parse(prompt, ids, [SEARCH])
        assert [json.loads(call.arguments) for call in message.tool_calls] == [{"query": value}]
        result = [text_message("user", f"{value}<think>é")]
        work = [
            lambda ids=ids: renderer.parse(prompt, ids, [SEARCH]),
            lambda ids=ids: renderer.extend(prompt, ids, [text_message("tool", "Hale")], [SEARCH]),
            lambda result=result: renderer.open(result, [SEARCH]),
        ]
        seconds[count] = [measure(each) for each in work]
    for short, long in zip(*seconds.values(), strict=True):
        assert long < 8 * short + 0.02
