from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from turnwise.core.errors import StoreError
from turnwise.core.types import TrajectoryId
from turnwise.store.advantages import load_advantages, save_advantages
from turnwise.store.run_folder import RunFolder

ids = st.builds(
    TrajectoryId,
    draw=st.integers(0, 99),
    member=st.integers(0, 9),
    attempt=st.integers(0, 2),
    role=st.sampled_from(["agent", "verifier"]),
)
of_turn = st.none() | arrays.arrays(np.float32, st.integers(0, 4), elements=st.floats(width=32))
advantages = st.dictionaries(ids, st.none() | st.lists(of_turn, max_size=3), max_size=4)


@settings(max_examples=60, deadline=None)
@given(advantages=advantages)
def test_what_is_read_equals_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, advantages: dict[TrajectoryId, list[np.ndarray | None] | None]
) -> None:
    run = RunFolder.create(tmp_path_factory.mktemp("runs") / "run").path
    save_advantages(run, 12, advantages)
    loaded = load_advantages(run, 12)
    assert loaded is not None
    assert list(loaded) == list(advantages)
    for name, turns in advantages.items():
        loaded_turns = loaded[name]
        if turns is None or loaded_turns is None:
            assert turns is loaded_turns is None
            continue
        assert [None if a is None else a.tobytes() for a in loaded_turns] == [
            None if b is None else b.tobytes() for b in turns
        ], "bit for bit; no credit is not 0"


def test_a_step_without_advantages_has_none(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run").path
    assert load_advantages(run, 12) is None


def test_damage_is_named(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run").path
    save_advantages(run, 12, {TrajectoryId(draw=1, member=0): [np.ones(3, np.float32)]})
    path = run / "steps" / "step_000012.npz"
    with np.load(path) as data:
        stored = {name: data[name] for name in data.files}
    for changes in ({"advantages": np.ones(2, np.float32)}, {"num_tokens": np.array([], np.int64)}):
        np.savez(path, **(stored | changes))
        with pytest.raises(StoreError, match=r"cannot read .*step_000012\.npz"):
            load_advantages(run, 12)
    path.write_bytes(b"PK")
    with pytest.raises(StoreError, match=r"cannot read .*step_000012\.npz"):
        load_advantages(run, 12)
