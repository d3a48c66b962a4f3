"""What `import turnwise` offers: exactly these names, each documented and where type checkers see it, and nothing heavy
before it is read."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import turnwise

NAMES = [
    "Task",
    "Draw",
    "Message",
    "ToolCall",
    "Trajectory",
    "TrajectoryGroup",
    "Scored",
    "Invalid",
    "text_message",
    "Environment",
    "tool",
    "EnvironmentFamily",
    "StepResult",
    "ToolFailure",
    "TagRenderer",
    "ChatRenderer",
    "load_model",
    "build_model",
    "PagedEngine",
    "RolloutWorker",
    "GroupStream",
    "Limits",
    "Sampling",
    "build_credit",
    "to_credit_trajectories",
    "compute_advantages",
    "build_loss",
    "to_samples",
    "TrainingBatch",
    "LocalTrainer",
    "SharedParameters",
    "check_receipt",
    "train",
    "load_run",
    "TurnwiseError",
]


def test_the_library_offers_exactly_these_names() -> None:
    assert sorted(NAMES) == turnwise.__all__
    assert set(NAMES) <= set(dir(turnwise))
    with pytest.raises(AttributeError, match="no attribute 'Trajectorie'"):
        _ = turnwise.Trajectorie


@pytest.mark.parametrize("name", NAMES)
def test_every_name_resolves_and_has_a_docstring(name: str) -> None:
    value = getattr(turnwise, name)
    assert value.__name__ == name
    # A dataclass without a docstring of its own gets its signature, which starts with its name.
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}(")


def test_type_checkers_see_the_names_where_they_are() -> None:
    tree = ast.parse(Path(turnwise.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    shown = {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert shown == {name: f"turnwise.{module}" for name, module in turnwise._HOMES.items()}
    assert sorted(shown) == turnwise.__all__


def test_importing_the_library_imports_nothing_heavy() -> None:
    program = (
        "import sys; before = set(sys.modules); import turnwise; print(*sorted(set(sys.modules) - before))\n"
        "turnwise.Task; print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    imported, after_a_type = (set(line.split()) for line in result.stdout.splitlines())
    assert {"torch", "transformers", "numpy", "pydantic"} & imported == set()
    # Types need numpy and no more.
    assert {"torch", "transformers", "pydantic"} & after_a_type == set()
    assert "numpy" in after_a_type
