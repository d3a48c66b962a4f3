"""Short runs of `recipes/agents`: agents written with other people's clients train, and the audit agrees."""

from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train

ROOT = Path(__file__).parents[2]
SHORT = ["sft.steps=2", "sft.num_demonstrations=32", "sft.batch_size=8", "train.steps=2", "evaluate.tasks=4"]
SHORT += ["rollout.tasks_per_step=2", "rollout.group_size=4", "engine.num_threads=1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "packages"),
    [
        (["tiny"], ["openai"]),
        (["tiny", "langgraph"], ["langgraph", "langchain_openai"]),
        (["tiny", "team", "team_roles"], ["langgraph", "langchain_openai"]),
        (["tiny", "smolagents"], ["smolagents"]),
    ],
)
def test_a_run_of_an_agent_passes_the_audit(
    names: list[str], packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in packages:
        pytest.importorskip(package)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    files = [ROOT / "recipes" / "agents" / f"{name}.toml" for name in names]
    recipe = load_config(files, [*SHORT, f"run.output={tmp_path}"])
    report = audit_run(run_train(recipe, resume=None, display=False), replay_tools=False)
    assert report.breaches == []
    assert report.to_json()["ok"]
