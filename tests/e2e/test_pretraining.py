"""Runs with continual pre-training: recorded, audited, and continued in its middle with the same bits."""

import json
from pathlib import Path

import pytest
from interrupted import StopWhen, train_until

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.documents import Document, DocumentContext
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.events import StepEnds
from turnwise.runs.audit import audit_run
from turnwise.runs.rehearsal import rehearse_train
from turnwise.runs.sft import run_sft
from turnwise.runs.train import run_train
from turnwise.store.documents import read_documents, read_steps
from turnwise.store.run_folder import RunFolder

TINY = Path(__file__).parent.parent.parent / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=100",
    "tokenizer.vocab_size=400",
    "sft.steps=3",
    "sft.batch_size=8",
    "sft.num_demonstrations=16",
    "train.steps=0",
    "train.num_threads=1",
    "evaluate.tasks=0",
    "cpt.steps=7",
    "cpt.batch_tokens=120",
    "cpt.max_tokens=40",
    "cpt.checkpoint_every=3",
]


def build_lines(context: DocumentContext, *, count: int) -> list[Document]:
    return [Document(id=f"line {n}", text=f"Line {n} of seed {context.seed}. " * (1 + n % 5)) for n in range(count)]


def build_nothing(context: DocumentContext) -> list[Document]:
    return []


def build_texts(context: DocumentContext) -> list[str]:
    return ["a text"]


def recipe(tmp_path: Path, *overrides: str) -> RunConfig:
    path = tmp_path / "documents.jsonl"
    rows = [{"id": f"d{n}", "text": "A lantern is lit at dusk. " * (1 + n % 4)} for n in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": ""}]))
    return load_config([TINY], [*SMALL, f"cpt.path={path}", f"run.output={tmp_path / 'runs'}", *overrides])


def stop_after(phase: str, step: int) -> StopWhen:
    return StopWhen(lambda event: isinstance(event, StepEnds) and (event.phase, event.step) == (phase, step))


def losses(run: Path, phase: str) -> list[float]:
    return [row[f"{phase}/loss"] for row in RunFolder.open(run).read_metrics() if row["phase"] == phase]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path]:
    """A run that was never stopped."""
    config = recipe(tmp_path_factory.mktemp("finished"))
    return config, run_sft(config, display=False)


def test_the_phase_learns_and_is_accounted_for(finished: tuple[RunConfig, Path]) -> None:
    _, whole = finished
    assert len(losses(whole, "cpt")) == 7
    assert losses(whole, "cpt")[-1] < losses(whole, "cpt")[0]
    assert len(read_documents(whole)) == 9
    report = audit_run(whole)
    assert report.breaches == []
    assert report.tallies["documents"].checked == 9


@pytest.mark.parametrize(
    ("phase", "step", "checkpoint"),
    [("cpt", 5, "step_000003"), pytest.param("sft", 2, "step_000007", marks=pytest.mark.slow)],
)
def test_a_stopped_run_goes_on_with_the_same_bits(
    finished: tuple[RunConfig, Path], tmp_path: Path, phase: str, step: int, checkpoint: str
) -> None:
    """Step 3 has a checkpoint, so 4 and 5 are taken again; stopped in the warm-up, all of the phase stays."""
    config, whole = finished
    stopped = train_until(config, tmp_path / "stopped", stop_after(phase, step))
    assert [path.name for path in (stopped / "cpt" / "checkpoints").iterdir()] == [checkpoint]
    run_train(None, resume=stopped, display=False)
    assert read_steps(stopped) == read_steps(whole)
    assert losses(stopped, "cpt") == losses(whole, "cpt")
    assert losses(stopped, "sft") == losses(whole, "sft")
    for name in ("model.safetensors", "state.safetensors"):
        left, right = ((run / "checkpoints" / "step_000000" / name).read_bytes() for run in (stopped, whole))
        assert left == right, name
    assert audit_run(stopped).breaches == []
    assert not (stopped / "cpt" / "checkpoints").exists()


COUNT = [5]


def build_others(context: DocumentContext) -> list[Document]:
    """Another document each time."""
    COUNT[0] += 1
    return build_lines(context, count=COUNT[0])


def test_other_documents_than_at_the_start_are_refused(tmp_path: Path) -> None:
    config = recipe(
        tmp_path, "cpt.path=", f"cpt.builder={__name__}:build_others", "cpt.steps=3", "cpt.checkpoint_every=1"
    )
    stopped = train_until(config, tmp_path / "stopped", stop_after("cpt", 2))
    with pytest.raises(DataError, match=r"1 documents .* are others than when the run began \(6 then, 7 now\)"):
        run_train(None, resume=stopped, display=False)


def test_a_builder_makes_the_documents_and_the_audit_makes_them_again(tmp_path: Path) -> None:
    builder = ["cpt.path=", f"cpt.builder={__name__}:build_lines", "cpt.args={count=5}", "cpt.packing=joined"]
    run = run_sft(recipe(tmp_path, *builder, "cpt.steps=2", "sft.steps=0"), display=False)
    assert [row["id"] for row in read_documents(run)] == [f"line {n}" for n in range(5)]
    assert audit_run(run).breaches == []
    config = json.loads((run / "config.json").read_text())
    config["cpt"]["args"]["count"] = 6
    (run / "config.json").write_text(json.dumps(config))
    assert ["the source has 6 documents" in str(each) for each in audit_run(run).breaches] == [True]


@pytest.mark.parametrize(
    ("overrides", "error", "text"),
    [
        (["cpt.path="], ConfigError, "cpt.steps=7 needs documents"),
        (["cpt.steps=0"], ConfigError, "cpt.steps=0 skips the phase"),
        (["cpt.max_tokens=4000", "cpt.batch_tokens=8000"], ConfigError, "more than engine.max_context=384"),
        (["cpt.batch_tokens=20"], ConfigError, "no room for one sequence"),
        (["cpt.path=nowhere.jsonl"], DataError, "cpt.path='nowhere.jsonl': there is no such file"),
        (["cpt.path=", "cpt.builder=lines"], ConfigError, "is no import path"),
        (["cpt.path=", f"cpt.builder={__name__}:build_lines"], ConfigError, "missing 1 required keyword-only"),
        (["cpt.path=", f"cpt.builder={__name__}:build_nothing"], DataError, "made no document"),
        (["cpt.path=", f"cpt.builder={__name__}:build_texts"], ConfigError, "its item 0 is a str"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, overrides: list[str], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        rehearse_train(recipe(tmp_path, *overrides), resume=None)
    assert not (tmp_path / "runs").exists()


def test_token_ids_that_the_tokenizer_lacks_are_named(tmp_path: Path) -> None:
    config = recipe(tmp_path)
    (tmp_path / "documents.jsonl").write_text('{"token_ids": [1, 2]}\n{"token_ids": [5, 99999]}\n')
    with pytest.raises(DataError, match=r"documents.jsonl:2: token id 99999 is not below the 400 tokens"):
        rehearse_train(config, resume=None)
