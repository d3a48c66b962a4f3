"""`examples/extension`: a package that adds an environment, a loss, credit, an engine, a command and a section."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torch
from installed import EXAMPLE, install_example, write_entry_points
from typer.testing import CliRunner

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.losses.inputs import LossInputs
from turnwise.building.credit import find_credit
from turnwise.building.objectives import build_policy_loss
from turnwise.building.resolved import resolve
from turnwise.cli.main import app
from turnwise.config.credit import CreditSection
from turnwise.config.load import dump_resolved, load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Scored
from turnwise.engines.registry import build_engine
from turnwise.engines.settings import EngineSettings
from turnwise.environments.episodes import play_episode
from turnwise.environments.registry import load_family
from turnwise.reporting.report import write_report
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder
from turnwise.testing import build_tiny_model

ROOT = EXAMPLE.parents[1]
LIMITS = EngineSettings(max_concurrency=2, max_context=64)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which packages are installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with a reward of 0.5 in step 1, 0.9 in step 2 and 0.7 in step 3."""
    folder = RunFolder.create(tmp_path / "run")
    folder.write_json("config.json", dump_resolved(RunConfig()))
    for step, reward in enumerate((0.5, 0.9, 0.7), start=1):
        folder.append_metrics(step, "train", {"rollout/reward": reward})
    return folder


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_its_environment_has_a_short_name_and_is_solved(path: Path) -> None:
    install_example(path)
    family = load_family("dice", {})
    task = family.task("train", 0)
    played = asyncio.run(play_episode(family, task, family.policy("oracle"), seed=0, max_turns=3))
    assert isinstance(played.reward, Scored)
    assert played.reward.total == 1.0
    assert family.policy("random").reply(task, list(played.opening.messages), Random(0)).tool_calls


def test_its_command_is_in_the_help_and_runs(path: Path) -> None:
    assert " dice " not in invoke("--help")[1]
    install_example(path)
    assert " dice " in invoke("--help")[1]
    assert invoke("dice", "4") == (0, "3 of 36\n")  # 1 + 3, 2 + 2, 3 + 1
    with pytest.raises(ConfigError, match="total=13 is none of two dice"):
        invoke("dice", "13")


def test_its_section_is_in_the_report(path: Path, run: RunFolder) -> None:
    assert "best_step" not in write_report(run).read_text()
    install_example(path)
    page = write_report(run).read_text()
    assert '<section id="best_step"><h2>The best step</h2><p>Step 2 had the highest reward in training, 0.900.' in page
    assert page.index('id="best_step"') < page.index('id="config"')


def test_its_recipe_trains_by_its_loss_credit_and_engine(path: Path, tmp_path: Path) -> None:
    small = ["tokenizer.num_texts=60", "tokenizer.vocab_size=320", "sft.steps=2", "sft.num_demonstrations=4"]
    small += ["sft.batch_size=2", "rollout.tasks_per_step=2", "rollout.group_size=2", "train.num_threads=1"]
    small += ["train.steps=1", "evaluate.tasks=2", f"run.output={tmp_path}"]
    config = load_config([EXAMPLE / "recipe.toml"], small)
    with pytest.raises(ConfigError, match=r"engine.kind='bounded' is neither one of paged"):
        run_train(config, resume=None, display=False)
    install_example(path)
    folder = RunFolder.open(run_train(config, resume=None, display=False))
    assert [row["step"] for row in folder.read_metrics() if row["phase"] == "train"] == [1]
    none_left = load_config([EXAMPLE / "recipe.toml"], [*small, "engine.options.max_requests=0"])
    with pytest.raises(EnvironmentFault, match=r"all requests are used up; raise engine.options.max_requests"):
        run_train(none_left, resume=None, display=False)
    with pytest.raises(ConfigError, match=r"max_request is not an option of engine.kind='bounded'; did you"):
        build_engine("bounded", build_tiny_model(), common=LIMITS, options={"max_request": 1})


def test_its_loss_and_its_credit_compute_what_they_say(path: Path) -> None:
    install_example(path)
    loss = build_policy_loss(resolve(load_config([EXAMPLE / "recipe.toml"], ["loss.options.width=0.5"])))
    policy, old = torch.tensor([-0.5], requires_grad=True), torch.tensor([-1.0])
    inputs = LossInputs(
        policy_logprobs=policy,
        old_logprobs=old,
        behavior_logprobs=old,
        advantages=torch.tensor([2.0]),
        sequence=torch.zeros(1, dtype=torch.int64),
    )
    assert loss.function(inputs).losses.item() == pytest.approx(-2 * 0.5 * math.tanh(0.5 / 0.5))
    credit = find_credit(CreditSection(method="above_median", options={"scale": 2.0})).build()
    turns = (CreditTurn(num_tokens=1),)
    group = [CreditTrajectory(group="task", reward=reward, turns=turns) for reward in (1.0, 0.25, 0.0, None)]
    # Twice the reward minus 0.25, the median of the three that have one.
    given = [None if each is None else each[0].tolist() for each in credit(group)]
    assert given == [[1.5], [0.0], [-0.5], None]


