"""The recipe's renderer: chosen, built and described, and the tokenizer it writes with."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from transformers import PreTrainedTokenizerBase

from turnwise.config.catalog import find_model
from turnwise.config.run import RunConfig
from turnwise.core.errors import EnvironmentFault, boundary
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.types import ToolSpec
from turnwise.environments.mixture import list_families
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.choose import RendererChoice, choose_renderer, resolve_calls
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, load_tokenizer, train_tokenizer
from turnwise.runs.openings import open_task, take_first


def build_tokenizer(config: RunConfig, family: EnvironmentFamily, choice: RendererChoice) -> PreTrainedTokenizerBase:
    """A tokenizer trained on the environment's texts, with the special tokens of a renderer."""
    formats = {
        "tags": FORMATS[choice.format].special_tokens,
        "calls": CALLS_FORMAT.special_tokens,
        "chat": QWEN3_SPECIAL_TOKENS,
        "template": QWEN3_SPECIAL_TOKENS[:1],
    }
    with boundary(EnvironmentFault, f"texts of {type(family).__name__} for the tokenizer"):
        texts = family.texts(config.tokenizer.num_texts)
    return train_tokenizer(texts, vocab_size=config.tokenizer.vocab_size, special_tokens=formats[choice.kind])


def load_own_tokenizer(config: RunConfig) -> PreTrainedTokenizerBase | None:
    """The tokenizer at `tokenizer.path`, or of the model; None where the recipe trains one."""
    path = config.tokenizer.path or config.model.path
    return load_tokenizer(find_model(path)) if path else None


def resolve_renderer(
    config: RunConfig, family: EnvironmentFamily, tokenizer: PreTrainedTokenizerBase | None
) -> RendererChoice:
    """The recipe's renderer, with `renderer.kind = "auto"` decided. `tokenizer` None: one will be trained.

    A model from random weights is decided by its tools alone, so that its checkpoints get the same renderer.
    """
    kind, calls = config.renderer.kind, config.renderer.calls
    if kind == "auto":
        scratch = not config.model.path or tokenizer is None
        tools = list_tools(family) if scratch else ()
        return choose_renderer(tools, None if scratch else tokenizer, calls=calls)
    return RendererChoice(
        kind=kind,
        format=config.renderer.format,
        name=config.renderer.name,
        calls=resolve_calls(calls, tokenizer),
    )


def build_renderer(config: RunConfig, choice: RendererChoice, tokenizer: PreTrainedTokenizerBase) -> Renderer:
    """The renderer that was chosen. Raises ConfigError or RenderError when it does not fit the tokenizer."""
    most = config.renderer.max_observation_tokens
    if choice.kind == "tags":
        return TagRenderer(tokenizer, FORMATS[choice.format], max_observation_tokens=most)
    if choice.kind == "calls":
        return CallsRenderer(tokenizer, max_observation_tokens=most)
    if choice.kind == "template":
        return TemplateRenderer(tokenizer, calls=choice.calls, max_observation_tokens=most)
    return ChatRenderer(tokenizer, name=choice.name)


def describe_renderer(choice: RendererChoice, renderer: Renderer) -> str:
    """One line for people: what was chosen and why, and what to know of the chat template; empty if nothing is."""
    notes = renderer.notes if isinstance(renderer, TemplateRenderer) else ()
    return "; ".join(text for text in (choice.why, *notes) if text)


def list_tools(family: EnvironmentFamily) -> list[ToolSpec]:
    """The tools of every family's first training task. Runs in a thread of its own, since a loop may be running.

    Raises as `openings.open_task` and `openings.take_task` do.
    """

    async def read() -> list[ToolSpec]:
        members = list_families(family)
        openings = await asyncio.gather(*(open_task(member, take_first(member)) for member in members))
        return [tool for opening in openings for tool in opening.tools]

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, read()).result()
