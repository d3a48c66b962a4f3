"""End tokens of a model's files: all of them stop a reply, and the next turn follows any of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from chat_families import FAMILIES, build_tokenizer
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import ConfigError
from turnwise.core.types import IntArray, text_message, to_ids
from turnwise.rendering.calls import CallsRenderer
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.ends import read_end_ids
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.template import TemplateRenderer

ASK, SURE = (text_message("user", "Who wrote it?"),), [text_message("user", "Sure?")]


@pytest.fixture
def llama() -> PreTrainedTokenizerBase:
    """Llama 3.1's control tokens and template; three of the tokens end a reply, and the template writes one."""
    return build_tokenizer(next(family for family in FAMILIES if family.name == "Llama 3"))


def write(folder: Path, **files: Any) -> Path:
    for name, ends in files.items():
        (folder / f"{name}.json").write_text(json.dumps({} if ends is None else {"eos_token_id": ends}))
    return folder


def name_ids(tokenizer: PreTrainedTokenizerBase, *tokens: str) -> list[int]:
    return [int(tokenizer.convert_tokens_to_ids(token)) for token in tokens]


def test_one_id_or_a_list_of_either_file_is_read(llama: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    eot, eom, text = name_ids(llama, "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
    for files, ends in (
        ({}, ()),
        ({"generation_config": [text, eom, eot]}, (text, eom, eot)),
        ({"generation_config": eom}, (eom,)),
        ({"generation_config": None, "config": [eot, eom]}, (eot, eom)),
        ({"generation_config": [eom], "config": eot}, (eom, eot)),
        ({"config": [eom, eom]}, (eom,)),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        assert read_end_ids([write(folder, **files)], llama) == ends
    # The second folder counts where the first has no file.
    assert read_end_ids([tmp_path / "0", tmp_path / "2"], llama) == (eom,)


def test_ids_of_another_tokenizer_are_no_ends(llama: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    """Llama's class has 2 by default, which is a word here, and a list may hold ids that nothing has."""
    word = llama.encode("Mira", add_special_tokens=False)[0]
    assert read_end_ids([write(tmp_path, config=[word, 10**6, "x", None])], llama) == ()


def test_a_broken_file_is_named(llama: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    for text in ("{", "[1]"):
        (tmp_path / "generation_config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"cannot read .*generation_config\.json"):
            read_end_ids([tmp_path], llama)


def end_with(ids: IntArray, token: int) -> IntArray:
    return to_ids([*ids[:-1], token])


def test_the_next_turn_follows_any_end(llama: PreTrainedTokenizerBase) -> None:
    (eom,) = name_ids(llama, "<|eom_id|>")
    renderer = TemplateRenderer(llama, ends=[eom])
    check_prefix_stable(renderer, llama.decode, ASK, [])
    assert eom in renderer.stop_token_ids
    assert llama.convert_tokens_to_ids("<|eot_id|>") in renderer.stop_token_ids
    opened, reply = renderer.open(ASK, []), renderer.encode_reply(text_message("assistant", "Mira"))
    other = end_with(reply, eom)
    assert renderer.parse(opened, other) == renderer.parse(opened, reply)
    # Without the end it would be closed with the template's own first.
    assert renderer.extend(opened, other, SURE, []).tolist() == renderer.extend(opened, reply, SURE, []).tolist()


def test_an_end_that_begins_the_next_turn_is_not_written_twice() -> None:
    """Of GLM-4 the token of the next speaker ends a reply."""
    glm = build_tokenizer(next(family for family in FAMILIES if family.name == "GLM-4"))
    ends = name_ids(glm, "<|endoftext|>", "<|user|>", "<|observation|>")
    renderer = TemplateRenderer(glm, ends=ends)
    assert set(ends) <= set(renderer.stop_token_ids)
    opened, reply = renderer.open(ASK, []), renderer.encode_reply(text_message("assistant", "Mira"))
    for token in ("<|user|>", "<|observation|>"):
        other = end_with(reply, *name_ids(glm, token))
        appended = renderer.extend(opened, other, SURE, [])
        assert glm.decode([*other, *appended]).strip() == f"Mira{token}\nSure?<|assistant|>"
    # The plain form of a base model: the end is none of the text of the next turn.
    glm.chat_template = None
    plain = TemplateRenderer(glm, ends=ends)
    appended = plain.extend(opened, end_with(reply, ends[1]), SURE, [])
    assert glm.decode(appended) == "\n\nUser: Sure?\n\nAssistant:"


def test_a_chat_renderer_goes_on_after_an_end_that_it_does_not_know(chat_tokenizer: PreTrainedTokenizerBase) -> None:
    (text,) = name_ids(chat_tokenizer, "<tool_response>")
    plain, renderer = ChatRenderer(chat_tokenizer), ChatRenderer(chat_tokenizer, ends=[text])
    assert renderer.stop_token_ids == (*plain.stop_token_ids, text)
    opened, reply = renderer.open(ASK, []), renderer.encode_reply(text_message("assistant", "Mira"))
    other = end_with(reply, text)
    assert renderer.parse(opened, other) == plain.parse(opened, reply) == text_message("assistant", "Mira")
    told = [text_message("tool", "a page", tool_call_id="call_0", name="search")]
    assert renderer.extend(opened, other, told, []).tolist() == plain.extend(opened, reply, told, []).tolist()


def test_tags_and_calls_stop_there_too(llama: PreTrainedTokenizerBase) -> None:
    (eom,) = name_ids(llama, "<|eom_id|>")
    for kind in (TagRenderer, CallsRenderer):
        plain, renderer = kind(llama), kind(llama, ends=[eom, eom])
        assert renderer.stop_token_ids == (*plain.stop_token_ids, eom)
        opened, reply = renderer.open(ASK, []), renderer.encode_reply(text_message("assistant", "<answer> a </answer>"))
        assert renderer.parse(opened, to_ids([*reply, eom])).text == renderer.parse(opened, reply).text
