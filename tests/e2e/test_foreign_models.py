"""Runs from models as other people save them: padded, sharded, in a home folder, with ends of their own; and a resumed
run, whose tokenizer stays what it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_tokenizers import build_first
from interrupted import at_step, train_until
from run_rows import read_rows
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import CheckpointError, ConfigError, EngineError
from turnwise.core.protocols import PausableEngine
from turnwise.models.checksums import compute_checksums
from turnwise.models.shape import read_policy_shape
from turnwise.pictures.store import PictureStore
from turnwise.runs.audit import audit_run
from turnwise.runs.build import System, build_system, load_checkpoint, load_frozen_engine
from turnwise.runs.continuing import Continuation
from turnwise.runs.rehearsal import rehearse_train
from turnwise.runs.rollout_process import _RolloutProcess
from turnwise.runs.train import run_train
from turnwise.store.checkpoint_folder import _seal
from turnwise.store.groups import GroupStore
from turnwise.testing import NotesFamily, build_tiny_model
from turnwise.testing.policies import build_tiny_tokenizer

NOTES = [
    "environment.name=turnwise.testing:NotesFamily",
    "tokenizer.vocab_size=400",
    "tokenizer.num_texts=60",
    "engine.max_context=96",
    "rollout.max_tokens=96",
    "rollout.max_turns=3",
    "rollout.max_turn_tokens=10",
    "rollout.tasks_per_step=2",
    "rollout.group_size=4",
    "sft.steps=0",
    "train.num_threads=1",
    "train.steps=2",
    "train.lr=1e-3",
    "train.checkpoint_every=1",
    "evaluate.tasks=4",
]
SMALL = (
    "model.config={hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, "
    "num_key_value_heads=2, head_dim=8, tie_word_embeddings=true}"
)


def recipe(output: Path, *overrides: str) -> RunConfig:
    return load_config([], [*NOTES, f"run.output={output}", *overrides])


def save_model(folder: Path, tokenizer: PreTrainedTokenizerBase, *, rows: int = 0, **options: Any) -> Path:
    """A tiny model with so many rows of embeddings (0: one for each id), and its tokenizer."""
    build_tiny_model(vocab_size=rows or len(tokenizer)).save_pretrained(folder, **options)
    tokenizer.save_pretrained(folder)
    return folder


def build_tokenizer() -> PreTrainedTokenizerBase:
    return build_tiny_tokenizer(NotesFamily().texts(60))


def change(file: Path, **changes: Any) -> None:
    table = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**table, **changes}))


def test_a_run_from_padded_embeddings_samples_padding_and_goes_on(tmp_path: Path) -> None:
    """Two of three rows are padding: most of what random weights sample decodes to nothing."""
    tokenizer = build_tokenizer()
    folder = save_model(tmp_path / "model", tokenizer, rows=3 * len(tokenizer))
    run = run_train(recipe(tmp_path, f"model.path={folder}"), resume=None, display=False)
    store = GroupStore(run)
    trajectories = [each for draw in store.list_draws() for each in store.load(draw).trajectories]
    sampled = [token for each in trajectories for turn in each.turns for token in turn.completion.token_ids.tolist()]
    assert 0.5 < sum(token >= len(tokenizer) for token in sampled) / len(sampled) < 0.8  # of random weights: 2 / 3
    assert audit_run(run).breaches == []


def test_a_tokenizer_with_more_ids_than_rows_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    folder = save_model(tmp_path / "model", tokenizer, rows=len(tokenizer) - 1)
    with pytest.raises(ConfigError, match=r"model\.path=.*: the tokenizer has \d+ ids, but the model only \d+ rows"):
        run_train(recipe(tmp_path / "runs", f"model.path={folder}"), resume=None, display=False)
    assert not list((tmp_path / "runs").glob("*/*"))


def test_a_model_in_shards_in_the_home_folder_trains_and_its_checkpoint_in_shards_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save_model(tmp_path / "model", build_tokenizer(), max_shard_size="40KB")
    config = recipe(tmp_path / "runs", "model.path=~/model", "loss.kl.coefficient=0.01")
    whole = run_train(config, resume=None, display=False)
    stopped = train_until(config, tmp_path / "stopped", at_step(2))
    for checkpoint in (stopped / "checkpoints").iterdir():
        split(checkpoint)
    assert read_rows(run_train(None, resume=stopped, display=False)) == read_rows(whole)
    lost = next((stopped / "checkpoints" / "step_000002").glob("model*.safetensors"))
    lost.write_bytes(lost.read_bytes()[:500])
    with pytest.raises(CheckpointError, match="truncated"):
        run_train(None, resume=stopped, display=False)


def split(checkpoint: Path) -> None:
    """Write the weights of a checkpoint in two shards, as `save_pretrained` does above 50 GB, and its manifest."""
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:5], names[5:]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, checkpoint / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (checkpoint / "manifest.json").unlink()
    _seal(checkpoint)


def test_all_ends_of_the_model_stop_its_replies(tmp_path: Path) -> None:
    """The files name an end that no template writes; so does the checkpoint of a run on the model."""
    tokenizer = build_tokenizer()
    tokenizer.add_tokens(["<|eom_id|>"], special_tokens=True)
    eom = int(tokenizer.convert_tokens_to_ids("<|eom_id|>"))
    folder = save_model(tmp_path / "model", tokenizer)
    change(folder / "generation_config.json", eos_token_id=[int(tokenizer.eos_token_id), eom])
    run = run_train(recipe(tmp_path, f"model.path={folder}", "train.steps=1"), resume=None, display=False)
    for system in (
        build_system(recipe(tmp_path, f"model.path={folder}")),
        build_system(recipe(tmp_path, f"model.path={folder}"), run / "checkpoints" / "step_000001"),
    ):
        assert eom in system.renderer.stop_token_ids
    # The checkpoint tells it where the model is gone.
    (folder / "generation_config.json").unlink()
    (folder / "config.json").unlink()
    gone = build_system(recipe(tmp_path, f"model.path={folder}"), run / "checkpoints" / "step_000001")
    assert eom in gone.renderer.stop_token_ids


def test_a_base_model_begins_with_its_first_token(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", build_first())
    config = recipe(
        tmp_path, f"model.path={folder}", "train.steps=1", "engine.max_context=512", "rollout.max_tokens=512"
    )
    assert audit_run(run_train(config, resume=None, display=False)).breaches == []
    system = build_system(config)
    task = system.family.task("train", 0)
    opened = system.renderer.open(task.prompt, []).tolist()
    assert opened[0] == 1
    assert opened.count(1) == 1


@pytest.mark.parametrize("padding", [0, 50])
def test_random_weights_have_the_rows_of_the_recipe(padding: int, tmp_path: Path) -> None:
    plain = build_system(recipe(tmp_path, SMALL))
    size = len(plain.tokenizer)
    config = recipe(tmp_path, SMALL, *([f"model.config.vocab_size={size + padding}"] if padding else []))
    system = build_system(config)
    assert system.model.get_input_embeddings().weight.shape[0] == system.model.config.vocab_size == size + padding
    shape = read_policy_shape(config.model, vocab_size=config.tokenizer.vocab_size)
    assert shape is not None
    assert shape.vocab_size == (size + padding if padding else 400)  # the tokenizer's most
    with pytest.raises(ConfigError, match=rf"model.config.vocab_size=12 is too small for the {size} ids"):
        build_system(recipe(tmp_path, SMALL, "model.config.vocab_size=12"))


def test_random_weights_end_where_their_tokenizer_does(tmp_path: Path) -> None:
    """Llama's class has the ends of another tokenizer by default."""
    system = build_system(recipe(tmp_path, SMALL, "model.model_type=llama"))
    assert system.model.config.eos_token_id == system.tokenizer.eos_token_id
    assert system.model.generation_config.eos_token_id == system.tokenizer.eos_token_id


