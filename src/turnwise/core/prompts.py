"""Opens and extends prompts by any renderer; a picture that the renderer cannot read is refused."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.errors import RenderError
from turnwise.core.messages import list_images
from turnwise.core.protocols import Renderer, SeeingRenderer
from turnwise.core.types import IntArray, Message, Prompt, ToolSpec


def open_prompt(renderer: Renderer, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Prompt:
    """Return the prompt that starts a conversation. Raises RenderError if the messages cannot be rendered."""
    if isinstance(renderer, SeeingRenderer):
        return renderer.open_prompt(messages, tools)
    _refuse_pictures(messages)
    return Prompt(token_ids=renderer.open(messages, tools))


def extend_prompt(
    renderer: Renderer,
    prompt_ids: IntArray,
    completion_ids: IntArray,
    observations: Sequence[Message],
    tools: Sequence[ToolSpec],
) -> Prompt:
    """Return what to append after a reply; spans count from its first token. Raises RenderError if the observations
    cannot be appended."""
    if isinstance(renderer, SeeingRenderer):
        return renderer.extend_prompt(prompt_ids, completion_ids, observations, tools)
    _refuse_pictures(observations)
    return Prompt(token_ids=renderer.extend(prompt_ids, completion_ids, observations, tools))


def _refuse_pictures(messages: Sequence[Message]) -> None:
    for part in list_images(messages):
        name = f" {part.label!r}" if part.label else ""
        raise RenderError(
            f"a message shows a picture{name} of {part.width}x{part.height}, but the model reads text only; use a "
            "vision-language model, or describe the picture in text"
        )
