"""An adapter: what it adds, what it shares, its files against peft's own reader, what is refused, and merging."""

import asyncio
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_model import distance
from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError
from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.engines.workers import WorkerEngine
from turnwise.models.attention import PackedAttention
from turnwise.models.build import load_model
from turnwise.models.checksums import BASE, compute_checksums
from turnwise.models.lora import (
    add_adapter,
    apply_dropout,
    copy_model,
    list_adapter,
    load_adapter,
    merge_adapter,
    save_adapter,
)
from turnwise.testing import build_tiny_model

peft = pytest.importorskip("peft")

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
LAYERS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def adapt(model: PreTrainedModel, **changes: Any) -> PreTrainedModel:
    options: dict[str, Any] = {
        "rank": 4,
        "alpha": 8.0,
        "dropout": 0.0,
        "target_modules": "all-linear",
        "base": "",
        "seed": 1,
    }
    return add_adapter(model, **{**options, **changes})


def build_trained(**changes: Any) -> PreTrainedModel:
    """A model whose adapter adds something."""
    model = adapt(build_tiny_model(), **changes)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in list_adapter(model).items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return model


@torch.no_grad()
def run(model: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    positions = torch.arange(ids.shape[1])[None]
    logits: torch.Tensor = model(
        input_ids=ids, position_ids=positions, use_cache=False, attention_plan=PackedAttention([ids.shape[1]])
    ).logits
    return logits


def test_a_fresh_adapter_adds_nothing_and_alone_is_trained() -> None:
    plain, adapted = build_tiny_model(), adapt(build_tiny_model())
    assert torch.equal(run(plain), run(adapted))
    trained = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert trained == set(list_adapter(adapted))
    assert {name.split(".")[-4] for name in trained} == LAYERS
    # A layer, hidden 32, heads 4 x 8 = 32, kv heads 2 x 8 = 16, MLP 64: q and o 32 + 32 each, k and v 32 + 16 each,
    # gate, up and down 32 + 64 each: 64 + 64 + 48 + 48 + 3 x 96 = 512; two layers of rank 4.
    assert sum(p.numel() for p in list_adapter(adapted).values()) == 2 * 4 * 512


def test_the_seed_alone_decides_where_an_adapter_starts() -> None:
    torch.manual_seed(5)
    first = adapt(build_tiny_model())
    torch.manual_seed(6)
    state = torch.get_rng_state()
    second, other = adapt(build_tiny_model()), adapt(build_tiny_model(), seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert compute_checksums(first) == compute_checksums(second) != compute_checksums(other)


def test_chosen_layers_alone_get_an_adapter() -> None:
    model = adapt(build_tiny_model(), target_modules=["q_proj", "v_proj"])
    assert {name.split(".")[-4] for name in list_adapter(model)} == {"q_proj", "v_proj"}


def test_what_an_adapter_adds_by_hand() -> None:
    layer: Any = build_trained().model.layers[0].self_attn.q_proj
    x = torch.linspace(-1, 1, 32)
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    expected = x @ layer.base_layer.weight.T + 2.0 * (x @ a.T @ b.T)  # alpha 8 / rank 4
    assert torch.allclose(layer(x), expected, atol=1e-6)


def test_copies_share_what_is_frozen() -> None:
    model = build_trained()
    twin = copy_model(model)
    mine, theirs = dict(model.named_parameters()), dict(twin.named_parameters())
    shared = {name for name in mine if mine[name] is theirs[name]}
    assert shared == mine.keys() - list_adapter(model).keys()
    assert torch.equal(run(model), run(twin))
    plain = build_tiny_model()
    assert not {id(p) for p in plain.parameters()} & {id(p) for p in copy_model(plain).parameters()}


def test_checksums_name_the_adapter_and_count_the_rest_once() -> None:
    model = build_trained()
    sums = compute_checksums(model)
    assert sums.keys() == {*list_adapter(model), BASE}
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    changed = compute_checksums(model)
    assert {name for name in sums if sums[name] != changed[name]} == {BASE}


def test_peft_reads_what_is_saved(tmp_path: Path) -> None:
    build_tiny_model().save_pretrained(tmp_path / "base")
    model = build_trained(base=str(tmp_path / "base"))
    save_adapter(model, tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(load_model(tmp_path / "base"), str(tmp_path / "adapter"))
    assert torch.equal(run(theirs), run(model))
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str((tmp_path / "base").resolve())
    assert config["target_modules"] == sorted(LAYERS)
    ours = load_adapter(load_model(tmp_path / "base"), tmp_path / "adapter", base=str(tmp_path / "base"))
    assert compute_checksums(ours) == compute_checksums(model)
    assert all(p.requires_grad for p in list_adapter(ours).values())


def test_what_peft_saves_is_read(tmp_path: Path) -> None:
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    theirs = peft.get_peft_model(build_tiny_model(), config)
    theirs.save_pretrained(str(tmp_path))
    ours = load_adapter(build_tiny_model(), tmp_path, base="")
    assert torch.equal(run(ours), run(theirs))


def test_an_adapter_for_another_model_is_refused(tmp_path: Path) -> None:
    save_adapter(build_trained(base="models/first"), tmp_path)
    with pytest.raises(ConfigError, match=r"was made for the model '.*first', but model\.path='other/second'"):
        load_adapter(build_tiny_model(), tmp_path, base="other/second")
    # Of the 7 linear layers in each of 2, one of A (rank x input) and B (output x rank) has the hidden size.
    wider = r"has 14 tensors of a different size .*mlp.down_proj.lora_B.weight is \(32, 4\), in .* \(48, 4\)"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"hidden_size": 48}, wider),
        ({"num_hidden_layers": 1}, r"has 14 tensors not in the model .*layers\.1\..* and 11 more"),
        ({"num_hidden_layers": 3}, r"lacks 14 tensors of the model .*layers\.2\..* and 11 more"),
    ]
    for changes, said in cases:
        with pytest.raises(ConfigError, match=rf"belongs to another model .*: it {said}.*; set model\.path to"):
            load_adapter(build_tiny_model(**changes), tmp_path, base="elsewhere/first")


