"""A run from random weights that learns from a file of conversations: its loss on others falls, and it plays.

The conversations follow notes to a code (`turnwise.testing`) and are written here, row by row, without the package."""

import json
import random
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError
from turnwise.environments.file_splits import DataFile
from turnwise.evaluation.summary import is_success
from turnwise.runs.ask import run_ask
from turnwise.runs.audit import audit_run
from turnwise.runs.continuing import Continuation
from turnwise.runs.data_files import accept_data_files
from turnwise.runs.evaluate import load_run, run_evaluate
from turnwise.runs.export import export_policy
from turnwise.runs.rehearsal import rehearse_train
from turnwise.runs.sft import run_sft
from turnwise.runs.train import run_train
from turnwise.runs.transcripts import export_sft
from turnwise.store.data_files import read_records, record_file, write_records
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups
from turnwise.testing.notes import CODES, NAMES, NotesFamily

OPTIONS = [
    "environment.name=turnwise.testing:NotesFamily",
    "model.config={hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, "
    "num_key_value_heads=2, head_dim=8, tie_word_embeddings=true, initializer_range=0.1, "
    "rope_parameters={rope_type='default', rope_theta=100.0}}",
    "tokenizer.vocab_size=400",
    "tokenizer.num_texts=60",
    "engine.max_context=64",
    "engine.max_concurrency=64",
    "rollout.max_tokens=64",
    "rollout.max_turns=4",
    "rollout.max_turn_tokens=10",
    "sft.lr=0.01",
    "sft.batch_size=16",
    "train.num_threads=1",
    "train.steps=0",
    "evaluate.tasks=40",
]


