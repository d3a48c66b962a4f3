"""The builder of continual pre-training: `cpt.builder = "turnwise_synthesis.documents.build:build_documents"`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from turnwise.config.section import Section
from turnwise.core.documents import Document, DocumentContext
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.seeds import derive_seed
from turnwise.environments.episodes import run_apart
from turnwise_synthesis.documents.first_order import PLAN, REASON, build_plans, build_reasonings
from turnwise_synthesis.documents.higher_order import HAS, PLAIN, ScriptedProposer, build_choices, build_plain
from turnwise_synthesis.documents.items import Item, list_task_items
from turnwise_synthesis.documents.leaks import drop_leaks, list_heldout_names
from turnwise_synthesis.documents.ledger import Ledger
from turnwise_synthesis.documents.trajectories import play_trajectories
from turnwise_synthesis.documents.writers import ScriptedWriter

PASSAGES = "passages"
KINDS = (PASSAGES, PLAN, REASON, HAS, PLAIN)
FIRST = 1_000_000
"""Training task from which documents are made: RL and demonstrations use those before it."""


class BuildOptions(Section):
    """Options of `cpt.args`."""

    kinds: list[str] = Field(default_factory=lambda: [PLAN, REASON])
    """Kinds of documents: "passages" (a world's sentences and questions as text, a control), "plan" and "reason"
    (first-order actions), "has" (higher-order actions), "plain" (its control)."""
    count: int = Field(1000, ge=1)
    """Training tasks of which documents are made."""
    first: int = Field(FIRST, ge=0)
    """The first of them."""
    writer: str = "oracle"
    """Scripted policy that writes plans and reasonings."""
    thinks: bool = True
    """Whether a reasoning restates the sentences that it follows from."""
    policies: list[str] = Field(default_factory=lambda: ["oracle", "naive", "random"])
    """Scripted policies whose episodes are told."""
    proposers: list[str] = Field(default_factory=lambda: ["random", "naive"])
    """Scripted policies that propose alternatives."""
    alternatives: int = Field(2, ge=1)
    """Most alternatives of one step."""
    max_turns: int = Field(5, ge=1)
    """Most replies of one episode."""
    heldout: int = Field(200, ge=0)
    """Held-out tasks whose entities no document may name."""


def build_documents(context: DocumentContext, **arguments: Any) -> list[Document]:
    """Return the documents of the recipe's kinds, made by scripted policies on training tasks of the run's family.

    Raises ConfigError naming an option that is wrong, DataError where an episode failed or a document names a held-out
    entity."""
    ledger = Ledger()
    options = read_options(arguments)
    documents = run_apart(write_documents(context.family, options, ledger, seed=context.seed))
    if failed := [each for each in ledger.dropped if each.reason == "failed"]:
        raise DataError(
            f"{len(failed)} episodes failed, and without them these are other documents each time; such as "
            f"{failed[0].item}: {failed[0].text}"
        )
    if leaked := [each for each in ledger.dropped if each.reason == "held_out"]:
        raise DataError(
            f"{len(leaked)} documents name an entity of a held-out task, such as {leaked[0].text!r} in "
            f"{leaked[0].item}; change cpt.args.first, or the seed of the environment"
        )
    return documents


def read_options(arguments: Mapping[str, Any]) -> BuildOptions:
    """The options in `cpt.args`. Raises ConfigError naming the one that is wrong."""
    try:
        options = BuildOptions(**arguments)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        raise ConfigError(f"cpt.args.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        raise ConfigError(f"cpt.args.kinds has {unknown[0]!r}; it may have {', '.join(KINDS)}")
    return options


async def write_documents(
    family: EnvironmentFamily, options: BuildOptions, ledger: Ledger, *, seed: int
) -> list[Document]:
    """Return the documents of all kinds, without those that name a held-out entity."""
    seed, documents, kinds = derive_seed(seed, "synthesis"), list[Document](), options.kinds
    if set(kinds) & {PASSAGES, PLAN, REASON}:
        items = list_task_items(family, options.count, options.first, ledger)
        writer = ScriptedWriter(family.policy(options.writer), thinks=options.thinks)
        if PASSAGES in kinds:
            documents += write_passages(items, ledger)
        if PLAN in kinds:
            documents += await build_plans(items, writer, ledger, seed=seed)
        if REASON in kinds:
            documents += await build_reasonings(items, writer, ledger, seed=seed)
    if set(kinds) & {HAS, PLAIN}:
        told = await play_trajectories(
            family,
            options.policies,
            count=options.count,
            first=options.first,
            seed=seed,
            max_turns=options.max_turns,
            ledger=ledger,
        )
        if HAS in kinds:
            proposers = [ScriptedProposer(family.policy(name)) for name in options.proposers]
            documents += await build_choices(told, proposers, ledger, seed=seed, alternatives=options.alternatives)
        if PLAIN in kinds:
            documents += build_plain(told, ledger)
    if options.heldout:
        documents = drop_leaks(documents, list_heldout_names(family, options.heldout), ledger)
    return documents


def write_passages(items: Sequence[Item], ledger: Ledger) -> list[Document]:
    """Return each item's question with what a search for it finds, as plain text: words without any action."""
    documents = []
    for item in items:
        shown = {each.id: each.text for each in (*item.search(item.question), *item.evidence)}
        text = "\n".join([item.prompt[-1].text.strip(), *shown.values()])
        if (kept := ledger.keep(PASSAGES, Document(id=f"{PASSAGES}/{item.id}", text=text))) is not None:
            documents.append(kept)
    return documents
