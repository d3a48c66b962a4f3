"""BrowseComp's layout, on files encrypted here."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import DataError
from turnwise.environments.canaries import find_canary
from turnwise_synthesis.browsecomp.published import (
    CANARY,
    PublishedRow,
    decrypt,
    encrypt,
    read_published,
    to_question_row,
    write_published,
)

texts = st.text(st.characters(codec="utf-8"), min_size=1)
ROW = PublishedRow(question="Who, and where?", answer='Ann "Bo"', topic="People", canary=CANARY)


@given(texts, texts)
def test_decryption_undoes_encryption(text: str, canary: str) -> None:
    assert decrypt(encrypt(text, canary), canary) == text


def test_the_encryption_by_hand() -> None:
    key = hashlib.sha256(b"k").digest()
    # 40 bytes: the key of 32 starts over after them.
    text = "a" * 40
    expected = bytes(97 ^ key[i % 32] for i in range(40))
    assert base64.b64decode(encrypt(text, "k")) == expected


def test_rows_are_written_and_read_back_and_copies_are_counted(tmp_path) -> None:
    path = tmp_path / "file.csv"
    other = PublishedRow(question="zwei\nZeilen, ü", answer="日本", topic="Orte", canary="another")
    path.write_text(write_published([ROW, other, ROW]), encoding="utf-8", newline="")
    found = read_published(path)
    assert list(found.rows) == [ROW, other]
    assert found.copies == 1
    assert "Who" not in path.read_text(encoding="utf-8")


def test_question_rows_carry_their_canary() -> None:
    row = to_question_row(ROW)
    assert row == {"question": ROW.question, "answers": [ROW.answer], "kind": "People", "canary": CANARY}
    assert find_canary(row) == CANARY


HEADER = "problem,answer,problem_topic,canary\n"
GOOD = f"{encrypt('a question of some length', 'k')},{encrypt('a', 'k')},t,k\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 'problem' is missing"),
        (
            "problem,answer,canary\n",
            "column 'problem_topic' is missing; expected problem, answer, problem_topic, canary",
        ),
        (HEADER, "no rows"),
        (HEADER + GOOD + "!!!,x,t,k\n", "file.csv:3: column 'problem': '!!!' is not base64"),
        (HEADER + f"{encrypt('q', 'k')}\n", "file.csv:2: column 'canary' is empty"),
        (HEADER + f"{encrypt('q', 'k')},,t,k\n", "file.csv:2: column 'answer' is empty"),
        (HEADER + f"{encrypt(' ', 'k')},{encrypt('a', 'k')},t,k\n", "column 'problem' is blank when decrypted"),
        (HEADER + GOOD.replace(",k\n", ",other\n"), "file.csv:2: column 'problem': the decrypted bytes are no text"),
        (HEADER + '"abc', "file.csv:2: unexpected end of data"),
    ],
)
def test_bad_files_name_line_and_column(text: str, message: str, tmp_path) -> None:
    path = tmp_path / "file.csv"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(DataError) as error:
        read_published(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_one_that_is_no_text(tmp_path) -> None:
    with pytest.raises(DataError, match=r"there is no such file"):
        read_published(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"cannot be read as UTF-8"):
        read_published(tmp_path / "bytes.csv")
