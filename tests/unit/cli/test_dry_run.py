"""A dry run refuses what `turnwise train` refuses at its start, with the same line, and writes nothing; what it passes,
`train` starts."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.core.errors import TurnwiseError

ROOT = Path(__file__).parents[3]
TINY = ROOT / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=50",
    "tokenizer.vocab_size=400",
    "rollout.tasks_per_step=2",
    "rollout.group_size=2",
    "sft.steps=1",
    "sft.batch_size=2",
    "sft.num_demonstrations=2",
    "train.steps=1",
    "train.num_threads=1",
    "evaluate.tasks=2",
    "engine.max_concurrency=4",
]
VAULT = ["environment={name = 'own_environment:VaultFamily'}", "evaluate.controls={}"]
"""An environment of another file in place of the recipe's."""

FAMILIES = '''
from own_environment import VaultFamily, Vault
from turnwise.core.types import text_message

class Short(VaultFamily):
    """Four training tasks and no held-out one."""
    def task(self, split, index):
        if index >= (4 if split == "train" else 0):
            raise IndexError(index)
        return super().task(split, index)

class Crashes(VaultFamily):
    def build_environment(self, task):
        class Broken(Vault):
            async def setup(self, task, seed):
                raise LookupError("no such vault")
        return Broken(**self.limits)

class OtherTool(VaultFamily):
    def build_environment(self, task):
        class Other(Vault):
            async def setup(self, task, seed):
                await super().setup(task, seed)
                return task.prompt, [self.open_with]
            def open_with(self, letters: str) -> str:
                """Try letters.

                Args:
                    letters: The letters."""
                return self.search(letters)
        return Other(**self.limits)

class NoTool(VaultFamily):
    def build_environment(self, task):
        class Bare(Vault):
            async def setup(self, task, seed):
                return task.prompt, []
        return Bare(**self.limits)

class TwoNames(VaultFamily):
    def build_environment(self, task):
        class Twice(Vault):
            async def setup(self, task, seed):
                return task.prompt, [self.search, self.search]
        return Twice(**self.limits)

def build_fixed(model, **settings):
    class Fixed:
        version = 0
        async def generate(self, prompt_ids, params, *, session): raise NotImplementedError
        async def release(self, session): pass
        async def close(self): pass
    return Fixed()
'''

