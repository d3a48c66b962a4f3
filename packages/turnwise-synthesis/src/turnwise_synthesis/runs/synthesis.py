"""Synthesis from the command line: a source, a writer, a file of documents and the ledger beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.documents import Document
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.seeds import derive_seed
from turnwise.exchange.document_rows import to_document_row
from turnwise.exchange.row_files import write_rows
from turnwise.judging.api import ApiOptions, ApiWriter
from turnwise.judging.engine import EngineOptions, EngineWriter
from turnwise.judging.text import Writer as TextWriter
from turnwise.runs.build import System, build_system
from turnwise.runs.evaluate import load_run, load_trained_system
from turnwise.runs.transcripts import list_batches, list_stored, load_batch
from turnwise.tools.chat_api import ChatApi
from turnwise_synthesis.documents.build import FIRST
from turnwise_synthesis.documents.first_order import build_plans, build_reasonings
from turnwise_synthesis.documents.higher_order import Proposer, ScriptedProposer, build_choices, build_plain
from turnwise_synthesis.documents.items import Item, list_task_items, load_corpus_items
from turnwise_synthesis.documents.leaks import drop_leaks, list_heldout_names
from turnwise_synthesis.documents.ledger import Ledger
from turnwise_synthesis.documents.trajectories import Told, play_trajectories, read_stored
from turnwise_synthesis.documents.writers import ItemWriter, ModelWriter, ScriptedWriter

SCRIPTED, API, RUN, MODEL = "scripted", "api", "run", "model"
WRITERS = f"{SCRIPTED}:POLICY, {RUN}:RUN, {MODEL}:NAME or {API}:URL#MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """What one command makes."""

    source: Path | RunConfig
    """A corpus (.jsonl, .json or .parquet), or a recipe whose environment has the tasks."""
    writer: str
    num_items: int
    """Training tasks; of a corpus, at most so many questions."""
    first: int = FIRST
    tries: int = 1
    """Drafts for each item and kind."""
    seed: int = 0
    heldout: int = 200
    """Held-out tasks whose entities no document may name; a corpus has none."""
    max_tokens: int = 160
    """Most tokens of one draft."""
    temperature: float = 0.7
    device: str | None = None


def synthesize_first_order(plan: Synthesis, kinds: Sequence[str], out: Path) -> Ledger:
    """Write plans and reasonings, and what was dropped. Returns the ledger.

    Raises ConfigError for a writer or an environment that does not fit, DataError for a row of the corpus."""
    ledger = Ledger()
    family: EnvironmentFamily | None = None
    if isinstance(plan.source, Path):
        items = load_corpus_items(plan.source, ledger)[: plan.num_items]
    else:
        family = build_family(plan.source)
        items = list_task_items(family, plan.num_items, plan.first, ledger)

    async def write(writer: ItemWriter) -> list[Document]:
        documents: list[Document] = []
        if "plan" in kinds:
            documents += await build_plans(items, writer, ledger, seed=plan.seed, plans=plan.tries)
        if "reason" in kinds:
            documents += await build_reasonings(items, writer, ledger, seed=plan.seed, tries=plan.tries)
        return documents

    started = time.process_time()
    documents = asyncio.run(_with_writer(plan, family, items, write))
    ledger.processor_s = time.process_time() - started
    _finish(plan, family, documents, ledger, out)
    return ledger


def synthesize_choices(
    plan: Synthesis, run: Path | None, policies: Sequence[str], out: Path, *, alternatives: int, plain: bool
) -> Ledger:
    """Write trajectories as choices, or `plain`: those that a run stored, or of scripted policies on a recipe's tasks.

    The proposers of alternatives are the scripted policies, apart from the one whose step it is only by what it
    replies. Raises as `synthesize_first_order` does."""
    ledger = Ledger()
    config = load_run(run)[1] if run is not None else plan.source
    if isinstance(config, Path):
        raise ConfigError(f"{config} is a corpus, which has no trajectories; name a recipe, or a run with --run")
    family = build_family(config)

    async def play() -> list[Told]:
        return await play_trajectories(
            family,
            policies,
            count=plan.num_items,
            first=plan.first,
            seed=plan.seed,
            max_turns=config.rollout.max_turns,
            ledger=ledger,
        )

    started = time.process_time()
    told = _read_run(run, config, plan.num_items) if run is not None else asyncio.run(play())
    if plain:
        documents = build_plain(told, ledger)
    else:
        proposers: list[Proposer] = [ScriptedProposer(family.policy(name)) for name in policies]
        documents = asyncio.run(build_choices(told, proposers, ledger, seed=plan.seed, alternatives=alternatives))
    ledger.processor_s = time.process_time() - started
    _finish(plan, family, documents, ledger, out)
    return ledger


def _read_run(run: Path, config: RunConfig, most: int) -> list[Told]:
    """The conversations of the training steps of a run, at most `most`: evaluations are held out."""
    folder, _ = load_run(run)
    names = [name for name in list_batches(folder) if name.startswith("step_")]
    conversations = []
    for name in names:
        conversations += list_stored(config, name, load_batch(folder, name))
        if len(conversations) >= most:
            break
    return read_stored(conversations[:most])


def _finish(
    plan: Synthesis, family: EnvironmentFamily | None, documents: list[Document], ledger: Ledger, out: Path
) -> None:
    if family is not None and plan.heldout:
        documents = drop_leaks(documents, list_heldout_names(family, plan.heldout), ledger)
    write_rows(name_ledger(out), list(ledger.rows()))
    if not documents:
        told = "; ".join(ledger.describe())
        raise DataError(f"no document is left: {told}. {name_ledger(out)} has what was dropped")
    write_rows(out, [to_document_row(document) for document in documents])


def name_ledger(out: Path) -> Path:
    """The file of what was dropped, beside the documents."""
    return out.with_name(f"{out.stem}.dropped.jsonl")


async def _with_writer(
    plan: Synthesis,
    family: EnvironmentFamily | None,
    items: Sequence[Item],
    work: Callable[[ItemWriter], Awaitable[list[Document]]],
) -> list[Document]:
    """Build the writer in this event loop, work, and close what it holds."""
    kind, colon, name = plan.writer.partition(":")
    if not colon or not name or kind not in (SCRIPTED, API, RUN, MODEL):
        raise ConfigError(f"--writer {plan.writer!r} is not {WRITERS}")
    if kind == SCRIPTED:
        if family is None:
            raise ConfigError(f"--writer {plan.writer!r}: a corpus has no scripted policy; use a model or an API")
        return await work(ScriptedWriter(family.policy(name)))
    if kind == API:
        writer: TextWriter = _open_api(plan, name)
        try:
            return await work(ModelWriter(writer))
        finally:
            await writer.close()
    system = _load_system(kind, name, plan)
    options = EngineOptions(max_tokens=plan.max_tokens, temperature=plan.temperature)
    try:
        writer = EngineWriter(system.engine, system.renderer, options, name="synthesis", owns_engine=False)
        return await work(ModelWriter(writer))
    finally:
        await system.close()


def _load_system(kind: str, name: str, plan: Synthesis) -> System:
    if kind == RUN:
        return load_trained_system(Path(name), device=plan.device)[1]
    overrides = [f"model.path={name}", "engine.max_context=1024", "engine.max_concurrency=16", "train.steps=0"]
    if plan.device is not None:
        overrides.append(f"model.device={plan.device}")
    return build_system(load_config([], overrides))


def _open_api(plan: Synthesis, name: str) -> ApiWriter:
    url, mark, model = name.rpartition("#")
    if not mark:
        raise ConfigError(f"--writer api:{name} names no model; write api:URL#MODEL")
    options = ApiOptions(url=url, model=model, max_tokens=plan.max_tokens, temperature=plan.temperature)
    api = ChatApi(url, model, max_tokens=plan.max_tokens, seed=derive_seed(plan.seed, "writer"), source="--writer")
    return ApiWriter(api, options, None)
