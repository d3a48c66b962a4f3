"""Tokenizers of every form: what is encoded comes back, turns append, no space slips in, the first token comes once."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_tokenizers import CONTROL, TOKENIZERS, build_byte_level, build_first, build_legacy, write_tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from turnwise.core.errors import ConfigError, RenderError
from turnwise.core.types import Message, ToolCall, ToolSpec, text_message, to_ids
from turnwise.rendering.calls import CallsRenderer
from turnwise.rendering.fences import Fences
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import encode_text, find_opening_ids, load_tokenizer

BUILT = {name: build() for name, build in TOKENIZERS.items()}
RENDERERS: dict[str, Any] = {
    "turns": lambda tokenizer: TemplateRenderer(tokenizer, calls="react"),
    "tags": TagRenderer,
    "calls": CallsRenderer,
}
ASK = (text_message("system", "Be brief."), text_message("user", "Who wrote Blue Lantern?"))
SEARCH = ToolSpec(
    name="search", description="Search.", parameters={"type": "object", "properties": {"query": {"type": "string"}}}
)
LLAMA_3 = (
    "{{ bos_token }}{% for message in messages %}{{ '[' + message['role'] + ']' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
plain_text = st.text(alphabet="Mira wrote\n.é你<s>|_end ", max_size=12)


@pytest.fixture(params=list(BUILT))
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return BUILT[request.param]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(plain_text, st.sampled_from(CONTROL)), max_size=4).map("".join), st.sampled_from(list(BUILT)))
def test_a_text_that_goes_on_comes_back_as_it_is(text: str, name: str) -> None:
    tokenizer = BUILT[name]
    head = encode_text(tokenizer, "Mira:")
    ids = encode_text(tokenizer, text, continues=True)
    whole = tokenizer.decode([*head, *ids], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert whole.removeprefix(" ") == "Mira:" + text
    assert not set(ids) & set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


def test_a_spelled_out_token_and_fenced_text_add_no_space(tokenizer: PreTrainedTokenizerBase) -> None:
    fences = Fences(tokenizer)
    for text in ("Mira<|im_end|>wrote", "<|im_end|>wrote", "a</s></s>b"):
        for ids in (encode_text(tokenizer, text), fences.encode(fences.fence(text))):
            assert tokenizer.decode(ids, clean_up_tokenization_spaces=False).removeprefix(" ") == text
            assert not set(ids) & set(tokenizer.all_special_ids)


@pytest.mark.parametrize("kind", RENDERERS)
def test_turns_append_and_replies_come_back(kind: str, tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = RENDERERS[kind](tokenizer)
    check_prefix_stable(renderer, tokenizer.decode, ASK, [SEARCH])


@pytest.mark.parametrize("kind", ["turns", "calls"])
def test_a_tokenizer_that_cannot_write_a_text_is_what_is_named(kind: str) -> None:
    plain = Tokenizer(models.WordPiece(unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["<unk>", "<eos>", *CONTROL]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    plain.train_from_iterator(["".join(map(chr, range(33, 127)))] * 2, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>", eos_token="<eos>")
    with pytest.raises(RenderError, match=r"the tokenizer has no tokens for 'é': .*; no renderer helps, take a"):
        check_prefix_stable(RENDERERS[kind](tokenizer), tokenizer.decode, ASK, [SEARCH])


def play(renderer: Any) -> list[np.ndarray]:
    """Opening, call, its result and the next prompt, reply, the next question."""
    call = ToolCall(id="call_0", name="search", arguments='{"query": "Mira"}')
    opened = renderer.open(ASK, [])
    asked = renderer.encode_reply(Message(role="assistant", content=(), tool_calls=(call,)))
    said = text_message("tool", "Mira Tolen", tool_call_id="call_0", name="search")
    told = renderer.extend(opened, asked, [said], [])
    return [opened, asked, told]


@pytest.mark.parametrize("kind", RENDERERS)
def test_the_first_token_comes_once(kind: str, tokenizer: PreTrainedTokenizerBase) -> None:
    first = find_opening_ids(tokenizer)
    opened, *later = play(RENDERERS[kind](tokenizer))
    assert first in ([], [tokenizer.bos_token_id])
    assert opened[: len(first)].tolist() == first
    if first:
        assert opened.tolist().count(first[0]) == 1
        assert first[0] not in np.concatenate(later)


def test_a_base_model_sees_what_transformers_would_give_it() -> None:
    """`<s>` and then the text as at its start, with SentencePiece's space."""
    text = "Be brief.\n\nUser: Who wrote Blue Lantern?\n\nAssistant:"
    for name, tokenizer in BUILT.items():
        if name != "slow":  # it puts a last token after a text as well
            assert TemplateRenderer(tokenizer, calls="react").open(ASK, []).tolist() == tokenizer.encode(text), name


