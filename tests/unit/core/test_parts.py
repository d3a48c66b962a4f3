"""Parts of messages, what identifies content, and the keys by which prompts share what was computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnwise.batching.layout import count_shared, lay_prefix_tree
from turnwise.core.keys import Span, to_keys
from turnwise.core.messages import ImagePart, Message, TextPart, identify, text_message, to_plain_text
from turnwise.core.types import Task, to_ids
from turnwise.engines.paged.prefix_cache import PrefixCache
from turnwise.environments.registry import load_family
from turnwise.testing.notes import NotesFamily

ids = st.lists(st.integers(0, 200_000), min_size=1, max_size=40)
digests = st.text("0123456789abcdef", min_size=4, max_size=4)


def draw(digest: str) -> ImagePart:
    return ImagePart(digest=digest, width=1, height=1)


def ask(*content: Any) -> Message:
    return Message(role="user", content=content)


def test_the_identity_of_a_task_of_text_is_what_it_was():
    """Computed by the code that hashed `[environment, [[role, text], ...], payload]`."""
    whole, parts = text_message("user", "Who wrote it?"), ask(TextPart(text="Who "), TextPart(text="wrote it?"))
    odd = (
        text_message("system", ""),
        ask(),
        text_message("tool", "größe 語 🙂\n", name="f", tool_call_id="c"),
    )
    payload = {"b": [1, 2.5, None, {"k": "v"}], "a": True}
    assert Task(environment="search_qa", prompt=(), payload={}).id == "62c7e0a880c58b92"
    assert Task(environment="search_qa", prompt=(whole,), payload={"answer": "Ann"}).id == "01ca61274edff963"
    assert Task(environment="search_qa", prompt=(parts,), payload={"answer": "Ann"}).id == "01ca61274edff963"
    assert Task(environment="x", prompt=odd, payload=payload).id == "089f5198325908ec"
    assert NotesFamily().task("heldout", 0).id == "60e5eae6e9a8eabb"
    assert load_family("countdown", {}).task("train", 3).id == "3abc40b0c0dd4e58"


@given(st.lists(st.text()))
def test_text_is_identified_by_the_text_however_it_is_cut(texts: list[str]):
    assert identify([TextPart(text=text) for text in texts]) == "".join(texts)


def test_a_part_of_other_content_makes_another_task():
    def make(*content: Any) -> str:
        return Task(environment="x", prompt=(ask(*content),), payload={}).id

    text = TextPart(text="What is it?")
    tasks = [
        make(text),
        make(draw("a"), text),
        make(draw("b"), text),
        make(text, draw("a")),
        make(draw("a")),
    ]
    assert len(set(tasks)) == len(tasks)
    assert make(draw("a"), text) == tasks[1]


@given(ids)
def test_keys_of_text_are_its_ids(tokens: list[int]):
    array = to_ids(tokens)
    assert to_keys(tokens) is tokens
    assert to_keys(array) is array


@given(ids, ids, st.integers(1, 9), digests, digests)
def test_prompts_with_equal_ids_and_other_parts_share_what_comes_before_the_part(
    before: list[int], after: list[int], length: int, one: str, other: str
):
    prompt, start = [*before, *[7] * length, *after], len(before)
    first, second = (to_keys(prompt, [Span(start=start, length=length, digest=digest)]) for digest in (one, other))
    same = one == other
    # Pages: of two tokens each, and a last short one.
    cache = PrefixCache(num_pages=200, page_size=2)
    lease, _ = cache.acquire(first)
    assert cache.extend(lease, len(first))
    cache.register(lease, first, len(first))
    assert cache.acquire(second)[0].num_reused == (len(prompt) - 1 if same else start)
    # The trainer's tree: one place for each different beginning.
    rows = [np.array(keys, np.int64) for keys in (first, second)]
    assert count_shared(*rows) == (len(prompt) if same else start)
    layout = lay_prefix_tree(rows)
    assert len(layout.positions) == (len(prompt) if same else 2 * len(prompt) - start)
    assert [layout.token_ids[path].tolist() for path in layout.paths] == [first, second]


@given(ids, st.integers(1, 9), digests)
def test_a_part_shares_nothing_with_text_of_its_placeholders_or_with_its_content_at_another_length(
    before: list[int], length: int, digest: str
):
    prompt = [*before, *[7] * (length + 1)]
    keys = to_keys(prompt, [Span(start=len(before), length=length, digest=digest)])
    longer = to_keys(prompt, [Span(start=len(before), length=length + 1, digest=digest)])
    assert count_shared(np.array(keys), np.array(prompt)) == len(before)
    assert count_shared(np.array(keys), np.array(longer)) == len(before)
    assert to_keys(to_ids(prompt), [Span(start=len(before), length=length, digest=digest)]).tolist() == keys


def test_a_text_names_every_picture_in_its_place() -> None:
    part = ImagePart(digest="0123456789abcdef" * 4, width=64, height=48, label="no part of the content")
    message = Message(role="tool", content=(TextPart(text="before "), part, TextPart(text=" after"), part))
    assert to_plain_text(message) == "before [picture 64x48 0123456789ab] after[picture 64x48 0123456789ab]"
    assert message.text == "before  after"
