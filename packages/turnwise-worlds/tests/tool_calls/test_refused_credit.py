"""Credit methods that ask for what the family `tool_calls` does not have."""

from pathlib import Path

import pytest

from turnwise.building.checks import check_methods
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError


def test_what_the_environment_cannot_do_is_refused_with_the_reason() -> None:
    def check_calls(*overrides: str) -> None:
        check_methods(load_config([Path("toolrl/tiny")], overrides))

    for method in ("vine", "tree", "arpo"):
        with pytest.raises(
            ConfigError, match=rf"credit\.method='{method}'.*cannot fork; define `async def fork\(self\)`"
        ):
            check_calls(f"credit.method={method}")
    # Nothing is forked, so nothing is asked for.
    check_calls("credit.method=vine", "credit.branching.num_continuations=0")
    with pytest.raises(ConfigError, match=r"credit\.method='igpo'.*does not define it; add `gold_answer`"):
        check_calls("credit.method=igpo")