def test_teachers_are_whole_too(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", build_tokenizer())
    broken = save_model(tmp_path / "teacher", build_tokenizer())
    lose(broken)
    options = (f"model.path={folder}", f"loss.teacher.path={broken}", "loss.teacher.coefficient=0.1")
    with pytest.raises(
        ConfigError, match=r"loss\.teacher\.path=.* lacks 1 tensor of the model \(model\.norm\.weight\)"
    ):
        run_train(recipe(tmp_path / "runs", *options), resume=None, display=False)


def lose(folder: Path, name: str = "model.norm.weight") -> None:
    """Take a tensor out of the weights in a folder."""
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_frozen_roles_and_checkpoints_are_whole_too(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", build_tokenizer())
    config, tokenizer = recipe(tmp_path, f"model.path={folder}"), build_tokenizer()
    assert load_frozen_engine(config, folder, tokenizer).version == 0
    assert load_checkpoint(config, folder, tokenizer)
    lose(folder)
    with pytest.raises(ConfigError, match=r"frozen=.*model' lacks 1 tensor of the model \(model\.norm\.weight\)"):
        load_frozen_engine(config, folder, tokenizer)
    with pytest.raises(CheckpointError, match=r"checkpoint=.*model' lacks 1 tensor of the model"):
        load_checkpoint(config, folder, tokenizer)


def test_a_rollout_process_reads_shards_and_refuses_others_weights(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", build_tokenizer())
    system = build_system(recipe(tmp_path, f"model.path={folder}"))
    assert isinstance(system.engine.engine, PausableEngine)
    process = _RolloutProcess(
        system=system, engine=system.engine.engine, say=lambda **fields: None, pictures=PictureStore(None)
    )
    newer = build_tiny_model(vocab_size=len(system.tokenizer), seed=5)
    newer.save_pretrained(tmp_path / "split", max_shard_size="40KB")
    assert process.stage(tmp_path / "split")[1] == compute_checksums(newer)
    lost = sorted((tmp_path / "split").glob("model-*"))[0]
    lost.unlink()
    with pytest.raises(EngineError, match=rf"the weights in .*split lacks {lost.name} of the 3 files"):
        process.stage(tmp_path / "split")
    lose(folder)
    with pytest.raises(EngineError, match=r"not belong to the recipe's model: it lacks 1 tensor of .* \(model\.norm"):
        process.stage(folder)


def read_ids(system: System) -> list[int]:
    return list(system.tokenizer.encode("start see code nothing"))


def test_a_resumed_run_keeps_its_tokenizer_whatever_its_environment_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(tmp_path / "runs", SMALL)
    whole = run_train(config, resume=None, display=False)
    stopped = train_until(config, tmp_path / "stopped", at_step(2))

    def texts(self: NotesFamily, count: int) -> list[str]:
        return ["quite other words are said here now", "and they are frequent"] * count

    monkeypatch.setattr(NotesFamily, "texts", texts)
    other = build_system(config)
    assert rehearse_train(None, resume=Continuation(run=stopped))
    resumed = run_train(None, resume=stopped, display=False)
    assert read_rows(resumed) == read_rows(whole)
    files = [
        run / "checkpoints" / f"step_00000{step}" / "tokenizer.json" for run in (whole, resumed) for step in (0, 2)
    ]
    assert len({file.read_bytes() for file in files}) == 1
    kept = build_system(config, stopped / "checkpoints" / "step_000002")
    assert read_ids(other) != read_ids(kept), "one that is trained again would have other ids"
    assert audit_run(resumed).breaches == []


def test_a_checkpoint_whose_tokenizer_is_damaged_is_named(tmp_path: Path) -> None:
    run = run_train(recipe(tmp_path / "runs", SMALL, "train.steps=1"), resume=None, display=False)
    file = run / "checkpoints" / "step_000001" / "tokenizer.json"
    file.write_text(file.read_text()[:100])
    with pytest.raises(CheckpointError, match=r"step_000001: tokenizer\.json has 100 bytes instead of"):
        run_train(None, resume=run, display=False)
