"""Isolated execution of code that is not trusted: one-shot programs, live sessions and graded test runs.

    from turnwise_sandbox import Limits, LocalSandbox, Program

It needs no Docker, no root, no daemon and not the package `turnwise`. A name is imported when it is first used, so that
importing the package takes no time in the interpreters it starts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnwise_sandbox.bubblewrap import BubblewrapSandbox as BubblewrapSandbox
    from turnwise_sandbox.errors import SandboxError as SandboxError
    from turnwise_sandbox.grading.cases import Case as Case
    from turnwise_sandbox.grading.cases import CaseOutcome as CaseOutcome
    from turnwise_sandbox.grading.cases import grade_cases as grade_cases
    from turnwise_sandbox.grading.grade import Grade as Grade
    from turnwise_sandbox.grading.grade import Problem as Problem
    from turnwise_sandbox.grading.grade import grade as grade
    from turnwise_sandbox.levels import Level as Level
    from turnwise_sandbox.levels import Property as Property
    from turnwise_sandbox.remote.daytona import build_daytona_sandbox as build_daytona_sandbox
    from turnwise_sandbox.remote.e2b import build_e2b_sandbox as build_e2b_sandbox
    from turnwise_sandbox.remote.http import HttpSandbox as HttpSandbox
    from turnwise_sandbox.remote.modal import build_modal_sandbox as build_modal_sandbox
    from turnwise_sandbox.serve import SandboxServer as SandboxServer
    from turnwise_sandbox.serve import new_token as new_token
    from turnwise_sandbox.supervisor import LocalSandbox as LocalSandbox
    from turnwise_sandbox.trees import Layer as Layer
    from turnwise_sandbox.trees import Tree as Tree
    from turnwise_sandbox.types import Execution as Execution
    from turnwise_sandbox.types import Limit as Limit
    from turnwise_sandbox.types import Limits as Limits
    from turnwise_sandbox.types import Mode as Mode
    from turnwise_sandbox.types import Network as Network
    from turnwise_sandbox.types import Profile as Profile
    from turnwise_sandbox.types import Program as Program
    from turnwise_sandbox.types import Sandbox as Sandbox
    from turnwise_sandbox.types import Session as Session
    from turnwise_sandbox.types import TreeMethod as TreeMethod

__version__ = "0.1.0"

_MODULES = {
    "bubblewrap": ("BubblewrapSandbox",),
    "errors": ("SandboxError",),
    "grading.cases": ("Case", "CaseOutcome", "grade_cases"),
    "grading.grade": ("Grade", "Problem", "grade"),
    "levels": ("Level", "Property"),
    "remote.daytona": ("build_daytona_sandbox",),
    "remote.e2b": ("build_e2b_sandbox",),
    "remote.http": ("HttpSandbox",),
    "remote.modal": ("build_modal_sandbox",),
    "serve": ("SandboxServer", "new_token"),
    "supervisor": ("LocalSandbox",),
    "trees": ("Layer", "Tree"),
    "types": (
        "Execution",
        "Limit",
        "Limits",
        "Mode",
        "Network",
        "Profile",
        "Program",
        "Sandbox",
        "Session",
        "TreeMethod",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """A public name, imported from the module that defines it. Raises AttributeError for any other."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
