"""The recipe's renderer: decided by tools or tokenizer, the same for a run's checkpoints, and said in one line."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from chat_families import FAMILIES
from chat_families import build_tokenizer as build_chat_tokenizer

from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError, EnvironmentFault
from turnwise.rendering.calls import CallsRenderer
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.runs import openings
from turnwise.runs.build import build_system
from turnwise.runs.renderer import (
    build_renderer,
    build_tokenizer,
    describe_renderer,
    list_tools,
    load_own_tokenizer,
    resolve_renderer,
)
from turnwise.testing import NotesFamily

RECIPES = ["search_r1", "retool", *(["toolrl"] if find_spec("turnwise_worlds") else [])]


def load(name: str, *overrides: str) -> RunConfig:
    return load_config(
        [Path(f"{name}/tiny")], ["tokenizer.num_texts=100", "train.micro_batch_tokens=512", *overrides]
    )


@pytest.mark.parametrize("name", RECIPES)
def test_auto_decides_for_every_recipe_as_the_recipe_does(name: str) -> None:
    named, auto = load(name), load(name, "renderer.kind=auto", "renderer.format=search_r1")
    family = build_family(named)
    meant, chosen = (resolve_renderer(config, family, None) for config in (named, auto))
    assert (chosen.kind, chosen.format) == (meant.kind, meant.format)
    assert (meant.why, chosen.why.startswith(f"{chosen.kind}")) == ("", True)


def test_tools_are_read_while_a_loop_is_running() -> None:
    async def read() -> list[str]:
        return [tool.name for tool in list_tools(build_family(load("search_r1")))]

    assert asyncio.run(read()) == ["search"]


def test_a_mixture_is_decided_by_the_tools_of_all() -> None:
    config = load("search_r1", "renderer.kind=auto")
    both = config.environment.model_validate(
        {
            "mixture": {
                "search_qa": {"args": dict(config.environment.args)},
                "math_code": {"args": dict(load("retool").environment.args)},
            }
        }
    )
    mixed = config.model_copy(update={"environment": both})
    choice = resolve_renderer(mixed, build_family(mixed), None)
    assert (choice.kind, choice.why) == (
        "calls",
        "calls: random weights, and tools that tags cannot call (python, search)",
    )


def test_an_environment_that_never_opens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(NotesFamily):
        def build_environment(self, task: Any) -> Any:
            environment = super().build_environment(task)

            async def reset(task: Any, seed: int) -> Any:
                await asyncio.sleep(60)

            environment.reset = reset  # type: ignore[method-assign]
            return environment

    monkeypatch.setattr(openings, "OPENING_TIMEOUT_S", 0.05)
    with pytest.raises(ConfigError, match=r"environment 'notes' did not open task .* within 0.05 s; make its reset"):
        list_tools(Stuck())


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("task", IndexError, "^the training split is empty$"),
        ("task", KeyError, "^task 0 of split 'train': NotesFamily: KeyError"),
        ("build_environment", KeyError, "^task 0 of split 'train': environment 'notes' for task .*: KeyError"),
        ("build_environment", TimeoutError, "^task 0 of split 'train': environment 'notes' for task .*: TimeoutError"),
    ],
)
def test_an_environment_that_cannot_open_is_one_line(
    monkeypatch: pytest.MonkeyPatch, method: str, error: type[Exception], message: str
) -> None:
    def crash(*_: object) -> None:
        raise error("no such thing")

    family = NotesFamily()
    monkeypatch.setattr(family, method, crash)
    with pytest.raises((DataError, EnvironmentFault), match=message):
        list_tools(family)


def test_a_family_whose_texts_crash_is_named() -> None:
    class Speechless(NotesFamily):
        def texts(self, count: int) -> list[str]:
            raise KeyError(count)

    config, family = load("search_r1"), Speechless()
    with pytest.raises(EnvironmentFault, match="texts of Speechless for the tokenizer: KeyError"):
        build_tokenizer(config, family, resolve_renderer(config, family, None))


def test_a_model_from_random_weights_gets_the_same_renderer_from_its_checkpoint(tmp_path: Path) -> None:
    config = load("search_r1", "renderer.kind=auto")
    first = build_system(config)
    first.tokenizer.save_pretrained(tmp_path)
    first.model.save_pretrained(tmp_path)
    again = build_system(config, tmp_path)
    assert type(first.renderer) is type(again.renderer) is TagRenderer
    assert first.renderer_note == again.renderer_note
    assert first.renderer_note.startswith('tags, format="search_r1": random weights')
    assert build_system(load("search_r1")).renderer_note == ""


def test_a_checkpoint_is_decided_by_its_tokenizer_and_the_note_says_what_is_odd(tmp_path: Path) -> None:
    tokenizer = build_chat_tokenizer(next(family for family in FAMILIES if family.name == "Gemma 2"))
    tokenizer.save_pretrained(tmp_path)
    config = load("retool", f"model.path={tmp_path}", "renderer.kind=auto")
    choice = resolve_renderer(config, build_family(config), tokenizer)
    renderer = build_renderer(config, choice, tokenizer)
    assert isinstance(renderer, TemplateRenderer)
    assert describe_renderer(choice, renderer) == (
        'template, calls="hermes": the model\'s own chat template, since no chat renderer gives the same tokens; '
        "it has no lasting system message, so that text opens the first user message"
    )
    named = load("retool", f"model.path={tmp_path}", "renderer.kind=template", "renderer.calls=react")
    assert resolve_renderer(named, build_family(named), tokenizer).calls == "react"
    lines = load("retool", f"model.path={tmp_path}", "renderer.kind=calls")
    assert isinstance(
        build_renderer(lines, resolve_renderer(lines, build_family(lines), tokenizer), tokenizer), CallsRenderer
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("ORG/NAME", r"^model.path='ORG/NAME': there is no such folder; .* `hf download ORG/NAME --local-dir DIR`"),
        ("model.gguf", r"^model.path='.*model.gguf' is a file, not a folder; convert it with `turnwise models convert"),
        ("model.safetensors", r"^model.path='.*' is a file, not a folder; use the folder that contains it"),
    ],
)
def test_a_path_that_is_no_model_is_told_before_its_tokenizer_is_read(tmp_path: Path, path: str, message: str) -> None:
    for name in ("model.gguf", "model.safetensors"):
        (tmp_path / name).write_bytes(b"")
    given = tmp_path / path if (tmp_path / path).exists() else path
    with pytest.raises(ConfigError, match=message):
        load_own_tokenizer(load_config([], [f"model.path={given}", "train.lr=1e-6"]))
