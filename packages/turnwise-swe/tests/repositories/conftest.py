"""The tiny repository, measured once."""

from pathlib import Path

import pytest
from tiny import FILES, build_repository, copy_pytest, in_sandbox, write_tree

from turnwise_swe.repositories.baseline import measure_baseline
from turnwise_swe.repositories.repository import Baseline, Repository
from turnwise_swe.repositories.testing import suite_of


@pytest.fixture(scope="session")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pytest."""
    return copy_pytest(tmp_path_factory.mktemp("site-packages"))


@pytest.fixture(scope="session")
def sums(tmp_path_factory: pytest.TempPathFactory, site_packages: Path) -> Repository:
    """The tiny repository."""
    root = write_tree(tmp_path_factory.mktemp("sums"), FILES)
    plain = build_repository(root, site_packages, Baseline(outcomes={}))
    baseline = in_sandbox(
        lambda sandbox: measure_baseline(
            sandbox,
            root,
            suite_of(plain),
            name="sums==1.0",
            source_folders=plain.source_folders,
            left_out={},
        )
    )
    return build_repository(root, site_packages, baseline)
