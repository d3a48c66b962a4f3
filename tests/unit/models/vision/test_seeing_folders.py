"""Folders of vision-language models: loaded with their processor, saved with it, refused without it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conversations import compute_packed, write
from their_processors import build_processor
from tiny_seeing import CONFIGS, TOWER, build_seeing, draw

from turnwise.core.errors import ConfigError, EngineError, RenderError
from turnwise.models.build import load_model
from turnwise.models.paths import find_path
from turnwise.models.structure import build_structure, describe_structure, list_tensors, with_tensors
from turnwise.models.vision.eyes import Eyes, attach_eyes, find_eyes, save_processor
from turnwise.models.vision.layout import FamilyLayout
from turnwise.models.vision.sight import load_sight
from turnwise.pictures.store import PictureStore
from turnwise.rendering.tokenizer import load_tokenizer, train_tokenizer


def see_from(folder: Path, where: str = "model.path='m'") -> tuple[torch.nn.Module, Eyes]:
    """Load the model, the tokenizer and the processor of a folder."""
    model = load_model(folder)
    attach_eyes(model, FamilyLayout(load_sight(folder, where), load_tokenizer(folder), where=where), PictureStore(None))
    eyes = find_eyes(model)
    assert eyes is not None
    return model, eyes


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_saved_model_sees_what_it_saw(kind: str, tmp_path: Path) -> None:
    model, tokenizer, eyes = build_seeing(kind)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    save_processor(model, tmp_path)
    loaded, other = see_from(tmp_path)
    assert find_path(loaded).kind == "fast"
    parts = [40, 41], draw(0), [42], draw(1, 50, 30), [43]
    one, two = write(eyes, *parts), write(other, *parts)
    assert (one.token_ids, one.spans) == (two.token_ids, two.spans)
    with torch.no_grad():
        assert torch.equal(compute_packed(model, eyes, one), compute_packed(loaded, other, two))
    assert other.sight.files == eyes.sight.files


@pytest.mark.parametrize("kind", ["smolvlm", "idefics3"])
@pytest.mark.parametrize("size", [(32, 32), (64, 32), (40, 100), (130, 70)])
def test_pictures_cut_into_tiles_are_those_of_the_processor(kind: str, size: tuple[int, int], tmp_path: Path) -> None:
    model, _, eyes = build_seeing(kind)
    rows = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    special = ["<|endoftext|>", *eyes.sight.family.tokens, *rows]
    tokenizer = train_tokenizer(["the cat\n\nsaw\n"] * 9, vocab_size=300, special_tokens=special)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    save_processor(model, tmp_path)
    file = tmp_path / "preprocessor_config.json"
    table = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(table | {"do_image_splitting": True, "size": {"longest_edge": 96}}), encoding="utf-8")
    sight = load_sight(tmp_path, "m")
    layout = FamilyLayout(sight, tokenizer, where="m")
    part = draw(0, *size)
    memory = PictureStore(None)
    memory.put(part)
    place_eyes = Eyes(sight, memory, layout)
    prompt = layout.lay_out(part)
    image = memory.read(part.digest)
    theirs = build_processor(kind, place_eyes, tokenizer)(text=["the <image> cat"], images=[[image]])["input_ids"][0]
    start = list(tokenizer.encode("the ", add_special_tokens=False))
    end = list(tokenizer.encode(" cat", add_special_tokens=False))
    assert [*start, *prompt.token_ids.tolist(), *end] == list(theirs)
    rows_of = place_eyes.encode(model, [part.digest])[0].rows
    assert [span.offset for span in prompt.images] == list(range(0, len(rows_of), prompt.images[0].length))
    assert sum(span.length for span in prompt.images) == len(rows_of)


def test_a_folder_without_a_processor_is_refused_in_one_line(tmp_path: Path) -> None:
    model, tokenizer, _ = build_seeing()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        ConfigError, match=r"^m has no image processor \(preprocessor_config.json or processor_config"
    ) as it:
        load_sight(tmp_path, "m")
    assert "\n" not in str(it.value)
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "NoSuchProcessor"}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^m: the image processor cannot be built: "):
        load_sight(tmp_path, "m")
    (tmp_path / "preprocessor_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^m: the image processor cannot be built: "):
        load_sight(tmp_path, "m")


def test_a_processor_that_counts_other_places_than_the_tower_makes_is_refused(tmp_path: Path) -> None:
    model, tokenizer, eyes = build_seeing("internvl")
    save_processor(model, tmp_path)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "processor_config.json"
    for count in (3, 5):
        table = json.loads(file.read_text(encoding="utf-8")) | {"image_seq_length": count}
        file.write_text(json.dumps(table), encoding="utf-8")
        other = Eyes(load_sight(tmp_path, "m"), eyes.pictures, eyes.layout)
        eyes.pictures.put(part := draw(0))
        with pytest.raises(EngineError, match=f"makes 4 rows of picture {part.digest}, but its prompt has {count} pla"):
            other.encode(model, [part.digest])


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("smolvlm", {"scale_factor": 3}, "cannot encode a picture; change its sizes: RuntimeError: shape"),
        ("smolvlm", {"vision_config": {**TOWER, "image_size": 30}}, "cannot encode a picture; change its sizes"),
        (
            "qwen3_vl",
            {"vision_config": dict(CONFIGS["qwen3_vl"]["vision_config"]) | {"out_hidden_size": 48}},
            "makes rows of 48 numbers for a text part of 32",
        ),
        ("smolvlm", {"vision_config": {}}, "model.config lacks vision_config; the rest would be"),
        (
            "smolvlm",
            {"text_config": {"hidden_size": 32}},
            "lacks text_config.intermediate_size, text_config.num_hidden",
        ),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused_at_the_start(
    kind: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as it:
        build_seeing(kind, **changes)
    assert "\n" not in str(it.value)


def test_axes_that_do_not_share_all_frequencies_are_refused() -> None:
    text = dict(CONFIGS["qwen3_vl"]["text_config"]) | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    with pytest.raises(
        ConfigError, match=r"mrope_section=\[24, 20, 20\] shares out 64 frequencies, .* 4; use \[2, 1, 1\]"
    ):
        build_seeing("qwen3_vl", text_config=text)


def test_a_size_that_the_processor_refuses_is_an_error_of_its_conversation() -> None:
    _, _, eyes = build_seeing("qwen2_vl")
    with pytest.raises(
        RenderError, match=r"^a picture of 1 x 400 pixels cannot be shown to this model: .*aspect ratio"
    ):
        eyes.layout.lay_out(draw(0, 1, 400))


@pytest.mark.parametrize("kind", CONFIGS)
def test_another_process_builds_the_same_model(kind: str, tmp_path: Path) -> None:
    model, _, eyes = build_seeing(kind)
    with pytest.raises(EngineError, match="kept in memory"):
        describe_structure(model)
    store = PictureStore(tmp_path)
    conversation = write(eyes, [40, 41], part := draw(0, 40, 50), [42])
    store.put(part)
    attach_eyes(model, eyes.layout, store)
    description = json.loads(json.dumps(describe_structure(model)))
    other = with_tensors(build_structure(description, torch.device("cpu")), list_tensors(model))
    seeing = find_eyes(other)
    assert seeing is not None
    with torch.no_grad():
        found, expected = compute_packed(other, seeing, conversation), compute_packed(model, eyes, conversation)
    assert torch.equal(found, expected)
