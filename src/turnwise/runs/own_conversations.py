"""The user's own conversations (`sft.path`) as samples of the warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from turnwise.batching.samples import to_samples
from turnwise.config.roles import find_binding, list_learners
from turnwise.config.run import RunConfig
from turnwise.core.errors import DataError, RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import Message, Sample, TrajectoryId
from turnwise.exchange.chat_rows import load_chat_rows
from turnwise.pictures.rows import RowPictures
from turnwise.rendering.calls import CALLS_FORMAT
from turnwise.rendering.tags import FORMATS
from turnwise.rollout.recorded import record_conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """What the warm-up imitates, by the name of the learner; the first has none."""

    samples: Mapping[str, Sequence[Sample]]
    heldout: Mapping[str, Sequence[Sample]]
    """What is only measured; empty without `sft.heldout_path`."""
    notes: tuple[str, ...]
    """One line per file: what was read and what was left out."""


def load_lessons(config: RunConfig, renderer: Renderer, tokenizer: PreTrainedTokenizerBase) -> Lessons | None:
    """The conversations of `sft.path` and `sft.heldout_path`, rendered as a rollout would see them; None where the
    recipe has none.

    Raises DataError naming file and line with the remedy, ConfigError for a role that does not learn.
    """
    sft = config.sft
    if not sft.path or not sft.steps:
        return None
    ends = list_end_texts(renderer, tokenizer)
    samples, note = _encode_file(config, renderer, ends, sft.path, "sft.path")
    notes, heldout = [note], {}
    for name, own in samples.items():
        if not own:
            raise DataError(f'{sft.path}: no conversation for the learner {name!r}; add its role as "role" to the rows')
    if sft.heldout_path:
        read, note = _encode_file(config, renderer, ends, sft.heldout_path, "sft.heldout_path")
        heldout = {name: own for name, own in read.items() if own}
        notes.append(f"held out: {note}")
    return Lessons(samples=samples, heldout=heldout, notes=tuple(notes))


def list_end_texts(renderer: Renderer, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """The control tokens that end a reply, as text, without the tags that a reply has in its text."""
    tags = {tag for form in (*FORMATS.values(), CALLS_FORMAT) for tag in form.tags}
    texts = (str(tokenizer.convert_ids_to_tokens(token)) for token in renderer.stop_token_ids)
    return tuple(text for text in texts if text not in tags)


def check_ends(messages: Sequence[Message], ends: Sequence[str]) -> None:
    """Raise DataError for a reply whose text spells out its own end: it would be learned as characters."""
    for index, message in enumerate(messages):
        text = message.text.rstrip()
        if message.role == "assistant" and (spelled := next((end for end in ends if text.endswith(end)), None)):
            raise DataError(
                f"message {index}: the reply ends with the text {spelled!r}, which is the end token that is added to "
                "every reply; remove it from the content"
            )


def _encode_file(
    config: RunConfig, renderer: Renderer, ends: Sequence[str], path: str, option: str
) -> tuple[dict[str, list[Sample]], str]:
    """The samples of a file by learner, and one line about it."""
    file, most = Path(path).expanduser(), config.rollout.max_tokens
    if not file.is_file():
        raise DataError(f"{option}={path!r}: there is no such file; name a .jsonl or .parquet file")
    samples: dict[str, list[Sample]] = {name: [] for name in ("", *list_learners(config.roles))}
    kept, too_long, cut, longest = 0, 0, 0, 0
    pictures = RowPictures()
    for number, row in load_chat_rows(file, pictures, trains=option == "sft.path"):
        if row is None:
            cut += 1
            continue
        binding = find_binding(config.roles, row.role)
        if not binding.is_own:
            raise DataError(f"{path}:{number}: role {row.role!r} does not learn; leave out its rows")
        try:
            check_ends(row.messages, ends)
            trajectory = record_conversation(
                tuple(map(pictures.fill, row.messages)),
                row.trains,
                row.tools,
                renderer,
                num_opening=row.num_opening,
                trajectory_id=TrajectoryId(draw=number, member=0, role=row.role),
            )
        except (DataError, RenderError) as cause:
            raise DataError(f"{path}:{number}: {cause}") from cause
        own = to_samples(trajectory)
        length = max(len(sample.token_ids) for sample in own)
        if length > most:
            too_long, longest = too_long + 1, max(longest, length)
            continue
        kept += 1
        samples[binding.learner] += own
    left_out = [
        (too_long, f"longer than rollout.max_tokens={most} (the longest has {longest} tokens)"),
        (cut, "whose reply was cut off by a limit"),
    ]
    if not kept:
        why = " and ".join(f"{count} {text}" for count, text in left_out if count)
        raise DataError(f"{path}: no conversation is left to train on: {why}; raise rollout.max_tokens")
    num_tokens = sum(int(sample.loss_mask.sum()) for own in samples.values() for sample in own)
    note = f"{path}: {kept:,} conversations, {num_tokens:,} tokens of replies"
    return samples, "; ".join([note, *(f"left out {count:,} {text}" for count, text in left_out if count)])
