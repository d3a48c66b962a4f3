"""The package works alone: where `turnwise` cannot be imported, its modules load and a program runs."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import turnwise_sandbox

BLOCK_TURNWISE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "turnwise":
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
sys.path.insert(0, sys.argv[1])
"""


def run_alone(code: str, folder: Path) -> str:
    """Run `code` in an interpreter that finds the package in `folder` only, and cannot import `turnwise`."""
    command = [sys.executable, "-I", "-c", BLOCK_TURNWISE + textwrap.dedent(code), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder that holds a copy of the package and nothing else."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(turnwise_sandbox.__file__).parent, tmp_path / "turnwise_sandbox", ignore=ignored)
    return tmp_path


def test_a_program_runs_in_the_copied_package_where_turnwise_cannot_be_imported(sandbox, copied):
    code = """
    import asyncio, sys
    from turnwise_sandbox import LocalSandbox, Limits, Program, SandboxError

    async def work():
        async with LocalSandbox(num_slots=1) as sandbox:
            where = "import sys\\nprint(6 * 7, sys.modules['turnwise_sandbox'].__file__, 'turnwise' in sys.modules)"
            print((await sandbox.run(Program(code=where), Limits(wall_s=20))).text())
            try:
                await sandbox.run(Program(code=""), Limits(wall_s=0))
            except SandboxError as error:
                print(type(error).__mro__[1].__name__, error)

    asyncio.run(work())
    assert "turnwise" not in sys.modules
    """
    first, _, refused = run_alone(code, copied).splitlines()
    # The program's own interpreter was forked from the copy as well, not from an installed package.
    assert first == f"42 {copied}/turnwise_sandbox/__init__.py False"
    assert refused.startswith("RuntimeError limit wall_s is 0;")


def test_every_module_loads_where_turnwise_cannot_be_imported(copied):
    modules = [
        ".".join(path.relative_to(copied).with_suffix("").parts).removesuffix(".__init__")
        for path in (copied / "turnwise_sandbox").rglob("*.py")
    ]
    assert len(modules) > 40
    imports = "".join(f"import {module}\n" for module in modules)
    assert run_alone(imports + "print('turnwise' in sys.modules)", copied) == "False\n"


def test_every_public_name_is_there_and_importing_the_package_loads_none_of_their_modules(copied):
    code = """
    before = set(sys.modules)
    import turnwise_sandbox
    new = {name.split(".")[0] for name in set(sys.modules) - before}
    print(sorted(new & {"asyncio", "httpx", "pydantic", "subprocess", "numpy"}))
    print(all(getattr(turnwise_sandbox, name).__module__ for name in turnwise_sandbox.__all__
              if name not in ("Limit", "Mode", "Network", "Profile")))
    try:
        turnwise_sandbox.no_such_name
    except AttributeError as error:
        print(error)
    """
    assert run_alone(code, copied).splitlines() == [
        "[]",
        "True",
        "module 'turnwise_sandbox' has no attribute 'no_such_name'",
    ]