def test_pickled_and_renamed_adapters_are_refused(tmp_path: Path) -> None:
    save_adapter(build_trained(), tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file)
    for rename, remedy in (
        (lambda name: name.removeprefix("base_model.model."), r"lack the prefix 'base_model\.model\.'"),
        (lambda name: "module." + name, r"have a wrapper's prefix 'module.'"),
        (lambda name: name.replace(".weight", ".default.weight"), r"contain a wrapper's 'default\.'"),
    ):
        save_file({rename(name): tensor for name, tensor in tensors.items()}, file)
        with pytest.raises(ConfigError, match=remedy):
            load_adapter(build_tiny_model(), tmp_path, base="")
    file.rename(tmp_path / "adapter_model.bin")
    with pytest.raises(ConfigError, match=r"pickled weights \(adapter_model.bin\)"):
        load_adapter(build_tiny_model(), tmp_path, base="")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "use_dora=True; only plain LoRA"),
        ({"bias": "all"}, "bias='all'; only plain LoRA"),
        ({"layer_replication": [[0, 2], [1, 2]]}, r"layer_replication=\[\[0, 2\], \[1, 2\]\]; only plain LoRA"),
        ({"alora_invocation_tokens": [5, 6]}, r"alora_invocation_tokens=\[5, 6\]; only plain LoRA"),
        ({"target_parameters": ["mlp.experts.down_proj"]}, r"target_parameters=\['mlp\.experts.*; only plain LoRA"),
        ({"peft_type": "IA3", "feedforward_modules": []}, "only LoRA is supported"),
        (None, "lacks adapter_config.json or adapter_model.safetensors"),
    ],
)
def test_other_adapters_are_refused(tmp_path: Path, change: dict[str, Any] | None, message: str) -> None:
    save_adapter(build_trained(), tmp_path)
    file = tmp_path / "adapter_config.json"
    if change is None:
        file.unlink()
    else:
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ConfigError, match=message):
        load_adapter(build_tiny_model(), tmp_path, base="")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, t: t * float("nan") if "lora_B" in name else t, "contains NaN or infinity in base_model.*lora_B"),
        (lambda name, t: t / 0, "contains NaN or infinity"),
        (lambda name, t: t.to(torch.int8), r"integers \(base_model.*torch\.int8"),
        (lambda name, t: t[:0], r"contains no numbers: .* has 28 empty tensors.*ZeRO-3"),
        (None, "contains no numbers: .* has no tensor"),
    ],
)
def test_numbers_that_an_adapter_cannot_have_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    save_adapter(build_trained(), tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    save_file({name: change(name, t) for name, t in load_file(file).items()} if change else {}, file)
    with pytest.raises(ConfigError, match=message):
        load_adapter(build_tiny_model(), tmp_path, base="")


def test_files_that_are_no_adapters_are_named(tmp_path: Path) -> None:
    save_adapter(build_trained(), tmp_path / "default")
    with pytest.raises(ConfigError, match=r"lacks adapter_config.json .*did you mean .*default'\?"):
        load_adapter(build_tiny_model(), tmp_path, base="")
    (tmp_path / "default" / "adapter_model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ConfigError, match="is a Git LFS"):
        load_adapter(build_tiny_model(), tmp_path / "default", base="")


@pytest.mark.parametrize("alpha", [0, -1, "8"])
def test_an_adapter_that_would_add_nothing_is_refused(tmp_path: Path, alpha: Any) -> None:
    save_adapter(build_trained(), tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "lora_alpha": alpha}))
    with pytest.raises(ConfigError, match=f"lora_alpha={alpha!r}"):
        load_adapter(build_tiny_model(), tmp_path, base="")


