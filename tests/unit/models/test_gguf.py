"""Conversion of GGUF files: the same logits and tokens, and one clear line where it cannot be done."""

from pathlib import Path

import pytest
import torch
from tiny_gguf import TEMPLATE, build_llama, build_tokenizer, write_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.core.errors import DataError, StoreError
from turnwise.models.build import load_model
from turnwise.models.folders import model_writer
from turnwise.models.gguf import convert_gguf, read_summary

pytest.importorskip("gguf")
pytest.importorskip("accelerate")


@pytest.fixture
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def model(tokenizer):
    return build_llama(len(tokenizer))


def convert(file: Path, folder: Path, **options):
    folder.mkdir()
    return convert_gguf(file, folder, **options)


def test_a_converted_model_has_the_same_logits_and_is_a_plain_directory(tmp_path, model, tokenizer):
    write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    summary = convert(tmp_path / "tiny.gguf", tmp_path / "out")
    # Two layers of seven matrices and two norms, the embedding and the last norm.
    assert summary.quantization == "F32 x 20"
    assert (summary.architecture, summary.license, summary.context_length) == ("llama", "apache-2.0", 256)
    ids = torch.arange(3, 40).unsqueeze(0)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert "quantization_config" not in (tmp_path / "out" / "config.json").read_text()
    assert loaded.config.rms_norm_eps == 1e-5
    assert loaded.generation_config.eos_token_id == 2
    assert load_model(tmp_path / "out").config.architectures == ["LlamaForCausalLM"]


def test_weights_are_stored_in_the_dtype_asked_for(tmp_path, model, tokenizer):
    write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    convert(tmp_path / "tiny.gguf", tmp_path / "out", dtype="bfloat16")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded.model.embed_tokens.weight, model.model.embed_tokens.weight.bfloat16())


@pytest.mark.parametrize("text", ["the sum of 12", "a\n\n1. the", "x  30", "ünï\t<|im_start|>the"])
def test_the_tokenizer_gives_the_same_tokens(tmp_path, model, tokenizer, text):
    write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    convert(tmp_path / "tiny.gguf", tmp_path / "out")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert loaded.encode(text, add_special_tokens=False) == tokenizer.encode(text, add_special_tokens=False)
    assert (loaded.eos_token_id, loaded.chat_template, loaded.model_max_length) == (2, TEMPLATE, 256)


@pytest.mark.parametrize(
    ("splitting", "pieces"),
    [
        ("gpt-2", ["a", "Ċ", "Ċ", "123"]),  # the last line end stands alone before what is no space
        ("smollm", ["a", "ĊĊ", "1", "2", "3"]),  # digits are split off first, so both line ends belong together
        ("llama-bpe", ["a", "ĊĊ", "123"]),
        ("qwen2", ["a", "ĊĊ", "1", "2", "3"]),
    ],
)
def test_text_is_split_as_the_file_says(tmp_path, model, tokenizer, splitting, pieces):
    write_gguf(tmp_path / "tiny.gguf", model, tokenizer, splitting=splitting)
    convert(tmp_path / "tiny.gguf", tmp_path / "out")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    split = loaded.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a\n\n123")
    assert [piece for piece, _ in split] == pieces


def test_another_architecture_is_refused_with_those_that_work(tmp_path, model, tokenizer):
    write_gguf(tmp_path / "tiny.gguf", model, tokenizer, architecture="rwkv7")
    with pytest.raises(DataError, match=r"architecture 'rwkv7', which transformers cannot read .*llama"):
        read_summary(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, model, tokenizer, share):
    file = tmp_path / "tiny.gguf"
    write_gguf(file, model, tokenizer)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=r"tiny\.gguf is truncated or broken; fetch it again"):
        read_summary(file)


def test_a_file_without_a_tensor_is_refused(tmp_path, model, tokenizer):
    write_gguf(tmp_path / "tiny.gguf", model, tokenizer, lost="model.layers.1.mlp.up_proj.weight")
    with pytest.raises(DataError, match=r"lacks 1 tensor of the model \(model\.layers\.1\.mlp\.up_proj\.weight\)"):
        convert(tmp_path / "tiny.gguf", tmp_path / "out")


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04rest")
    with pytest.raises(DataError, match="is not a GGUF file"):
        read_summary(tmp_path / "model.bin")
    with pytest.raises(DataError, match=": No such file"):
        read_summary(tmp_path / "missing.gguf")


def write_and_fail(target: Path) -> None:
    with model_writer(target) as folder:
        (folder / "config.json").write_text("{}")
        raise OSError("disk full")


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(StoreError, match=r"cannot write .*out"):
        write_and_fail(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
