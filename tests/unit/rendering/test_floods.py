"""Arguments that are opened and not closed: counted, bounded in time, and one malformed call; whole ones stand."""

from __future__ import annotations

import json
import time

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.types import ToolSpec, text_message, to_ids
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.floods import MAX_OPEN, count_open
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer

SEARCH = ToolSpec(
    name="search", description="Search.", parameters={"type": "object", "properties": {"query": {"type": "string"}}}
)
TOKENS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "]~!b[",
    "]~b]",
    "[e~[",
)
BLOCKS = {
    "qwen3.5": ("<tool_call>\n<function=search>\n", "\n</function>\n</tool_call>"),
    "minimax-m2": ('<minimax:tool_call>\n<invoke name="search">\n', "\n</invoke>\n</minimax:tool_call>"),
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """Qwen's and MiniMax's special tokens."""
    tokens = tuple(dict.fromkeys((*QWEN3_SPECIAL_TOKENS, *TOKENS)))
    return train_tokenizer(["Who wrote it? parameter function name query"] * 20, vocab_size=400, special_tokens=tokens)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<parameter=a>1</parameter>" * 3, 0),
        ("<parameter=a>" * 3, 3),
        # The third holds the only end; the first two run on to the next opening.
        ("<parameter=a>" * 3 + "</parameter>", 2),
        ("<parameter=" * 4 + ">x</parameter>", 4),  # a name of no characters is none
        ("<function=a>", 0),
        ("<function=" * 2, 2),
        ("<arg_key>a</arg_key>\n<arg_value>1</arg_value>" * 2, 0),
        ("<arg_key>a</arg_key>" * 2 + "<arg_value>1</arg_value>", 1),
        ('<parameter name="a">1</parameter><invoke name="b">', 1),
        ("", 0),
    ],
)
def test_openings_without_a_whole_argument_are_counted(text: str, count: int) -> None:
    assert count_open(text) == count


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(
    "mark", ["<parameter=a>", "<parameter=", '<parameter name="a">', "<function=", '<invoke name="a">']
)
def test_a_mark_repeated_without_end_takes_no_quadratic_time(
    tokenizer: PreTrainedTokenizerBase, name: str, mark: str
) -> None:
    """20,000 marks take 0.05 s; the package alone takes 7 s for 10,000 of `<parameter=a>`, and four times as much for
    twice as many."""
    renderer = ChatRenderer(tokenizer, name=name)
    begin, end = BLOCKS[name]
    ids = to_ids(tokenizer.encode(f"I look.{begin}{mark * 20_000}{end}", add_special_tokens=False))
    prompt = renderer.open((text_message("user", "Who?"),), [SEARCH])
    began = time.process_time()
    message = renderer.parse(prompt, ids, [SEARCH])
    assert time.process_time() - began < 3
    [error] = message.tool_errors
    assert (error.kind, message.tool_calls) == ("unclosed", ())
    assert "arguments of a tool call are opened and not closed" in error.message
    assert error.raw.startswith(begin.splitlines()[0])


@pytest.mark.parametrize("name", BLOCKS)
def test_a_call_whose_value_quotes_a_format_stands(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    renderer = ChatRenderer(tokenizer, name=name)
    begin, end = BLOCKS[name]
    opening = "<parameter=query>\n" if name == "qwen3.5" else '<parameter name="query">'
    quoted = '<parameter name="a">' if name == "qwen3.5" else "<parameter=a>"
    value = " ".join([quoted] * MAX_OPEN)
    ids = to_ids(tokenizer.encode(f"{begin}{opening}{value}</parameter>{end}", add_special_tokens=False))
    message = renderer.parse(to_ids([]), ids, [SEARCH])
    assert message.tool_errors == ()
    assert [json.loads(call.arguments) for call in message.tool_calls] == [{"query": value}]
