"""The worker: holds the candidate's module and does what the grader asks of it. Everything here is in the candidate's
hands."""

import importlib
import importlib.util
import io
import os
import socket
import sys
import types
from typing import Any

from turnwise_sandbox.grading.guest.rpc import Peer

CHANNEL_FD = 4
"""The descriptor of this end of the channel; the same in the grader."""


class Printed(io.TextIOWrapper):
    """A text stream that is kept until it is drained."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="replace", write_through=True)

    def drain(self) -> str:
        """What was written since the last call, cut at a million characters."""
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        content = self.buffer.getvalue()
        if content:
            self.buffer.seek(0)
            self.buffer.truncate()
        return content[: 1 << 20].decode("utf-8", "replace")


def find_module(name: str) -> bool | None:
    """Whether it is a package; None when there is no such module."""
    spec = importlib.util.find_spec(name)
    return None if spec is None else spec.submodule_search_locations is not None


def load_module(name: str) -> list[str]:
    """Import it; the names `import *` gives, without modules."""
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None)
    names = [item for item in vars(module) if not item.startswith("_")] if public is None else list(public)
    return [item for item in names if not isinstance(vars(module).get(item), types.ModuleType)]


def get_from_module(name: str, attribute: str) -> tuple[bool, Any]:
    """An attribute, or the name of the module that it is."""
    value = getattr(importlib.import_module(name), attribute)
    return (True, value.__name__) if isinstance(value, types.ModuleType) else (False, value)


def set_in_module(name: str, attribute: str, value: Any) -> None:
    """Set an attribute."""
    setattr(importlib.import_module(name), attribute, value)


def delete_from_module(name: str, attribute: str) -> None:
    """Delete an attribute."""
    delattr(importlib.import_module(name), attribute)


def main(folder: str) -> None:
    """Serve the modules in `folder` until the grader is gone."""
    os.set_inheritable(CHANNEL_FD, False)
    os.chdir(folder)
    sys.path.insert(0, os.getcwd())
    sys.dont_write_bytecode = True
    out, err = Printed(), Printed()
    sys.stdout, sys.stderr = out, err
    peer = Peer(socket.socket(fileno=CHANNEL_FD), guarded=False, drain=lambda: [out.drain(), err.drain()])
    for operation in (find_module, load_module, get_from_module, set_in_module, delete_from_module):
        peer.operations[operation.__name__] = operation
    try:
        peer.serve()
    finally:
        # Threads that the candidate left running must not keep the process.
        os._exit(0)
