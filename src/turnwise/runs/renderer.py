"""The recipe's renderer: chosen, built and described, and the tokenizer it writes with."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from turnwise.config.catalog import find_model
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, EnvironmentFault, boundary
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.types import ToolSpec
from turnwise.environments.mixture import list_families
from turnwise.models.model_folder import check_folder
from turnwise.models.vision.table import list_picture_tokens
from turnwise.pictures.store import PictureStore
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.choose import RendererChoice, choose_renderer, resolve_calls
from turnwise.rendering.ends import read_end_ids
from turnwise.rendering.images import PictureRenderer, find_text_renderer
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, load_tokenizer, train_tokenizer
from turnwise.runs.layouts import build_layout, sees_pictures
from turnwise.runs.openings import open_first
from turnwise.store.checkpoint_folder import verify_checkpoint, whole_folder


def build_tokenizer(config: RunConfig, family: EnvironmentFamily, choice: RendererChoice) -> PreTrainedTokenizerBase:
    """A tokenizer trained on the environment's texts, with the special tokens of a renderer and of a model that
    sees."""
    formats = {
        "tags": FORMATS[choice.format].special_tokens,
        "calls": CALLS_FORMAT.special_tokens,
        "chat": QWEN3_SPECIAL_TOKENS,
        "template": QWEN3_SPECIAL_TOKENS[:1],
    }
    with boundary(EnvironmentFault, f"texts of {type(family).__name__} for the tokenizer"):
        texts = family.texts(config.tokenizer.num_texts)
    special = (*formats[choice.kind], *list_picture_tokens(config.model.model_type, config.model.config))
    return train_tokenizer(
        texts, vocab_size=config.tokenizer.vocab_size, special_tokens=special, split=config.tokenizer.split
    )


def load_own_tokenizer(config: RunConfig) -> PreTrainedTokenizerBase | None:
    """The tokenizer at `tokenizer.path`, or of the model; None where the recipe trains one.

    Raises ConfigError, of the model where it is none: its tokenizer is read first.
    """
    path = config.tokenizer.path or config.model.path
    if not path:
        return None
    folder = find_model(path)
    if not config.tokenizer.path:
        check_folder(folder, f"model.path={str(folder)!r}")
    return load_tokenizer(folder, trust_remote_code=config.model.trust_remote_code)


def load_checkpoint_tokenizer(config: RunConfig, checkpoint: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a run's checkpoint, whose ids the run's trajectories and weights have.

    Raises CheckpointError naming the file where it cannot be read because the checkpoint is damaged, else ConfigError.
    """
    try:
        return load_tokenizer(checkpoint, trust_remote_code=config.model.trust_remote_code)
    except ConfigError:
        verify_checkpoint(whole_folder(checkpoint))
        raise


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
        return choose_renderer(tools, None if scratch else tokenizer, calls=calls, sees=sees_pictures(config))
    return RendererChoice(
        kind=kind,
        format=config.renderer.format,
        name=config.renderer.name,
        calls=resolve_calls(calls, tokenizer),
    )


def build_renderer(
    config: RunConfig,
    choice: RendererChoice,
    tokenizer: PreTrainedTokenizerBase,
    checkpoint: Path | None = None,
    pictures: Pictures | None = None,
) -> Renderer:
    """The renderer that was chosen; replies end where the files of `model.path` say too, or those of the run's
    `checkpoint` where that folder is gone. That of a vision-language model keeps what it shows in `pictures` (None: in
    memory). Raises ConfigError or RenderError when it does not fit the tokenizer."""
    layout = build_layout(config, tokenizer, checkpoint)
    if layout is None:
        return _build_text_renderer(config, choice, tokenizer, checkpoint, None)
    inner = _build_text_renderer(config, choice, tokenizer, checkpoint, layout.marker)
    return PictureRenderer(inner, layout, pictures or PictureStore(None))


def _build_text_renderer(
    config: RunConfig,
    choice: RendererChoice,
    tokenizer: PreTrainedTokenizerBase,
    checkpoint: Path | None,
    marker: str | None,
) -> Renderer:
    most, ends = config.renderer.max_observation_tokens, _find_ends(config, tokenizer, checkpoint)
    if choice.kind == "tags":
        return TagRenderer(tokenizer, FORMATS[choice.format], ends=ends, max_observation_tokens=most, marker=marker)
    if choice.kind == "calls":
        return CallsRenderer(tokenizer, ends=ends, max_observation_tokens=most, marker=marker)
    if choice.kind == "template":
        return TemplateRenderer(tokenizer, calls=choice.calls, ends=ends, max_observation_tokens=most, marker=marker)
    return ChatRenderer(tokenizer, name=choice.name, ends=ends)


def _find_ends(config: RunConfig, tokenizer: PreTrainedTokenizerBase, checkpoint: Path | None) -> tuple[int, ...]:
    """The end tokens of a pretrained model; none of one from random weights, which ends as its renderer does."""
    if not config.model.path:
        return ()
    folders = [] if checkpoint is None else [checkpoint]
    with suppress(ConfigError):  # the model that the run started from may have left the cache
        folders.insert(0, find_model(config.model.path))
    return read_end_ids(folders, tokenizer)


def describe_renderer(choice: RendererChoice, renderer: Renderer) -> str:
    """One line for people: what was chosen and why, and what to know of the chat template; empty if nothing is."""
    renderer = find_text_renderer(renderer)
    notes = renderer.notes if isinstance(renderer, TemplateRenderer) else ()
    return "; ".join(text for text in (choice.why, *notes) if text)


def list_tools(family: EnvironmentFamily) -> list[ToolSpec]:
    """The tools of every family's first training task that opens. Runs in a thread of its own: a loop may be running.

    Raises as `openings.open_tasks` does.
    """

    async def read() -> list[ToolSpec]:
        members = list_families(family)
        openings = await asyncio.gather(*(open_first(member) for member in members))
        return [tool for _, _, opening in openings for tool in opening.tools]

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, read()).result()
