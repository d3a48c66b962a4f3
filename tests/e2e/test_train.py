"""The whole path on a recipe small enough for a test: train, stop, resume, evaluate, ask, report; and failures in every
phase."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run_command
from interrupted import at_evaluation, at_step, train_until
from run_rows import read_rows

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import CheckpointError, ConfigError, EnvironmentFault, StoreError
from turnwise.core.types import Draw, DropReason
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.search_qa.policies import search_message
from turnwise.runs.build import build_system
from turnwise.runs.evaluate import run_evaluate
from turnwise.runs.sft import run_sft
from turnwise.runs.train import run_train
from turnwise.store.groups import GroupStore
from turnwise.store.journal import read_journal
from turnwise.store.run_folder import RunFolder

TINY = Path(__file__).parent.parent.parent / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=200",
    "tokenizer.vocab_size=500",
    "rollout.tasks_per_step=4",
    "rollout.group_size=4",
    "rollout.max_turns=4",
    "sft.steps=8",
    "sft.batch_size=8",
    "sft.num_demonstrations=32",
    "train.steps=4",
    "train.checkpoint_every=2",
    "train.num_threads=1",
    "evaluate.tasks=6",
    "engine.max_concurrency=16",
]


def recipe(tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config([TINY], [*SMALL, f"run.output={tmp_path}", *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_train(recipe(tmp_path_factory.mktemp("runs"), "loss.kl.coefficient=0.01"), resume=None, display=False)


def test_a_run_leaves_everything_it_promises(finished: Path) -> None:
    rows = read_rows(finished)
    assert [r["step"] for r in rows if r["phase"] == "train"] == [1, 2, 3, 4]
    assert [r["step"] for r in rows if r["phase"] == "sft"] == list(range(1, 9))
    assert {p.name for p in (finished / "checkpoints").iterdir()} == {"step_000000", "step_000002", "step_000004"}
    assert (finished / "report.html").stat().st_size > 5_000
    # Other tests evaluate the run again.
    names = {p.name for p in (finished / "evaluations").glob("heldout_*.summary.json")}
    assert names == {
        "heldout_000000.summary.json",
        "heldout_000004.summary.json",
        "heldout_000004_search_off.summary.json",
        "heldout_000004_documents_shuffled.summary.json",
    }
    assert GroupStore(finished).list_draws() == list(range(16))  # 4 steps of 4 groups
    state = read_journal(finished)
    assert {step: len(draws) for step, draws in state.taken.items()} == {1: 4, 2: 4, 3: 4, 4: 4}
    assert [(trained.step, trained.version) for trained in state.trained.values()] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_the_sampler_and_the_trainer_agree_at_every_step(finished: Path) -> None:
    gaps = [float(str(r["train/logprob_gap_max"])) for r in read_rows(finished) if r["phase"] == "train"]
    assert len(gaps) == 4
    assert max(gaps) < 1e-4


def test_a_checkpoint_is_a_hugging_face_directory(finished: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = finished / "checkpoints" / "step_000004"
    model = AutoModelForCausalLM.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert model.config.vocab_size == len(tokenizer)
    assert (
        tokenizer.decode(tokenizer.encode("What is the author of Blue Lantern ?"))
        == "What is the author of Blue Lantern ?"
    )


@pytest.mark.parametrize("stop_at", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_resumed_run_is_the_run_that_was_never_stopped(finished: Path, tmp_path: Path, stop_at: int) -> None:
    stopped = train_until(recipe(tmp_path, "loss.kl.coefficient=0.01"), tmp_path / "stopped", at_step(stop_at))
    resumed = run_train(None, resume=stopped, display=False)
    assert read_rows(resumed) == read_rows(finished)
    for name in ("model.safetensors", "state.safetensors"):
        left, right = (run / "checkpoints" / "step_000004" / name for run in (resumed, finished))
        assert left.read_bytes() == right.read_bytes()


def test_an_interrupted_last_evaluation_is_made_up_for(finished: Path, tmp_path: Path) -> None:
    # The second evaluation of a run is the one after RL.
    stopped = train_until(recipe(tmp_path, "loss.kl.coefficient=0.01"), tmp_path / "stopped", at_evaluation(2))
    resumed = run_train(None, resume=stopped, display=False)
    assert read_rows(resumed) == read_rows(finished)
    for summary in (finished / "evaluations").glob("heldout_*.summary.json"):
        assert (resumed / "evaluations" / summary.name).read_bytes() == summary.read_bytes()


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    before = read_rows(finished)
    assert run_train(None, resume=finished, display=False) == finished
    assert read_rows(finished) == before


def test_a_damaged_checkpoint_is_refused_with_its_name(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    weights = copy / "checkpoints" / "step_000004" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        run_train(None, resume=copy, display=False)


def test_a_checkpoint_of_another_model_is_refused(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    config = json.loads((copy / "config.json").read_text())
    config["model"]["config"]["hidden_size"] = 64
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="a different model"):
        run_train(None, resume=copy, display=False)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"config\.json"):
        run_train(None, resume=tmp_path, display=False)


BROKEN_FAMILY = '''
import time
from turnwise.environments.search_qa.environment import SearchEnvironment
from turnwise.environments.search_qa.family import SearchQA

class Broken(SearchEnvironment):
    def search(self, query: str) -> str:
        """Search.

        Args:
            query: What to look for.
        """
        {body}

class Family(SearchQA):
    def build_environment(self, task):
        environment = super().build_environment(task)
        environment.__class__ = Broken
        return environment
'''


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ZeroDivisionError('boom')", "ZeroDivisionError: boom"),
        ("time.sleep(60)", "ran longer than 0.05 s"),
    ],
)
def test_a_broken_tool_is_retried_never_a_zero_and_fails_the_batch_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    name = f"broken_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(BROKEN_FAMILY.replace("{body}", body))
    monkeypatch.syspath_prepend(tmp_path)
    config = recipe(
        tmp_path,
        f"environment.name={name}:Family",
        "sft.steps=0",
        "sft.policy=oracle",
        "environment.tool_timeout_s=0.05",
        "rollout.max_invalid_share=0.0",
    )
    system = build_system(config)
    replies = [search_message("anything", 0)] * 9
    worker = replace(system.worker("train"), engine=ScriptedEngine(system.renderer, replies))
    draw = Draw(index=0, task=system.family.task("train", 0))
    [group] = asyncio.run(worker.run_groups([draw], group_size=2))
    assert group.rewards() == [None, None]
    assert [t.id.attempt for t in group.trajectories] == [1, 1]
    assert [(each.trajectory.id.attempt, each.reason) for each in group.discarded] == [(0, DropReason.RETRIED)] * 2
    with pytest.raises(EnvironmentFault, match="2 of 2 trajectories") as caught:
        worker.failure.check([group])
    assert words in str(caught.value)


def test_ten_megabytes_from_a_tool_are_clipped_not_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_big.py").write_text(BROKEN_FAMILY.replace("{body}", "return 'word ' * 2_000_000"))
    monkeypatch.syspath_prepend(tmp_path)
    config = recipe(tmp_path, "environment.name=broken_big:Family", "train.steps=1", "evaluate.tasks=0")
    run = run_train(config, resume=None, display=False)
    (row,) = [r for r in read_rows(run) if r["phase"] == "train"]
    assert row["rollout/invalid"] == 0.0


def test_the_command_line_evaluates_asks_and_reports(finished: Path) -> None:
    evaluated = run_command("evaluate", str(finished), "--tasks", "4", "--set", "search=off", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["rows"][-1]["n"] == 4
    asked = run_command("ask", str(finished), "What is the author of Blue Lantern ?")
    assert asked.returncode == 0, asked.stderr
    assert "What is the author of Blue Lantern ?" in asked.stdout
    assert "model" in asked.stdout
    before = run_command("ask", str(finished), "--step", "0")
    assert before.stdout.startswith("checkpoint of step 0\n"), before.stderr
    reported = run_command("report", str(finished))
    assert reported.stdout.strip().endswith("report.html")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "missing.toml"], "missing.toml"),
        (["train", str(TINY), "rolout.group_size=3"], "did you mean 'rollout'"),
        (["train", str(TINY), "rollout.group_size=many"], "rollout.group_size"),
        (["train", str(TINY), "environment.args.modus=fresh"], "modus"),
        (["train", str(TINY), "rollout.max_tokens=999999"], "engine.max_context"),
        (["train", str(TINY), "environment.name=nowhere"], "nowhere"),
        (["train"], "recipe"),
        (["evaluate", "nowhere"], "nowhere"),
        (["ask", "nowhere"], "nowhere"),
        (["train", "--resume", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_gives_one_message_no_traceback_and_no_run_folder(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    done = run_command(*arguments, cwd=tmp_path)
    assert done.returncode not in (0, 1)  # 1 is that of a traceback
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
    assert not list(tmp_path.glob("runs/*"))


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in run_command("train", "missing.toml", "--debug").stderr


def test_a_malformed_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    corpus, good, bad = tmp_path / "corpus.jsonl", tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    corpus.write_text('{"id": "1", "title": "A", "text": "The author of A is B."}\n')
    good.write_text('{"question": "Who?", "answers": ["B"]}\n')
    bad.write_text('{"question": "Who?", "answers": ["B"]}\n{"question": 3}\n')
    arguments = ["tasks", str(TINY), "environment.args.mode=files", f"environment.args.corpus_path={corpus}"]
    arguments += [f"environment.args.train_path={good}"]
    result = run_command(*arguments, f"environment.args.heldout_path={bad}")
    assert result.returncode == 2
    assert str(bad) in result.stderr
    assert "bad.jsonl:2" in result.stderr
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    result = run_command(*arguments, f"environment.args.heldout_path={empty}")
    assert result.returncode == 2
    assert str(empty) in result.stderr


def test_a_task_longer_than_its_budget_is_named_with_the_remedy(tmp_path: Path) -> None:
    config = recipe(
        tmp_path, "environment.args.prompt=search_r1", "rollout.max_tokens=96", "sft.steps=0", "evaluate.tasks=0"
    )
    with pytest.raises(ConfigError, match=r"leaves no room for a reply within rollout.max_tokens=96"):
        run_train(config, resume=None, display=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.slow
def test_a_full_disk_is_named_and_resuming_continues(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # Bytes enough for the start, and room for 20 files.
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100m,nr_inodes=20", "tmpfs", str(disk)], capture_output=True, check=False
    ).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        overrides = [a for a in SMALL if not a.startswith("run.output")]
        result = run_command("train", str(TINY), *overrides, f"run.output={disk}")
        assert result.returncode == 2
        assert "No space left" in result.stderr
        assert "--resume" in result.stderr
        assert "Traceback" not in result.stderr
        (run,) = disk.iterdir()
        RunFolder.open(run).read_metrics()
        subprocess.run(["mount", "-o", "remount,nr_inodes=10000", str(disk)], check=True)
        resumed = run_command("train", "--resume", str(run))
        assert resumed.returncode == 0, resumed.stderr
        assert [r["step"] for r in read_rows(run) if r["phase"] == "train"] == [1, 2, 3, 4]
    finally:
        subprocess.run(["umount", str(disk)], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_disk_too_small_for_the_checkpoints_is_named_before_the_run(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], capture_output=True, check=False
    ).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        result = run_command("train", str(TINY), *SMALL, f"run.output={disk}")
        assert result.returncode == 2
        assert "0.6 MiB free, but the checkpoints of this run need" in result.stderr
        assert not list(disk.iterdir())
        assert run_command("train", str(TINY), *SMALL, f"run.output={disk}", "--dry-run").stderr == result.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=False)


@pytest.mark.parametrize(
    ("overrides", "sign"),
    [
        pytest.param(["sft.steps=5000"], "metrics.jsonl", id="warm-up", marks=pytest.mark.slow),
        pytest.param(["train.steps=2000"], "groups/000/000000007.jsonl", id="rl"),
        pytest.param(
            ["evaluate.tasks=20000"],
            "checkpoints/step_000000/manifest.json",
            id="evaluation",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ctrl_c_exits_with_130_and_nothing_written_is_lost(tmp_path: Path, overrides: list[str], sign: str) -> None:
    program = "from turnwise.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "train", str(TINY), *SMALL, *overrides, f"run.output={tmp_path}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 90
    try:
        while time.monotonic() < deadline and not any(path.stat().st_size for path in tmp_path.glob(f"*/{sign}")):
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert "--resume" in stderr
    assert "Traceback" not in stderr
    (run,) = tmp_path.glob("*/")
    assert read_rows(run)


REWARD_MODULE = """
from dataclasses import replace
from turnwise.rewards.answers import REWARDS
EXACT = REWARDS["exact_match"]
def compute(case):
    if any(case is known for known in (*EXACT.must_pass, *EXACT.must_fail)):
        return EXACT.compute(case)
    {body}
