"""The recipe's renderer: chosen, built and described, and the tokenizer it writes with."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from transformers import PreTrainedTokenizerBase

from turnwise.config.catalog import find_model
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily, Opening, Renderer
from turnwise.core.types import ToolSpec
from turnwise.environments.mixture import list_families
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.choose import RendererChoice, choose_renderer, resolve_calls
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, load_tokenizer, train_tokenizer
from turnwise.rollout.loop import close_environment

OPENING_TIMEOUT_S = 120.0
"""Deadline of the environments whose tools decide the renderer."""


def build_tokenizer(config: RunConfig, family: EnvironmentFamily, choice: RendererChoice) -> PreTrainedTokenizerBase:
    """A tokenizer trained on the environment's texts, with the special tokens of a renderer."""
    formats = {
        "tags": FORMATS[choice.format].special_tokens,
        "calls": CALLS_FORMAT.special_tokens,
        "chat": QWEN3_SPECIAL_TOKENS,
        "template": QWEN3_SPECIAL_TOKENS[:1],
    }
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

    Raises ConfigError when an environment does not open within its deadline.
    """

    async def read() -> list[ToolSpec]:
        openings = [await open_first(member) for member in list_families(family)]
        return [tool for opening in openings for tool in opening.tools]

    async def read_in_time() -> list[ToolSpec]:
        return await asyncio.wait_for(read(), OPENING_TIMEOUT_S)

    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(asyncio.run, read_in_time()).result()
        except TimeoutError:
            raise ConfigError(
                f"the environment did not open its first task within {OPENING_TIMEOUT_S:g} s; speed up its reset, or "
                "set renderer.kind"
            ) from None


async def open_first(family: EnvironmentFamily) -> Opening:
    """How the first training task opens."""
    task = family.task("train", 0)
    environment = family.build_environment(task)
    try:
        return await environment.reset(task, seed=0)
    finally:
        await close_environment(environment)
