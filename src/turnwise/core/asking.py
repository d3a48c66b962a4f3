"""Asks an engine for a reply to a prompt that may show pictures."""

from __future__ import annotations

from turnwise.core.errors import EngineError
from turnwise.core.protocols import Engine, SeeingEngine
from turnwise.core.types import Completion, Prompt, SamplingParams, Session


async def ask_engine(engine: Engine, prompt: Prompt, params: SamplingParams, session: Session) -> Completion:
    """Sample one completion of `prompt`: `Engine.generate` of text, `SeeingEngine.generate_seeing` of pictures.

    Raises EngineError too where the prompt shows pictures and the engine takes text only.
    """
    if not prompt.images:
        return await engine.generate(prompt.token_ids, params, session=session)
    if isinstance(engine, SeeingEngine):
        return await engine.generate_seeing(prompt, params, session=session)
    raise EngineError(
        f"the prompt of session {session} shows {count_images(prompt)} and {type(engine).__name__} takes text only; "
        "set engine.kind='paged', or let the environment describe what is seen in text"
    )


def count_images(prompt: Prompt) -> str:
    """Say how many pictures a prompt shows; the pieces of one that is cut into tiles are one."""
    count = sum(span.offset == 0 for span in prompt.images)
    return f"{count} picture{'s' if count != 1 else ''}"
