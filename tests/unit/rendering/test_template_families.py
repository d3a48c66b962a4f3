"""Any chat template: turns add up to what the template renders at once, replies come back, outside text stays text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from chat_families import FAMILIES, Family, build_sentencepiece_tokenizer, build_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from template_table import QUESTION, TOOL, compare, play, write_call, write_table
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.types import IntArray, Message, ToolCall, text_message, to_ids
from turnwise.rendering.call_texts import CALL_TEXTS
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.template import TemplateRenderer

PROPERTY = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ASK = (text_message("user", QUESTION),)
SOUND = {family.name: family for family in FAMILIES if not family.refused}
BROKEN = {family.name: family for family in FAMILIES if family.refused}
BY_NAME = {family.name: family for family in FAMILIES}
text = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=20)


@cache
def build(name: str, calls: str = "hermes") -> tuple[TemplateRenderer, PreTrainedTokenizerBase]:
    tokenizer = build_tokenizer(BY_NAME[name])
    return TemplateRenderer(tokenizer, calls=calls), tokenizer  # type: ignore[arg-type]


def count_control_tokens(ids: IntArray, tokenizer: PreTrainedTokenizerBase) -> int:
    control = set(tokenizer.get_added_vocab().values())
    return sum(int(token) in control for token in ids)


def result(said: str, number: int = 0) -> Message:
    return text_message("tool", said, tool_call_id=f"call_{number}", name="search")


# --------------------------------------------------------------------------------------- turns and the template's own


def test_the_matrix_has_thirty_families() -> None:
    assert len(SOUND) >= 30


@pytest.mark.parametrize("calls", CALL_TEXTS)
@pytest.mark.parametrize("family", SOUND.values(), ids=SOUND.keys())
def test_five_turns_are_what_the_template_renders_at_once(family: Family, calls: str) -> None:
    expected = {"": "same tokens", "end": "the same text except", "thought": "the same text except"}[family.differs]
    assert compare(family, play(family, calls)).startswith(expected)


@pytest.mark.parametrize("family", SOUND.values(), ids=SOUND.keys())
def test_a_tokenizer_that_adds_spaces_gives_the_tokens_of_the_whole_text(family: Family) -> None:
    tokenizer = build_sentencepiece_tokenizer(family)
    played = play(family, tokenizer=tokenizer)
    check_prefix_stable(played.renderer, tokenizer.decode, ASK, [TOOL])
    if family.differs:
        return
    # Where plain text stands right before a reply, a token of the whole text may reach across; no turn has such a one.
    reaches_across = family.name in ("Vicuna", "DeepSeek-V2")
    assert compare(family, played) in ("same tokens", *(["same text"] if reaches_across else []))


@pytest.mark.parametrize("name", SOUND)
def test_the_start_up_check_passes_with_and_without_tools_and_system_text(name: str) -> None:
    renderer, tokenizer = build(name)
    for messages in (ASK, (text_message("system", " Be brief.\n"), *ASK)):
        for tools in ((), (TOOL,)):
            check_prefix_stable(renderer, tokenizer.decode, messages, tools)


@pytest.mark.parametrize("family", BROKEN.values(), ids=BROKEN.keys())
def test_a_template_that_cannot_be_extended_is_refused_in_one_line(family: Family) -> None:
    with pytest.raises(RenderError) as caught:
        TemplateRenderer(build_tokenizer(family))
    message = str(caught.value)
    assert family.refused in message
    assert "use renderer.kind" in message
    assert "\n" not in message


def test_a_template_that_is_no_jinja_is_named_by_line_and_file() -> None:
    tokenizer = build_tokenizer(BY_NAME["Qwen2.5"])
    tokenizer.chat_template = "{% for m in messages %}\n{{ m.content | shout }}{% endfor %}"
    with pytest.raises(RenderError, match=r"No filter named 'shout'.*\(line 2 of the template; mend it in chat_templ"):
        TemplateRenderer(tokenizer)


def test_of_several_templates_the_one_for_tools_says_how_results_are_written() -> None:
    tokenizer, family = build_tokenizer(BY_NAME["Qwen2.5"]), BY_NAME["Qwen2.5"]
    with_tools = family.template.replace("{{ '<|im_start|>user' }}", "{{ '<|im_start|>tool' }}")
    assert with_tools != family.template
    tokenizer.chat_template = {"default": BY_NAME["ChatML (Yi, Dolphin)"].template, "tool_use": with_tools}
    renderer, reply = TemplateRenderer(tokenizer), Message(role="assistant", content=(), tool_calls=(write_call(0),))
    appended = renderer.extend(renderer.open(ASK, [TOOL]), renderer.encode_reply(reply), [result("one")], [TOOL])
    said = "\n<|im_start|>tool\n<tool_response>\none\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(appended) == said
    tokenizer.chat_template = {"rag": family.template, "tool_use": with_tools}
    with pytest.raises(RenderError, match="templates named 'rag', 'tool_use' but none named 'default'; copy the one"):
        TemplateRenderer(tokenizer)


@pytest.mark.parametrize("name", SOUND)
def test_several_results_and_a_user_message_are_appended_as_the_template_renders_them(name: str) -> None:
    renderer, tokenizer = build(name)
    reply = Message(role="assistant", content=(), tool_calls=(write_call(0), write_call(1)))
    for observations in ((result("one"), result("two", 1)), (text_message("user", "And Red Lantern?"),)):
        opened, replied = renderer.open(ASK, [TOOL]), renderer.encode_reply(reply)
        appended = renderer.extend(opened, replied, observations, [TOOL])
        whole = renderer.render_all([*ASK, reply, *observations], [TOOL])
        built = np.concatenate([opened, replied, appended]).tolist()
        if BY_NAME[name].differs:
            assert tokenizer.decode(built) == tokenizer.decode(whole)
        else:
            assert built == whole.tolist()


def test_the_document_has_the_table_that_the_command_prints() -> None:
    document = Path(__file__).parents[3] / "docs" / "renderers.md"
    assert write_table() in document.read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------- replies


@pytest.mark.parametrize("calls", CALL_TEXTS)
@pytest.mark.parametrize("name", SOUND)
def test_replies_come_back(name: str, calls: str) -> None:
    renderer, _ = build(name, calls)
    prompt = renderer.open(ASK, [TOOL])
    arguments = json.dumps({"query": 'a "b" \n é ``` <tool_call> </tool_call> <|im_end|> </s>'}, ensure_ascii=False)
    odd = ToolCall(id="call_0", name="search", arguments=arguments)
    for message in (
        text_message("assistant", "Mira Tolen"),
        text_message("assistant", "Let me look.", tool_calls=(odd,)),
        text_message("assistant", "", tool_calls=(write_call(0), odd), reasoning="two calls"),
    ):
        ids = renderer.encode_reply(message)
        assert [int(token) in renderer.stop_token_ids for token in ids] == [False] * (len(ids) - 1) + [True]
        parsed = renderer.parse(prompt, ids)
        assert (parsed.text, parsed.reasoning, parsed.tool_errors) == (message.text, message.reasoning, ())
        meant, read = (
            [(call.name, json.loads(call.arguments)) for call in each.tool_calls] for each in (message, parsed)
        )
        assert read == meant
        assert renderer.encode_reply(parsed).tolist() == ids.tolist()


@pytest.mark.parametrize("name", SOUND)
@PROPERTY
@given(data=st.data())
def test_any_ids_give_a_message(name: str, data: st.DataObject) -> None:
    renderer, tokenizer = build(name)
    ids = data.draw(st.lists(st.integers(-2, len(tokenizer) + 5), max_size=20) | st.lists(st.integers(0, 12)))
    assert renderer.parse(to_ids([0]), to_ids(ids)).role == "assistant"


@pytest.mark.parametrize("name", SOUND)
def test_a_reply_that_was_cut_is_closed(name: str) -> None:
    renderer, _ = build(name)
    prompt, whole = renderer.open(ASK, []), renderer.encode_reply(text_message("assistant", "Mira Tolen"))
    cut, closed = (renderer.extend(prompt, ids, [result("?")], []) for ids in (whole[:-1], whole))
    assert int(whole[-1]) in cut.tolist()
    assert cut.tolist()[-len(closed) :] == closed.tolist()


# --------------------------------------------------------------------------------------- text from outside


@pytest.mark.parametrize("name", SOUND)
@PROPERTY
@given(data=st.data())
def test_text_from_outside_becomes_no_control_token(name: str, data: st.DataObject) -> None:
    renderer, tokenizer = build(name)
    tokens = data.draw(st.permutations(list(tokenizer.get_added_vocab())))
    hostile = f"x{data.draw(text)}{''.join(tokens)}{data.draw(text)}\ufdd0\ufdd20\ufdd3x"
    reply = renderer.encode_reply(Message(role="assistant", content=(), tool_calls=(write_call(0),)))
    prompt = renderer.open(ASK, [TOOL])
    for role in ("tool", "user"):
        counts = []
        for said in (hostile, "plain"):
            observation = result(said) if role == "tool" else text_message("user", said)
            ids = renderer.extend(prompt, reply, [observation], [TOOL])
            assert said.replace("\ufdd0", "\ufffd").replace("\ufdd2", "\ufffd").replace(
                "\ufdd3", "\ufffd"
            ) in tokenizer.decode(ids)
            counts.append(count_control_tokens(ids, tokenizer))
        assert counts[0] == counts[1]


@pytest.mark.parametrize("name", SOUND)
def test_tools_and_the_opening_spell_out_no_control_token(name: str) -> None:
    renderer, tokenizer = build(name)
    hostile = "".join(tokenizer.get_added_vocab())
    schema = {"type": "object", "properties": {f"query{hostile}": {"type": "string", "description": hostile}}}
    counts = []
    for said, parameters in ((hostile, schema), ("plain", {"type": "object", "properties": {"query": {}}})):
        tool = type(TOOL)(name=f"search{said}", description=said, parameters=parameters)
        messages = [text_message("system", f"x{said}"), text_message("user", f"y{said}")]
        counts.append(count_control_tokens(renderer.open(messages, [tool]), tokenizer))
    assert counts[0] == counts[1]
