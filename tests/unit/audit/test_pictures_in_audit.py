"""The audit of a run with pictures passes a sound one and names every planted change."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_picture_run import make_page, make_picture_materials, make_picture_run

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.pictures.crop import crop
from turnwise.pictures.pixels import to_part, to_pixels, to_png
from turnwise.pictures.store import FOLDER, PictureStore
from turnwise.store.groups import GroupStore, digest_files
from turnwise.store.journal import JOURNAL

PAGE, OTHER = make_page(0), make_page(1)
COLUMN, WRONG = crop(PAGE, (1, 0, 2, 2)), crop(PAGE, (0, 0, 1, 2))
"""The first crop of the first member of draw 0, and another column of the same page."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_picture_run(tmp_path_factory.mktemp("pictures") / "run")


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def audit(run: Path) -> AuditReport:
    return run_audit(run, make_picture_materials(run), replay_tools=True)


def find(run: Path, digest: str) -> Path:
    path = PictureStore(run / FOLDER).find_path(digest)
    assert path is not None
    return path


def rewrite(run: Path, change: Callable[[str], str]) -> None:
    """Change the rows of draw 0, and the digest of its files in the journal, as one who knows the format would."""
    npz, jsonl = GroupStore(run).paths(0)
    jsonl.write_text(change(jsonl.read_text()))
    lines = [json.loads(line) for line in (run / JOURNAL).read_text().splitlines()]
    for line in lines:
        if line["kind"] == "finished" and line["draw"] == 0:
            line["digest"] = digest_files(npz.read_bytes(), jsonl.read_bytes())
    (run / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))


def breaches(run: Path) -> dict[str, str]:
    """The first breach of each check."""
    found: dict[str, str] = {}
    for breach in audit(run).breaches:
        found.setdefault(breach.check, str(breach))
    return found


def test_a_sound_run_passes_every_check(sound: Path) -> None:
    report = audit(sound)
    assert report.breaches == []
    # Of each of 2 pages: the page, and the columns 1, 2 and 3.
    assert report.tallies["pictures"].checked == 8
    assert report.tallies["crops"].checked == 6
    assert report.tallies["logprobs"].checked == sum(map(len, ("zoom:1", "zoom:2", "done", "zoom:3", "done"))) * 2
    # 2 draws of members with 3 and 2 turns.
    assert (report.tallies["prompts"].checked, report.tallies["tools"].checked) == (10, 6)


def test_a_missing_picture_is_named_and_stays_missing(run: Path) -> None:
    find(run, PAGE.digest).unlink()
    report = audit(run)
    [breach] = report.breaches
    assert str(breach).startswith(f"[pictures] step 1, trajectory 0/0: picture {PAGE.digest} is missing from")
    # Both members of draw 0 saw it: no model can score them again, nor cut its three columns.
    tokens = sum(map(len, ("zoom:1", "zoom:2", "done", "zoom:3", "done")))
    assert report.tallies["logprobs"].not_checked == {
        "tokens of trajectories with a picture that cannot be read": tokens
    }
    assert report.tallies["crops"].not_checked == {"crops of pictures that are not stored, or not as they were": 3}
    assert not find(run, PAGE.digest).exists(), "an audit adds nothing to a run"


def test_a_picture_with_one_other_pixel_is_named(run: Path) -> None:
    pixels = to_pixels(PAGE).copy()
    pixels[0, 0, 0] += 1
    find(run, PAGE.digest).write_bytes(to_png(pixels))
    found = breaches(run)
    assert set(found) == {"pictures"}
    assert f"differs from its digest {PAGE.digest}" in found["pictures"]


def test_two_exchanged_files_are_named(run: Path) -> None:
    one, two = find(run, PAGE.digest), find(run, OTHER.digest)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    texts = [str(breach) for breach in audit(run).breaches]
    assert len(texts) == 2
    assert any(PAGE.digest in text for text in texts)
    assert any(OTHER.digest in text for text in texts)


