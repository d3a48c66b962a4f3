"""Processes of a recipe and the cores of a machine."""

from typing import Any

import pytest

from turnwise.building.cores import describe_crowding
from turnwise.config.load import load_config


@pytest.mark.parametrize(
    ("recipe", "device", "options"),
    [
        ({}, "cpu", []),
        ({"train": {"ranks": 4}}, "cpu", []),
        ({"train": {"ranks": 64}}, "cpu", ["train.ranks=64"]),
        ({"train": {"ranks": 64}}, "cuda", []),
        ({"train": {"ranks": 64}, "scale": {"ray": "local"}}, "cpu", []),
        ({"rollout": {"num_workers": 5}}, "cuda", ["rollout.num_workers=5"]),
        ({"engine": {"kind": "workers", "options": {"num_workers": 5}}}, "cpu", ["engine.options.num_workers=5"]),
        ({"engine": {"kind": "vllm", "options": {"num_workers": 5}}}, "cpu", ["engine.options.num_workers=5"]),
        ({"train": {"ranks": 8}, "rollout": {"num_workers": 8}}, "cpu", ["train.ranks=8", "rollout.num_workers=8"]),
    ],
)
def test_more_processes_than_cores_are_told(recipe: dict[str, Any], device: str, options: list[str]) -> None:
    lines = describe_crowding(load_config([recipe], []), cores=4, device=device)
    assert lines == [
        f"{option} on 4 cores: the processes take turns, which is slower than {option.split('=')[0]}=4"
        for option in options
    ]


def test_one_core() -> None:
    config = load_config([{"train": {"ranks": 2}}], [])
    assert describe_crowding(config, cores=1, device="cpu") == [
        "train.ranks=2 on 1 core: the processes take turns, which is slower than train.ranks=1"
    ]
