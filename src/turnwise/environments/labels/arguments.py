"""The keyword arguments of the family `labels`."""

from __future__ import annotations

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise.questions.prompts import MAX_CHARS


class LabelsArguments(FamilyArguments):
    """Questions with known verdicts, from files such as those of `judges.NAME.labels`.

    There are no tools, so the limits of tools are not read.
    """

    train_path: str = ""
    """File of the training split."""
    heldout_path: str = ""
    """File of the held-out split."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be left out because they cannot be read."""
    max_chars: int = Field(MAX_CHARS, ge=16)
    """Most characters of each judged text that the prompt shows, as the option of a judge."""
    naive_skill: Share = 0.0
    """Probability with which the naive policy gives the right verdict; otherwise it gives any."""
