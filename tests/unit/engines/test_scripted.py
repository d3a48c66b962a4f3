"""The scripted engine: replies in order, per session, cut at the limit, and an error when the script ends."""

from __future__ import annotations

import asyncio

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import EngineError
from turnwise.core.types import FinishReason, IntArray, SamplingParams, Session, text_message, to_ids
from turnwise.engines.scripted import ScriptedEngine
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer

PROMPT = to_ids([11, 12])
PARAMS = SamplingParams(max_tokens=50)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(["the author of Blue Lantern"] * 5, vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS)


def test_every_session_plays_the_script_from_its_start(tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = TagRenderer(tokenizer)
    engine = ScriptedEngine(
        renderer, ["<search> Blue Lantern </search>", text_message("assistant", "<answer> Mira </answer>")]
    )

    async def play(name: str) -> list[str]:
        return [
            tokenizer.decode((await engine.generate(PROMPT, PARAMS, session=Session(name, "0"))).token_ids)
            for _ in range(2)
        ]

    expected = ["<search> Blue Lantern</search>", "<answer> Mira</answer>"]
    assert asyncio.run(play("a")) == expected
    assert asyncio.run(play("b")) == expected
    with pytest.raises(EngineError, match="session 'a/0' asks for reply 3 of 2"):
        asyncio.run(engine.generate(PROMPT, PARAMS, session=Session("a", "0")))
    asyncio.run(engine.release(Session("a", "0")))
    asyncio.run(engine.release(Session("never seen", "0")))
    assert asyncio.run(play("a")) == expected
    assert [session.group for session, _, _ in engine.requests] == ["a", "a", "b", "b", "a", "a", "a"]


def test_a_reply_is_certain_and_cut_at_the_limit(tokenizer: PreTrainedTokenizerBase) -> None:
    engine = ScriptedEngine(TagRenderer(tokenizer), lambda prompt: f"<answer> {len(prompt)} </answer>")
    whole = asyncio.run(engine.generate(PROMPT, PARAMS, session=Session("a", "0")))
    assert tokenizer.decode(whole.token_ids) == "<answer> 2</answer>"
    assert whole.logprobs.tolist() == [0.0] * len(whole.token_ids)
    assert (whole.finish_reason, whole.version_first, whole.version_last) == (FinishReason.STOP, 0, 0)

    def generate(max_tokens: int) -> tuple[IntArray, FinishReason]:
        cut = asyncio.run(engine.generate(PROMPT, SamplingParams(max_tokens=max_tokens), session=Session("a", "0")))
        return cut.token_ids, cut.finish_reason

    exact, reason = generate(len(whole.token_ids))
    assert (exact.tolist(), reason) == (whole.token_ids.tolist(), FinishReason.STOP)
    short, reason = generate(2)
    assert (short.tolist(), reason) == (whole.token_ids[:2].tolist(), FinishReason.LENGTH)