def test_its_rows_are_listed_with_the_package_and_what_fails_with_the_reason(path: Path) -> None:
    install_example(path)
    write_entry_points(path, "luckless", {"turnwise.losses": {"gone": "missing_module:LOSS", "soft": "json:dumps"}})
    tables = json.loads(invoke("algorithms", "--json")[1])
    rows = {row["name"]: row for row in (*tables["credit"], *tables["loss"])}
    assert (rows["grpo"]["of"], rows["above_median"]["of"]) == ("built in", "turnwise-dice")
    assert (rows["soft_clip"]["of"], rows["soft_clip"]["options"]) == ("turnwise-dice", {"width": 0.2})
    assert "package luckless (missing_module:LOSS) cannot be imported" in rows["gone"]["does"]
    text = invoke("algorithms")[1]
    assert text.count("(of turnwise-dice)") == 2
    assert text.count("(of luckless)") == 2


def test_what_cannot_be_loaded_is_named_where_it_is_used_and_nowhere_else(path: Path, run: RunFolder) -> None:
    (path / "luckless.py").write_text(
        "from turnwise.reporting.installed import Section\n"
        "TEXT = 'no command'\n"
        "def fail(reported):\n    raise ValueError('<out of luck>')\n"
        "FAILS = Section(title='F', draw=fail)\n"
        "UNTITLED = Section(title=None, draw=fail)\n"
        "def plain(rolls: int | str):\n    print(rolls)\n"
    )
    (path / "leaves.py").write_text("raise SystemExit(3)\n")
    (path / "later.py").write_text(
        "from turnwise.reporting.installed import Section\nNEW = Section(title='N', draw=str, place='top')\n"
    )
    commands = {"gone": "missing_module:run", "text": "luckless:TEXT", "untyped": "luckless:plain", "out": "leaves:run"}
    paths = {"fails": "FAILS", "text": "TEXT", "results": "FAILS", "untitled": "UNTITLED"}
    sections = {**{name: f"luckless:{path}" for name, path in paths.items()}, "new": "later:NEW"}
    groups = {"turnwise.commands": commands, "turnwise.report_sections": sections}
    write_entry_points(path, "luckless", groups, requires="turnwise>=0.0.1")
    code, text = invoke("--help")
    assert code == 0
    assert " gone " in text
    with pytest.raises(ConfigError, match=r"command='gone' of the package luckless .*update one .*ModuleNotFound"):
        invoke("gone", "--anything", "1")
    with pytest.raises(ConfigError, match="command='text' from the package luckless is a str; it must be a function"):
        invoke("text")
    with pytest.raises(ConfigError, match="command='untyped' of the package luckless cannot be made a command: Asser"):
        invoke("untyped")
    with pytest.raises(ConfigError, match=r"command='out' .* luckless .* exits the program \(SystemExit: 3"):
        invoke("out")
    page = write_report(run).read_text()
    assert "<h2>fails</h2><p>Cannot be drawn: " in page
    assert "section=&#x27;fails&#x27; of the package luckless: ValueError: " in page
    assert "&lt;out of luck&gt;" in page
    assert "section=&#x27;text&#x27; of the package luckless is a str; it must be a Section" in page
    assert "section=&#x27;results&#x27; of the package luckless has the same name as a built-in section" in page
    assert "section=&#x27;untitled&#x27; of the package luckless has the title None; it must be text" in page
    assert "(later:NEW, made for &#x27;turnwise&gt;=0.0.1&#x27;) cannot be imported by Turnwise" in page
    assert 'id="config"' in page


def test_a_name_of_two_packages_is_refused_and_one_of_ours_stays_ours(path: Path, run: RunFolder) -> None:
    install_example(path)
    commands = {"dice": "turnwise_dice.command:dice", "metrics": "turnwise_dice.command:dice"}
    sections = {"best_step": "turnwise_dice.section:BEST_STEP"}
    write_entry_points(path, "other-dice", {"turnwise.commands": commands, "turnwise.report_sections": sections})
    page = write_report(run).read_text()
    assert "best_step&#x27; is provided more than once (other-dice and turnwise-dice); uninstall all" in page
    assert "The best step" not in page
    with pytest.raises(ConfigError, match=r"'dice' is provided more than once .*dice and turnwise-dice.*uninstall"):
        invoke("dice", "4")
    code, text = invoke("metrics")
    assert code == 0
    assert "the command 'metrics' from other-dice is hidden by Turnwise's own" in text
    assert "rollout/reward" in text


@pytest.mark.slow
def test_it_is_installed_by_pip(tmp_path: Path) -> None:
    if importlib.util.find_spec("setuptools") is None or importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip or no setuptools to build with")
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", target, source], check=True, timeout=300)
    result = subprocess.run(
        [sys.executable, "-c", "from turnwise.cli.main import main; main()", "dice", "7"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(target), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("6 of 36\n", "")
