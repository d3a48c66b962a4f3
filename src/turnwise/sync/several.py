"""One publication for several learners, each with its own engines."""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.core.batch import Receipt
from turnwise.core.protocols import WeightSync
from turnwise.models.checksums import join_sums


class SyncOfSeveral:
    """Implements `core.protocols.WeightSync`: every learner's weights under the same version."""

    def __init__(self, syncs: Mapping[str, WeightSync]) -> None:
        """`syncs` by the learners' names."""
        self._syncs = dict(syncs)

    async def publish(self, version: int) -> Receipt:
        """See `WeightSync.publish`. Returns the joined checksums of all learners, and a different version if a learner
        acknowledged a different one."""
        receipts = {name: await sync.publish(version) for name, sync in self._syncs.items()}
        return Receipt(
            version=next((each.version for each in receipts.values() if each.version != version), version),
            sums=join_sums({name: receipt.sums for name, receipt in receipts.items()}),
            seconds=sum(receipt.seconds for receipt in receipts.values()),
            num_restarted=sum(receipt.num_restarted for receipt in receipts.values()),
        )
