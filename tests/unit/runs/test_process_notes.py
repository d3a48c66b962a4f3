"""Deaths and replacements of processes reach the run's events and its metrics."""

import asyncio
from typing import Any

from turnwise.core.events import Event, Note, StepEnds
from turnwise.core.notices import PROCESSES, tell_loss, tell_start
from turnwise.engines.workers.pool import WorkerPool
from turnwise.runs.process_notes import LOST, ProcessNotes


class Heard:
    """A recorder that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)


def end_step(step: int) -> StepEnds:
    return StepEnds(step=step, phase="train", values={"train/loss": 1.0})


def test_losses_of_any_thread_are_notes_and_are_counted_in_the_next_step() -> None:
    heard = Heard()
    notes = ProcessNotes(heard)

    async def run() -> None:
        with notes.listen():
            tell_start("starting 2 trainer ranks")
            await asyncio.to_thread(tell_loss, "rank 1 of 2 (process 7) was ended by signal 9")
            await asyncio.to_thread(tell_loss, "rollout process 0 (process 8) was ended by signal 9")
            await asyncio.sleep(0)
            assert [e.text for e in heard.events if isinstance(e, Note)] == [
                "starting 2 trainer ranks",
                "rank 1 of 2 (process 7) was ended by signal 9",
                "rollout process 0 (process 8) was ended by signal 9",
            ]
            notes.record(end_step(1))
            notes.record(end_step(2))
            tell_loss("the last words")

    asyncio.run(run())
    counts = [event.values[LOST] for event in heard.events if isinstance(event, StepEnds)]
    assert counts == [2.0, 0.0]
    assert heard.events[-1] == Note(kind="process", text="the last words"), "what is told at the end is kept too"
    assert notes not in PROCESSES.handlers


class FakeLink:
    """A worker that is open until it is told otherwise."""

    def __init__(self, name: str) -> None:
        self.name, self.pid, self.is_open = name, 1, True

    def tell(self, kind: str, **fields: Any) -> None:
        pass

    async def ask(self, kind: str, **fields: Any) -> str:
        return self.name


def test_a_pool_tells_of_its_start_once_and_of_each_replacement() -> None:
    heard = Heard()
    links: list[FakeLink] = []

    async def start(name: str) -> Any:
        links.append(FakeLink(f"{name} (process {len(links)})"))
        return links[-1]

    async def run() -> None:
        with ProcessNotes(heard).listen():
            pool = WorkerPool(start, num_workers=2, max_open=1, name="rollout process")
            await pool.start()
            links[1].is_open = False
            await pool.start()
            await asyncio.sleep(0)

    asyncio.run(run())
    assert [event.text for event in heard.events if isinstance(event, Note)] == [
        "starting 2 rollout processes",
        "rollout process 1 (process 2) takes the place of rollout process 1 (process 1)",
    ]
