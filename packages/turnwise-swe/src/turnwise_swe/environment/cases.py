"""Cases: an instance with its repository and its bug, checked when loaded and again when graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import Split
from turnwise_swe.environment.places import Place, find_places
from turnwise_swe.repositories.grading import check_tests
from turnwise_swe.repositories.instance import Instance, load_instances
from turnwise_swe.repositories.library import load_repository
from turnwise_swe.repositories.packages import load_packages
from turnwise_swe.repositories.repository import Repository, check_key
from turnwise_swe.repositories.sources import hash_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bug in one repository on this machine."""

    instance: Instance
    repository: Repository
    bug: Mapping[str, bytes | None]
    """The layer over the pristine tree that contains the bug."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The functions that contain the bug."""
        return find_places(self.instance, self.bug)

    @property
    def bug_without_tests(self) -> dict[str, bytes | None]:
        """The layer over the pristine tree that also removes the files of the FAIL_TO_PASS tests."""
        return {**self.bug, **{test.split("::")[0]: None for test in self.instance.fail_to_pass}}

    def why_changed(self) -> str | None:
        """Return why the tree on disk differs from the measured one; None if it does not. Reads all its files."""
        root, key = self.repository.root, self.repository.key
        if not root.is_dir() or hash_tree(root) != self.repository.digest:
            return f"the tree {root} was changed on disk; delete it and run `turnwise repos add {key}` again"
        return None


def load_cases(path: Path, library: Path, *, allow_installed: bool, max_lines: int | None) -> dict[str, Case]:
    """Load the cases of a JSONL file by instance id, without those whose functions with the bug have more than
    `max_lines`.

    Raises DataError for an instance that does not fit its repository, ConfigError for a repository that is not on this
    machine, or that this Python has installed, because an agent could then read the source without the bug.
    """
    instances = load_instances(path)
    repositories: dict[str, Repository] = {}
    for key in dict.fromkeys(instance.repository for instance in instances):
        repositories[key] = load_repository(key, library)
        if not allow_installed and is_installed(repositories[key].name):
            raise ConfigError(
                f"{path} has instances of {key}, which is also installed in this Python: an agent can read the source "
                "without the bug there. Leave them out, or set allow_installed=true"
            )
    cases = {}
    for instance in instances:
        repository = repositories[instance.repository]
        check_tests(repository, instance)
        case = Case(instance=instance, repository=repository, bug=instance.bug_layer(repository))
        if max_lines is None or sum(len(place.lines) for place in case.places) <= max_lines:
            cases[instance.instance_id] = case
    return cases


def is_installed(name: str) -> bool:
    """Return whether the Python that runs Turnwise, whose packages a sandbox can see, has a package."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def split_cases(cases: Mapping[str, Case], heldout: Sequence[str] | None) -> dict[Split, list[Case]]:
    """Return the cases of each split. `heldout` names packages; None holds out those that SWE-smith did not use."""
    splits: dict[Split, list[Case]] = {"train": [], "heldout": []}
    of_smith = {package.name for package in load_packages() if package.in_swe_smith}
    for case in cases.values():
        name, _ = check_key(case.instance.repository)
        is_heldout = name in heldout if heldout is not None else name not in of_smith
        splits["heldout" if is_heldout else "train"].append(case)
    for split, members in splits.items():
        if not members:
            names = sorted({check_key(case.instance.repository)[0] for case in cases.values()})
            remedy = (
                "name in heldout some of them and not all"
                if len(names) > 1
                else "a package trains or is held out as a whole, so add instances of a second one"
            )
            raise DataError(f"the split {split!r} has no instances; the file has only {', '.join(names)}: {remedy}")
    return splits