def test_an_output_layer_with_an_adapter_is_read_with_the_weight_that_peft_writes_beside_it(tmp_path: Path) -> None:
    options = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(build_tiny_model(tie_word_embeddings=False), options)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file)
    beside = "base_model.model.lm_head.base_layer.weight"
    assert beside in tensors
    loaded = load_adapter(build_tiny_model(tie_word_embeddings=False), tmp_path, base="")
    by_name = {name: parameter for name, parameter in model.base_model.model.named_parameters() if ".lora_" in name}
    assert by_name.keys() == list_adapter(loaded).keys()
    assert all(torch.equal(by_name[name], parameter) for name, parameter in list_adapter(loaded).items())
    save_file({**tensors, beside: tensors[beside] + 1}, file)
    with pytest.raises(ConfigError, match=r"contains its own weights for .*lm_head.base_layer.weight"):
        load_adapter(build_tiny_model(tie_word_embeddings=False), tmp_path, base="")


def test_layers_that_cannot_be_adapted_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has 'query', but the model has no layer .* it has down_proj, gate_proj"):
        adapt(build_tiny_model(), target_modules=["query", "q_proj"])
    refused = pytest.raises(ConfigError, match="embed_tokens, which is not a linear layer")
    with warnings.catch_warnings(action="error"), refused:
        adapt(build_tiny_model(), target_modules=["embed_tokens"])
    with pytest.raises(ConfigError, match="lm_head, which shares its weights with the embedding; remove"):
        adapt(build_tiny_model(), target_modules=["lm_head"])
    assert list_adapter(adapt(build_tiny_model(tie_word_embeddings=False), target_modules=["lm_head"]))
    save_adapter(build_trained(), tmp_path)
    with pytest.raises(ConfigError, match=r"contains an adapter but no model; set model.lora.path"):
        load_model(tmp_path)


