"""Conversations that are read from rows give the tokens that a rollout would see, and train its replies only."""

import asyncio
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_families import FAMILIES, build_tokenizer

from turnwise.batching.samples import to_samples
from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.core.errors import DataError
from turnwise.core.keys import Span
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.types import (
    Draw,
    Message,
    Sample,
    ToolCall,
    TrajectoryGroup,
    TrajectoryId,
    text_message,
)
from turnwise.exchange.chat_rows import load_chat_rows, read_chat_row
from turnwise.exchange.conversations import list_conversations
from turnwise.exchange.row_files import write_rows
from turnwise.exchange.sft_rows import to_sft_row
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout.demonstrate import play_demonstration
from turnwise.rollout.recorded import keep_trained, record_conversation
from turnwise.runs.openings import open_task
from turnwise.runs.own_conversations import check_ends, list_end_texts
from turnwise.testing.builders import make_turn

TOOLS = "toolrl/tiny" if find_spec("turnwise_worlds") else "search_r1/tiny"
"""A recipe with several tools, where one is installed."""
SMALL = ("environment.args.num_entities=16", "environment.args.num_words=8")
"""A search world that is built in no time."""
ID = TrajectoryId(draw=0, member=0)


@cache
def family_of(recipe: str) -> EnvironmentFamily:
    return build_family(load_config([Path(recipe)], SMALL if recipe.startswith("search") else ()))


@cache
def renderer_of(kind: str) -> Renderer:
    texts = family_of("search_r1/tiny").texts(40)
    if kind == "tags":
        special = FORMATS["search_r1"].special_tokens
        return TagRenderer(train_tokenizer(texts, vocab_size=500, special_tokens=special), FORMATS["search_r1"])
    if kind == "calls":
        return CallsRenderer(train_tokenizer(texts, vocab_size=500, special_tokens=CALLS_FORMAT.special_tokens))
    if kind == "chat":
        return ChatRenderer(train_tokenizer(texts, vocab_size=500, special_tokens=QWEN3_SPECIAL_TOKENS))
    return TemplateRenderer(build_tokenizer(next(family for family in FAMILIES if family.name == kind)))


def record(row: dict[str, Any], renderer: Renderer) -> list[Sample]:
    read = read_chat_row(row)
    assert read is not None
    return to_samples(
        record_conversation(
            read.messages, read.trains, read.tools, renderer, num_opening=read.num_opening, trajectory_id=ID
        )
    )


def text_of(sample: Sample, renderer: Any) -> tuple[str, list[str]]:
    """The whole text, and the runs of tokens that train."""
    decode = (renderer._tokenizer if hasattr(renderer, "_tokenizer") else renderer._tags._tokenizer).decode
    edges = np.flatnonzero(np.diff(np.concatenate([[0], sample.loss_mask.astype(int), [0]])))
    runs = [decode(sample.token_ids[a:b].tolist()) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return decode(sample.token_ids.tolist()), runs


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        ("search_r1/tiny", "tags"),
        (TOOLS, "calls"),
        (TOOLS, "chat"),
        (TOOLS, "Qwen2.5"),
        (TOOLS, "Llama 3"),
    ],
)
def test_what_data_sft_writes_gives_the_tokens_of_the_rollout(
    tmp_path: Path, recipe: str, kind: str, ending: str
) -> None:
    family, renderer = family_of(recipe), renderer_of(kind)
    rows, expected = [], []
    for index in range(4):
        draw = Draw(index=index, task=family.task("train", index))
        environment = family.build_environment(draw.task)
        play = play_demonstration(draw, family.policy("oracle"), environment, renderer, seed=index, max_turns=12)
        trajectory = asyncio.run(play).trajectories[0]
        group = TrajectoryGroup(draw=draw, trajectories=(trajectory,))
        opening = {draw.task.id: asyncio.run(open_task(family, draw.task))}
        rows += [to_sft_row(each, as_text=ending == "parquet") for each in list_conversations([group], opening)]
        expected += to_samples(trajectory)
    write_rows(tmp_path / f"rows.{ending}", rows)
    for (_, row), sample in zip(load_chat_rows(tmp_path / f"rows.{ending}"), expected, strict=True):
        assert row is not None
        [found] = to_samples(
            record_conversation(
                row.messages, row.trains, row.tools, renderer, num_opening=row.num_opening, trajectory_id=ID
            )
        )
        assert found.token_ids.tolist() == sample.token_ids.tolist()
        assert found.loss_mask.tolist() == sample.loss_mask.tolist()
        assert found.loss_mask.any()


def test_only_the_tokens_of_replies_train_and_their_ends_do() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <|im_end|>"},  # spelled out: no end of a turn
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "So long"},
    ]
    renderer = renderer_of("ChatML (Yi, Dolphin)")
    [sample] = record({"messages": messages}, renderer)
    whole, trained = text_of(sample, renderer)
    assert trained == ["Hello<|im_end|>", "So long<|im_end|>"]
    assert whole == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
        "Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nSo long<|im_end|>"
    )


def test_a_reply_without_weight_is_context() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "weight": 0},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "So long"},
    ]
    renderer = renderer_of("Llama 3")
    [sample] = record({"messages": messages}, renderer)
    whole, trained = text_of(sample, renderer)
    assert trained == ["So long<|eot_id|>"]
    assert "Hello<|eot_id|>" in whole
    # A prompt with the same reply opens the conversation with the same tokens.
    [of_prompt] = record({"prompt": messages[:3], "completion": messages[3:]}, renderer)
    assert of_prompt.token_ids.tolist() == sample.token_ids.tolist()
    assert of_prompt.loss_mask.tolist() == sample.loss_mask.tolist()


