"""Seeds: the same everywhere and for ever, different for different purposes."""

import hashlib
import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.seeds import derive_seed, rng, uniforms

paths = st.lists(st.integers(-(10**9), 10**9) | st.text(max_size=6), max_size=4)


def test_pinned_values() -> None:
    # SHA-256 over, per part, the length of "type:value" in four bytes and then that text; the first eight bytes,
    # shifted right once. Pinned: a change here makes every published run irreproducible.
    data = b"".join(len(part).to_bytes(4, "big") + part for part in (b"int:7", b"str:rollout", b"int:0"))
    assert derive_seed(7, "rollout", 0) == int.from_bytes(hashlib.sha256(data).digest()[:8], "big") // 2
    assert derive_seed(7, "rollout", 0) == 8040646524870673409


def test_another_process_agrees_whatever_its_hash_seed() -> None:
    code = "from turnwise.core.seeds import *; print(derive_seed(1, 'a', 2), rng(1, 'b').random())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{derive_seed(1, 'a', 2)} {rng(1, 'b').random()}\n"}


@given(paths, paths)
def test_equal_paths_give_equal_seeds_and_different_paths_different_ones(
    a: list[int | str], b: list[int | str]
) -> None:
    assert 0 <= derive_seed(*a) < 2**63
    assert (derive_seed(*a) == derive_seed(*b)) == (a == b)


def test_neighbouring_paths_do_not_collide() -> None:
    neighbours = [("ab", "c"), ("a", "bc"), ("abc",), (1, 23), (12, 3), ("1", 23), ("1", "23"), (), ("",), ("", "")]
    assert len({derive_seed(*path) for path in neighbours}) == len(neighbours)


@given(st.integers(0, 2**63 - 1), st.integers(1, 40), st.integers(1, 40))
def test_the_kth_number_does_not_depend_on_how_many_are_drawn(seed: int, few: int, more: int) -> None:
    n = min(few, more)
    assert np.array_equal(uniforms(seed, few)[:n], uniforms(seed, more)[:n])
    drawn = uniforms(seed, few)
    assert ((drawn >= 0) & (drawn < 1)).all()


def test_uniforms_look_uniform() -> None:
    # 10,000 numbers: the mean has deviation sqrt(1/12/10000) = 0.0029; five of them are 0.0145.
    drawn = uniforms(derive_seed("uniform"), 10_000)
    assert abs(drawn.mean() - 0.5) < 0.0145
    assert len(np.unique(drawn)) == 10_000
