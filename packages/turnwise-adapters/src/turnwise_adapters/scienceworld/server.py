"""One Java process that simulates ScienceWorld: started with a deadline, spoken to over loopback with a secret, gone
with this process.

The simulator keeps its state in static variables, so that a process plays one episode at a time.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from turnwise.core.errors import EnvironmentFault, boundary
from turnwise_adapters.programs import JAVA

_MEMORY = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Java would take a quarter of the machine's memory for each process, and compile longer than an episode lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is played: names as in ScienceWorld."""

    task: str
    variation: int
    simplifications: str
    """Joined by commas; "" for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the simulator says after an action."""

    text: str
    score: int
    """From 0 to 100; below 0, mostly -100, if the task has failed for good."""
    done: bool


class Server:
    """A Java process. Every method raises EnvironmentFault if it has died or takes longer than the deadline."""

    def __init__(self, deadline_s: float) -> None:
        """Starts the process; `deadline_s` bounds this and every later call. Raises ConfigError without Java."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        java, deadline = JAVA.find(), time.monotonic() + deadline_s
        command = [java, *_MEMORY, "-classpath", _join_classpath(), "py4j.GatewayServer"]
        self._process = subprocess.Popen(
            [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_make_folder(),
            start_new_session=True,
        )
        try:
            port, secret = self._read_lines(2, deadline)
            Thread(target=self._drain, daemon=True).start()
            parameters = GatewayParameters(
                port=int(port), auth_token=secret, read_timeout=deadline_s, enable_memory_management=False
            )
            with boundary(EnvironmentFault, "ScienceWorld's simulator does not start"):
                self._gateway = JavaGateway(gateway_parameters=parameters)
                self._simulator = self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        except BaseException:
            self.close()
            raise
        self.owner: object = None
        """The episode whose state it holds."""

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def _read_lines(self, count: int, deadline: float) -> list[str]:
        """Read this many lines of the process's output."""
        assert self._process.stdout is not None
        data, descriptor = b"", self._process.stdout.fileno()
        while data.count(b"\n") < count:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(descriptor, 4096) if ready else b""
            if not piece:
                why = "ended at once" if ready else "did not start in time; raise environment.tool_timeout_s"
                raise EnvironmentFault(f"ScienceWorld's Java process {why}")
            data += piece
        return data.decode().split("\n")[:count]

    def _drain(self) -> None:
        """Discard what the simulator prints; it would wait for a reader once the pipe is full."""
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):  # the pipe is closed at the end
            while self._process.stdout.read(65_536):
                pass

    def _ask(self, method: str, *arguments: Any) -> Any:
        with boundary(EnvironmentFault, f"ScienceWorld's simulator, process {self.pid}, failed in {method}"):
            return getattr(self._simulator, method)(*arguments)

    def _ask_list(self, method: str) -> tuple[Any, ...]:
        """Return a list of the simulator's, which frees its own."""
        answer = self._ask(method)
        items = tuple(answer)
        self._gateway.detach(answer)
        return items

    def load(self, scene: Scene, gold: bool = False) -> tuple[str, ...]:
        """Start a scene; return the simulator's own solution, if asked for."""
        self._ask("load", scene.task, scene.variation, scene.simplifications, gold)
        return tuple(map(str, self._ask_list("getGoldActionSequence"))) if gold else ()

    def describe_task(self) -> str:
        """Return what the scene asks for."""
        return str(self._ask("getTaskDescription")).strip()

    def look(self) -> str:
        """Return what the player sees, which takes no move."""
        return str(self._ask("freeActionLook")).strip()

    def step(self, action: str) -> Answer:
        """Take an action."""
        text = str(self._ask("step", action)).strip()
        score = round(100 * float(self._ask("getScore")))
        return Answer(text=text, score=score, done=bool(self._ask("getCompleted")) or score < 0)

    def list_actions(self) -> tuple[str, ...]:
        """Return every action that the simulator understands now, sorted; takes 0.1 to 0.4 s."""
        return tuple(sorted(set(map(str, self._ask_list("getValidActionObjectCombinations")))))

    def list_variations(self, task: str, split: str) -> tuple[int, ...]:
        """Return the variations of a task in a split: "Train", "Dev" or "Test"."""
        self.load(Scene(task=task, variation=0, simplifications=""))
        return tuple(map(int, self._ask_list(f"getVariations{split}")))

    def close(self) -> None:
        """Kill the process."""
        if hasattr(self, "_gateway"):
            self._gateway.close()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _join_classpath() -> str:
    """Return the jars of py4j and of the simulator."""
    from py4j.java_gateway import find_jar_path
    from scienceworld.constants import JAR_PATH

    return os.pathsep.join((find_jar_path(), str(Path(JAR_PATH))))


def _make_folder() -> Path:
    """Return the folder where the process runs, `~/.cache/turnwise/scienceworld`. The simulator writes a table of its
    objects into the current folder whenever it meets a new one; here that file is `/dev/null`, so that processes do not
    write over each other's."""
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(cache) if cache else Path.home() / ".cache") / "turnwise" / "scienceworld"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / "object_type_ids.tsv").symlink_to(os.devnull)
    return folder