def test_a_swapped_picture_is_not_what_was_sampled(run: Path) -> None:
    """Messages and places agree with each other: only ledger, scores, the environment and the crop itself know."""
    PictureStore(run / FOLDER).put(WRONG)
    rewrite(run, lambda text: text.replace(COLUMN.digest, WRONG.digest))
    found = breaches(run)
    assert set(found) == {"ledger", "logprobs", "crops", "tools"}
    assert f"crop {WRONG.digest[:12]} is not what its source {PAGE.digest[:12]} shows at 1,0,2,2" in found["crops"]
    names = [f"'see [picture 1x2 {part.digest[:12]}]'" for part in (COLUMN, WRONG)]
    assert f"gives {names[0]}, on record is {names[1]}" in found["tools"]
    assert "pictures or turns are not those that were reconciled" in found["ledger"]


def test_a_record_of_another_picture_than_was_shown_is_named(run: Path) -> None:
    def change(text: str) -> str:
        rows = [json.loads(line) for line in text.splitlines()]
        rows[0]["turns"][0]["tool_records"][0]["content"][1]["image"] = WRONG.digest
        return "".join(json.dumps(row) + "\n" for row in rows)

    rewrite(run, change)
    found = breaches(run)
    assert set(found) == {"turns", "tools"}
    assert "of turn 0 is not what the model was shown" in found["turns"]


def test_a_crop_of_another_box_is_found_by_cutting_again(run: Path) -> None:
    rewrite(run, lambda text: text.replace("at 1,0,2,2", "at 0,0,1,2"))
    found = breaches(run)
    assert set(found) == {"crops"}
    assert f"crop {COLUMN.digest[:12]} is not what its source" in found["crops"]
    assert f"shows at 0,0,1,2, which is {WRONG.digest[:12]}" in found["crops"]


def test_a_crop_outside_its_source_is_found(run: Path) -> None:
    rewrite(run, lambda text: text.replace("at 1,0,2,2", "at 1,0,9,2"))
    assert "cannot be cut from" in breaches(run)["crops"]


def test_a_place_moved_by_one_is_named(run: Path) -> None:
    # "see " has 4 characters, so the crop is token 4 of its context.
    rewrite(run, lambda text: text.replace(f'[[4, 1, "{COLUMN.digest}"', f'[[3, 1, "{COLUMN.digest}"'))
    found = breaches(run)
    assert set(found) == {"ledger", "prompts"}
    assert (
        f"turn 1: picture {COLUMN.digest[:12]} at tokens 3 to 3 is on record, the messages give picture "
        f"{COLUMN.digest[:12]} at tokens 4 to 4" in found["prompts"]
    )


def test_a_place_that_is_left_out_is_named(run: Path) -> None:
    rewrite(run, lambda text: text.replace(f'[[4, 1, "{COLUMN.digest}", 0, null]]', "[]"))
    found = breaches(run)
    assert set(found) == {"ledger", "prompts", "logprobs"}
    assert "turn 1: 0 places of pictures are on record, the messages give 1" in found["prompts"]


def test_a_place_outside_the_context_is_named(run: Path) -> None:
    rewrite(run, lambda text: text.replace(f'[[4, 1, "{COLUMN.digest}"', f'[[4, 2, "{COLUMN.digest}"'))
    assert "claims tokens 4 to 5 of the context of turn 1; those from 0 to 4 are free" in breaches(run)["turns"]


def test_a_size_that_is_not_the_pictures_is_named(run: Path) -> None:
    rewrite(run, lambda text: text.replace('"width": 4', '"width": 3'))
    assert "with 3x2 pixels, the stored one has 4x2" in breaches(run)["pictures"]


def test_a_crop_whose_source_was_never_stored_is_not_checked(run: Path) -> None:
    """Its source was shown to nobody: nothing can be cut again, and nothing is proven."""
    unseen = to_part(np.zeros((2, 4, 3), np.uint8)).digest
    rewrite(run, lambda text: text.replace(f"crop of {PAGE.digest} at 1,0", f"crop of {unseen} at 1,0"))
    report = audit(run)
    assert report.breaches == []
    assert report.tallies["crops"].not_checked == {"crops of pictures that are not stored, or not as they were": 1}
