"""The renderer of chat templates: plain text without a template, thoughts, dates, cut observations, refusals."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from chat_families import CHATML, CHATML_PROMPT, CHATML_TOKENS, FAMILIES, Family, build_tokenizer, loop
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.types import Message, ToolCall, ToolSpec, text_message, to_ids
from turnwise.rendering.chat_template import ChatTemplate
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.template import TemplateRenderer

ASK = (text_message("user", "Who wrote it?"),)
SEARCH = ToolSpec(
    name="search", description="Search.", parameters={"type": "object", "properties": {"query": {"type": "string"}}}
)
CALL = Message(
    role="assistant", content=(), tool_calls=(ToolCall(id="call_0", name="search", arguments='{"query": "x"}'),)
)


def find_family(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


def result(said: str) -> Message:
    return text_message("tool", said, tool_call_id="call_0", name="search")


def test_a_tokenizer_without_a_template_gets_plain_turns(plain_tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = TemplateRenderer(plain_tokenizer, calls="react")
    check_prefix_stable(renderer, plain_tokenizer.decode, ASK, [SEARCH])
    opened = renderer.open((text_message("system", "Be brief."), *ASK), [])
    assert plain_tokenizer.decode(opened) == "Be brief.\n\nUser: Who wrote it?\n\nAssistant:"
    replied = renderer.encode_reply(CALL)
    assert plain_tokenizer.decode(replied) == ' Action: search\nAction Input: {"query": "x"}<|endoftext|>'
    appended = renderer.extend(opened, replied, [result("Mira Tolen")], [])
    assert plain_tokenizer.decode(appended) == "\n\nUser: Observation: Mira Tolen\n\nAssistant:"


def test_a_model_that_goes_on_with_the_next_turn_is_stopped_there(plain_tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = TemplateRenderer(plain_tokenizer)
    assert renderer.stop == ("\n\nUser:",)
    opened = renderer.open(ASK, [])
    sampled = to_ids(plain_tokenizer.encode(" Mira Tolen\n\nUser:", add_special_tokens=False))
    assert renderer.parse(opened, sampled) == text_message("assistant", "Mira Tolen")
    appended = renderer.extend(opened, sampled, [text_message("user", "Sure?")], [])
    assert plain_tokenizer.decode(np.concatenate([sampled, appended])) == " Mira Tolen\n\nUser: Sure?\n\nAssistant:"
    with pytest.raises(RenderError, match="where sampling stops"):
        renderer.encode_reply(text_message("assistant", "Mira\n\nUser: no"))


def test_thoughts_are_kept_in_the_history_and_told_apart() -> None:
    tokenizer = build_tokenizer(find_family("Qwen3 (thinking)"))
    renderer = TemplateRenderer(tokenizer)
    assert renderer.notes == ("it drops the thoughts of earlier replies, and here they stay",)
    thoughtful = text_message("assistant", "Mira", reasoning="Let me see.")
    replied = renderer.encode_reply(thoughtful)
    assert tokenizer.decode(replied) == "<think>\nLet me see.\n</think>\n\nMira<|im_end|>"
    assert renderer.parse(to_ids([]), replied) == thoughtful
    history = (*ASK, thoughtful, *ASK)
    whole = tokenizer.decode(renderer.render_all(history, []))
    assert "Let me see." in whole
    with pytest.raises(RenderError, match="contains </think>"):
        renderer.encode_reply(text_message("assistant", "Mira", reasoning="a </think> b"))


def test_a_prompt_that_opens_a_thought_is_answered_inside_it() -> None:
    tokenizer = build_tokenizer(find_family("DeepSeek-R1 (thinking)"))
    renderer = TemplateRenderer(tokenizer)
    assert tokenizer.decode(renderer.open(ASK, [])).endswith("<think>\n")
    for message, written in (
        (text_message("assistant", "Mira", reasoning="Hm."), "Hm.\n</think>\n\nMira"),
        (text_message("assistant", "Mira"), "</think>\n\nMira"),
    ):
        replied = renderer.encode_reply(message)
        assert tokenizer.decode(replied[:-1]) == written
        assert renderer.parse(to_ids([]), replied) == message
    unclosed = to_ids(tokenizer.encode("Hm, and", add_special_tokens=False))
    assert renderer.parse(to_ids([]), unclosed).reasoning == "Hm, and"


def test_thinking_that_the_template_switches_off_cannot_be_written() -> None:
    prompt = CHATML_PROMPT + r"{{ '<think>\n\n</think>\n\n' }}"
    family = Family(name="", tokens=CHATML_TOKENS, template=loop(CHATML, prompt))
    renderer = TemplateRenderer(build_tokenizer(family))
    with pytest.raises(RenderError, match="drop the message's reasoning"):
        renderer.encode_reply(text_message("assistant", "Mira", reasoning="Hm."))
    assert renderer.parse(to_ids([]), renderer.encode_reply(text_message("assistant", "Mira"))).text == "Mira"


def test_the_date_is_the_same_on_every_day() -> None:
    tokenizer = build_tokenizer(find_family("SmolLM3"))
    template = ChatTemplate(tokenizer)
    chat = [{"role": "user", "content": "x"}]
    assert "Today Date: 01 January 2026\n" in template.render(chat)
    assert "Today Date: 25 December 2031\n" in template.render(chat, date=datetime(2031, 12, 25))
    assert TemplateRenderer(tokenizer).notes == ("it writes the date, which is always 2026-01-01",)


def test_a_long_result_is_cut_with_its_marks_kept() -> None:
    tokenizer = build_tokenizer(find_family("SmolLM2"))
    renderer = TemplateRenderer(tokenizer, max_observation_tokens=8)
    opened, replied = renderer.open(ASK, [SEARCH]), renderer.encode_reply(CALL)
    appended = tokenizer.decode(renderer.extend(opened, replied, [result("你好" * 50)], [SEARCH]))
    said = appended.split("<tool_response>\n")[1].split("\n</tool_response>")[0]
    assert said == "你好" * 1  # 8 tokens of bytes: two characters of three bytes, and two bytes of a third
    assert appended.endswith("</tool_response><|im_end|>\n<|im_start|>assistant\n")


def test_a_reply_needs_a_token_to_end_with() -> None:
    tokenizer = build_tokenizer(find_family("Falcon"))
    tokenizer.eos_token = None
    with pytest.raises(RenderError, match="has no eos_token; set eos_token"):
        TemplateRenderer(tokenizer)


def test_a_template_that_reads_lists_of_parts_only_gets_them() -> None:
    of_parts = "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    loops = (CHATML, r"{{ '<|im_start|>' + m.role + '\n' }}" + of_parts + r"{{ '<|im_end|>\n' }}")
    plain, parts = (
        TemplateRenderer(
            build_tokenizer(Family(name="", tokens=CHATML_TOKENS, template=loop(body, CHATML_PROMPT)))
        ).render_all([*ASK, CALL, result("Mira Tolen")], [SEARCH])
        for body in loops
    )
    assert parts.tolist() == plain.tolist()


def test_a_template_that_takes_text_apart_is_refused() -> None:
    spelled = loop(CHATML.replace("m.content", "(m.content | list | join(' '))"), CHATML_PROMPT)
    tokenizer = build_tokenizer(Family(name="", tokens=CHATML_TOKENS, template=spelled))
    with pytest.raises(RenderError, match="drops, repeats or reorders messages"):
        TemplateRenderer(tokenizer)