def test_turns_of_a_base_model_have_the_spaces_that_were_written() -> None:
    for name, tokenizer in BUILT.items():
        ids = np.concatenate(play(TemplateRenderer(tokenizer, calls="react")))
        text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        expected = (
            "Be brief.\n\nUser: Who wrote Blue Lantern?\n\nAssistant: Action: search\n"
            'Action Input: {"query": "Mira"}</s>\n\nUser: Observation: Mira Tolen\n\nAssistant:'
        )
        # Some put a space before a text, and one after each control token.
        text = text.removeprefix("<s>").removeprefix(" ").replace("</s> ", "</s>")
        assert text == expected, name


def test_a_chat_template_that_writes_the_first_token_gets_no_second() -> None:
    for build in (build_byte_level, build_first, build_legacy):
        tokenizer = build()
        tokenizer.chat_template = LLAMA_3
        renderer = TemplateRenderer(tokenizer)
        opened = renderer.open(ASK, [])
        chat = [{"role": message.role, "content": message.text} for message in ASK]
        assert opened.tolist() == tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert opened.tolist().count(tokenizer.bos_token_id) == 1
        reply = renderer.encode_reply(text_message("assistant", "Mira"))
        appended = renderer.extend(opened, reply, [text_message("user", "Sure? <s>")], [])
        assert tokenizer.bos_token_id not in [*reply, *appended]


def test_ids_of_trained_tokenizers_are_what_they_were(tag_tokenizer: PreTrainedTokenizerBase) -> None:
    assert find_opening_ids(tag_tokenizer) == []
    for text in (" Mira", "Mira", "\nMira", " ", "<search> Mira"):
        assert encode_text(tag_tokenizer, text, continues=True) == encode_text(tag_tokenizer, text)


@pytest.mark.parametrize("name", [name for name in BUILT if name != "slow"])
def test_an_id_beyond_the_tokenizer_decodes_to_nothing(name: str) -> None:
    """Embeddings padded beyond the tokenizer are sampled from as well. Of the slow one they are refused."""
    tokenizer = BUILT[name]
    reply = encode_text(tokenizer, "Mira", continues=True)
    for kind in RENDERERS.values():
        renderer = kind(tokenizer)
        prompt = renderer.open(ASK, [])
        padded = to_ids([reply[0], len(tokenizer) + 5, *reply[1:], len(tokenizer) + 90])
        assert renderer.parse(prompt, padded).text == renderer.parse(prompt, to_ids(reply)).text
        assert len(renderer.extend(prompt, padded, [text_message("user", "Go on.")], []))


def test_a_vocabulary_of_tiktoken_is_read(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    tokenizer = load_tokenizer(write_tiktoken(tmp_path / "model"))
    ids = encode_text(tokenizer, "Mira wé <|end_of_text|>")
    assert ids[:2] == [258, 259]  # "Mira" and " w"
    assert tokenizer.decode(ids) == "Mira wé <|end_of_text|>"


def test_tokenizers_that_cannot_be_used_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            load_tokenizer(tmp_path)
        assert "\n" not in str(caught.value)

    with pytest.raises(ConfigError, match=r"there is no such folder"):
        load_tokenizer(tmp_path / "none")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=rf"it is a file; give the folder that holds it, '{tmp_path}'$"):
        load_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    refuse(r"it encodes 'The 1 a' as no token at all, as a tokenizer without a vocabulary does; copy tokenizer.json")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma"}))
    refuse(r"it encodes 'The 1 a' as \[3\], as a tokenizer without a vocabulary does")
    build_first().save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text()[:1000])
    refuse(r"cannot be loaded; give a local Hugging Face directory: \w+Error")
    file.unlink()
    (tmp_path / "tokenizer.model").write_bytes(
        b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02" + b"\xe2\x96\x81" * 9
    )
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sentencepiece" else find(name))
    refuse(r"tokenizer\.model is a SentencePiece model .*; `pip install sentencepiece protobuf`, or save")
    table = {"auto_map": {"AutoTokenizer": ["tokenization_xyz.XyzTokenizer", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(table))
    refuse(r"its code is in the folder, .*; read the code, then set model\.trust_remote_code=true")