REWARD = replace(EXACT, compute=compute)
"""


@pytest.mark.parametrize(
    ("body", "words"), [("raise LookupError('lost')", "LookupError"), ("return float('nan')", "nan")]
)
def test_a_reward_that_fails_stops_the_run_and_is_never_a_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    name = f"reward_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(REWARD_MODULE.replace("{body}", body))
    monkeypatch.syspath_prepend(tmp_path)
    config = recipe(
        tmp_path,
        f"environment.args.reward={name}:REWARD",
        "sft.steps=0",
        "evaluate.tasks=0",
        "rollout.max_turn_tokens=4",
    )
    with pytest.raises(EnvironmentFault, match=words):
        run_train(config, resume=None, display=False)


def test_only_the_warm_up(tmp_path: Path) -> None:
    run = run_sft(recipe(tmp_path, "sft.steps=2"), display=False)
    assert {row["phase"] for row in read_rows(run)} == {"sft", "evaluate"}
    assert (run / "checkpoints" / "step_000000" / "model.safetensors").exists()


def test_a_chat_model_format_trains_too(tmp_path: Path) -> None:
    limits = [
        "rollout.max_turn_tokens=48",
        "rollout.max_tokens=900",
        "engine.max_context=900",
        "train.steps=1",
        "evaluate.tasks=0",
    ]
    run = run_train(
        recipe(tmp_path, "renderer.kind=chat", "tokenizer.vocab_size=600", *limits), resume=None, display=False
    )
    (row,) = [r for r in read_rows(run) if r["phase"] == "train"]
    assert float(str(row["train/logprob_gap_max"])) < 1e-4


def test_a_run_starts_from_a_local_model_directory(finished: Path, tmp_path: Path) -> None:
    start = finished / "checkpoints" / "step_000000"
    config = recipe(tmp_path, f"model.path={start}", "sft.steps=0", "train.steps=1", "evaluate.tasks=4")
    run = run_train(config, resume=None, display=False)
    # The weights RL started from are the ones of the directory, bit for bit.
    left, right = ((path / "model.safetensors").read_bytes() for path in (start, run / "checkpoints" / "step_000000"))
    assert left == right
    with pytest.raises(ConfigError, match="/nowhere"):
        build_system(recipe(tmp_path, "model.path=/nowhere"))


def test_every_way_to_evaluate_keeps_its_results(finished: Path) -> None:
    asked: list[dict[str, float | int]] = [{}, {"tasks": 3}, {"tasks": 3, "samples": 4, "temperature": 1.0}]
    summaries = []
    for given in asked:
        defaults = {"tasks": None, "samples": None, "temperature": None}
        summaries.append(run_evaluate(finished, **{**defaults, **given}, changes={}, step=None))  # type: ignore[arg-type]
    assert [summary.name for summary in summaries] == [
        "again_000004",
        "again_000004_tasks3",
        "again_000004_tasks3_samples4_temperature1",
    ]
    assert [summary.label for summary in summaries] == [
        "checkpoint of step 4",
        "tasks=3",
        "tasks=3, samples=4, temperature=1.0",
    ]
    for summary in summaries:
        assert (finished / "evaluations" / f"{summary.name}.summary.json").is_file()
        assert (finished / "evaluations" / f"{summary.name}.jsonl").is_file()
    row = summaries[-1].row("all")
    assert (row.n, row.episodes + row.invalid) == (3, 12)
    assert [each.k for each in row.pass_at] == [1, 2, 4]
    assert row.pass_at[0].share == pytest.approx(row.success)
    with pytest.raises(ConfigError, match=r"evaluate.samples=4 with evaluate.temperature=0"):
        run_evaluate(finished, tasks=3, samples=4, changes={}, step=None)