REFUSED = {
    "unknown key": (["train.stepz=3"], "unknown key 'train.stepz'"),
    "sections": (["rollout.max_tokens=2000"], "does not fit in engine.max_context=384"),
    "memory": (["engine.max_concurrency=1000000000"], "no train.micro_batch_tokens fits: even 256 needs"),
    "micro-batch": (["train.micro_batch_tokens=1000000000"], "does not fit: the run needs"),
    "output is a file": (["run.output={file}"], "is not a folder; change run.output"),
    "engine option": (["engine.options.cuda_graphs=true", "model.device=cpu"], "engine.options.cuda_graphs=true"),
    "engine kind": (["engine.kind=nothing"], "engine.kind='nothing'"),
    "engine that cannot train": (["engine.kind=refused_families:build_fixed"], "cannot train: Fixed lacks one of"),
    "model": (["model.path=/nowhere"], "/nowhere"),
    "partial model": (["model.config={hidden_size = 32}"], "without intermediate_size, num_hidden_layers"),
    "refused model": (["model.config.num_attention_heads=-3"], "model.config="),
    "vocabulary": (["tokenizer.vocab_size=100"], "tokenizer.vocab_size=100 is too small"),
    "credit name": (["credit.method=grppo"], "did you mean 'grpo'"),
    "credit and critic": (["credit.method=gae"], "set critic.kind"),
    "credit and groups": (["rollout.group_size=1"], "leaves nothing to compare"),
    "credit and fork": ([*VAULT, "credit.method=vine"], "cannot fork; define"),
    "credit and answers": ([*VAULT, "credit.method=igpo"], "does not define it; add"),
    "loss option": (["loss.options.clip_hihg=1.0"], "clip_hihg"),
    "teacher": (["loss.teacher.path=/nowhere"], "/nowhere"),
    "teacher of the catalog": (["loss.teacher.path=smollm2-135m"], "run `turnwise models get smollm2-135m`"),
    "environment name": (["environment.name=serch"], "environment.name='serch' is neither"),
    "environment path": (["environment={name = 'nowhere_at_all:X'}"], "cannot be imported"),
    "environment argument": (["environment.args.serch=1"], "serch"),
    "reward self-check": (["environment.args.reward=json:loads"], "must be an AnswerReward"),
    "setup crashes": ([*VAULT, "environment.name=refused_families:Crashes"], "LookupError: no such vault"),
    "two tools of a name": ([*VAULT, "environment.name=refused_families:TwoNames"], "two tools named 'search'"),
    "tool and tags": (
        [*VAULT, "environment.name=refused_families:OtherTool", "sft.steps=0"],
        "use renderer.kind='calls' for a randomly initialized model, or 'chat' for a checkpoint",
    ),
    "tags of another format": (["renderer.format=retool"], "call only python(code), but the environment has search"),
    "grammar and tags": (["rollout.grammar=calls"], "rollout.grammar='calls' with renderer.kind='tags'"),
    "grammar without a tool": (
        [*VAULT, "environment.name=refused_families:NoTool", "renderer.kind=chat", "rollout.grammar=calls"],
        "the environment has no tool",
    ),
    "chat renderer": (["renderer.kind=chat", "renderer.name=qwen99"], "renderer.name='qwen99'"),
    "opening too long": (["rollout.max_tokens=12", "rollout.max_turn_tokens=2"], "leaves no room for a reply"),
    "too few training tasks": (
        [*VAULT, "environment.name=refused_families:Short", "train.steps=2", "tokenizer.num_texts=4"],
        "fewer than the 6 tasks of this recipe (2 demonstrations",  # 2 + 2 steps of 2 tasks
    ),
    "no held-out task": (
        [*VAULT, "environment.name=refused_families:Short", "tokenizer.num_texts=4"],
        "the held-out split is empty",
    ),
    "demonstrator": (["sft.policy=clever"], "clever"),
    "demonstration too long": (["rollout.max_turns=1"], "raise rollout.max_turns"),
    "control": (["evaluate.controls.off={serch = 'off'}"], "serch"),
}
"""Overrides of the recipe, and what the refusal says."""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example and the families above can be imported."""
    (tmp_path / "refused_families.py").write_text(FAMILIES, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")


def refuse(*arguments: str) -> str:
    """What a command raises, as its one line."""
    with pytest.raises(TurnwiseError) as caught:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize("name", REFUSED)
def test_what_train_refuses_at_its_start_a_dry_run_refuses_with_the_same_line(tmp_path: Path, name: str) -> None:
    overrides, expected = REFUSED[name]
    (tmp_path / "file").touch()
    output = tmp_path / "runs"
    given = [each.replace("{file}", str(tmp_path / "file" / "runs")) for each in overrides]
    arguments = ["train", str(TINY), *SMALL, f"run.output={output}", *given]
    line = refuse(*arguments)
    assert expected in line
    assert "\n" not in line
    assert refuse(*arguments, "--dry-run") == line
    assert not list(output.glob("*")), "a run that is refused leaves no folder"


def test_what_a_dry_run_passes_starts_and_nothing_was_written_before(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    arguments = ["train", str(TINY), *SMALL, f"run.output={output}"]
    result = CliRunner().invoke(app, [*arguments, "--dry-run"], catch_exceptions=False)
    assert result.exit_code == 0
    assert not output.exists()
    checked = [line[:31].strip() for line in result.stdout.splitlines() if line.startswith("checked ")]
    assert checked == [
        "checked memory",
        "checked disk",
        "checked model",
        "checked opening of search_qa",
        "checked training tasks",
        "checked demonstrations",
        "checked held-out tasks",
        "checked control search_off",
        "checked control documents_shuff",  # the label is longer than its column
        "checked credit and loss",
    ]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    (run,) = output.glob("*")
    # A dry run of a resumption reads the run and leaves it as it is.
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    result = CliRunner().invoke(app, ["train", "--resume", str(run), "--dry-run"], catch_exceptions=False)
    assert "checked checkpoint" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    moved = CliRunner().invoke(
        app, ["train", "--resume", str(run), "--ranks", "2", "--dry-run"], catch_exceptions=False
    )
    first, second = (json.JSONDecoder().raw_decode(each.stdout)[0]["train"] for each in (result, moved))
    assert second == {**first, "ranks": 2}
    assert "checked checkpoint" in moved.stdout
    (run / "checkpoints" / "step_000001" / "model.safetensors").write_bytes(b"torn")
    assert refuse("train", "--resume", str(run), "--dry-run") == refuse("train", "--resume", str(run))
