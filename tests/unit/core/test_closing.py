"""Closing with a deadline, whatever the environment does meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from panel import Panel, PanelFamily

from turnwise.audit import recheck
from turnwise.core.closing import close_environment
from turnwise.core.errors import EnvironmentFault


class Clinging(Panel):
    """Its close fails, or ignores that it is cancelled."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.let_go = asyncio.Event()

    async def close(self) -> None:
        if self.fails:
            raise OSError("cannot let go")
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.num_closed += 1


def test_what_goes_wrong_is_returned_and_nothing_waits_for_it() -> None:
    async def run() -> None:
        assert await close_environment(Panel()) is None
        problem = await close_environment(Clinging(fails=True))
        assert problem == "EnvironmentFault: closing the environment: OSError: cannot let go"
        clinging = Clinging(fails=False)
        assert await close_environment(clinging, 0.01) == (
            "EnvironmentFault: closing the environment: not done after 0.01 s"
        )
        clinging.let_go.set()

    asyncio.run(run())


def test_an_audit_goes_on_after_a_close_that_ignores_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "CLOSE_S", 0.01)

    async def run() -> None:
        clinging, task = Clinging(fails=False), PanelFamily().task("train", 0)
        with pytest.raises(EnvironmentFault, match=rf"^task {task.id}: .* not done after 0\.01 s$"):
            await recheck.close_or_fail(clinging, task)
        clinging.let_go.set()

    asyncio.run(run())
