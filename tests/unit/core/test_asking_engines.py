"""Prompts with pictures reach engines that see, and no other."""

import asyncio

import pytest

from turnwise.core.asking import ask_engine
from turnwise.core.errors import EngineError
from turnwise.core.keys import Span
from turnwise.core.types import Completion, FinishReason, IntArray, Prompt, SamplingParams, Session, to_floats, to_ids
from turnwise.rollout.meter import MeteredEngine

PARAMS = SamplingParams(max_tokens=1)
SESSION = Session("g", "a")
TEXT = Prompt(token_ids=to_ids([3, 4]))
TWO_PICTURES = Prompt(
    token_ids=to_ids([3, 9, 9, 5, 9, 9]),
    images=(
        Span(start=1, length=2, digest="aa"),
        Span(start=4, length=1, digest="bb"),
        Span(start=5, length=1, digest="bb", offset=1),
    ),
)
"""The second picture is cut into two pieces."""


def reply(token: int) -> Completion:
    return Completion(
        token_ids=to_ids([token]),
        logprobs=to_floats([0.0]),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
    )


class Reader:
    """Takes text only and replies with the number of tokens."""

    version = 0

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        return reply(len(prompt_ids))

    async def release(self, session: Session) -> None: ...

    async def close(self) -> None: ...


class Viewer(Reader):
    """Replies with 100 times the number of spans where there are pictures."""

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        return reply(100 * len(prompt.images))


def ask(engine: Reader | MeteredEngine, prompt: Prompt) -> list[int]:
    return asyncio.run(ask_engine(engine, prompt, PARAMS, SESSION)).token_ids.tolist()


@pytest.mark.parametrize("metered", [False, True])
def test_text_is_generated_and_pictures_are_seen(metered: bool) -> None:
    reader, viewer = (MeteredEngine(each) if metered else each for each in (Reader(), Viewer()))
    assert ask(reader, TEXT) == ask(viewer, TEXT) == [2]
    assert ask(viewer, TWO_PICTURES) == [300]


@pytest.mark.parametrize("metered", [False, True])
def test_an_engine_of_text_is_given_no_picture(metered: bool) -> None:
    reader = MeteredEngine(Reader()) if metered else Reader()
    with pytest.raises(EngineError, match=r"^the prompt of session g/a shows 2 pictures and Reader takes text only"):
        ask(reader, TWO_PICTURES)


def test_a_refused_picture_ends_its_request() -> None:
    metered = MeteredEngine(Reader())
    with pytest.raises(EngineError):
        ask(metered, TWO_PICTURES)
    assert (metered.open_sessions.total(), metered.num_replies) == (0, 1)
