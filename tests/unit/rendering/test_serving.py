"""The chat template of an exported policy writes the ids of the run's renderer, opening and later turns, whatever the
renderer."""

import json
from typing import Any

import pytest
from chat_families import FAMILIES, Family, build_tokenizer
from jinja2.exceptions import TemplateError

from turnwise.core.protocols import Renderer
from turnwise.core.types import Message, ToolCall, ToolSpec, text_message, to_ids
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.chat import ChatRenderer, to_specs
from turnwise.rendering.serving import build_serving_template
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer

SYSTEM = 'Answer in {"braces"} and 100% "quotes" %}, {{ not }} a template: é\nSecond line.'
ASK = text_message("user", "Who wrote Blue Lantern?")
CALL = ToolCall(id="call_0", name="search", arguments='{"query": "Blue Lantern"}')
OTHER = ToolCall(id="call_1", name="search", arguments='{"query": "Red Lantern"}')
REPLY = Message(role="assistant", content=(), tool_calls=(CALL,))
BOTH = Message(role="assistant", content=(), tool_calls=(CALL, OTHER))
TOLD = text_message("tool", "Mira Tolen", tool_call_id="call_0", name="search")
NEITHER = text_message("tool", "Nobody {knows}", tool_call_id="call_1", name="search")
SEARCH = ToolSpec(
    name="search",
    description="Look it up.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
NESTED = ToolSpec(
    name="filter",
    description="Filter 100% of {rows}.",
    parameters={"type": "object", "properties": {"by": {"type": "array", "items": {"type": "string"}}}},
)
TOOLS = (SEARCH, NESTED)


def supported() -> list[Family]:
    return [family for family in FAMILIES if not family.refused]


def to_chat(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        chat["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.loads(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.role == "tool":
        chat |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return chat


def serve(tokenizer: Any, template: Any, messages: list[Message], tools: tuple[ToolSpec, ...]) -> list[int]:
    """What a server would give the model."""
    chat = [to_chat(message) for message in messages]
    ids = tokenizer.apply_chat_template(
        chat, tools=to_specs(tools) or None, chat_template=template, add_generation_prompt=True, return_dict=False
    )
    return list(ids)


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("calls", ["hermes", "fenced", "react"])
@pytest.mark.parametrize("family", supported(), ids=lambda family: family.name)
def test_openings_are_those_of_the_renderer_for_every_template(
    family: Family, calls: Any, tools: tuple[ToolSpec, ...]
) -> None:
    tokenizer = build_tokenizer(family)
    renderer = TemplateRenderer(tokenizer, calls=calls)
    template = build_serving_template(tokenizer, renderer, system=SYSTEM, tools=TOOLS)
    expected = renderer.open([text_message("system", SYSTEM), ASK], tools).tolist()
    assert serve(tokenizer, template, [text_message("system", SYSTEM), ASK], tools) == expected
    assert serve(tokenizer, template, [ASK], tools) == expected  # the run's own, where a request brings none
    other = [text_message("system", "Be brief."), ASK]
    assert serve(tokenizer, template, other, tools) == renderer.open(other, tools).tolist()
    without = build_serving_template(tokenizer, renderer, system=None, tools=TOOLS)
    assert serve(tokenizer, without, [ASK], tools) == renderer.open([ASK], tools).tolist()


@pytest.mark.parametrize("calls", ["hermes", "fenced", "react"])
@pytest.mark.parametrize(
    "family", [each for each in supported() if not each.differs], ids=lambda family: family.name
)
def test_calls_and_their_results_are_those_of_the_turns(family: Family, calls: Any) -> None:
    tokenizer = build_tokenizer(family)
    renderer = TemplateRenderer(tokenizer, calls=calls)
    opening = [text_message("system", SYSTEM), ASK]
    prompt = renderer.open(opening, (SEARCH,))
    reply = renderer.encode_reply(BOTH)
    expected = [*prompt, *reply, *renderer.extend(prompt, reply, [TOLD, NEITHER], (SEARCH,))]
    template = build_serving_template(tokenizer, renderer, system=None, tools=(SEARCH,))
    found = serve(tokenizer, template, [*opening, BOTH, TOLD, NEITHER], (SEARCH,))
    assert tokenizer.decode(found) == tokenizer.decode(expected)


def test_tools_that_the_policy_never_saw_are_refused_by_name() -> None:
    tokenizer = build_tokenizer(next(family for family in FAMILIES if family.name == "Llama 3"))
    template = build_serving_template(tokenizer, TemplateRenderer(tokenizer), system=None, tools=TOOLS)
    with pytest.raises(TemplateError, match="trained with these tools, in this order: search, filter"):
        serve(tokenizer, template, [ASK], (NESTED,))


def test_a_chat_renderer_keeps_the_template_it_agrees_with() -> None:
    tokenizer = train_tokenizer([SYSTEM, ASK.text], vocab_size=420, special_tokens=QWEN3_SPECIAL_TOKENS)
    renderer = ChatRenderer(tokenizer)
    assert build_serving_template(tokenizer, renderer, system=SYSTEM, tools=TOOLS) is None  # it never had one
    family = next(each for each in FAMILIES if each.name == "ChatML (Yi, Dolphin)")
    tokenizer.chat_template = family.template
    template = build_serving_template(tokenizer, renderer, system=SYSTEM, tools=())
    assert serve(tokenizer, template, [ASK], ()) == renderer.open([text_message("system", SYSTEM), ASK], ()).tolist()


def test_every_named_template_is_completed() -> None:
    family = next(each for each in FAMILIES if each.name == "ChatML (Yi, Dolphin)")
    tokenizer = build_tokenizer(family)
    tokenizer.chat_template = {"default": family.template, "tool_use": family.template}
    renderer = TemplateRenderer(tokenizer)
    templates = build_serving_template(tokenizer, renderer, system=SYSTEM, tools=TOOLS)
    assert isinstance(templates, dict)
    assert templates.keys() == {"default", "tool_use"}
    expected = renderer.open([text_message("system", SYSTEM), ASK], TOOLS).tolist()
    assert serve(tokenizer, templates["tool_use"], [ASK], TOOLS) == expected


def build_running(kind: str) -> tuple[Any, Renderer]:
    texts = [SYSTEM, ASK.text, TOLD.text, " Blue Lantern"] * 5
    if kind == "calls":
        tokenizer = train_tokenizer(texts, vocab_size=400, special_tokens=CALLS_FORMAT.special_tokens)
        return tokenizer, CallsRenderer(tokenizer)
    name, _, plain = kind.partition(" ")
    special = ("<|endoftext|>",) if plain else FORMATS[name].special_tokens
    tokenizer = train_tokenizer(texts, vocab_size=400, special_tokens=special)
    return tokenizer, TagRenderer(tokenizer, FORMATS[name])


@pytest.mark.parametrize(
    "kind", ["search_r1", "retool", "shell", "calls", "search_r1 plain", "retool plain", "shell plain"]
)
def test_running_text_is_opened_and_continued_with_the_ids_of_the_run(kind: str) -> None:
    tokenizer, renderer = build_running(kind)
    template = build_serving_template(tokenizer, renderer, system=SYSTEM, tools=TOOLS)
    opening = [text_message("system", SYSTEM), ASK]
    prompt = renderer.open(opening, TOOLS)
    assert serve(tokenizer, template, opening, TOOLS) == prompt.tolist()
    assert serve(tokenizer, template, [ASK], TOOLS) == prompt.tolist()
    form = (renderer if isinstance(renderer, TagRenderer) else renderer.tags).format  # type: ignore[attr-defined]
    sampled = f"<think> look</think><{form.action}> Blue Lantern</{form.action}>"
    ids = [*prompt]
    for text, told in ((sampled, TOLD), ("<think> odd </think>", text_message("user", " go on "))):
        reply = to_ids([*tokenizer.encode(text), *([] if text is sampled else [tokenizer.eos_token_id])])
        ids += [*reply, *renderer.extend(to_ids(ids), reply, [told], TOOLS)]
    said = [
        text_message("assistant", sampled),
        TOLD,
        text_message("assistant", "<think> odd </think>"),
        text_message("user", " go on "),
    ]
    assert serve(tokenizer, template, [*opening, *said], TOOLS) == ids
    with pytest.raises(TemplateError, match="write the calls of a reply as text"):
        serve(tokenizer, template, [*opening, REPLY, TOLD], TOOLS)
