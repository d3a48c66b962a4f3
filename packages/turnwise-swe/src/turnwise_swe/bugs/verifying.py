"""Grade new instances again when all are made, and remove those whose tests give another result than before."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from turnwise_swe.bugs.checking import check_instance
from turnwise_swe.bugs.making import Maker


async def verify(maker: Maker, instance_ids: Collection[str], *, num_programs: int) -> dict[str, str]:
    """Id to problem of each instance that its gold patch does not resolve, or that is resolved without a change. These
    are removed from the store, and their ledger line becomes "unstable"; an instance that the sandbox failed to grade
    stays."""
    slots = asyncio.Semaphore(num_programs)
    chosen = [maker.instances[instance_id] for instance_id in instance_ids]
    found = await asyncio.gather(*(check_instance(maker.sandbox, maker.repository, one, slots) for one in chosen))
    problems = {one.instance_id: problem for one, problem in zip(chosen, found, strict=True) if problem}
    unstable = {name for name, problem in problems.items() if "'infrastructure'" not in problem}
    if unstable:
        maker.withdraw(unstable)
        entries = [entry for entry in maker.ledger.entries if entry.fate == "kept" and entry.instance_id in unstable]
        maker.ledger.write([replace(entry, fate="unstable") for entry in entries])
    return problems
