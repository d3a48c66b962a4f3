"""Read what a run left in a tracker, with the tracker's own package: points, texts, options and the run's name."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PACKAGES = ("tensorboard", "wandb", "mlflow", "trackio")


@dataclass(kw_only=True)
class Shown:
    """What a tracker has of one run."""

    name: str
    options: dict[str, str]
    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """(step, value) by metric, in the order in which they came."""
    texts: list[str] = field(default_factory=list)


def read_tensorboard(run: Path) -> Shown:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    info = parse_session_start_info_plugin_data(
        events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    )
    options = {}
    for key, value in info.hparams.items():
        options[key] = str(getattr(value, value.WhichOneof("kind")))
    texts = [
        tensor.tensor_proto.string_val[0].decode()
        for tag in events.Tags()["tensors"]
        if not tag.startswith("_")
        for tensor in events.Tensors(tag)
    ]
    points = {tag: [(p.step, p.value) for p in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return Shown(name=run.name, options=options, points=points, texts=texts)


def read_wandb(run: Path) -> Shown:
    """All offline folders of the run, by W&B's own records."""
    shown = Shown(name="", options={})
    for folder in sorted((run / "wandb").glob("offline-run-*")):
        [file] = folder.glob("*.wandb")
        for record in read_wandb_records(file.read_bytes()):
            if record.HasField("run"):
                shown.name = record.run.display_name
                for item in record.run.config.update:
                    shown.options |= _flatten(json.loads(item.value_json), item.key)
            if record.HasField("history"):
                values = {".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                for key, value in values.items():
                    if key.endswith(".path"):
                        shown.texts.append((folder / "files" / value).read_text(encoding="utf-8"))
                    elif (
                        isinstance(value, float | int) and not key.startswith("_") and "." not in key and key != "step"
                    ):
                        shown.points.setdefault(key, []).append((values["step"], value))
    return shown


def read_wandb_records(data: bytes) -> list:
    """The records of a `.wandb` file: 7 bytes of header, then LevelDB's log of blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    records, at, parts = [], 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if kind == 0:
            break
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = Record()
            record.ParseFromString(parts)
            records.append(record)
            parts = b""
    return records


def read_mlflow(run: Path) -> Shown:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("turnwise")
    assert experiment is not None
    [found] = [each for each in client.search_runs([experiment.experiment_id]) if each.info.run_name == run.name]
    points = {
        key: [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, key)]
        for key in found.data.metrics
    }
    files = sorted((run.parent / "mlflow-artifacts" / found.info.run_id).rglob("*.md"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    return Shown(name=run.name, options=dict(found.data.params), points=points, texts=texts)


def read_trackio(run: Path) -> Shown:
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    [found] = [each for each in Api().runs("turnwise") if each.name == run.name]
    shown = Shown(name=found.name, options={key: str(value) for key, value in (found.config or {}).items()})
    for row in SQLiteStorage.get_logs("turnwise", run.name):
        for key, value in row.items():
            if isinstance(value, dict):
                shown.texts.append(value["_value"])
            elif key not in ("step", "timestamp"):
                shown.points.setdefault(key, []).append((row["step"], value))
    return shown


READERS: dict[str, Callable[[Path], Shown]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "mlflow": read_mlflow,
    "trackio": read_trackio,
}


def need(name: str) -> None:
    """Skip the test where the tracker's package is not installed."""
    pytest.importorskip(name)


def _flatten(value: object, key: str) -> dict[str, str]:
    if isinstance(value, dict):
        return {k: v for name, item in value.items() for k, v in _flatten(item, f"{key}.{name}").items()}
    return {key: str(value)}
