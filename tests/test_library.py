"""What `import turnwise` offers: exactly these names, each documented and where type checkers see it, and nothing heavy
before it is read."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from docs.write_api import write_page

import turnwise

ROOT = Path(__file__).parents[1]
NAMES = turnwise.__all__


def test_the_page_of_the_public_api_is_what_the_code_says() -> None:
    path = ROOT / "docs" / "api.md"
    assert path.read_text(encoding="utf-8") == write_page(), "docs/api.md is old; `make reference` writes it"


def test_another_name_is_refused() -> None:
    assert set(NAMES) <= set(dir(turnwise))
    with pytest.raises(AttributeError, match="Trajectorie"):
        getattr(turnwise, "Trajectorie")  # noqa: B009


@pytest.mark.parametrize("name", NAMES)
def test_every_name_resolves_and_has_a_docstring(name: str) -> None:
    value = getattr(turnwise, name)
    assert value.__name__ == name
    # A dataclass without a docstring of its own gets its signature, which starts with its name.
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}(")


def test_the_stub_exports_every_name_it_imports() -> None:
    """`lazy_loader` reads the imports, type checkers `__all__`."""
    stub = ast.parse((ROOT / "src" / "turnwise" / "__init__.pyi").read_text(encoding="utf-8"))
    [exported] = [ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign)]
    assert exported == NAMES


def test_importing_the_library_imports_nothing_heavy() -> None:
    program = (
        "import sys; before = set(sys.modules); import turnwise; print(*sorted(set(sys.modules) - before))\n"
        "turnwise.Task; print(*sorted(set(sys.modules) - before))\n"
        "import turnwise.testing; print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    imported, after_a_type, after_testing = (set(line.split()) for line in result.stdout.splitlines())
    assert {"torch", "transformers", "numpy", "pydantic"} & imported == set()
    # Types need numpy and no more.
    assert {"torch", "transformers", "pydantic"} & after_a_type == set()
    assert "numpy" in after_a_type
    # Who checks an environment waits for neither.
    assert {"torch", "transformers"} & after_testing == set()
    assert "turnwise.testing.environment_check" in after_testing
