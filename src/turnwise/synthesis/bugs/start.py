"""Open a file of instances and its ledger, to go on where they end."""

from __future__ import annotations

import json
from pathlib import Path

from turnwise.repositories.instance import Instance, load_instances
from turnwise.repositories.repository import Repository
from turnwise.synthesis.bugs.ledger import append_lines, drop_cut_line, load_ledger
from turnwise.synthesis.bugs.making import Maker, read_sources
from turnwise.synthesis.bugs.selection import TestIndex
from turnwise_sandbox.types import Sandbox


def open_maker(sandbox: Sandbox, repository: Repository, file: Path, ledger: Path, seed: int) -> Maker:
    """The maker that appends to `file` and to `ledger`.

    An instance is written before its line of the ledger; after a crash between the two it is confirmed again and not
    written twice. Raises DataError if a file is not what it should be, StoreError if the disk refuses.
    """
    drop_cut_line(file)
    written: dict[str, Instance] = {}
    if file.exists() and file.stat().st_size:
        written = {instance.instance_id: instance for instance in load_instances(file)}

    def keep(instance: Instance) -> None:
        if instance.instance_id not in written:
            append_lines(file, [json.dumps(instance.to_row(), ensure_ascii=False, separators=(",", ":"))])
            written[instance.instance_id] = instance

    append_lines(file, [])
    return Maker(
        sandbox=sandbox,
        repository=repository,
        sources=read_sources(repository),
        index=TestIndex(repository),
        ledger=load_ledger(ledger),
        instances=written,
        keep=keep,
        seed=seed,
    )
