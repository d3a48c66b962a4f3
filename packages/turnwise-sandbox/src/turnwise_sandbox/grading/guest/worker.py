"""The worker: imports the candidate's module and performs the grader's requests. The candidate controls this
process."""

import functools
import importlib
import importlib.util
import io
import os
import socket
import sys
import types
from typing import Any

from turnwise_sandbox.grading.guest.classes import define_class
from turnwise_sandbox.grading.guest.rpc import Peer

CHANNEL_FD = 4
"""The descriptor of this end of the channel; the grader's has the same number."""


class Printed(io.TextIOWrapper):
    """A text stream that collects its text until `drain`."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="replace", write_through=True)

    def drain(self) -> str:
        """The text written since the last call, cut at 2**20 bytes."""
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        content = self.buffer.getvalue()
        if content:
            self.buffer.seek(0)
            self.buffer.truncate()
        return content[: 1 << 20].decode("utf-8", "replace")


def find_module(name: str) -> bool | None:
    """Whether the module is a package; None if there is no such module."""
    spec = importlib.util.find_spec(name)
    return None if spec is None else spec.submodule_search_locations is not None


def load_module(name: str) -> list[str]:
    """Import the module; returns the names that `import *` gives, without modules."""
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None)
    names = [item for item in vars(module) if not item.startswith("_")] if public is None else list(public)
    return [item for item in names if not isinstance(vars(module).get(item), types.ModuleType)]


def get_from_module(name: str, attribute: str) -> tuple[bool, Any]:
    """Whether the attribute is a module, and the module's name or else the attribute."""
    value = getattr(importlib.import_module(name), attribute)
    return (True, value.__name__) if isinstance(value, types.ModuleType) else (False, value)


def set_in_module(name: str, attribute: str, value: Any) -> None:
    """Set an attribute of the module."""
    setattr(importlib.import_module(name), attribute, value)


originals: dict[tuple[type, str], Any] = {}
"""Attributes of classes before the tests set them."""


def set_in_class(kind: type, name: str, value: Any) -> None:
    """Set an attribute of a class, noting what it was."""
    if name in vars(kind):
        originals.setdefault((kind, name), vars(kind)[name])
    setattr(kind, name, value)


def restore_in_class(kind: type, name: str) -> None:
    """Reset an attribute of a class to its first value."""
    if (kind, name) in originals:
        setattr(kind, name, originals.pop((kind, name)))


def delete_from_module(name: str, attribute: str) -> None:
    """Delete an attribute of the module."""
    delattr(importlib.import_module(name), attribute)


def serve(channel: socket.socket, request_limit_s: float = 0.0) -> None:
    """Perform the grader's requests until it closes the channel. A request that takes more than `request_limit_s`
    processor seconds ends the process; 0 means no limit. This only ends code that leaves the timer alone."""
    sys.dont_write_bytecode = True
    out, err = Printed(), Printed()
    sys.stdout, sys.stderr = out, err
    peer = Peer(channel, guarded=False, drain=lambda: [out.drain(), err.drain()], request_limit_s=request_limit_s)
    for operation in (
        *(find_module, load_module, get_from_module, set_in_module, delete_from_module, set_in_class, restore_in_class),
    ):
        peer.operations[operation.__name__] = operation
    peer.operations["define_class"] = functools.partial(define_class, peer)
    peer.serve()


def main(folder: str) -> None:
    """Serve the modules in `folder`."""
    os.set_inheritable(CHANNEL_FD, False)
    os.chdir(folder)
    sys.path.insert(0, os.getcwd())
    try:
        serve(socket.socket(fileno=CHANNEL_FD))
    finally:
        # Do not wait for threads that the candidate left running.
        os._exit(0)
