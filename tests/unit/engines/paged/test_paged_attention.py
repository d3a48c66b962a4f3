"""The arithmetic the engine's exactness rests on, for this machine's kernels: one thread, float32."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from turnwise.engines.paged.attention import Geometry, PagedMemory, bucket
from turnwise.engines.paged.fused import build_product, build_residual_product
from turnwise.models.invariant import MIN_BATCH_ROWS, attend_rows, padded_span


def test_spans_and_buckets_by_hand() -> None:
    # Multiples of 64 up to 192 keys in a block of 512, and then all of it.
    assert [padded_span(n) for n in (1, 64, 65, 192, 193, 320, 512, 513, 704, 705, 900)] == [
        *(64, 64, 128, 192, 512, 512, 512, 576, 704, 1024, 1024)
    ]
    assert [bucket(n) for n in (1, 2, 4, 5, 33, 64)] == [1, 4, 4, 8, 64, 64]


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([16, 32, 64, 128, 256]),
    st.integers(1, 1200),
    st.integers(0, 600),
    st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 96, 128, 192, 256]),
    st.integers(0, 2**31),
)
def test_a_row_has_the_same_bits_in_any_company_and_span(
    dim: int, num_keys: int, further: int, rows: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    span, longer = padded_span(num_keys), padded_span(num_keys + further)
    keys, values = torch.randn(2, 2, longer, dim, generator=draw), torch.randn(2, 2, longer, dim, generator=draw)
    query = torch.randn(2, 2, 256, dim, generator=draw)

    def attend(sequences: int, num_rows: int, width: int) -> torch.Tensor:
        mask = torch.zeros(sequences, 1, 1, width)
        mask[..., num_keys:] = float("-inf")
        return attend_rows(
            query[:sequences, :, :num_rows], keys[:sequences, :, :width], values[:sequences, :, :width], mask, dim**-0.5
        )

    assert torch.equal(attend(1, rows, span), attend(2, 256, longer)[:1, :, :rows])


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([32, 64, 192, 256, 320, 384, 512, 1024]),
    st.sampled_from([32, 192, 1000]),
    st.integers(MIN_BATCH_ROWS, 300),
)
def test_a_product_rounds_a_row_the_same_way_among_any_number_of_rows(size: int, width: int, rows: int) -> None:
    draw = torch.Generator().manual_seed(rows)
    weight, inputs = torch.randn(width, size, generator=draw), torch.randn(600, size, generator=draw)
    assert torch.equal(functional.linear(inputs, weight)[:rows], functional.linear(inputs[:rows], weight))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([(64, 192), (512, 192), (384, 640)]), st.integers(8, 200), st.integers(0, 50))
def test_a_packed_product_rounds_a_row_the_same_way_among_any_number_of_rows(
    shape: tuple[int, int], rows: int, first: int
) -> None:
    size, width = shape
    draw = torch.Generator().manual_seed(rows)
    weight, inputs = torch.randn(width, size, generator=draw), torch.randn(256, size, generator=draw)
    residual = torch.randn(256, width, generator=draw)
    product, with_residual = build_product(weight, None), build_residual_product(weight, None)
    part = slice(first, first + rows)
    assert torch.allclose(product(inputs), inputs @ weight.t(), atol=1e-4)
    assert torch.equal(product(inputs)[part], product(inputs[part].contiguous()))
    assert torch.equal(
        with_residual(inputs, residual)[part], with_residual(inputs[part].contiguous(), residual[part].contiguous())
    )


@pytest.mark.slow
def test_the_same_holds_for_the_kernels_of_a_processor_without_avx512() -> None:
    # What the libraries read when they choose their kernels: torch's own, MKL's, oneDNN's.
    older = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    files = [__file__, str(Path(__file__).with_name("test_paged_cascade.py"))]
    names = "same_bits or rounds_a_row_the_same_way"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files, "-k", names]
    done = subprocess.run(command, env={**os.environ, **older}, capture_output=True, text=True, timeout=110)
    assert "6 passed" in done.stdout, done.stdout[-3000:]


def test_attention_is_softmax_over_visible_keys() -> None:
    query = torch.tensor([[[[1.0, 0.0]]]])
    keys = torch.tensor([[[[0.0, 5.0], [1.0, 5.0], [9.0, 9.0]]]])
    values = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [7.0, 7.0]]]])
    mask = torch.tensor([[[[0.0, 0.0, float("-inf")]]]])
    # Scores 0 and log(3) times 1: weights 1/4 and 3/4.
    out = attend_rows(query, keys, values, mask, float(torch.log(torch.tensor(3.0))))
    assert out.flatten().tolist() == pytest.approx([0.25, 0.75], abs=1e-6)


def test_pages_are_copied_from_what_was_there_before_and_scrubbed_whole() -> None:
    geometry = Geometry.of_same(num_layers=2, num_heads=2, num_kv_heads=1, head_dim=2)
    memory = PagedMemory(geometry, num_pages=4, page_size=16, dtype=torch.float32, device=torch.device("cpu"))
    for layer in range(2):
        for page in range(4):
            memory.pages(layer)[page] = 10 * layer + page
    memory.copy_pages([(1, 2), (2, 3)])
    assert [memory.pages(1)[page, 0].item() for page in range(4)] == [10, 11, 11, 12]
    memory.scrub([1, 3])
    assert [memory.pages(0)[page].abs().sum().item() for page in (1, 3)] == [0, 0]
