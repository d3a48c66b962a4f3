"""Opens the channel to the worker from a process that runs the tests of a whole repository."""

import os
import socket
import sys
from collections.abc import Sequence

from turnwise_sandbox.grading.guest.importing import CandidateFinder, find_local, imported_names
from turnwise_sandbox.grading.guest.policy import check_request
from turnwise_sandbox.grading.guest.rpc import Peer


def open_peer(
    channel: socket.socket, packages: Sequence[str], local: Sequence[str], folders: Sequence[str], files: Sequence[str]
) -> Peer:
    """The guarded end of a channel, and stand-ins for everything below the top-level names `packages`.

    `local` are paths of the tests' own modules inside the packages, `folders` those from which both are imported,
    `files` the test files that run.
    """
    os.set_inheritable(channel.fileno(), False)
    peer = Peer(channel, guarded=True, policy=check_request)
    sys.meta_path.insert(
        0, CandidateFinder(peer, packages, lambda: imported_names(files, packages), find_local(local, folders))
    )
    return peer
