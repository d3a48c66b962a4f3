"""Turnwise's side of `step.py`: the trainer itself, step by step, in the protocol of `step_side.py`.

    # The warm-up; prints the checkpoint both sides start from:
    PYTHONPATH=benchmarks python benchmarks/step_turnwise.py prepare FOLDER
    # Steps, as standard input asks for them:
    PYTHONPATH=benchmarks python benchmarks/step_turnwise.py

Settings: `model` (the checkpoint), `recipe`, `seed`, `steps`, `output` (a folder for the run), `overrides`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import step_world
from step_side import Side, Stopwatch

from turnwise.config.load import dump_resolved, load_config
from turnwise.config.run import RunConfig
from turnwise.core.events import Event, PhaseBegins, StepEnds
from turnwise.runs.build import System, build_system
from turnwise.runs.sft import run_sft
from turnwise.runs.train import Run
from turnwise.store.run_folder import RunFolder


class Turns:
    """Replaces the run's display: waits for its turn when a step begins, and writes a row when it ends."""

    def __init__(self, side: Side, watch: Stopwatch) -> None:
        self._side = side
        self._watch = watch
        self._started = self._processor_s = 0.0
        self._has_turn = False

    def record(self, event: Event) -> None:
        """See `core.protocols.Recorder`."""
        match event:
            case PhaseBegins(phase="rollout"):
                self._begin()
            case StepEnds(phase="train"):
                self._end(event.step, event.values)

    def _begin(self) -> None:
        """Begin a step with its rollout; a parity gate before it, with its own rollout, does not count."""
        if not self._has_turn and self._side.read() is None:
            raise SystemExit(0)
        self._has_turn = True
        self._watch.seconds.clear()
        self._started, self._processor_s = time.perf_counter(), time.process_time()

    def _end(self, step: int, values: Mapping[str, float | None]) -> None:
        """End a step."""
        total = time.perf_counter() - self._started
        self._has_turn = False
        seconds = self._watch.seconds
        # Rollout and update are totals, from which the times inside them are subtracted. Tools run in other threads,
        # beside the model.
        seconds["generation"] = (
            float(values["rollout/seconds"] or 0.0) - seconds["messages"] - seconds["reward"] - seconds["tools"]
        )
        seconds["forward"] = float(values["train/seconds"] or 0.0) - seconds["backward"] - seconds["optimizer"]
        self._side.write(
            {
                "step": step,
                "seconds": total,
                "processor_seconds": time.process_time() - self._processor_s,
                "phases": self._watch.split(total),
                "reward": values["rollout/reward"],
                "tokens": {"context": values["rollout/context_tokens"], "sampled": values["rollout/sampled_tokens"]},
                "tool_calls": values["rollout/tool_calls"],
            }
        )


def build(settings: Mapping[str, Any]) -> System:
    """The system of the settings, its token budget after the longest prompt the same as TRL's
    `max_completion_length`."""
    config = load_config(
        [Path(settings["recipe"])],
        [
            f"model.path={settings['model']!r}",
            "sft.steps=0",
            f"train.steps={settings['steps']}",
            f"run.seed={settings['seed']}",
            f"environment.args.seed={1000 + settings['seed']}",
            *settings["overrides"],
        ],
    )
    system = build_system(config, training=True)
    rollout = system.config.rollout
    budget = rollout.max_tokens - max(len(ids) for ids in open_prompts(system))
    rollout = rollout.model_copy(update={"max_turn_tokens": budget})
    return replace(system, config=system.config.model_copy(update={"rollout": rollout}))


def open_prompts(system: System) -> list[list[int]]:
    """Token ids of the prompt of every task of the run."""
    from turnwise.tools.tool import to_tool

    tools = [to_tool(function).spec for function in step_world.TOOLS]
    count = system.config.train.steps * system.config.rollout.tasks_per_step
    return [system.renderer.open(system.family.task("train", index).prompt, tools).tolist() for index in range(count)]


def prepare(recipe: Path, output: Path, overrides: list[str]) -> Path:
    """Warm up from random weights; returns the checkpoint, a Hugging Face folder."""
    config: RunConfig = load_config([recipe], [f"run.output={str(output)!r}", *overrides])
    return run_sft(config, display=True) / "checkpoints" / "step_000000"


def main() -> None:
    """See the module's docstring."""
    side = Side()
    recipe = Path(__file__).with_name("step.toml")
    if sys.argv[1:2] == ["prepare"]:
        side.write({"model": str(prepare(recipe, Path(sys.argv[2]), sys.argv[3:]))})
        return
    settings = side.read()
    if settings is None:
        raise SystemExit("the first line of standard input must hold the settings")
    watch = Stopwatch()
    watch.wrap_torch()
    step_world.TOOLS = tuple(watch.timed(function, "tools") for function in step_world.TOOLS)
    watch.wrap(step_world, "compute_reward", "reward")
    system = build(settings)
    for method in ("open", "extend", "parse"):
        watch.wrap(system.renderer, method, "messages")
    folder = RunFolder.create(Path(settings["output"]))
    folder.write_json("config.json", dump_resolved(system.config))
    prompts = open_prompts(system)
    side.write({"ready": True, "prompts": prompts, "max_completion_tokens": system.config.rollout.max_turn_tokens})
    asyncio.run(Run(system, folder, Turns(side, watch)).run())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
