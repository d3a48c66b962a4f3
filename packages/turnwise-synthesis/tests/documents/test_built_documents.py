"""The builder of `cpt.builder`: pure, of the wanted kinds, and without a name of a held-out task."""

from typing import Any

import pytest

from turnwise.core.documents import Document, DocumentContext
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import text_message
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.names import split_of
from turnwise_synthesis.documents.build import KINDS, build_documents
from turnwise_synthesis.documents.leaks import drop_leaks, list_heldout_names
from turnwise_synthesis.documents.ledger import Ledger

WORLD: dict[str, Any] = {"mode": "fresh", "num_entities": 16, "num_words": 8, "kinds": {"1hop": 0.5, "2hop": 0.5}}


@pytest.fixture(scope="module")
def context() -> DocumentContext:
    return DocumentContext(family=SearchQA(**WORLD), seed=0)


def test_equal_arguments_give_equal_documents_of_every_kind(context: DocumentContext) -> None:
    arguments = {"kinds": list(KINDS), "count": 2, "heldout": 4}
    documents = build_documents(context, **arguments)
    assert documents == build_documents(DocumentContext(family=SearchQA(**WORLD), seed=0), **arguments)
    assert {document.id.partition("/")[0] for document in documents} == set(KINDS)
    other = build_documents(DocumentContext(family=context.family, seed=1), kinds=["has"], count=2, heldout=0)
    assert [d for d in documents if d.id.startswith("has/")] != other


def test_a_planted_leak_is_found_and_counted(context: DocumentContext) -> None:
    names = list_heldout_names(context.family, 4)
    name = sorted(names)[0]
    ledger = Ledger()
    leaking = Document(id="plan/x", messages=(text_message("user", f"Who is {name}?"),))
    others = [Document(id="plan/y", text=f"{name}s, and not it"), Document(id="plan/z", text=f"of Old {name} too")]
    assert drop_leaks([leaking, *others], names, ledger) == others
    assert [(each.item, each.reason, each.text) for each in ledger.dropped] == [("plan/x", "held_out", name)]


def test_no_world_of_training_names_a_held_out_entity(context: DocumentContext) -> None:
    assert len(list_heldout_names(context.family, 40)) > 50
    build_documents(context, kinds=["passages"], count=20, heldout=40)  # raises DataError for a leak


def test_a_corpus_that_both_splits_share_leaks_only_held_out_names() -> None:
    family = SearchQA(mode="fixed", num_passages=1000, kinds={"1hop": 1.0})
    names = list_heldout_names(family, 3)
    assert len(names) > 10
    assert all(split_of(name) == "heldout" for name in names)


def test_a_builder_refuses_documents_that_leak(context: DocumentContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "turnwise_synthesis.documents.build.list_heldout_names", lambda family, count: frozenset({"What", "Find"})
    )
    with pytest.raises(DataError, match="name an entity of a held-out task"):
        build_documents(context, kinds=["passages"], count=6)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"kinds": ["plans"]}, "cpt.args.kinds has 'plans'; it may have passages, plan, reason, has, plain"),
        ({"count": 0}, "cpt.args.count: "),
        ({"cuont": 3}, "cpt.args.cuont: "),
        ({"writer": "nobody", "count": 1}, "nobody"),
    ],
)
def test_a_wrong_option_is_named(context: DocumentContext, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        build_documents(context, **arguments)
