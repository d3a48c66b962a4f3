"""Lines of source files: the numbers of `ast` and of files opened as text."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_swe.repositories.source_lines import find_line_end, split_source, to_line_end


@given(st.text("a\n\r\f\v\x1c\x85\u2028\u2029", max_size=12))
def test_lines_are_those_of_a_text_file(text: str) -> None:
    assert split_source(text) == [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (b"", b"\n"),
        (b"a\n", b"\n"),
        (b"a\r\nb\r\n", b"\r\n"),
        (b"a\r\nb\n", b"\n"),
        (b"a\r\nb\r\nc\n", b"\r\n"),
    ],
)
def test_the_end_of_most_lines_is_the_files(content: bytes, end: bytes) -> None:
    assert find_line_end(content) == end


def test_a_text_is_written_with_the_files_ends() -> None:
    assert to_line_end(b"a\nb\r\nc", b"\r\n") == b"a\r\nb\r\nc"
    assert to_line_end(b"a\nb\r\nc", b"\n") == b"a\nb\r\nc"
