"""What a run remembers of its data files, and what it says when they change."""

from pathlib import Path

import pytest

from turnwise.core.errors import DataError, StoreError
from turnwise.store.data_files import find_changes, read_records, record_file, write_records


def test_records_come_back_and_a_change_names_file_digests_and_rows(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"abc")
    before = record_file(path, 1)
    # The SHA-256 of "abc", FIPS 180-2, appendix B.1.
    assert before.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert read_records(tmp_path) is None
    write_records(tmp_path, [before])
    assert read_records(tmp_path) == (before,)
    path.write_bytes(b"abcd")
    [text] = find_changes((before,), (record_file(path, 2),))
    assert text.startswith(f"{path}: SHA-256 ba7816bf8f01cfea (1 rows, 3 bytes) when the run began, now 88d4266f")
    assert text.endswith("(2 rows, 4 bytes)")
    assert not find_changes((before,), (before,))
    [text] = find_changes((record_file(path, 2),), (record_file(path, 2, pictures="ab" * 32),))
    assert text == (
        f"{path}: the pictures of its rows, or of the files beside it, have the hash of none when the run began, now "
        "abababababababab"
    )
    assert "none" in find_changes((before,), ())[0]


def test_a_file_that_is_gone_and_a_damaged_record_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone.jsonl"):
        record_file(tmp_path / "gone.jsonl", 1)
    (tmp_path / "data.json").write_text('{"files": [{"path": "x"}]}')
    with pytest.raises(StoreError, match=r"data.json"):
        read_records(tmp_path)
