"""Open a file of instances and its ledger, to continue where they end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from turnwise.core.errors import StoreError
from turnwise_sandbox.types import Sandbox
from turnwise_swe.bugs.ledger import append_lines, drop_cut_line, load_ledger
from turnwise_swe.bugs.making import Maker, read_sources
from turnwise_swe.bugs.selection import TestIndex
from turnwise_swe.repositories.instance import Instance, load_instances, write_instances
from turnwise_swe.repositories.repository import Repository


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other commands from writing to the ledger in `file` and to its instances; the lock ends with its process.

    Raises StoreError if another command holds the lock, or if the disk refuses."""
    append_lines(file, [])
    with file.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"another command is adding bugs to {file}; wait for it, or choose another --out"
            ) from None
        except OSError as cause:
            raise StoreError(f"cannot lock {file}: {cause.strerror}; choose an --out on a local disk") from cause
        yield


def open_maker(sandbox: Sandbox, repository: Repository, file: Path, ledger: Path, seed: int) -> Maker:
    """The maker that appends to `file` and to `ledger`.

    An instance is written before its ledger line; after a crash between the two it is confirmed again but not written
    twice. Raises DataError if a file is malformed, StoreError if the disk refuses.
    """
    drop_cut_line(file)
    written: dict[str, Instance] = {}
    if file.exists() and file.stat().st_size:
        written = {instance.instance_id: instance for instance in load_instances(file)}

    def keep(instance: Instance) -> None:
        if instance.instance_id not in written:
            append_lines(file, [json.dumps(instance.to_row(), ensure_ascii=False, separators=(",", ":"))])
            written[instance.instance_id] = instance

    def withdraw(ids: Collection[str]) -> None:
        for instance_id in ids:
            del written[instance_id]
        others = [instance for instance in load_instances(file) if instance.instance_id not in ids]
        write_instances(temporary := file.with_name(f".{file.name}.tmp"), others)
        os.replace(temporary, file)

    append_lines(file, [])
    return Maker(
        sandbox=sandbox,
        repository=repository,
        sources=read_sources(repository),
        index=TestIndex(repository),
        ledger=load_ledger(ledger),
        instances=written,
        keep=keep,
        withdraw=withdraw,
        seed=seed,
    )
