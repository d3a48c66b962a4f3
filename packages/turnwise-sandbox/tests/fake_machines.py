"""Replaces the SDKs of E2B, Modal and Daytona by fake ones, whose machines are folders and processes of this one."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwise_sandbox.remote.daytona import build_daytona_sandbox
from turnwise_sandbox.remote.e2b import build_e2b_sandbox
from turnwise_sandbox.remote.machine import MachineSandbox
from turnwise_sandbox.remote.modal import build_modal_sandbox

FOLDER = Path(__file__).parent / "remote/fake_sdks"
BUILDERS: dict[str, tuple[Callable[..., MachineSandbox], dict[str, str]]] = {
    "e2b": (build_e2b_sandbox, {"E2B_API_KEY": "key-e"}),
    "modal": (build_modal_sandbox, {"MODAL_TOKEN_ID": "key", "MODAL_TOKEN_SECRET": "m"}),
    "daytona": (build_daytona_sandbox, {"DAYTONA_API_KEY": "key-d"}),
}
"""Provider to its builder and the environment variables with its keys."""


@contextlib.contextmanager
def fake_sdks() -> Iterator[Any]:
    """Imports of the SDKs find the fake ones, with keys in the environment. Yields the module that lists the
    machines."""
    names = ["local_machine", *BUILDERS]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        for name in names:
            patch.delitem(sys.modules, name, raising=False)
        for _, keys in BUILDERS.values():
            for variable, value in keys.items():
                patch.setenv(variable, value)
        yield importlib.import_module("local_machine")
        for name in names:
            sys.modules.pop(name, None)
