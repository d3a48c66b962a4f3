"""A policy behind an endpoint, without an episode: for evaluation, and for agents that other people wrote."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.building.sizes import measure_recipe
from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.episodes import ANY_REQUESTS, RequestRule
from turnwise.core.errors import ConfigError
from turnwise.core.types import Grammar, ToolSpec
from turnwise.forecast.fit import MICRO_BATCH_STEP, fit_concurrency
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.sampling import Limits, SamplingRule
from turnwise.gateway.server import GatewayServer
from turnwise.gateway.session import Policy
from turnwise.gateway.settled import find_streaming
from turnwise.hosts.leftovers import make_folder
from turnwise.models.machine_memory import read_memory_size
from turnwise.pictures.store import PictureStore
from turnwise.rendering.call_grammar import build_call_grammar
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.images import find_text_renderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.runs.build import MAX_GUIDED_CALLS, System, build_system, find_device, find_longest_token
from turnwise.runs.evaluate import load_trained_system
from turnwise.store.run_folder import CONFIG, holds_model

CONTEXT, CONVERSATIONS = 8192, 16
"""Tokens of a prompt and its reply, and how many such conversations at the same time, where a model folder is
served."""
SHOWN = "turnwise-pictures-"
"""How folders begin in which servers keep what clients show."""
SWEEP_S, IDLE_S = 60.0, 3600.0
"""Seconds between two looks for idle sessions, and after which one is idle."""


def load_served(
    source: Path,
    *,
    step: int | str | None = None,
    device: str | None = None,
    context: int = CONTEXT,
    conversations: int = CONVERSATIONS,
    pictures: PictureStore | None = None,
) -> System:
    """The policy of a run's checkpoint, or of a model folder with a context of so many tokens, in so many conversations
    as fit the memory. What clients show is kept in `pictures` (None: the run's, or memory). Raises ConfigError,
    StoreError or CheckpointError."""
    if source.is_dir() and not holds_model(source / CONFIG):
        return load_trained_system(source, step, device=device, pictures=pictures)[1]
    # A model alone has no environment; the family is built, since a system has one, and never opened.
    fields = ["environment.name=countdown", "train.steps=0", "renderer.kind=auto", f"model.path={source}"]
    moved = [] if device is None else [f"model.device={device}"]
    config = load_config(
        (), [*fields, f"engine.max_context={context}", *moved, f"engine.max_concurrency={conversations}"]
    )
    return build_system(fit_served(config), pictures=pictures)


def fit_served(config: RunConfig) -> RunConfig:
    """The same with as many open conversations as fit this machine, and without a choice for a trainer that is not
    there. Raises ConfigError as `fit_concurrency` does."""
    resolved = resolve(config)
    device = find_device(config)
    most = fit_concurrency(
        read_forecast_settings(resolved),
        memory_bytes=read_memory_size(device),
        shapes=measure_recipe(config, resolved.copies),
        device=device.type,
    )
    engine = config.engine.model_copy(update={"max_concurrency": most})
    train = config.train.model_copy(update={"micro_batch_tokens": MICRO_BATCH_STEP})
    return config.model_copy(update={"engine": engine, "train": train})


def build_gateway(
    system: System, *, model: str, key: str | None = None, requests: RequestRule = ANY_REQUESTS
) -> Gateway:
    """The gateway of a policy, which anybody on this machine may use, or who has the key."""
    renderer, config = system.renderer, system.config
    spoken = find_text_renderer(renderer)
    follows = find_engine_kind(config.engine.kind).follows_grammars and importlib.util.find_spec("llguidance")
    has_call_tokens = isinstance(spoken, ChatRenderer) and "<tool_call>" in system.tokenizer.get_added_vocab()
    tokenizer = system.tokenizer
    policy = Policy(
        engine=system.engine.engine,  # the meter in between tells no tokens
        renderer=renderer,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
        decode=lambda ids: str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)),
        streaming=find_streaming(spoken, tokenizer),
        model=model,
        vocab_size=len(tokenizer),
        longest_token=find_longest_token(tokenizer),
    )
    rule = SamplingRule(
        seed=config.run.seed,
        build_call_grammar=_force_calls if follows and has_call_tokens else None,
        writes_json=bool(follows) and isinstance(spoken, ChatRenderer | TemplateRenderer),
    )
    limits = Limits(
        max_context=config.engine.max_context,
        max_reply_tokens=config.engine.max_context,
        max_concurrent=4 * config.engine.max_concurrency,
    )
    most = 16 * config.engine.max_concurrency
    return Gateway(policy, limits, rule, requests=requests, is_open=True, key=key, max_waiting=most, idle_s=IDLE_S)


def _force_calls(tools: Sequence[ToolSpec], most: int | None) -> Grammar:
    return build_call_grammar(tools, special_tokens=True, max_calls=most or MAX_GUIDED_CALLS, reasoning=True)


def read_request_rule(reasoning: str, on_rewrite: str) -> RequestRule:
    """The rule of two options of the command line. Raises ConfigError for an unknown value."""
    for option, value, known in (
        ("--reasoning", reasoning, ("keep", "follow")),
        ("--on-rewrite", on_rewrite, ("branch", "refuse")),
    ):
        if value not in known:
            raise ConfigError(f"{option}={value!r} is unknown; use {' or '.join(known)}")
    return RequestRule(reasoning=reasoning, on_rewrite=on_rewrite)  # type: ignore[arg-type]


def run_serve(
    source: Path,
    *,
    port: int,
    model: str | None,
    key: str | None,
    step: int | str | None,
    device: str | None,
    context: int,
    conversations: int,
    requests: RequestRule = ANY_REQUESTS,
    show: Callable[[str], None],
) -> None:
    """Serve until interrupted or terminated; `show` gets the URL and what to know of it.

    Raises as `load_served` does, and EnvironmentFault when the port is taken.
    """
    name = model or source.resolve().name
    # Not the run's: what clients show is no part of it, and is gone when the server ends.
    folder = make_folder(Path(tempfile.gettempdir()), SHOWN)
    try:
        system = load_served(
            source,
            step=step,
            device=device,
            context=context,
            conversations=conversations,
            pictures=PictureStore(folder),
        )
        asyncio.run(_serve(system, build_gateway(system, model=name, key=key, requests=requests), port, show))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(system: System, gateway: Gateway, port: int, show: Callable[[str], None]) -> None:
    server = GatewayServer(gateway)
    try:
        url = await server.start(port)
        for kind, text in system.notes:
            if kind != "environment":
                show(text)
        engine = system.config.engine
        show(f"up to {engine.max_concurrency} conversations of {engine.max_context} tokens at the same time")
        show(f"model {gateway.policy.model!r} at {url}/v1 (chat, completions, responses) and {url} (messages)")
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), SWEEP_S)
            await gateway.sweep()
    finally:
        await server.close()
        await system.close()
