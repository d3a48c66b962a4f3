"""The facade of scripts and notebooks: `train` with a class, an object or a name, and tables of what a run left."""

import asyncio
import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import turnwise as tw
from turnwise.api import given
from turnwise.api.given import name_environment
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError, DataError, EnvironmentFault, StoreError
from turnwise.environments.registry import load_family
from turnwise.testing import NotesFamily

SMALL = {
    "tokenizer.num_texts": 60,
    "tokenizer.vocab_size": 320,
    "engine.max_concurrency": 8,
    "rollout.tasks_per_step": 2,
    "rollout.group_size": 2,
    "rollout.max_tokens": 64,
    "rollout.max_turn_tokens": 8,
    "sft.steps": 2,
    "sft.num_demonstrations": 4,
    "sft.batch_size": 2,
    "train.num_threads": 1,
    "evaluate.tasks": 3,
}
LIMITS = {"tool_timeout_s": 10.0, "max_observation_chars": 4000}


def train(environment: object, folder: Path, **options: Any) -> Any:
    return tw.train(environment, overrides={**SMALL, "run.output": folder}, display=False, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs")
    return train(NotesFamily, folder, train__steps=2, evaluate={"tasks": 3, "controls": {"direct": {"linked": 0.0}}})


@pytest.fixture
def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import pandas` fails, as where it is not installed."""
    real_import = builtins.__import__

    def import_others(name: str, *rest: Any, **named: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real_import(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", import_others)


def test_train_returns_the_run_with_the_small_model(run: Any) -> None:
    assert run.config.environment.name == "turnwise.testing.notes:NotesFamily"
    assert run.config.train.steps == 2
    assert run.config.model.config["hidden_size"] == 64
    assert run.report.stat().st_size > 1000
    first, *others = repr(run).splitlines()
    assert first == f"run {run.path}"
    assert [line.partition(":")[0] for line in others] == [
        "  held-out success after SFT",
        "  held-out success after RL",
        "  held-out success after RL, direct",
    ]


@pytest.mark.usefixtures("without_pandas")
def test_tables_are_lists_of_dictionaries_without_pandas(run: Any) -> None:
    assert [row["step"] for row in run.metrics("train")] == [1, 2]
    assert {row["phase"] for row in run.metrics()} == {"sft", "train", "evaluate"}
    evaluations = [row for row in run.evaluations() if row["kind"] == "all"]
    assert [(row["step"], row["control"], row["n"]) for row in evaluations] == [
        (0, False, 3),
        (2, False, 3),
        (2, True, 3),
    ]
    rows = run.trajectories(step=2)
    assert [(row["step"], row["draw"], row["member"]) for row in rows] == [(2, 2, 0), (2, 2, 1), (2, 3, 0), (2, 3, 1)]
    groups = run.groups(2)
    assert [t.num_sampled_tokens for g in groups for t in g.trajectories] == [row["sampled_tokens"] for row in rows]
    for row in rows:
        assert row["fate"] == "trained"
        assert row["prompt"].startswith("start ")
        assert row["transcript"].startswith(f"user: {row['prompt']}\n\nassistant: ")
        assert (row["reward"] is None) == (row["invalid"] is not None)
    assert len(run.trajectories()) == 8
    heldout = run.trajectories(split="heldout", step=2)
    assert [row["evaluation"] for row in heldout] == ["after RL"] * 3 + ["after RL, direct"] * 3
    assert len(run.trajectories(split="heldout")) == 9
    assert tw.load_run(run.path).trajectories(step=1) == run.trajectories(step=1)


def test_tables_are_data_frames_with_pandas(run: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = tw.load_run(str(run.path)).trajectories()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.groupby("step").size()) == [4, 4]
    assert isinstance(run.metrics(), pandas.DataFrame)
    assert isinstance(run.evaluations(), pandas.DataFrame)


def test_what_a_run_does_not_have_is_named(run: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no groups for step 3; its last trained step is 2"):
        run.groups(3)
    with pytest.raises(DataError, match=r"has no heldout trajectories for step 1; its last trained step is 2"):
        run.trajectories(1, split="heldout")
    with pytest.raises(StoreError, match="is not a run folder"):
        tw.load_run(tmp_path)


class Local(NotesFamily):
    """A class that this module has, so that any process can import it."""


def test_a_class_or_a_family_of_this_process_trains_and_another_process_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Inner(NotesFamily):
        pass

    done = train(Inner, tmp_path, train__steps=0, evaluate__tasks=0)
    assert done.config.environment.name == "turnwise.api.given:Inner"
    assert name_environment(Local) == f"{__name__}:Local"
    monkeypatch.setattr(given, "_GIVEN", {})  # as in another process
    with pytest.raises(ConfigError, match=r"environment 'Inner' was passed to turnwise.train as an object"):
        tw.train(resume=done.path, display=False)
    # Here it goes on.
    assert tw.train(Inner, resume=done.path, display=False).path == done.path

    family = NotesFamily(linked=0.0)
    assert load_family(name_environment(family), LIMITS) is family
    with pytest.raises(ConfigError, match="environment is a NotesFamily that is already built and takes no linked"):
        load_family(name_environment(family), {**LIMITS, "linked": 0.5})


def test_a_notebook_has_a_loop_already(tmp_path: Path) -> None:
    async def cell() -> Any:
        return train(NotesFamily, tmp_path, train__steps=0, evaluate__tasks=0)

    assert asyncio.run(cell()).metrics("sft") is not None

    async def broken_cell() -> Any:
        return train(NotesFamily, tmp_path, renderer__kind="tags", renderer__format="retool")

    with pytest.raises(ConfigError, match=r"can call only python\(code\), but the environment has search\(query\)"):
        asyncio.run(broken_cell())


INTERRUPTED = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
import turnwise as tw
from turnwise.testing import NotesFamily

folder = Path(sys.argv[1])

def interrupt():
    while not list(folder.glob("*/groups/*/*.jsonl")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

async def cell():
    threading.Thread(target=interrupt, daemon=True).start()
    tw.train(NotesFamily, recipe={"sft": {"steps": 1, "num_demonstrations": 2}}, run__output=folder, train__steps=500,
        evaluate__tasks=0, rollout={"tasks_per_step": 2, "group_size": 2}, display=False)

try:
    asyncio.new_event_loop().run_until_complete(cell())  # a kernel's loop leaves signals alone
except KeyboardInterrupt:
    print("stopped", [t.name for t in threading.enumerate() if t.name.startswith("turnwise.train")])
"""


@pytest.mark.slow
def test_a_keyboard_interrupt_of_a_cell_stops_the_run(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout.strip() == "stopped []", result.stderr
    (folder,) = tmp_path.iterdir()
    assert len(tw.load_run(folder).metrics("train")) < 500


def test_recipes_are_files_and_tables_and_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[train]\nlr = 0.5\nsteps = 3\n", encoding="utf-8")
    table = {"train": {"lr": 0.25}}
    config = load_config([path, table], changes={"train.steps": 7, "environment.args": {"rows": [{"a": 1}]}})
    assert (config.train.lr, config.train.steps) == (0.25, 7)
    assert config.environment.args == {"rows": [{"a": 1}]}
    assert table == {"train": {"lr": 0.25}}
    with pytest.raises(
        ConfigError, match=r"override 'train\.stepz': unknown key 'train\.stepz'; did you mean 'train\.s"
    ):
        tw.train(NotesFamily, train__stepz=3)
    with pytest.raises(ConfigError, match=r"the recipe: unknown key 'train\.stepz'"):
        tw.train(recipe={"train": {"stepz": 3}})
    with pytest.raises(ConfigError, match="resume continues a run with its own recipe"):
        tw.train(resume=tmp_path, recipe={})
    with pytest.raises(StoreError, match="is not a run folder"):
        tw.train(resume=tmp_path, train__steps=3)


def test_an_environment_replaces_the_recipes_own(tmp_path: Path) -> None:
    recipe = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
    with pytest.raises(ConfigError, match="is already built and takes no nothing"):
        tw.train(NotesFamily(), recipe=recipe, environment__args={"nothing": 1}, run__output=tmp_path, display=False)


class Vault(tw.Environment):
    """Opens for the right letters."""

    async def setup(self, task: tw.Task, seed: int) -> Any:
        self.is_open = False
        return await super().setup(task, seed)

    @tw.tool
    def try_letters(self, letters: str) -> str:
        """Try letters.

        Args:
            letters: The letters.
        """
        self.is_open = letters == "abc"
        return "open" if self.is_open else "closed"

    def not_a_tool(self) -> None:
        pass

    async def score(self, replies: Any, stop: Any) -> tw.Scored:
        return tw.Scored(total=float(self.is_open))


def test_methods_under_tool_are_the_tools() -> None:
    async def play() -> float:
        vault = Vault()
        task = tw.Task(environment="vault", prompt=(tw.text_message("user", "letters?"),), payload={})
        opening = await vault.reset(task, 0)
        assert [(tool.name, list(tool.parameters["properties"])) for tool in opening.tools] == [
            ("try_letters", ["letters"])
        ]
        call = tw.ToolCall(id="0", name="try_letters", arguments='{"letters": "abc"}')
        result = await vault.step(tw.text_message("assistant", "", tool_calls=(call,)))
        assert [message.text for message in result.observations] == ["open"]
        reward = await vault.score((), None)
        return reward.total

    assert asyncio.run(play()) == 1.0


def test_tool_refuses_what_no_model_could_call() -> None:
    def add(first, second):  # type: ignore[no-untyped-def]
        return first + second

    with pytest.raises(ConfigError, match="tool 'add' needs type hints and a Google-style docstring"):
        tw.tool(add)


def test_an_environment_without_tasks_says_what_trains(tmp_path: Path) -> None:
    with pytest.raises((ConfigError, EnvironmentFault), match="Vault"):
        train(Vault, tmp_path)
