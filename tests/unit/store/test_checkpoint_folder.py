from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.core.errors import CheckpointError, StoreError, TrainingError
from turnwise.store.checkpoint_folder import checkpoint_writer, latest_checkpoint, prune, sweep, verify_checkpoint


def write_checkpoint(run: Path, step: int, weights: bytes = b"weights") -> Path:
    with checkpoint_writer(run, step) as folder:
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "vocab.json").write_text("{}")
    return run / "checkpoints" / f"step_{step:06d}"


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_a_checkpoint_is_whole(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 12)
    verify_checkpoint(path)
    assert latest_checkpoint(tmp_path) == path
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["model.safetensors"]["size"] == 7
    assert set(manifest) == {"model.safetensors", "tokenizer/vocab.json"}
    assert names(tmp_path) == ["step_000012"]


@pytest.mark.parametrize(
    ("failure", "seen"),
    [
        (OSError(28, "No space left on device"), StoreError),
        (RuntimeError("a library's disk error"), StoreError),
        (TrainingError("not finite"), TrainingError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failure_in_the_middle_leaves_the_old_checkpoint(
    tmp_path: Path, failure: BaseException, seen: type[BaseException]
) -> None:
    path = write_checkpoint(tmp_path, 12, b"old")

    def fail() -> None:
        with checkpoint_writer(tmp_path, 12) as folder:
            (folder / "model.safetensors").write_bytes(b"half")
            raise failure

    with pytest.raises(seen):
        fail()
    verify_checkpoint(path)
    assert (path / "model.safetensors").read_bytes() == b"old"
    assert names(tmp_path) == ["step_000012"]


def test_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 12, b"old")
    path = write_checkpoint(tmp_path, 12, b"new")
    verify_checkpoint(path)
    assert (path / "model.safetensors").read_bytes() == b"new"
    assert names(tmp_path) == ["step_000012"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "model.safetensors").write_bytes(b"weigh"), r"model\.safetensors has 5 bytes instead of 7"),
        (lambda p: flip(p / "model.safetensors"), r"model.safetensors differs from what was written"),
        (lambda p: (p / "tokenizer" / "vocab.json").unlink(), r"lacks tokenizer/vocab\.json"),
        (lambda p: (p / "manifest.json").unlink(), r"no readable manifest\.json"),
        (lambda p: (p / "manifest.json").write_text('{"model.saf'), r"no readable manifest\.json"),
        (lambda p: (p / "manifest.json").write_text('{"model.safetensors": 7}'), r"no readable manifest\.json"),
        (lambda p: (p / "manifest.json").write_text("[]"), r"no readable manifest\.json"),
    ],
)
def test_damage_is_found_and_named(tmp_path: Path, damage: object, message: str) -> None:
    path = write_checkpoint(tmp_path, 1)
    damage(path)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=message) as caught:
        verify_checkpoint(path)
    assert "delete the folder" in str(caught.value)


def test_a_checkpoint_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 0)
    write_checkpoint(tmp_path, 20)
    with pytest.raises(CheckpointError, match=r"steps: 0, 20"):
        verify_checkpoint(tmp_path / "checkpoints" / "step_000010")


def test_latest_is_by_number_and_ignores_what_is_unfinished(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    for step in (999_999, 1_000_000):
        write_checkpoint(tmp_path, step)
    for name in (".step_2000000.tmp", "step_3000000.partial"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoints" / "step_1000000"


def test_prune_keeps_the_latest_and_the_chosen(tmp_path: Path) -> None:
    for step in (0, 10, 20, 30, 40):
        write_checkpoint(tmp_path, step)
    prune(tmp_path, keep=2, always={0})
    assert names(tmp_path) == ["step_000000", "step_000030", "step_000040"]
    prune(tmp_path, keep=9)
    assert len(names(tmp_path)) == 3
    with pytest.raises(ValueError, match="keep=0"):
        prune(tmp_path, keep=0)


def test_a_sweep_clears_up_after_a_killed_process(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 12)
    # Killed while writing step 20, and while step 12 was being replaced (set aside, new one not yet in place).
    (tmp_path / "checkpoints" / ".step_000020.tmp").mkdir()
    path.rename(path.with_name(".step_000012.old"))
    (tmp_path / ".metrics.jsonl.tmp").touch()
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / ".step_000012.npz.tmp").touch()
    sweep(tmp_path)
    verify_checkpoint(path)
    assert names(tmp_path) == ["step_000012"]
    assert list((tmp_path / "steps").iterdir()) == []
    assert not (tmp_path / ".metrics.jsonl.tmp").exists()