def write_conversations(path: Path, count: int, seed: int) -> Path:
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        first, second = chance.sample(NAMES, 2)
        code = chance.choice(CODES)
        linked = [(first, f"see {second}"), (second, f"code {code}")]
        notes = linked if chance.random() < 0.7 else [(first, f"code {code}")]
        messages: list[dict[str, object]] = [{"role": "user", "content": f"start {first}"}]
        for name, text in notes:
            call = {"type": "function", "function": {"name": "search", "arguments": {"query": name}}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "content": text})
        messages.append({"role": "assistant", "content": f"<answer> {code} </answer>"})
        lines.append(json.dumps({"messages": messages}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def recipe(output: Path, *overrides: str) -> RunConfig:
    return load_config([], [*OPTIONS, f"run.output={output}", *overrides])


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    train, heldout = (write_conversations(folder / f"{seed}.jsonl", n, seed) for seed, n in ((1, 600), (2, 40)))
    config = recipe(folder, f"sft.path={train}", f"sft.heldout_path={heldout}", "sft.steps=120")
    return run_sft(config, display=False)


def test_the_loss_on_conversations_that_never_train_falls(taught: Path) -> None:
    rows = [row for row in RunFolder.open(taught).read_metrics() if row["phase"] == "sft"]
    heldout = [(row["step"], row["sft/heldout_loss"]) for row in rows if "sft/heldout_loss" in row]
    assert [step for step, _ in heldout] == [0, *range(12, 121, 12)]
    assert heldout[0][1] > 3.0  # about the logarithm of the vocabulary: nothing is known
    # What is left is chance: which of twelve notes or ten codes comes is known from what was read.
    assert heldout[-1][1] < 0.2
    assert [row["step"] for row in rows if "sft/loss" in row] == list(range(1, 121))


def test_the_policy_plays_what_it_read(taught: Path) -> None:
    summary = json.loads((taught / "evaluations" / "heldout_000000.summary.json").read_text())
    assert next(row for row in summary["rows"] if row["kind"] == "all")["success"] > 0.5


def test_the_run_says_what_it_read(taught: Path) -> None:
    events = (taught / "events.jsonl").read_text()
    assert "1.jsonl: 600 conversations, " in events
    assert "held out: " in events


def test_a_served_copy_plays_as_the_run_does_by_its_own_chat_template(taught: Path, tmp_path: Path) -> None:
    """A client that knows the export only: text in, text out, notes read by hand."""
    folder = export_policy(taught, tmp_path / "out")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    request = json.loads((folder / "turnwise_usage.json").read_text())["request"]
    rights = []
    for index in range(12):
        task = NotesFamily().task("heldout", index)
        messages, reply = [{"role": "user", "content": task.prompt[0].text}], ""
        while "</answer>" not in reply and len(messages) < 8:
            tools = request["tools"]
            ids = tokenizer.apply_chat_template(messages, tools=tools, return_dict=False, return_tensors="pt")
            sampled = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=request["max_tokens"]
            )
            reply = tokenizer.decode(sampled[0, ids.shape[1] :], skip_special_tokens=request["skip_special_tokens"])
            said = re.search(r"<search>(.*)</search>", reply)
            told = task.payload["notes"].get(said[1].strip(), "nothing") if said else ""
            messages += [{"role": "assistant", "content": reply}, {"role": "tool", "content": told}]
        rights.append(f"<answer> {task.payload['answer']}</answer>" in reply)
    groups = load_groups(taught / "evaluations", "heldout_000000")[:12]
    assert rights == [is_success(group.trajectories[0]) for group in groups]
    assert sum(rights) > 3


@pytest.fixture
def with_file(taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A copy of the run whose tasks come from a file, and the file."""
    run, rows = Path(shutil.copytree(taught, tmp_path / "run")), tmp_path / "rows.jsonl"
    rows.write_text("1\n2\n")
    monkeypatch.setattr(NotesFamily, "data_files", (DataFile(path=rows, num_rows=2),), raising=False)
    monkeypatch.setattr(NotesFamily, "notes", ("1 of 3 rows are left out",), raising=False)
    write_records(run, [*(read_records(run) or ()), record_file(rows, 2)])
    return run, rows


def test_a_trained_run_draws_no_tasks_from_a_file_that_changed(with_file: tuple[Path, Path]) -> None:
    run, rows = with_file
    rows.write_text("1\n3\n")
    calls: list[Callable[[], object]] = [
        lambda: run_evaluate(run, tasks=2, changes={}, step=None),
        lambda: run_ask(run, question=None, index=0, show=print),
        lambda: rehearse_train(None, resume=Continuation(run=run)),
        lambda: run_train(None, resume=run, display=False),
    ]
    if find_spec("turnwise_worlds"):
        from turnwise_worlds.runs.search import SearchPlan, run_search

        calls.append(lambda: run_search(run, SearchPlan(), show=print))
    for call in calls:
        with pytest.raises(DataError, match=r"rows.jsonl: SHA-256 \w+ .*turnwise data accept"):
            call()
    export_policy(run, run / "out")
    assert f"; {rows}: SHA-256 " in json.loads((run / "out" / "turnwise_usage.json").read_text())["check"]
    accept_data_files(run)
    run_evaluate(run, tasks=2, changes={}, step=None)


def test_an_evaluation_tells_what_a_start_of_training_tells(with_file: tuple[Path, Path]) -> None:
    run, _ = with_file
    told: list[str] = []
    run_evaluate(run, tasks=2, changes={}, step=None, tell=told.append)
    assert told[0] == "1 of 3 rows are left out"
    assert [text.partition(":")[0] for text in told[1:]] == ["model", "renderer"]
    assert ("rows", "1 of 3 rows are left out") in rehearse_train(None, resume=Continuation(run=run))


def test_an_audit_compares_what_the_warm_up_learned_from(taught: Path, tmp_path: Path) -> None:
    run, rows = Path(shutil.copytree(taught, tmp_path / "run")), tmp_path / "rows.jsonl"
    names = [Path(each.path).name for each in read_records(run) or () if each.use == "warm-up"]
    assert names == ["1.jsonl", "2.jsonl"]
    write_conversations(rows, 3, seed=3)
    write_records(run, [record_file(rows, 3, "warm-up"), record_file(rows, 3, "warm-up")])
    assert audit_run(run).tallies["data"].checked == 2
    write_conversations(rows, 3, seed=4)
    breaches = audit_run(run).breaches
    assert [str(each).partition(" when the warm-up learned it")[0].split()[:3] for each in breaches] == [
        ["[data]", f"{rows}:", "SHA-256"]
    ] * 2


def test_rows_of_a_run_warm_up_another_run(taught: Path, tmp_path: Path) -> None:
    kept, _ = export_sft(taught, tmp_path / "rows.jsonl", names=["heldout_000000"], min_reward=1.0)
    config = recipe(tmp_path, f"sft.path={tmp_path / 'rows.jsonl'}", "sft.steps=2", "evaluate.tasks=0")
    run = run_sft(config, display=False)
    assert f"{kept} conversations" in (run / "events.jsonl").read_text()


def test_a_finished_warm_up_needs_the_file_no_more(taught: Path, tmp_path: Path) -> None:
    folder, config = load_run(taught)
    Path(config.sft.path).rename(tmp_path / "moved.jsonl")
    try:
        assert run_train(None, resume=folder.path, display=False) == folder.path
    finally:
        (tmp_path / "moved.jsonl").rename(config.sft.path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"messages": [{"role": "user", "content": "start amber"}]}', "rows.jsonl:1: no assistant message"),
        ('{"messages": [{"role": "user", "content": "' + "start amber " * 90 + '"}, {"role": "assistant", '
         '"content": "7"}]}', "no conversation is left to train on: 1 longer than rollout.max_tokens=64"),
        ('{"messages": [{"role": "user", "content": "start amber"}, {"role": "assistant", "tool_calls": '
         '[{"function": {"name": "f", "arguments": "{}"}}]}]}', "rows.jsonl:1: tags can write one call"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_learned_from_is_one_line_before_there_is_a_run(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(text + "\n")
    config = recipe(tmp_path / "runs", f"sft.path={tmp_path / 'rows.jsonl'}", "sft.steps=2")
    with pytest.raises(DataError, match=said):
        rehearse_train(config, resume=None)
    with pytest.raises(DataError, match=said):
        run_sft(config, display=False)
    assert not list((tmp_path / "runs").glob("*/config.json"))


def test_files_that_nothing_would_read_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"sft.steps=0 skips it"):
        load_config([], [*OPTIONS, "sft.path=rows.jsonl"])
    with pytest.raises(ConfigError, match=r"sft.path"):
        load_config([], [*OPTIONS, "sft.heldout_path=rows.jsonl", "sft.steps=2"])


def test_a_missing_file_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sft.path='nowhere.jsonl': there is no such file"):
        run_sft(recipe(tmp_path, "sft.path=nowhere.jsonl", "sft.steps=2"), display=False)
