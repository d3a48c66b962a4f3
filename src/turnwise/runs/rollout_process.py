"""A rollout process: it plays the attempts that it is sent, with environments and an engine of its own.

    PYTHON -m turnwise.runs.rollout_process SOCKET_FD PARENT_PID

The first message tells the recipe and where weights and tokenizer are. Nothing is sampled between `pause` and
`resume`."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from turnwise.config.run import RunConfig
from turnwise.core.errors import EngineError
from turnwise.core.judging import Judge
from turnwise.core.protocols import PausableEngine
from turnwise.core.types import DropReason
from turnwise.engines.workers.serving import Say, follow_parent, serve
from turnwise.models.checksums import compute_checksums, sum_tensors
from turnwise.models.lora import list_adapter
from turnwise.models.tensor_names import compare_shapes
from turnwise.models.weight_files import read_tensors
from turnwise.pictures.store import PictureStore
from turnwise.remote.episodes import decode_attempt, encode_episode
from turnwise.remote.judges import DistantJudge
from turnwise.rendering.tokenizer import load_tokenizer
from turnwise.rollout.attempt import Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import Cut
from turnwise.rollout.workers import RolloutWorker
from turnwise.runs.branches import with_branches
from turnwise.runs.build import System, build_reply_grammar, build_system

Tensors = Mapping[str, torch.Tensor]


def main() -> None:
    """The whole life of a rollout process."""
    number, parent_pid = sys.argv[1:]
    if follow_parent(int(parent_pid)):
        asyncio.run(serve(socket.socket(fileno=int(number)), _build, None))


async def _build(settings: Mapping[str, Any], say: Say) -> _RolloutProcess:
    config = RunConfig.model_validate(settings["config"])
    torch.set_num_threads(max(1, config.engine.num_threads))
    trusts = config.model.trust_remote_code
    tokenizer = load_tokenizer(Path(settings["tokenizer"]), trust_remote_code=trusts)
    pictures = PictureStore(None if settings["pictures"] is None else Path(settings["pictures"]))
    system = build_system(config, tokenizer=tokenizer, pictures=pictures)
    if not isinstance(system.engine.engine, PausableEngine):
        raise EngineError(f"engine.kind={config.engine.kind!r} cannot load new weights; choose another engine")
    process = _RolloutProcess(
        system=system,
        engine=system.engine.engine,
        say=say,
        pictures=pictures,
        distant_judges=tuple(settings["distant_judges"]),
    )
    system.engine.tell_switch = say
    await process.adopt(Path(settings["folder"]), settings["version"])
    return process


@dataclass(slots=True, kw_only=True)
class _RolloutProcess:
    """Implements `Service`."""

    system: System
    engine: PausableEngine
    say: Say
    pictures: PictureStore
    """The run's pictures, or, where the run keeps none on disk, those that this process showed."""
    distant_judges: tuple[str, ...] = ()
    """Names of the judges that the training process asks."""
    asked: dict[tuple[int, int], asyncio.Future[Mapping[str, Any]]] = field(default_factory=dict)
    """Questions without an answer, by the number of the request to play and their own."""
    num_asked: int = 0
    playing: dict[str, tuple[asyncio.Task[Any], Cut]] = field(default_factory=dict)
    """By key of the attempt."""
    workers: dict[str, RolloutWorker] = field(default_factory=dict)
    """By the changes of the environment's arguments."""
    is_paused: bool = False

    @property
    def is_computing(self) -> bool:
        """Whether a step of the engine is computed, of an engine that can tell."""
        return bool(getattr(self.engine, "is_computing", False))

    def statistics(self) -> Mapping[str, Any]:
        meter = self.system.engine
        return {"sessions": [[s.group, s.name] for s in meter.open_sessions], "num_replies": meter.num_replies}

    async def answer(self, message: Mapping[str, Any]) -> Any:
        match message["kind"]:
            case "play":
                return await self.play(message)
            case "cut":
                # An attempt that came just before has not begun yet.
                await asyncio.sleep(0)
                if message["key"] in self.playing:
                    task, cut = self.playing[message["key"]]
                    cut.reason = DropReason(message["reason"])
                    task.cancel()
            case "verdict":
                asked = self.asked.get((message["request"], message["number"]))
                if asked is not None and not asked.done():  # its episode may have ended
                    asked.set_result(message["judgement"])
            case "stage":
                return self.stage(Path(message["folder"]))[1]
            case "adopt":
                return await self.adopt(Path(message["folder"]), message["version"])
            case "pause":
                self.is_paused = True
                return await self.engine.pause(message["interrupt"])
            case "resume":
                self.is_paused = False
                await self.engine.resume()
            case kind:
                raise EngineError(f"unknown message kind {kind!r} for a rollout process")
        return None

    async def play(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The episode of one attempt."""
        cut, task = Cut(), asyncio.current_task()
        assert task is not None
        self.playing[message["key"]] = task, cut
        try:
            build_grammar = build_reply_grammar if message["is_guided"] else None
            worker = replace(
                self._worker(message["changes"], is_branched=message["is_branched"]),
                limits=Limits(**message["limits"]),
                sampling=Sampling(**message["sampling"], build_grammar=build_grammar),
                judges=self._judges(message["id"]),
            )
            attempt = decode_attempt(message["attempt"], self.pictures)
            return encode_episode(await worker.run_attempt(attempt, cut=cut))
        finally:
            del self.playing[message["key"]]

    def _judges(self, request: int) -> Mapping[str, Judge]:
        """The judges that the episode of a request may ask."""
        ask = partial(self._ask, request)
        distant = {name: DistantJudge(name, ask, self.pictures) for name in self.distant_judges}
        return {**self.system.judges, **distant}

    async def _ask(self, request: int, judgement: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask a judge of the training process; the answer comes as a message."""
        self.num_asked += 1
        number = self.num_asked
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.asked[request, number] = answer
        self.say(id=request, part={"number": number, "judgement": judgement})
        try:
            return await answer
        finally:
            del self.asked[request, number]

    def _worker(self, changes: Mapping[str, Any], *, is_branched: bool) -> RolloutWorker:
        key = f"{is_branched} {sorted(changes.items())}"
        if key not in self.workers:
            worker = self.system.worker("train", changes)
            self.workers[key] = with_branches(self.system, worker) if is_branched else worker
        return self.workers[key]

    def stage(self, folder: Path) -> tuple[Tensors, Mapping[str, int]]:
        """The tensors in a folder, and the checksums of a model that holds them."""
        tensors = read_tensors(folder, where=f"the weights in {folder}", error=EngineError)
        # Of a model with an adapter the adapter's parameters alone are staged.
        own = list_adapter(self.system.model) or dict(self.system.model.named_parameters())
        problem = compare_shapes(*({name: tuple(t.shape) for name, t in each.items()} for each in (own, tensors)))
        if problem is not None:
            raise EngineError(f"the weights in {folder} do not belong to the recipe's model: it {problem}")
        return tensors, compute_checksums(self.system.model, sum_tensors(tensors))

    async def adopt(self, folder: Path, version: int) -> Mapping[str, int]:
        """Sample with the weights in `folder` from now on; the checksums of what the engine holds."""
        tensors, _ = self.stage(folder)
        parameters = dict(self.system.model.named_parameters())
        if not self.is_paused:
            await self.engine.pause("continue")
        try:
            with torch.no_grad():
                for name, tensor in tensors.items():
                    parameters[name].copy_(tensor)
            return dict(await self.engine.adopt(version))
        finally:
            if not self.is_paused:
                await self.engine.resume()


if __name__ == "__main__":
    main()
