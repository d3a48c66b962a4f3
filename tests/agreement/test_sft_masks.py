"""Ids and loss masks of conversations against those of TRL's supervised trainer: the same ids, and the same trained
tokens but for what stands around a reply inside TRL's marks of what is generated.

A reply as it is sampled ends with its end token. Templates' marks and completions take in the line break after that
token, which no model samples; the first token of a reply is the same everywhere.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from agreement_golden import FOLDER
from chat_families import FAMILIES, SAMPLE, build_tokenizer

from turnwise.batching.samples import to_samples
from turnwise.core.protocols import Renderer
from turnwise.core.types import TrajectoryId
from turnwise.exchange.chat_rows import read_chat_row
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout.recorded import record_conversation

CASES: list[dict[str, Any]] = json.loads((FOLDER / "sft_masks.json").read_text(encoding="utf-8"))["cases"]
TRAILS = {
    "qwen3": {"messages": "\n", "prompt": "\n"},
    "Llama 3": {"messages": "", "prompt": ""},
    "Gemma 2": {"messages": "\n", "prompt": "\n"},
    "ChatML (Yi, Dolphin)": {"messages": "", "prompt": "\n"},
    "Mistral Nemo": {"messages": "", "prompt": ""},
    "Zephyr (TinyLlama)": {"messages": "", "prompt": "\n"},
}
"""What TRL trains behind the end token of a reply."""


@cache
def make_renderer(family: str) -> tuple[Any, Renderer]:
    """The tokenizer of the case with the family's own template, and the renderer that a run would have."""
    if family == "qwen3":
        tokenizer = train_tokenizer(SAMPLE, vocab_size=400, special_tokens=QWEN3_SPECIAL_TOKENS)
        return tokenizer, ChatRenderer(tokenizer, name="qwen3")
    tokenizer = build_tokenizer(next(each for each in FAMILIES if each.name == family))
    return tokenizer, TemplateRenderer(tokenizer)


def list_runs(ids: list[int], mask: list[int]) -> list[tuple[int, int]]:
    """Where trained tokens begin and end."""
    edges = np.flatnonzero(np.diff([0, *mask, 0]))
    return [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_ids_are_those_of_trl_and_replies_train_up_to_their_end(number: int) -> None:
    case = CASES[number]
    tokenizer, renderer = make_renderer(case["family"])
    row = read_chat_row(case["row"])
    assert row is not None
    [sample] = to_samples(
        record_conversation(
            row.messages,
            row.trains,
            row.tools,
            renderer,
            num_opening=row.num_opening,
            trajectory_id=TrajectoryId(draw=0, member=0),
        )
    )
    assert sample.token_ids.tolist() == case["ids"][: len(sample.token_ids)]
    trail = TRAILS[case["family"]]["prompt" if "prompt" in case["row"] else "messages"]
    ours = list_runs(sample.token_ids.tolist(), sample.loss_mask.astype(int).tolist())
    theirs = list_runs(case["ids"], case["mask"])
    assert [start for start, _ in ours] == [start for start, _ in theirs]
    ends = zip(ours, theirs, strict=True)
    assert [tokenizer.decode(case["ids"][own:other]) for (_, own), (_, other) in ends] == [trail] * len(ours)
    assert all(case["ids"][end - 1] in renderer.stop_token_ids for _, end in ours)


def test_several_families_turns_and_calls_are_compared() -> None:
    assert {case["family"] for case in CASES} == TRAILS.keys()
    assert sum("prompt" in case["row"] for case in CASES) >= 10
    assert max(len(list_runs(case["ids"], case["mask"])) for case in CASES) == 3
    assert any("tools" in case["row"] for case in CASES)
