"""Every causal language model of transformers trains and samples as transformers alone does, or is refused for a stated
reason. `make test-models` runs all of them, `make test` one of each kind."""

import pytest
from every_model import list_names, shrink_config, why_no_causal_model, why_not_built
from model_exceptions import FLOAT32_ONLY, REFUSED
from model_measures import BOUNDS, measure_model
from model_slice import mark_names


def why_refused(name: str) -> str | None:
    """Why a model may be refused; None for those that must work."""
    return REFUSED.get(name) or why_no_causal_model(shrink_config(name))


@pytest.mark.parametrize("name", mark_names(name for name in list_names() if why_not_built(name) is None))
def test_a_model_is_as_transformers_alone_or_refused(name: str) -> None:
    row = measure_model(name)
    assert not row.failures, row
    if why_refused(name) is not None:
        assert (row.path, row.bfloat16) == ("refused", "refused"), row
        return
    assert row.path in ("fast", "generic"), row
    assert {gap: row.gaps[gap] for gap in BOUNDS if not row.gaps[gap] <= BOUNDS[gap]} == {}, row
    # Few digits may hide that the fast path is right, and must not hide that it is wrong.
    assert row.bfloat16 in (["refused"] if name in FLOAT32_ONLY else ["generic", row.path]), row
