"""Models as they come: whole ones load to the last bit, all others are refused in one line with the remedy."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from load_refusals import CASES, SIZES, change_config, rename, save_tiny, shard, write_row
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from turnwise.core.errors import ConfigError
from turnwise.models.build import load_model
from turnwise.models.loading import load_whole
from turnwise.models.weight_files import StoredTensor
from turnwise.testing import build_tiny_model

DOCUMENT = Path(__file__).parents[3] / "docs" / "models.md"
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_shared_experts": 1}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama tied": {"tie_word_embeddings": True},
    "qwen3_moe": {**EXPERTS, "num_experts": 4},
    "glm4_moe": {**EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1},  # saves a buffer
    "gemma2": {"head_dim": 8},
    "phi3": {"pad_token_id": 0},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},  # transposed matrices
    "qwen3_5_text": {**LINEAR, "head_dim": 8},  # draws random numbers while it is loaded
}


@pytest.mark.parametrize("case", CASES)
def test_the_document_says_what_is_said(case: str, tmp_path: Path) -> None:
    row = write_row(case, tmp_path)
    assert row in DOCUMENT.read_text(encoding="utf-8").splitlines(), f"run `python tests/load_refusals.py`: {row}"


def build(name: str, seed: int = 1) -> PreTrainedModel:
    kind, _, _ = name.partition(" ")
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **{**SIZES, **ARCHITECTURES[name]})
    )
    return model


def hold_same(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_whole_model_is_loaded_bit_for_bit_in_one_file_and_in_shards(name: str, tmp_path: Path) -> None:
    model = build(name)
    for folder, size in (("one", "1GB"), ("many", "20KB")):
        model.save_pretrained(tmp_path / folder, max_shard_size=size)
        before = torch.get_rng_state()
        loaded = load_model(tmp_path / folder)
        assert hold_same(loaded, model)
        assert torch.equal(torch.get_rng_state(), before), "the caller's random numbers are as they were"
    assert len(list((tmp_path / "many").glob("model-*.safetensors"))) > 1


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_tensor_may_be_lost(name: str, tmp_path: Path) -> None:
    """Of every file of an architecture, each tensor in turn is left out. Independent of any report: what loads in spite
    of it is the same whole model."""
    model = build(name)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for lost in tensors:
        kept = {name: tensor for name, tensor in tensors.items() if name != lost}
        save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
        try:
            loaded = load_model(tmp_path)
        except ConfigError:
            continue
        assert hold_same(loaded, model), lost


def test_tied_tensors_need_one_of_their_names(tmp_path: Path) -> None:
    model = build_tiny_model(vocab_size=64)
    folder = save_tiny(tmp_path / "tied", tie_word_embeddings=True)
    rename(folder, lambda name: "lm_head.weight" if name == "model.embed_tokens.weight" else name)
    assert hold_same(load_model(folder), model)
    tensors = load_file(folder / "model.safetensors")
    both = {**tensors, "model.embed_tokens.weight": tensors["lm_head.weight"].clone()}
    save_file(both, folder / "model.safetensors", metadata={"format": "pt"})
    assert hold_same(load_model(folder), model)
    rename(folder, lambda name: "" if name in both and ("embed" in name or "lm_head" in name) else name)
    with pytest.raises(ConfigError, match="lacks 1 tensor of the model"):  # one tensor of two names
        load_model(folder)


def test_a_tie_that_the_tensors_deny_is_none_and_is_saved_as_none(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "said")
    change_config(folder, tie_word_embeddings=True)
    model = load_model(folder)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    model.save_pretrained(tmp_path / "again")
    assert hold_same(load_model(tmp_path / "again"), model)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["tie_word_embeddings"] is False


def test_buffers_that_transformers_ignores_are_fine(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "old")
    frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    save_file(
        {**load_file(folder / "model.safetensors"), **frequencies},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    assert hold_same(load_model(folder), build_tiny_model(vocab_size=64, tie_word_embeddings=False))


def test_gpt2_as_the_hub_has_it(tmp_path: Path) -> None:
    """Names without a prefix, and masks and their constant in every layer."""
    model = build("gpt2")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    for layer in range(2):
        tensors |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 8, 8, dtype=torch.uint8)}
        tensors |= {f"h.{layer}.attn.masked_bias": torch.tensor(-1e4)}
    save_file(tensors, file, metadata={"format": "pt"})
    assert hold_same(load_model(tmp_path), model)


def test_random_numbers_that_no_report_admits_are_found() -> None:
    def load(at: str) -> tuple[PreTrainedModel, Mapping[str, Any]]:
        model = build_tiny_model(vocab_size=64)
        if at:
            torch.nn.init.normal_(model.get_parameter(at))
        torch.rand(1)  # drawing some is no fault
        return model, {"missing_keys": set(), "unexpected_keys": set(), "mismatched_keys": set()}

    stored: dict[str, StoredTensor] = {}
    assert hold_same(load_whole(lambda: load(""), stored, {}, "x"), build_tiny_model(vocab_size=64))
    with pytest.raises(ConfigError, match=r"x: transformers silently fills model.norm.weight with random numbers"):
        load_whole(lambda: load("model.norm.weight"), stored, {}, "x")


def test_nothing_is_logged_beside_the_refusal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save_tiny(tmp_path / "model")
    load_model(folder)
    rename(folder, lambda name: "module." + name)
    with pytest.raises(ConfigError):
        load_model(folder)
    assert not caplog.records
    logger = logging.getLogger("transformers.modeling_utils")
    assert not logger.filters, "and later messages are"


def test_a_home_folder_and_the_option_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save_tiny(tmp_path / "model")
    assert load_model(Path("~/model")).config.vocab_size == 64
    with pytest.raises(ConfigError, match=rf"loss\.teacher\.path='{tmp_path}/none': there is no such folder"):
        load_model(Path("~/none"), source="loss.teacher.path")


def test_code_that_is_trusted_builds_its_model(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "configuration_xyz.py").write_text(
        "from transformers import Qwen3Config\n\n\nclass XyzConfig(Qwen3Config):\n    model_type = 'xyz'\n"
    )
    (folder / "modeling_xyz.py").write_text(
        "from transformers import Qwen3ForCausalLM\n\nfrom .configuration_xyz import XyzConfig\n\n\n"
        "class XyzForCausalLM(Qwen3ForCausalLM):\n    config_class = XyzConfig\n"
    )
    code = {"AutoConfig": "configuration_xyz.XyzConfig", "AutoModelForCausalLM": "modeling_xyz.XyzForCausalLM"}
    change_config(folder, model_type="xyz", auto_map=code)
    with pytest.raises(ConfigError, match=r"read the code, then set model\.trust_remote_code=true"):
        load_model(folder)
    model = load_model(folder, trust_remote_code=True)
    assert type(model).__name__ == "XyzForCausalLM"
    rename(folder, lambda name: "" if "norm" in name else name)
    with pytest.raises(ConfigError, match="lacks 9 tensors of the model"):  # 4 in each of 2 layers, and the last
        load_model(folder, trust_remote_code=True)


@pytest.mark.parametrize("trusted", [False, True])
def test_code_that_is_not_in_the_folder_is_named_before_anybody_trusts_it(tmp_path: Path, trusted: bool) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "modeling_xyz.py").write_text("")
    code = {"AutoConfig": "configuration_xyz.XyzConfig", "AutoModelForCausalLM": "modeling_xyz.XyzForCausalLM"}
    for given, message in (
        (code, r"takes code from configuration_xyz\.py, which is not in the folder; copy it from where the model"),
        ({**code, "AutoConfig": ["configuration_xyz.XyzConfig"]}, r"takes code from configuration_xyz\.py"),
        (
            {**code, "AutoConfig": "org/xyz--configuration_xyz.XyzConfig"},
            r"takes code from configuration_xyz\.py of org/xyz, .*; copy it into the folder and remove 'org/xyz--'",
        ),
        ({"AutoConfig": "modeling_xyz.XyzConfig"}, "names no code for AutoModelForCausalLM"),
        ({"AutoModelForCausalLM": "modeling_xyz.X"}, "names no code for AutoConfig"),
        ("configuration_xyz.py", "auto_map is 'configuration_xyz.py'; it must be a table"),
        ({**code, "AutoConfig": "Xyz"}, "auto_map's AutoConfig is 'Xyz'; it must name a file and a class"),
        ({**code, "AutoConfig": 3}, "auto_map's AutoConfig is 3; it must name a file and a class"),
    ):
        change_config(folder, model_type="xyz", auto_map=given)
        with pytest.raises(ConfigError, match=message):
            load_model(folder, trust_remote_code=trusted)


def test_the_text_part_of_a_vision_language_model(tmp_path: Path) -> None:
    """Qwen3.5 names a class for its text part, which is loaded; of Gemma 3 it is saved apart first, as the refusal
    says."""
    text = {**SIZES, "head_dim": 8}
    sight = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 32}
    whole = AutoModelForImageTextToText.from_config(
        AutoConfig.for_model("qwen3_5", text_config={**text, **LINEAR}, vision_config=sight)
    )
    whole.save_pretrained(tmp_path / "qwen")
    loaded = load_model(tmp_path / "qwen")
    part = whole.model.language_model.state_dict()
    assert loaded.model.state_dict().keys() == part.keys()
    assert all(torch.equal(tensor, part[name]) for name, tensor in loaded.model.state_dict().items())

    eyes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model(
        "gemma3",
        text_config=text,
        vision_config={**eyes, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
    )
    whole = AutoModelForImageTextToText.from_config(config)
    alone = AutoModelForCausalLM.from_config(config.text_config)
    alone.model.load_state_dict(whole.model.language_model.state_dict())
    alone.lm_head.load_state_dict(whole.lm_head.state_dict())
    alone.save_pretrained(tmp_path / "gemma")
    assert hold_same(load_model(tmp_path / "gemma"), alone)


def test_a_shard_is_named_when_it_breaks_later(tmp_path: Path) -> None:
    file = shard(tmp_path / "model")
    assert load_model(tmp_path / "model")
    file.write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"{file.name} is truncated or not a safetensors file .*0 bytes"):
        load_model(tmp_path / "model")


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_pickled_weights_are_refused_whether_hostile_or_not(tmp_path: Path) -> None:
    model = build_tiny_model()
    model.save_pretrained(tmp_path)
    assert load_model(tmp_path).config.model_type == model.config.model_type
    (tmp_path / "model.safetensors").unlink()
    mark = tmp_path / "mark"
    for weights in (model.state_dict(), Touch(mark)):
        torch.save(weights, tmp_path / "pytorch_model.bin")
        with pytest.raises(ConfigError, match="safetensors"):
            load_model(tmp_path)
    assert not mark.exists()
