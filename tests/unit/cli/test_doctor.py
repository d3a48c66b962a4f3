"""What `turnwise doctor` says of optional extras."""

import importlib.metadata

from turnwise.cli.doctor import find_extras


def test_every_extra_is_named_with_what_it_lacks() -> None:
    extras = find_extras(
        [
            "numpy>=2",
            "pytest>=9; extra == 'dev'",
            'turnwise-has-no-such-package>=1; extra == "other"',
            "turnwise-lacks.this[x]>=2; (python_version > '3') and extra == 'other'",
            "numpy>=2; extra == 'lora'",
        ]
    )
    assert extras == {"lora": [], "other": ["turnwise-has-no-such-package", "turnwise-lacks.this"]}
    assert list(extras) == ["lora", "other"]


def test_all_extras_of_the_package_are_known() -> None:
    named = set(importlib.metadata.metadata("turnwise").get_all("Provides-Extra") or ()) - {"dev"}
    assert set(find_extras(importlib.metadata.requires("turnwise") or ())) == named
    assert {"wandb", "ray", "mcp", "lora"} <= named
