"""A run that begins remembers its data files, and goes on with others only where somebody accepts them."""

import json
from pathlib import Path

import pytest

from turnwise.building.families import build_family
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import DataError
from turnwise.runs.data_files import accept_data_files, keep_data_files
from turnwise.store.data_files import read_records
from turnwise.store.run_folder import RunFolder


def write(path: Path, *texts: str) -> str:
    path.write_text("".join(json.dumps({"text": text, "label": 1}) + "\n" for text in texts))
    return str(path)


def test_a_changed_file_is_refused_and_can_be_accepted(tmp_path: Path) -> None:
    paths = {f"{split}_path": write(tmp_path / f"{split}.jsonl", "a", "b") for split in ("train", "heldout")}
    environment = {"name": "labels", "args": paths}
    config = RunConfig.model_validate({"environment": environment})
    folder = RunFolder.create(tmp_path / "run")
    folder.write_json("config.json", dump_resolved(config))
    keep_data_files(folder, config, build_family(config))
    keep_data_files(folder, config, build_family(config))
    records = read_records(folder.path)
    assert records is not None
    assert [(Path(each.path).name, each.num_rows) for each in records] == [("train.jsonl", 2), ("heldout.jsonl", 2)]
    write(tmp_path / "heldout.jsonl", "a", "b", "c")
    with pytest.raises(DataError, match=r"heldout.jsonl: SHA-256 \w+ \(2 rows.*now \w+ \(3 rows.*data accept .*run"):
        keep_data_files(folder, config, build_family(config))
    [change] = accept_data_files(folder.path)
    assert "heldout.jsonl" in change
    assert change in (folder.path / "events.jsonl").read_text()
    keep_data_files(folder, config, build_family(config))
    assert accept_data_files(folder.path) == []


def test_a_family_without_files_leaves_no_record(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    config = RunConfig.model_validate({"environment": {"name": "countdown"}})
    keep_data_files(folder, config, build_family(config))
    assert read_records(folder.path) is None


def write_conversation(path: Path, reply: str) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": reply}]
    path.write_text(json.dumps({"messages": messages}) + "\n")


def test_conversations_of_a_warm_up_are_compared_while_it_is_to_come_and_named_when_it_is_over(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    write_conversation(rows, "b")
    sft = {"path": str(rows), "steps": 2}
    config = RunConfig.model_validate({"environment": {"name": "countdown"}, "sft": sft})
    family, folder = build_family(config), RunFolder.create(tmp_path / "run")
    folder.write_json("config.json", dump_resolved(config))
    assert keep_data_files(folder, config, family) == []
    [record] = read_records(folder.path) or ()
    assert (record.path, record.num_rows, record.use) == (str(rows), 1, "warm-up")
    write_conversation(rows, "c")
    with pytest.raises(DataError, match=r"rows.jsonl: SHA-256 \w+ \(1 rows.*data accept .*run"):
        keep_data_files(folder, config, family)
    [change] = accept_data_files(folder.path)
    assert "rows.jsonl" in change
    assert keep_data_files(folder, config, family) == []
    (folder.path / "checkpoints" / "step_000000").mkdir(parents=True)  # the warm-up is over
    before = read_records(folder.path)
    write_conversation(rows, "d")
    [note] = keep_data_files(folder, config, family)
    assert f"{rows}: SHA-256 " in note
    assert note.endswith("the run goes on from its weights")
    assert accept_data_files(folder.path) == []
    assert read_records(folder.path) == before  # what the warm-up has learned from
    rows.unlink()
    assert keep_data_files(folder, config, family) == []  # and needs no more


def test_a_run_that_remembers_no_conversations_goes_on(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    write_conversation(rows, "b")
    config = RunConfig.model_validate({"environment": {"name": "countdown"}, "sft": {"path": str(rows), "steps": 2}})
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "checkpoints" / "step_000000").mkdir(parents=True)
    assert keep_data_files(folder, config, build_family(config)) == []
    assert read_records(folder.path) is None  # what the warm-up learned from is not known
