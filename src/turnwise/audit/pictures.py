"""Check the pictures of a run: each is stored as it was shown, and a crop is the piece of its source that it claims."""

from __future__ import annotations

from collections.abc import Iterator

from turnwise.audit.breaches import Breach, Tallies
from turnwise.core.errors import PictureError, StoreError
from turnwise.core.messages import ImagePart, Message, list_images, show_digest
from turnwise.core.pictures import Pictures, Pixels
from turnwise.core.types import Task, Trajectory, TrajectoryGroup
from turnwise.pictures.crop import cut_again, read_crop
from turnwise.store.trajectories import list_placed


class FixedPictures:
    """Implements `core.pictures.Pictures` over the store of a finished run, to which an audit adds nothing: a picture
    that an environment shows again stays missing."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def put(self, part: ImagePart) -> None:
        """Do nothing."""

    def read(self, digest: str) -> Pixels:
        """See `Pictures.read`."""
        return self._pictures.read(digest)


class PictureCheck:
    """Reads every distinct picture of a run once."""

    def __init__(self, pictures: Pictures, tallies: Tallies) -> None:
        self._pictures, self._tallies = pictures, tallies
        self._sizes: dict[str, tuple[int, int] | None] = {}
        """Width and height by digest; None for a picture that cannot be read."""
        self._unseen: set[str] = set()
        self._seen: set[tuple[str, int, int]] = set()
        self._cut: set[tuple[str, str]] = set()

    def check(self, step: int | None, group: TrajectoryGroup) -> None:
        """Check the pictures that prompts of a group show, and every crop in its messages; a breach names the first
        trajectory that has it."""
        for trajectory, _, _ in list_placed(group):
            shown = {span.digest for turn in trajectory.turns for span in turn.images}
            parts = list_images(_list_messages(group.task, trajectory))
            problems = [*self._read_shown(shown), *self._compare_sizes(parts)]
            self._take(step, trajectory, "pictures", problems)
            self._take(step, trajectory, "crops", self._cut_crops(parts))
            unseen = {part.digest for part in parts} - self._sizes.keys() - self._unseen
            self._unseen |= unseen
            self._tallies.skip("pictures", "pictures of messages that no prompt shows", len(unseen))

    def can_show(self, trajectory: Trajectory) -> bool:
        """Whether a model can be shown every picture of a trajectory that was checked."""
        return all(self._sizes[span.digest] is not None for turn in trajectory.turns for span in turn.images)

    def _take(self, step: int | None, trajectory: Trajectory, check: str, texts: Iterator[str] | list[str]) -> None:
        self._tallies.take(Breach(check=check, step=step, trajectory=trajectory.id, text=text) for text in texts)

    def _read_shown(self, digests: set[str]) -> Iterator[str]:
        for digest in sorted(digests - self._sizes.keys()):
            self._tallies["pictures"].checked += 1
            try:
                height, width, _ = self._pictures.read(digest).shape
                self._sizes[digest] = (width, height)
            except StoreError as cause:
                self._sizes[digest] = None
                yield str(cause)

    def _compare_sizes(self, parts: list[ImagePart]) -> Iterator[str]:
        """Compare the sizes that messages claim, by which prompts are laid out, with those of the pictures."""
        for part in parts:
            stored = self._sizes.get(part.digest)
            claimed = (part.digest, part.width, part.height)
            if stored is not None and stored != claimed[1:] and claimed not in self._seen:
                yield (
                    f"a message has picture {show_digest(part.digest)} with {part.width}x{part.height} pixels, the "
                    f"stored one has {stored[0]}x{stored[1]}"
                )
            self._seen.add(claimed)

    def _cut_crops(self, parts: list[ImagePart]) -> Iterator[str]:
        for part in parts:
            made = read_crop(part.label)
            if made is None or (part.digest, part.label) in self._cut:
                continue
            self._cut.add((part.digest, part.label))
            try:
                digest = cut_again(made, self._pictures).digest
            except StoreError:
                self._tallies.skip("crops", "crops of pictures that are not stored, or not as they were", 1)
                continue
            except PictureError as cause:
                yield f"crop {show_digest(part.digest)} cannot be cut from {show_digest(made.source)}: {cause}"
                continue
            self._tallies["crops"].checked += 1
            if digest != part.digest:
                box = ",".join(map(str, made.box))
                yield (
                    f"the stored crop {show_digest(part.digest)} is not what its source {show_digest(made.source)} "
                    f"shows at {box}, which is {show_digest(digest)}"
                )


def _list_messages(task: Task, trajectory: Trajectory) -> list[Message]:
    messages = [*task.prompt, *(message for each in trajectory.conversations for message in each.messages)]
    return messages + [message for turn in trajectory.turns for message in turn.observations]
