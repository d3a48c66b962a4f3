"""Let a model write bugs for one repository: SWE-smith's LM Modify, LM Rewrite and PR Mirror.

What it writes is screened and confirmed like any other edit. Each function and each past change is asked about once;
the ledger records those whose reply was useless."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.seeds import rng
from turnwise_swe.bugs.candidates import Candidate
from turnwise_swe.bugs.edits.source import Function, body_of
from turnwise_swe.bugs.ledger import Entry, Fate
from turnwise_swe.bugs.making import Maker
from turnwise_swe.bugs.whole_files import try_files
from turnwise_swe.bugs.writers import (
    Ask,
    mirror_prompt,
    modify_prompt,
    parse_file,
    parse_function,
    rewrite_prompt,
)
from turnwise_swe.repositories.diffs import parse_diff

KINDS_OF_FUNCTIONS = ("lm_modify", "lm_rewrite")
MIRROR = "pr_mirror"
MIN_LINES = 3
"""Functions with fewer lines are not shown to a model."""
SPARE = 1.5
"""Functions to ask about per instance that is still wanted."""


async def write_bugs(maker: Maker, ask: Ask, kind: str, num: int, *, num_programs: int) -> int:
    """Ask about functions that tests enter, in a random order, until the ledger has `num` instances of `kind` for this
    repository, or no function is left. Returns how many it has, which may exceed `num` because of the last replies.

    Raises EngineError if the model does not answer; the replies that came are judged first. Raises SandboxError if the
    sandbox fails."""
    places = list_places(maker)
    while True:
        mine = [item for item in maker.ledger.entries if (item.repository, item.kind) == (maker.repository.key, kind)]
        num_kept = sum(entry.fate == "kept" for entry in mine)
        asked = {entry.place for entry in mine}
        waiting = [place for place in places if place not in asked][: int(SPARE * (num - num_kept)) + 1]
        if num_kept >= num or not waiting:
            return num_kept
        replies = await asyncio.gather(*(ask(_prompt(maker, place, kind)) for place in waiting), return_exceptions=True)
        candidates = [
            candidate
            for place, reply in zip(waiting, replies, strict=True)
            if isinstance(reply, str) and (candidate := _read(maker, place, reply, kind)) is not None
        ]
        await maker.make_from(candidates, {kind}, num_kept + len(candidates), num_programs=num_programs)
        _raise_first(replies)


def list_places(maker: Maker) -> list[str]:
    """Functions with enough lines that a passing test enters, as "path::qualified name", in a random order."""
    places = [
        f"{path}::{name}"
        for path, source in sorted(maker.sources.items())
        for name, node in source.scopes.items()
        if isinstance(node, Function) and body_of(node) and (node.end_lineno or 0) - node.lineno + 1 >= MIN_LINES
    ]
    covered = [place for place in places if place in maker.index.by_function]
    rng(maker.seed, "written").shuffle(covered)
    return covered


def _prompt(maker: Maker, place: str, kind: str) -> str:
    path, name = place.split("::")
    if kind == "lm_modify":
        return modify_prompt(maker.sources[path], name, seed=maker.seed)
    return rewrite_prompt(maker.sources[path], name)


def _read(maker: Maker, place: str, reply: str, kind: str) -> Candidate | None:
    """The candidate in a reply; None for a reply without one, which goes to the ledger."""
    path, name = place.split("::")
    candidate = parse_function(reply, maker.sources[path], name, kind)
    if candidate is None:
        maker.ledger.write([_entry(maker, f"{kind}.{_digest(place)}", place, "unwritten")])
    return candidate


async def mirror_changes(maker: Maker, ask: Ask, changes: Mapping[str, str]) -> int:
    """Ask to undo each past change (name to unified diff) in today's files. Returns how many instances the ledger has
    from past changes. Raises as `write_bugs`, and DataError for a change that is not a diff."""
    diffs = {f"{MIRROR}.{_digest(diff)}": (name, diff) for name, diff in changes.items()}
    for candidate_id, (name, diff) in diffs.items():
        mine = [entry for entry in maker.ledger.entries if entry.repository == maker.repository.key]
        if candidate_id not in {entry.candidate_id for entry in mine}:
            await _mirror(maker, ask, candidate_id, name, diff)
    return sum(
        entry.fate == "kept" and entry.kind == MIRROR and entry.repository == maker.repository.key
        for entry in maker.ledger.entries
    )


def read_changes(folder: Path) -> dict[str, str]:
    """Name to unified diff of each file `*.diff` and `*.patch` in a folder, as `git format-patch` writes them.
    Raises ConfigError if there is none."""
    files = sorted([*folder.glob("*.diff"), *folder.glob("*.patch")])
    if not files:
        raise ConfigError(f"{folder} has no *.diff or *.patch file; `git format-patch` creates them")
    return {file.name: file.read_text(encoding="utf-8", errors="replace") for file in files}


async def _mirror(maker: Maker, ask: Ask, candidate_id: str, name: str, diff: str) -> None:
    try:
        paths = [file.new_path for file in parse_diff(diff) if file.new_path in maker.sources]
    except DataError as cause:
        raise DataError(f"change {name}: {cause}") from None
    after: dict[str, bytes] = {}
    places: list[str] = []
    for path in filter(None, paths):
        source = maker.sources[path]
        reply = await ask(mirror_prompt(diff, path, source.content))
        if (result := parse_file(reply, source)) is not None:
            after[path] = result[0]
            places += result[1]
    selection = maker.index.select_all(places, seed=maker.seed)
    if after and selection.entering:
        await try_files(maker, after, candidate_id=candidate_id, kinds=(MIRROR,), places=places, selection=selection)
        return
    fate: Fate = "uncovered" if after or not paths else "unwritten"
    maker.ledger.write([_entry(maker, candidate_id, " + ".join(places) or name, fate)])


def _entry(maker: Maker, candidate_id: str, place: str, fate: Fate) -> Entry:
    """A ledger line about a reply without a candidate."""
    kind = candidate_id.split(".")[0]
    return Entry(repository=maker.repository.key, candidate_id=candidate_id, kind=kind, place=place, fate=fate)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _raise_first(replies: Sequence[str | BaseException]) -> None:
    """Raise the first failure among the replies."""
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
