"""Lets the tests import stand-ins for the candidate's modules."""

import ast
import builtins
import functools
import importlib.abc
import importlib.machinery
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from turnwise_sandbox.grading.guest.modules import build_module
from turnwise_sandbox.grading.guest.rpc import Peer


class CandidateFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules below the candidate's top-level names. `find_protected` gives the names that
    `from candidate import *` must not replace. `local` maps the dotted names of the tests' own modules inside the
    candidate's packages to True, and those of the folders that hold them to their path."""

    def __init__(
        self,
        peer: Peer,
        roots: Collection[str],
        find_protected: Callable[[], Collection[str]],
        local: dict[str, str | bool] | None = None,
    ) -> None:
        self.peer, self.roots, self.local = peer, frozenset(roots), local or {}
        self.find_protected = functools.cache(find_protected)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of the candidate; None for any other."""
        if name.split(".")[0] not in self.roots or self.local.get(name) is True:
            return None
        is_package = self.peer.ask("find_module", name)
        if is_package is None:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=is_package is True)
        if spec.submodule_search_locations is not None and (folder := self.local.get(name)):
            spec.submodule_search_locations.append(str(folder))
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """Build the stand-in."""
        return build_module(self.peer, spec.name)

    def exec_module(self, module: Any) -> None:
        """Import the real module in the worker. Raises what that raises, and ImportError if the module exits."""
        try:
            names = self.peer.ask("load_module", module.__name__)
        except SystemExit as problem:
            raise ImportError(f"the candidate's module exits when it is imported: {problem}") from None
        protected = self.find_protected()
        module.__dict__["__all__"] = [name for name in names if type(name) is str and name not in protected]


def find_local(paths: Sequence[str], folders: Sequence[str]) -> dict[str, str | bool]:
    """`CandidateFinder.local` for the tests' modules at these paths, imported from these folders."""
    local: dict[str, str | bool] = {}
    for path in paths:
        for folder in folders:
            relative = os.path.relpath(path, folder)
            if relative.startswith("..") or not relative.endswith(".py"):
                continue
            parts = relative.removesuffix(".py").split("/")
            for length in range(1, len(parts)):
                local.setdefault(".".join(parts[:length]), os.path.abspath(os.path.join(folder, *parts[:length])))
            local[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = True
    return local


def imported_names(files: Sequence[str], roots: Collection[str]) -> set[str]:
    """Built-in names and names that the tests import from other modules; `from candidate import *` must not replace
    them."""
    names = set(dir(builtins))
    for file in files:
        try:
            tree = ast.parse(Path(file).read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue  # running the file reports the error
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) or (
                isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in roots
            ):
                names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return names - set(roots)