def test_peft_that_is_missing_or_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peft, "__version__", "0.19.3.dev0")
    with pytest.raises(ConfigError, match=r"needs peft 0.20 or newer, but 0.19.3.dev0 is installed; pip install -U"):
        adapt(build_tiny_model())
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"needs the package peft .*; pip install 'turnwise\[lora\]'"):
        adapt(build_tiny_model())


def test_a_merged_model_computes_the_same(tmp_path: Path) -> None:
    model = build_trained()
    base, before = dict(copy_model(model).named_parameters()), run(model)
    weight = base["model.layers.0.mlp.up_proj.base_layer.weight"].clone()
    merged = merge_adapter(model)
    assert not list_adapter(merged)
    assert merged.state_dict().keys() == build_tiny_model().state_dict().keys()
    # Logits of up to 3; sums of 32 products in float32.
    assert float((run(merged) - before).abs().max()) < 1e-5
    assert float((before - run(build_tiny_model())).abs().max()) > 0.1
    assert torch.equal(base["model.layers.0.mlp.up_proj.base_layer.weight"], weight), "a copy shares it"
    merged.save_pretrained(tmp_path)
    assert torch.equal(run(load_model(tmp_path)), run(merged))
    plain = build_tiny_model()
    assert merge_adapter(plain) is plain


def test_an_adapter_of_a_bfloat16_model_is_float32() -> None:
    model = adapt(build_tiny_model(dtype="bfloat16"))
    assert {p.dtype for p in list_adapter(model).values()} == {torch.float32}
    assert run(model).dtype == torch.bfloat16
    merged = merge_adapter(model)
    assert {p.dtype for p in merged.parameters()} == {torch.bfloat16}


def test_dropout_is_a_function_of_its_seed() -> None:
    model = build_trained(dropout=0.5)
    plain = run(model)
    drawn = []
    for seed in (1, 1, 2):
        with apply_dropout(model, seed):
            drawn.append(run(model))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], plain)
    assert torch.equal(run(model), plain), "off outside"


# ---------------------------------------------------------------------------------------------------------- engines


def sample(engine: Any) -> list[Completion]:
    async def all_of() -> list[Completion]:
        async with asyncio.timeout(60):
            jobs = [
                engine.generate(
                    to_ids(np.arange(5 + i)), SamplingParams(max_tokens=12, seed=i), session=Session("g", str(i))
                )
                for i in range(4)
            ]
            done = await asyncio.gather(*jobs)
            await engine.close()
            return list(done)

    return asyncio.run(all_of())


def test_engines_sample_with_the_adapter() -> None:
    limits: dict[str, Any] = {"max_concurrency": 4, "max_context": 64}
    model = build_trained()
    modules = sample(PagedEngine(model, fused=False, **limits))
    plain = sample(PagedEngine(build_tiny_model(), fused=False, **limits))
    assert [c.token_ids.tolist() for c in modules] != [c.token_ids.tolist() for c in plain]
    fused = PagedEngine(model, fused=True, **limits)
    assert fused.is_fused
    assert distance(modules, sample(fused)) < 1e-5
    assert distance(modules, sample(WorkerEngine(copy_model(model), num_workers=1, **limits))) < 1e-5
    assert distance(modules, sample(PagedEngine(merge_adapter(model), fused=False, **limits))) < 1e-5


def test_an_engine_proves_which_adapter_it_packed() -> None:
    model = build_trained()
    engine = PagedEngine(model, fused=True, max_concurrency=2, max_context=32)

    async def adopt() -> list[dict[str, int]]:
        sums = [dict(await engine.adopt(1))]
        with torch.no_grad():
            next(iter(list_adapter(model).values())).data += 1  # as an optimizer's step: the engine is not told
        sums += [dict(engine._runner.compute_checksums()), dict(await engine.adopt(2))]
        await engine.close()
        return sums

    first, packed, renewed = asyncio.run(adopt())
    assert packed == first != renewed == compute_checksums(model)
