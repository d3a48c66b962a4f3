"""Which renderer "auto" chooses, and why: by the tools for random weights, by the tokenizer for a checkpoint."""

from __future__ import annotations

import json

import pytest
from chat_families import CHATML_PROMPT, FAMILIES, QWEN25, QWEN_TOOLS, build_tokenizer, loop
from transformers import PreTrainedTokenizerBase

from turnwise.core.types import ToolSpec, text_message
from turnwise.rendering.calls import CALLS_FORMAT
from turnwise.rendering.chat import ChatRenderer, to_specs
from turnwise.rendering.choose import RendererChoice, choose_renderer, find_chat_renderer
from turnwise.rendering.tags import FORMATS
from turnwise.rendering.tokenizer import train_tokenizer

PROBE = ToolSpec(name="probe", description="", parameters={})


def write_qwen3_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """A template of Qwen3's format, as far as text, tools and calls go: its words come from the chat renderer."""
    opened = tokenizer.decode(ChatRenderer(tokenizer).open([text_message("user", "?")], [PROBE]))
    head, tail = opened.split(json.dumps(to_specs([PROBE])[0]))
    head, tail = head.removeprefix("<|im_start|>system\n"), tail.split("<|im_start|>")[0]
    explained = (
        r"{% if tools %}{{ '<|im_start|>system\n' }}"
        r"{{ messages[0].content + '\n\n' if messages[0].role == 'system' else '' }}"
        f"{{{{ {json.dumps(head.strip())} }}}}{{% for t in tools %}}{{{{ '\\n' + (t | tojson) }}}}{{% endfor %}}"
        f"{{{{ {json.dumps(tail)} }}}}{{% elif messages[0].role == 'system' %}}"
        r"{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% endif %}"
    )
    return loop(QWEN25, CHATML_PROMPT, before=explained)


def tool(name: str, *arguments: str) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={"properties": {key: {} for key in arguments}})


@pytest.mark.parametrize(
    ("tools", "kind", "form"),
    [
        ([tool("search", "query")], "tags", "search_r1"),
        ([tool("search", "query"), tool("search", "query")], "tags", "search_r1"),
        ([], "tags", "search_r1"),
        ([tool("python", "code")], "tags", "retool"),
        ([tool("search", "query", "top_k")], "calls", "search_r1"),
        ([tool("guess", "number")], "calls", "search_r1"),
        ([tool("search", "query"), tool("python", "code")], "calls", "search_r1"),
    ],
)
def test_random_weights_are_decided_by_the_tools(tools: list[ToolSpec], kind: str, form: str) -> None:
    choice = choose_renderer(tools, None)
    assert (choice.kind, choice.format) == (kind, form)
    assert choice.why.startswith(kind)
    assert "random weights" in choice.why


def test_a_tokenizer_that_was_trained_here_keeps_its_format() -> None:
    for tokens, kind, form in (
        (FORMATS["search_r1"].special_tokens, "tags", "search_r1"),
        (FORMATS["retool"].special_tokens, "tags", "retool"),
        (CALLS_FORMAT.special_tokens, "calls", "search_r1"),
    ):
        tokenizer = train_tokenizer(["x"], vocab_size=280, special_tokens=tokens)
        choice = choose_renderer([tool("other")], tokenizer)
        assert (choice.kind, choice.format) == (kind, form)


def test_a_model_without_a_chat_template_writes_plain_text(plain_tokenizer: PreTrainedTokenizerBase) -> None:
    assert choose_renderer([], plain_tokenizer) == RendererChoice(
        kind="template",
        calls="react",
        why='template, calls="react": the tokenizer has no chat template, so turns are plain text',
    )
    assert choose_renderer([], plain_tokenizer, calls="fenced").calls == "fenced"


def test_a_chat_template_that_a_chat_renderer_reproduces_gets_that_renderer(
    chat_tokenizer: PreTrainedTokenizerBase,
) -> None:
    chat_tokenizer.chat_template = write_qwen3_template(chat_tokenizer)
    try:
        assert find_chat_renderer(chat_tokenizer) == "qwen3"
        choice = choose_renderer([tool("other")], chat_tokenizer)
        assert (choice.kind, choice.name) == ("chat", "qwen3")
        assert choice.why == 'chat, name="qwen3": it gives the same tokens as the chat template'
        # Whoever says how calls are written wants the template.
        assert choose_renderer([], chat_tokenizer, calls="react").kind == "template"
        chat_tokenizer.chat_template = loop(QWEN25, CHATML_PROMPT, before=QWEN_TOOLS)
        assert find_chat_renderer(chat_tokenizer) is None
    finally:
        chat_tokenizer.chat_template = None


@pytest.mark.parametrize("name", ["SmolLM2", "Gemma 2", "Mistral 7B v0.1", "Qwen2.5"])
def test_any_other_chat_template_is_used_itself(name: str) -> None:
    tokenizer = build_tokenizer(next(family for family in FAMILIES if family.name == name))
    choice = choose_renderer([tool("other")], tokenizer)
    assert (choice.kind, choice.calls) == ("template", "hermes")
    assert "the model's own chat template" in choice.why
