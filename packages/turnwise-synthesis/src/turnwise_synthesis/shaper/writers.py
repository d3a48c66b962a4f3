"""What reads a user's passages: any engine or API for which there is a `judging.text.Writer`."""

from __future__ import annotations

from turnwise.core.errors import DataError
from turnwise.core.types import text_message
from turnwise.judging.text import Writer
from turnwise_synthesis.shaper.extraction import Write


def by_writer(writer: Writer, *, seed: int = 0) -> Write:
    """Return the function that sends a prompt to a writer (`judging.engine.EngineWriter`, `judging.api.ApiWriter`) and
    returns its reply. It raises DataError for a refusal and for a reply that was cut, whose last line may be half a
    fact."""

    async def write(prompt: str) -> str:
        written = await writer.write(text_message("user", prompt), None, seed=seed)
        if written.refusal:
            raise DataError(f"the writer refused: {written.refusal[:200]}")
        if written.is_cut:
            raise DataError("the reply was cut; raise max_tokens")
        return written.text

    return write
