"""Pictures become markers, markers become places, and nothing else does."""

from collections.abc import Mapping
from typing import Any

import pytest
from chat_families import FAMILIES, build_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from seeing_layouts import HeldPictures, PlainLayout, paint, show
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.prompts import extend_prompt, open_prompt
from turnwise.core.types import text_message, to_ids
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.images import PictureRenderer
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import train_tokenizer

TEXTS = ["Read the marked cell of the page now", "zoom row column answer"]


INNER: Mapping[str, Any] = {"template": TemplateRenderer, "calls": CallsRenderer, "tags": TagRenderer}


def build_kind(kind: str) -> PreTrainedTokenizerBase:
    """A tokenizer for a renderer, with a token <image>."""
    if kind == "template":
        tokenizer = build_tokenizer(next(family for family in FAMILIES if family.name == "SmolLM2"))
        tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
        return tokenizer
    special = CALLS_FORMAT.special_tokens if kind == "calls" else FORMATS["search_r1"].special_tokens
    return train_tokenizer(TEXTS, vocab_size=400, special_tokens=[*special, "<image>"])


def build(kind: str) -> tuple[PictureRenderer, PlainLayout]:
    """A renderer of each kind that shows pictures."""
    tokenizer = build_kind(kind)
    layout = PlainLayout(int(tokenizer.convert_tokens_to_ids("<image>")))
    return PictureRenderer(INNER[kind](tokenizer, marker=layout.marker), layout, HeldPictures()), layout


KINDS = ["tags", "calls", "template"]


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_where_the_pictures_were(kind: str) -> None:
    renderer, layout = build(kind)
    small, wide = paint(1), paint(2, width=8)
    prompt = renderer.open_prompt([show("user", "Read ", small, " and ", wide, " now <image>")], ())
    # Two places for 4 pixels, four for 8; the marker that the user spelled out is text.
    assert [(span.length, span.digest) for span in prompt.images] == [(2, small.digest), (4, wide.digest)]
    assert (prompt.token_ids == layout.marker_id).sum() == 6
    for span in prompt.images:
        assert set(prompt.token_ids[span.start : span.start + span.length].tolist()) == {layout.marker_id}
    assert prompt.images[1].start > prompt.images[0].start + 2  # " and " lies between


@pytest.mark.parametrize("kind", KINDS)
def test_an_observation_appends_its_picture(kind: str) -> None:
    renderer, layout = build(kind)
    opened = renderer.open_prompt([text_message("user", "Read the page")], ())
    reply = renderer.encode_reply(text_message("assistant", "<answer> now </answer>"))
    appended = renderer.extend_prompt(opened.token_ids, reply, [show("tool", paint(3), call="call_1")], ())
    (span,) = appended.images
    assert (appended.token_ids == layout.marker_id).nonzero()[0].tolist() == [span.start, span.start + 1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_without_pictures_have_the_same_tokens(kind: str) -> None:
    renderer, _ = build(kind)
    messages = [text_message("user", "Read the page")]
    assert renderer.open_prompt(messages, ()).token_ids.tolist() == renderer.inner.open(messages, ()).tolist()
    assert renderer.open_prompt(messages, ()).images == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_renderer_without_a_marker_refuses(kind: str) -> None:
    plain = INNER[kind](build_kind(kind))
    with pytest.raises(RenderError, match="the model reads text only"):
        open_prompt(plain, [show("user", "Read ", paint(1))], ())
    with pytest.raises(RenderError, match="the model reads text only"):
        extend_prompt(plain, to_ids([5]), to_ids([6]), [show("tool", paint(1))], ())
    with pytest.raises(RenderError, match="which this model or renderer cannot read"):
        plain.open([show("user", "Read ", paint(1))], ())


def test_a_reply_has_no_picture() -> None:
    renderer, _ = build("tags")
    with pytest.raises(RenderError, match="a reply contains a picture"):
        renderer.encode_reply(show("assistant", paint(1)))


def test_a_long_observation_keeps_its_picture() -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=400, special_tokens=[*FORMATS["search_r1"].special_tokens, "<image>"])
    layout = PlainLayout(int(tokenizer.convert_tokens_to_ids("<image>")))
    inner = TagRenderer(tokenizer, marker=layout.marker, max_observation_tokens=5)
    renderer = PictureRenderer(inner, layout, HeldPictures())
    long = show("tool", "zoom " * 50, paint(1), "row " * 50, call="call_1")
    appended = renderer.extend_prompt(to_ids([5]), to_ids([6]), [long], ())
    # <information>, three tokens of text, two places, </information>
    assert len(appended.token_ids) == 7
    assert len(appended.images) == 1


def test_a_template_that_drops_pictures_is_named() -> None:
    tokenizer = build_tokenizer(next(family for family in FAMILIES if family.name == "SmolLM2"))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    layout = PlainLayout(int(tokenizer.convert_tokens_to_ids("<image>")))
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    renderer = PictureRenderer(TemplateRenderer(tokenizer, marker=layout.marker), layout, HeldPictures())
    with pytest.raises(RenderError, match="1 pictures were rendered as 0 markers"):
        renderer.open_prompt([show("user", "Read ", paint(1))], ())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=12), st.integers(0, 255)), min_size=1, max_size=5))
def test_any_mix_of_texts_and_pictures_has_one_span_each(parts: list[str | int]) -> None:
    renderer, layout = build_once()
    content = [part if isinstance(part, str) else paint(part) for part in ["Read", *parts]]
    prompt = renderer.open_prompt([show("user", *content)], ())
    pictures = [part for part in content if not isinstance(part, str)]
    assert [span.digest for span in prompt.images] == [part.digest for part in pictures]
    marked = (prompt.token_ids == layout.marker_id).nonzero()[0].tolist()
    assert marked == [at for span in prompt.images for at in range(span.start, span.start + span.length)]


_BUILT: list[tuple[PictureRenderer, PlainLayout]] = []


def build_once() -> tuple[PictureRenderer, PlainLayout]:
    """The renderer of lines of calls, built once."""
    if not _BUILT:
        _BUILT.append(build("calls"))
    return _BUILT[0]