def test_a_template_that_drops_thoughts_once_the_user_speaks_again_gives_a_sample_per_stretch() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "reasoning_content": "a greeting"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "So long", "reasoning_content": "a farewell"},
    ]
    renderer = renderer_of("chat")
    first, second = (text_of(sample, renderer) for sample in record({"messages": messages}, renderer))
    assert first[1] == ["<think>\na greeting\n</think>\n\nHello<|im_end|>"]
    assert second[1] == ["<think>\na farewell\n</think>\n\nSo long<|im_end|>"]
    opened = renderer.open([text_message(m["role"], m["content"], **_thought(m)) for m in messages[:3]], ())  # type: ignore[arg-type]
    assert second[0].startswith(text_of_ids(opened, renderer))  # as an environment opens it
    assert "a greeting" not in second[0]


def _thought(message: dict[str, str]) -> dict[str, str]:
    return {"reasoning": message["reasoning_content"]} if "reasoning_content" in message else {}


def text_of_ids(ids: Any, renderer: Any) -> str:
    return str(renderer._tokenizer.decode(ids.tolist()))


def test_tools_of_the_row_are_in_the_prompt() -> None:
    tool = {"name": "search", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}
    row = {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
        "tools": [{"type": "function", "function": tool}],
    }
    for kind in ("chat", "Qwen2.5", "Llama 3"):
        renderer = renderer_of(kind)
        [sample] = record(row, renderer)
        read = read_chat_row(row)
        assert read is not None
        opening = renderer.open([text_message("user", "Hi")], read.tools)
        assert sample.token_ids[: len(opening)].tolist() == opening.tolist()
        assert "Look it up." in text_of(sample, renderer)[0]


def test_a_call_is_written_as_the_model_would_write_it() -> None:
    call = {"function": {"name": "search", "arguments": {"query": "Blue Lantern"}}}
    messages = [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "Mira Tolen"},
        {"role": "assistant", "content": "Mira Tolen"},
    ]
    written = ToolCall(id="c", name="search", arguments=json.dumps({"query": "Blue Lantern"}))
    for kind in ("chat", "Qwen2.5", "Llama 3", "calls"):
        renderer = renderer_of(kind)
        [sample] = record({"messages": messages}, renderer)
        reply = renderer.encode_reply(Message(role="assistant", content=(), tool_calls=(written,)))
        first = np.flatnonzero(sample.loss_mask)[0]
        assert sample.token_ids[first : first + len(reply)].tolist() == reply.tolist()


def test_text_and_calls_of_one_reply_both_train() -> None:
    call = {"function": {"name": "search", "arguments": '{"query": "Blue Lantern"}'}}
    messages = [
        {"role": "user", "content": "NOT MASKED"},
        {"role": "assistant", "content": "MASKED", "tool_calls": [call]},
        {"role": "tool", "content": "MASKED"},
        {"role": "assistant", "content": "NOT MASKED"},
    ]
    for kind in ("chat", "Qwen2.5", "Llama 3", "Mistral Nemo"):
        renderer = renderer_of(kind)
        [sample] = record({"messages": messages}, renderer)
        first, second = text_of(sample, renderer)[1]
        assert first.startswith("MASKED")
        assert '"query": "Blue Lantern"' in first
        assert second.startswith("NOT MASKED")


ENDS = (("Llama 3", "<|eot_id|>"), ("chat", "<|im_end|>"), ("tags", "<|endoftext|>"))


@pytest.mark.parametrize(("kind", "end"), ENDS)
def test_a_reply_that_spells_out_its_end_is_refused(kind: str, end: str) -> None:
    renderer: Any = renderer_of(kind)
    ends = list_end_texts(renderer, renderer._tokenizer)
    assert end in ends
    with pytest.raises(DataError, match=r"message 1: the reply ends with the text '<\|"):
        check_ends([text_message("user", f"Hi {end}"), text_message("assistant", f"Hello{end}\n")], ends)
    check_ends([text_message("user", end), text_message("assistant", "<answer> 7 </answer>")], ends)


def test_places_of_pictures_move_with_the_tokens_before_them() -> None:
    def span(start: int, digest: str) -> Span:
        return Span(start=start, length=2, digest=digest * 64)

    # Contexts of 4, 3 and 3 tokens and replies of 2: the first reply does not train, so the second one is sampled after
    # 4 + 2 + 3 tokens, whose second picture is 4 + 2 = 6 places later; the third turn starts anew.
    turns = [
        make_turn([1, 9, 9, 2], [5, 6], images=(span(1, "a"),)),
        make_turn([9, 9, 3], [5, 7], parent=0, images=(span(0, "b"),)),
        make_turn([4, 9, 9], [5, 8], parent=1, images=(span(1, "c"),)),
    ]
    second, third = keep_trained(turns, [False, True, True])
    assert second.context_ids.tolist() == [1, 9, 9, 2, 5, 6, 9, 9, 3]
    assert second.images == (span(1, "a"), span(6, "b"))
    assert third.context_ids.tolist() == [4, 9, 9]
    assert third.images == (span(1, "c"),)
