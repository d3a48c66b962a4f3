"""Stand-ins for modules of the candidate."""

import types
from typing import Any

from turnwise_sandbox.grading.guest.rpc import Peer
from turnwise_sandbox.grading.guest.wire import WireError

SHOWN = {"__version__", "__author__", "__file__", "__license__", "__title__", "__version_info__"}
"""Names of modules with two underscores that tests read."""


class RemoteModule(types.ModuleType):
    """A stand-in for a module of the candidate. Its attributes are those of the worker's module.

    Deleting an attribute that was set here restores the original, which is how monkeypatch and mock undo a change."""

    def __getattr__(self, name: str) -> Any:
        peer = self.__dict__["_turnwise_peer"]
        if name.startswith("__") and name not in SHOWN:
            raise AttributeError(name)
        is_module, value = peer.ask("get_from_module", self.__name__, name)
        return build_module(peer, value) if is_module is True else value

    def __setattr__(self, name: str, value: Any) -> None:
        if (name.startswith("__") and name.endswith("__")) or isinstance(value, types.ModuleType):
            super().__setattr__(name, value)
        else:
            if name not in self.__dict__["_turnwise_originals"] and hasattr(self, name):
                self.__dict__["_turnwise_originals"][name] = getattr(self, name)
            self.__dict__["_turnwise_peer"].ask("set_in_module", self.__name__, name, value)

    def __delattr__(self, name: str) -> None:
        originals = self.__dict__["_turnwise_originals"]
        if name in originals:
            self.__dict__["_turnwise_peer"].ask("set_in_module", self.__name__, name, originals.pop(name))
        else:
            self.__dict__["_turnwise_peer"].ask("delete_from_module", self.__name__, name)


def build_module(peer: Peer, name: Any) -> types.ModuleType:
    """The stand-in for a module that the candidate imported. Raises WireError if `name` is not a string."""
    if type(name) is not str:
        raise WireError("a module without a name")
    module = RemoteModule(name)
    module.__dict__.update(_turnwise_peer=peer, _turnwise_originals={})
    return module
