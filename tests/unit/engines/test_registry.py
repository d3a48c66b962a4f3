"""Engines by name or import path, and options that are refused before anything is built."""

from pathlib import Path
from typing import Any

import pytest
from small_model import CONFIG, VOCAB

from turnwise.config.engine_kinds.kind import read_options
from turnwise.config.engine_kinds.table import ENGINE_KINDS
from turnwise.config.engine_kinds.vllm import VllmOptions
from turnwise.core.errors import ConfigError
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.engines.registry import build_engine, check_engine
from turnwise.engines.server import ServerEngine
from turnwise.engines.settings import EngineSettings
from turnwise.engines.vllm import VllmEngine
from turnwise.engines.workers import WorkerEngine
from turnwise.models.build import build_model

COMMON = EngineSettings(max_concurrency=2, max_context=64)


@pytest.mark.parametrize(
    ("kind", "options", "built", "is_fused"),
    [
        ("paged", {}, PagedEngine, True),
        ("paged", {"fused": False, "max_draft_tokens": 3}, PagedEngine, False),
        ("workers", {"num_workers": 1}, WorkerEngine, True),
        ("local", {"max_batch_tokens": 8}, LocalEngine, None),
    ],
)
def test_engines_by_name(kind: str, options: dict[str, Any], built: type, is_fused: bool | None) -> None:
    model = build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)
    engine = build_engine(kind, model, common=COMMON, options=options)
    assert type(engine) is built
    assert getattr(engine, "is_fused", None) == is_fused


@pytest.mark.parametrize("kind", ENGINE_KINDS)
def test_rows_say_which_engines_see(kind: str) -> None:
    built = {"paged": PagedEngine, "workers": WorkerEngine, "local": LocalEngine}
    engine = built | {"vllm": VllmEngine, "server": ServerEngine}
    assert hasattr(engine[kind], "generate_seeing") == ENGINE_KINDS[kind].reads_images


def build_recorded(model: Any, **settings: Any) -> Any:
    return model, settings


def refuse(model: Any, **settings: Any) -> Any:
    raise KeyError("max_tokens")


def test_an_engine_by_import_path_gets_everything() -> None:
    model = build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)
    given: Any = build_engine(f"{__name__}:build_recorded", model, common=COMMON, options={"a": 1})
    assert given == (model, {"common": COMMON, "options": {"a": 1}, "grammars": None, "decode": None})
    with pytest.raises(ConfigError, match=r"cannot be built: KeyError: 'max_tokens'"):
        build_engine(f"{__name__}:refuse", model, common=COMMON, options={})


FLEX = {"attention": "flex", "cuda_graphs": True}


@pytest.mark.parametrize(
    ("kind", "options", "device", "words"),
    [
        ("page", {}, "cpu", rf"engine.kind='page' is neither one of {', '.join(ENGINE_KINDS)} nor a path"),
        ("no.such:thing", {}, "cpu", r"engine.kind='no.such:thing' cannot be imported"),
        (f"{__name__}:COMMON", {}, "cpu", r"is a EngineSettings; it must be a function or a row of class EngineKind"),
        ("paged", {"max_draft": 3}, "cpu", r"options.max_draft is not .* did you mean 'max_draft_tokens'"),
        (
            "vllm",
            {"python": "/no/such/python"},
            "cpu",
            r"is not an interpreter; .*make vllm",
        ),
        ("local", {"fused": True}, "cpu", r"options.fused is not an option of engine.kind='local'"),
        ("paged", {"num_workers": 2}, "cpu", r"options.num_workers is not an option of engine.kind='paged'"),
        ("paged", {"attention": "fast"}, "cpu", r"options.attention is 'fast'; it must be 'gather' or 'flex'"),
        ("paged", {"max_batch_tokens": 7}, "cpu", r"options.max_batch_tokens is 7; it must be greater than or equal"),
        ("paged", {"fused": 1}, "cpu", r"options.fused is 1; it must be a valid boolean"),
        (
            "paged",
            {"cuda_graphs": True},
            "cuda",
            r"needs attention='flex' and fused=true.*'gather' and true",
        ),
        ("paged", {**FLEX, "fused": False}, "cuda", r"here they are 'flex' and false"),
        ("paged", FLEX, "cpu", r"with a model on cpu: graphs need a GPU"),
        ("workers", {}, "cuda", r"engine.kind='workers' with a model on cuda: .*memory shared between processes"),
        ("workers", {"num_workers": 0}, "cpu", r"options.num_workers is 0; it must be greater than or equal to 1"),
    ],
)
def test_what_cannot_work_is_refused(kind: str, options: dict[str, Any], device: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_engine(kind, common=COMMON, options=options, device=device)


def test_what_can_work_is_not_refused() -> None:
    check_engine("paged", common=COMMON, options=FLEX, device="cuda")
    check_engine("workers", common=COMMON, options={"num_workers": 3}, device="cpu")
    many = EngineSettings(max_concurrency=2, max_context=64, num_threads=0)
    check_engine("paged", common=many, options={}, device="cpu")
    with pytest.raises(ConfigError, match=r"engine\.num_threads=0: every worker has one thread"):
        check_engine("workers", common=many, options={}, device="cpu")


def test_vllms_interpreter_does_not_depend_on_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TURNWISE_VLLM", raising=False)
    checkout = Path(__file__).parents[3]
    assert read_options("vllm", VllmOptions, {}).python == str(checkout / ".venv-vllm" / "bin" / "python")
    monkeypatch.setenv("TURNWISE_VLLM", "/opt/vllm/bin/python")
    assert read_options("vllm", VllmOptions, {}).python == "/opt/vllm/bin/python"
    assert read_options("vllm", VllmOptions, {"python": "here/python"}).python == str(tmp_path / "here" / "python")
    assert "~" not in read_options("vllm", VllmOptions, {"python": "~/python"}).python
