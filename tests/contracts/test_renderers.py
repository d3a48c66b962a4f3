"""What every renderer owes: tags, lines of calls, the chat formats that need no file from outside, and chat templates,
through one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from chat_families import FAMILIES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import IntArray, Message, ToolCall, ToolSpec, text_message, to_ids
from turnwise.gateway.settled import find_streaming
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, encode_text, train_tokenizer

PROPERTY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SAMPLE = ["The author of Blue Lantern is Mira Tolen. print( 12 * 34 ) search query = x"] * 20
PLAIN = ("<|endoftext|>",)
CHAT_TOKENS: dict[str, tuple[str, ...]] = {
    "qwen3": QWEN3_SPECIAL_TOKENS,
    "qwen3-vl": (*QWEN3_SPECIAL_TOKENS, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
    "llama-3": (
        *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
    ),
    "deepseek-v3": (
        *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        *("<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
        *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<think>", "</think>"),
    ),
    "inkling": (
        *("<|message_user|>", "<|message_model|>", "<|message_system|>", "<|message_tool|>", "<|content_text|>"),
        *("<|content_thinking|>", "<|content_image|>", "<|content_audio_input|>", "<|content_xml|>"),
        *("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>", "<|content_model_end_sampling|>"),
        *("<|end_message|>", "<|audio_end|>", "<|unused_200054|>", "<|unused_200053|>"),
    ),
    "gemma4": (
        *("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>"),
        *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|image>", "<image|>", "<|image|>"),
    ),
}
"""The special tokens of each chat format, for a tokenizer trained here."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A renderer, and what its format can say."""

    tokens: tuple[str, ...]
    """Special tokens of the tokenizer."""
    build: Callable[[PreTrainedTokenizerBase], Renderer]
    tool: str = "search"
    argument: str = "query"
    answer: str = "Mira Tolen"
    """A reply without calls, as the format wants it."""
    extends_cut_replies: bool = True
    """Whether the format can answer a reply that has no end."""
    tools: tuple[ToolSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        schema = {"type": "object", "properties": {self.argument: {"type": "string"}}}
        object.__setattr__(self, "tools", (ToolSpec(name=self.tool, description="A tool.", parameters=schema),))

    def call(self, text: str, number: int = 0) -> Message:
        arguments = json.dumps({self.argument: text}, ensure_ascii=False)
        call = ToolCall(id=f"call_{number}", name=self.tool, arguments=arguments)
        return Message(role="assistant", content=(), tool_calls=(call,))


def build_tags(name: str, tokens: tuple[str, ...]) -> Case:
    form = FORMATS[name]
    return Case(
        tokens=tokens,
        build=lambda tokenizer: TagRenderer(tokenizer, form),
        tool=form.tool,
        argument=form.argument,
        answer="<answer> Mira Tolen </answer>",
    )


def build_chat(name: str) -> Case:
    return Case(
        tokens=CHAT_TOKENS[name],
        build=lambda tokenizer: ChatRenderer(tokenizer, name=name),
        extends_cut_replies=name != "gemma4",
    )


def build_template(name: str, calls: str) -> Case:
    """`name` of a family in the matrix of templates; empty: a tokenizer without a chat template."""
    family = next((family for family in FAMILIES if family.name == name), None)

    def build(tokenizer: PreTrainedTokenizerBase) -> Renderer:
        tokenizer.chat_template = family.template if family else None
        tokenizer.bos_token = family.bos or None if family else None
        return TemplateRenderer(tokenizer, calls=calls)  # type: ignore[arg-type]

    tokens = PLAIN if family is None else (*family.tokens, *([family.bos] if family.bos else []))
    return Case(tokens=tokens, build=build)


CASES: dict[str, Case] = {
    **{f"{name}, tags as tokens": build_tags(name, FORMATS[name].special_tokens) for name in FORMATS},
    **{f"{name}, tags as text": build_tags(name, PLAIN) for name in FORMATS},
    "calls, tags as tokens": Case(
        tokens=CALLS_FORMAT.special_tokens, build=CallsRenderer, answer="<answer> Mira Tolen </answer>"
    ),
    "calls, tags as text": Case(tokens=PLAIN, build=CallsRenderer, answer="<answer> Mira Tolen </answer>"),
    **{name: build_chat(name) for name in CHAT_TOKENS},
    "template, hermes": build_template("Qwen2.5", "hermes"),
    "template, fenced": build_template("Gemma 2", "fenced"),
    "template, react": build_template("SmolLM2", "react"),
    "no template, react": build_template("", "react"),
    "template, llama": build_template("Llama 3", "llama"),
    "template, mistral": build_template("Mistral Small 3", "mistral"),
    "template, qwen_coder": build_template("Qwen2.5", "qwen_coder"),
    "template, deepseek_v3": build_template("DeepSeek-V3", "deepseek_v3"),
    "no template, deepseek_v31": build_template("", "deepseek_v31"),
}
OPENING = (text_message("user", "Who wrote Blue Lantern ?"),)
words = st.text(st.sampled_from("abcXYZ 019.,:+*/()[]{}=\n\"'\\é你🙂"), min_size=1, max_size=24).map(str.strip)


@dataclass(frozen=True, kw_only=True)
class Made:
    """A case with its tokenizer and renderer."""

    case: Case
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    prompt: IntArray


@pytest.fixture(params=CASES, scope="module")
def made(request: pytest.FixtureRequest) -> Made:
    case = CASES[request.param]
    tokenizer = train_tokenizer(SAMPLE, vocab_size=380, special_tokens=case.tokens)
    renderer = case.build(tokenizer)
    return Made(case=case, tokenizer=tokenizer, renderer=renderer, prompt=renderer.open(OPENING, case.tools))


def read(message: Message) -> tuple[str, list[tuple[str, Any]]]:
    """What a message says: its text, and its calls as values."""
    return message.text, [(call.name, json.loads(call.arguments)) for call in message.tool_calls]


def answer(made: Made, message: Message, text: str) -> Message:
    (call,) = message.tool_calls
    return text_message("tool", text, tool_call_id=call.id, name=made.case.tool)


# ------------------------------------------------------------------------------------------------ opening and extending


def test_the_start_up_check_passes(made: Made) -> None:
    check_prefix_stable(made.renderer, made.tokenizer.decode, OPENING, made.case.tools)


def test_opening_twice_gives_the_same_read_only_ids(made: Made) -> None:
    again = made.renderer.open(OPENING, made.case.tools)
    assert again.dtype == np.int32
    assert again.ndim == 1
    assert not again.flags.writeable
    assert again.tolist() == made.prompt.tolist()
    other = made.renderer.open((text_message("user", "Who wrote Red Lantern ?"),), made.case.tools)
    assert other.tolist() != made.prompt.tolist()


def test_extending_appends_what_the_tool_said_and_depends_on_nothing_later(made: Made) -> None:
    reply = made.renderer.encode_reply(made.case.call("author of Blue Lantern"))
    called = made.renderer.parse(made.prompt, reply)
    one, other = (
        made.renderer.extend(made.prompt, reply, [answer(made, called, text)], made.case.tools)
        for text in ("It was Mira Tolen.", "It was Orin Vale.")
    )
    assert "It was Mira Tolen." in made.tokenizer.decode(one)
    assert "Who wrote" not in made.tokenizer.decode(one)  # only what comes after the reply
    assert one.tolist() != other.tolist()
    again = made.renderer.extend(made.prompt, reply, [answer(made, called, "It was Mira Tolen.")], made.case.tools)
    assert again.tolist() == one.tolist()
    assert not one.flags.writeable


def test_a_reply_that_was_cut_can_be_extended_or_is_refused(made: Made) -> None:
    cut = made.renderer.encode_reply(made.case.call("author of Blue Lantern"))[:-1]
    observation = text_message("tool", "error: the call was not closed")
    if not made.case.extends_cut_replies:
        with pytest.raises(RenderError, match="without rewriting the history"):
            made.renderer.extend(made.prompt, to_ids(cut), [observation], made.case.tools)
        return
    assert "the call was not closed" in made.tokenizer.decode(
        made.renderer.extend(made.prompt, to_ids(cut), [observation], made.case.tools)
    )


# ------------------------------------------------------------------------------------------------ replies


def ends_as_it_should(made: Made, ids: IntArray) -> bool:
    """Whether sampling would have stopped at the end of the ids and not before."""
    stops = [int(token) in made.renderer.stop_token_ids for token in ids]
    if any(stops):
        return stops.index(True) == len(ids) - 1
    text = made.tokenizer.decode(ids)
    return any(text.endswith(stop) and stop not in text[: -len(stop)] for stop in made.renderer.stop)


def test_replies_end_with_a_stop_and_come_back(made: Made) -> None:
    for message in (made.case.call("author of Blue Lantern"), text_message("assistant", made.case.answer)):
        ids = made.renderer.encode_reply(message)
        assert ends_as_it_should(made, ids)
        parsed = made.renderer.parse(made.prompt, ids)
        assert (parsed.role, read(parsed), parsed.tool_errors) == ("assistant", read(message), ())
        assert made.renderer.encode_reply(parsed).tolist() == ids.tolist()


@PROPERTY
@given(text=words.filter(bool))
def test_whatever_a_call_says_comes_back(made: Made, text: str) -> None:
    message = made.case.call(text)
    parsed = made.renderer.parse(made.prompt, made.renderer.encode_reply(message))
    assert read(parsed) == read(message)
    assert parsed.tool_errors == ()


def test_stops_are_named(made: Made) -> None:
    renderer = made.renderer
    assert renderer.stop_token_ids or renderer.stop
    assert all(isinstance(token, int) and 0 <= token < len(made.tokenizer) for token in renderer.stop_token_ids)
    assert all(isinstance(stop, str) and stop for stop in renderer.stop)


def test_calls_of_one_conversation_have_different_ids(made: Made) -> None:
    ids = made.renderer.encode_reply(made.case.call("x"))
    first = made.renderer.parse(made.prompt, ids)
    appended = made.renderer.extend(made.prompt, ids, [answer(made, first, "y")], made.case.tools)
    second = made.renderer.parse(to_ids(np.concatenate([made.prompt, ids, appended])), ids)
    assert first.tool_calls[0].id != second.tool_calls[0].id
    assert replace(first.tool_calls[0], id="") == replace(second.tool_calls[0], id="")


@PROPERTY
@given(ids=st.lists(st.integers(-3, 400), max_size=30) | st.lists(st.integers(0, 20), max_size=12))
def test_any_ids_give_a_message(made: Made, ids: list[int]) -> None:
    message = made.renderer.parse(made.prompt, to_ids(ids))
    assert message.role == "assistant"
    calls = message.tool_calls
    assert len({call.id for call in calls}) == len(calls)
    assert all(error.message for error in message.tool_errors)


STREAMED = {
    *(name for name in CASES if name.startswith("template, ") and not name.endswith("react")),
    *("qwen3", "qwen3-vl", "llama-3", "deepseek-v3", "no template, deepseek_v31"),
}
"""Cases whose replies are told while they are sampled."""
SAID = st.sampled_from(
    ["Mira Tolen", " wrote it.", "\n\n", "  ", "a < b", "{", "```", "[x]", "é🙂", "<think>", "<tool_call>"]
)


@settings(PROPERTY, max_examples=60)
@given(data=st.data())
def test_what_is_told_while_a_reply_is_sampled_is_how_it_begins(made: Made, data: st.DataObject) -> None:
    streaming = find_streaming(made.renderer, made.tokenizer)
    if streaming is None:
        return
    special = st.sampled_from(sorted(made.tokenizer.get_added_vocab().values())).map(lambda token: [token])
    plain = SAID.map(lambda text: made.tokenizer.encode(text, add_special_tokens=False))
    call = made.renderer.encode_reply(made.case.call("Blue Lantern")).tolist()
    parts = data.draw(st.lists(plain | plain | special | st.just(call), max_size=8))
    ids = [token for part in parts for token in part]
    settled = streaming.read(made.prompt.tolist(), made.renderer.stop)
    size = data.draw(st.integers(1, 4))
    pieces = [piece for at in range(0, len(ids), size) for piece in settled.take(ids[at : at + size])]
    message = made.renderer.parse(made.prompt, to_ids(ids))
    thought, text = (
        "".join(each.text for each in pieces if each.is_thought is is_thought) for is_thought in (True, False)
    )
    assert (message.reasoning or "").startswith(thought)
    assert message.text.startswith(text)
    assert not text or thought == (message.reasoning or "")


def test_plain_words_are_told_as_they_come(made: Made, request: pytest.FixtureRequest) -> None:
    streaming = find_streaming(made.renderer, made.tokenizer)
    assert (streaming is not None) == (request.node.callspec.params["made"] in STREAMED)
    if streaming is not None and not streaming.opens_thought(made.prompt.tolist()):
        words = made.tokenizer.encode("The author is Mira Tolen.", add_special_tokens=False)
        settled = streaming.read(made.prompt.tolist(), ())
        told = [piece.text for token in words for piece in settled.take([token])]
        assert "".join(told) == "The author is Mira Tolen."
        assert len(told) > 1


@PROPERTY
@given(
    text=st.text(max_size=30) | st.sampled_from(["<tool_call>", "</answer>", "<search>", "{", "<|im_end|>", "\ufdd0"])
)
def test_any_text_of_a_tool_can_be_appended_and_forges_no_stop(made: Made, text: str) -> None:
    reply = made.renderer.encode_reply(made.case.call("x"))
    called = made.renderer.parse(made.prompt, reply)
    hostile = text + "".join(made.case.tokens)
    counts = [
        sum(int(token) in made.renderer.stop_token_ids for token in ids)
        for ids in (
            made.renderer.extend(made.prompt, reply, [answer(made, called, said)], made.case.tools)
            for said in (hostile, "plain")
        )
    ]
    assert counts[0] == counts[1]


@PROPERTY
@given(text=st.text(max_size=20))
def test_text_from_outside_becomes_no_special_token_in_the_opening(made: Made, text: str) -> None:
    hostile = text + "".join(made.case.tokens) + text
    special = set(made.tokenizer.get_added_vocab().values())
    counts = [
        sum(int(token) in special for token in made.renderer.open((text_message("user", said),), made.case.tools))
        for said in (f"x{hostile}", "plain")
    ]
    assert counts[0] == counts[1]
    assert not special & set(encode_text(made.tokenizer, hostile))
