"""Settings every test runs under: one thread per process, no GPU, no network look-ups, no deadline for generated
examples. And the interpreter that other users may run."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported anywhere: workers of a parallel test run must not fight over cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Exactness holds on the CPU: `model.device = "auto"` must not find a GPU, unless CUDA_VISIBLE_DEVICES names one.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# Tests press Ctrl-C; started in the background of a script they would ignore it, and so would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

import turnwise_sandbox  # noqa: E402

settings.register_profile("turnwise", deadline=None, max_examples=50)
settings.load_profile("turnwise")


@pytest.fixture(autouse=True)
def same_sigterm() -> Iterator[None]:
    """The command line takes SIGTERM for Ctrl-C; a test that calls it leaves the signal to others as it was."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def plain_python() -> Iterator[str]:
    """An interpreter, with this package, that every user of the machine may run. Skips if the system has no Python of
    at least 3.11."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if not os.path.exists(path):
            continue
        version = subprocess.run(
            [path, "-c", "import sys; sys.stdout.write(str(sys.version_info >= (3, 11)))"], capture_output=True
        )
        if version.stdout != b"True":
            continue
        folder = tempfile.mkdtemp(prefix="turnwise-plain-python-")
        os.chmod(folder, 0o755)
        subprocess.run([path, "-m", "venv", "--without-pip", f"{folder}/venv"], check=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(turnwise_sandbox.__file__).parent, f"{folder}/turnwise_sandbox", ignore=ignored)
        tests = Path(__file__).parent / "packages" / "turnwise-sandbox" / "tests" / "live"
        shutil.copytree(tests, f"{folder}/tests", ignore=ignored)
        for site in Path(folder, "venv/lib").glob("python3*/site-packages"):
            (site / "turnwise_sandbox.pth").write_text(folder)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield f"{folder}/venv/bin/python"
        shutil.rmtree(folder)
        return
    pytest.skip("no system Python of at least 3.11 that other users may run")
