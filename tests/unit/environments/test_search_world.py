"""The generated world: determinism, disjoint splits, passages that read back, right questions, retrieval."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.protocols import Split
from turnwise.environments.search_qa.corpus import NUM_PHRASINGS, Passage, read_fact, write_corpus
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.names import split_of
from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Union, evaluate, parse, to_text
from turnwise.environments.search_qa.questions import KINDS, build_question
from turnwise.environments.search_qa.retrieval import WordRetriever
from turnwise.environments.search_qa.wordings import Style
from turnwise.environments.search_qa.world import RELATIONS, World, build_world

ALL_KINDS = dict.fromkeys(KINDS, 1.0)


def constants(query):
    match query:
        case Constant(entity):
            return {entity}
        case Project(_, of, _):
            return constants(of)
        case Intersection(parts) | Union(parts):
            return set().union(*map(constants, parts))


# ------------------------------------------------------------------------------------------------ the world and its
# passages


def test_a_world_is_a_function_of_seed_and_split():
    assert build_world(7, "train", 40) == build_world(7, "train", 40)
    assert build_world(7, "train", 40).types != build_world(8, "train", 40).types


def test_facts_are_typed_and_never_about_themselves():
    world = build_world(3, "heldout", 200)
    for (relation, subject), target in world.facts.items():
        assert (world.types[subject], world.types[target]) == RELATIONS[relation]
        assert subject != target
    assert 0 < len(world.facts) < sum(kind == RELATIONS[r][0] for kind in world.types.values() for r in RELATIONS)


def test_every_fact_reads_back_from_its_passage_and_nothing_contradicts_it():
    worlds = [build_world(5, "train", 60), build_world(5, "heldout", 60)]
    corpus = write_corpus(worlds, seed=1, style=Style(num_phrasings=NUM_PHRASINGS), num_distractors=101)
    facts = {key: target for world in worlds for key, target in world.facts.items()}
    assert set(corpus.evidence) == set(facts)
    assert len(corpus.passages) == len(facts) + 101
    assert len({p.id for p in corpus.passages}) == len(corpus.passages)
    for fact, index in corpus.evidence.items():
        assert read_fact(corpus.passages[index].text) == (*fact, facts[fact])
        assert corpus.passages[index].title == fact[1]
    names = {name for world in worlds for name in world.types}
    distractors = [p for i, p in enumerate(corpus.passages) if i not in set(corpus.evidence.values())]
    stated = [told for p in distractors if (told := read_fact(p.text)) is not None]
    assert stated
    assert all(subject not in names and target not in names for _, subject, target in stated)


def test_splits_share_no_entity_over_many_tasks():
    family = SearchQA(kinds=ALL_KINDS, num_entities=40)
    names: dict[Split, set[str]] = {"train": set(), "heldout": set()}
    for split, names_of_split in names.items():
        for index in range(150):
            task = family.task(split, index)
            names_of_split |= constants(parse(task.payload["query"])) | set(task.payload["answers"]) - {"unknown"}
            assert all(split_of(p.title) == split for p in family.retriever(task).passages)
    assert len(names["train"]) > 200
    assert not names["train"] & names["heldout"]
    assert all(split_of(name) == split for split, names_of_split in names.items() for name in names_of_split)


# ------------------------------------------------------------------------------------------------ projections

ENTITIES = ["a", "b", "c [d]", "e\\", "f & g)"]
graphs = st.dictionaries(st.tuples(st.sampled_from(["r", "s"]), st.sampled_from(ENTITIES)), st.sampled_from(ENTITIES))
queries = st.recursive(
    st.sampled_from(ENTITIES).map(Constant),
    lambda inner: st.one_of(
        st.builds(Project, st.sampled_from(["r", "s"]), inner, st.booleans()),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Intersection(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Union(tuple(parts))),
    ),
    max_leaves=8,
)


def graph(facts):
    return World(split="train", types=dict.fromkeys(ENTITIES, "person"), facts=facts, num_words=8)


def is_member(entity, query, facts):
    """The definition, one entity at a time."""
    match query:
        case Constant(name):
            return entity == name
        case Project(relation, of, False):
            return any(is_member(other, of, facts) and facts.get((relation, other)) == entity for other in ENTITIES)
        case Project(relation, of, True):
            return any(is_member(other, of, facts) and facts.get((relation, entity)) == other for other in ENTITIES)
        case Intersection(parts):
            return all(is_member(entity, part, facts) for part in parts)
        case Union(parts):
            return any(is_member(entity, part, facts) for part in parts)


@settings(max_examples=50, deadline=None)
@given(graphs, queries)
def test_evaluator_agrees_with_brute_force(facts, query):
    assert evaluate(query, graph(facts)) == {entity for entity in ENTITIES if is_member(entity, query, facts)}


@settings(max_examples=50, deadline=None)
@given(graphs, queries, queries, st.booleans())
def test_projection_distributes_over_union(facts, first, second, inverse):
    together = Project("r", Union((first, second)), inverse)
    apart = Union((Project("r", first, inverse), Project("r", second, inverse)))
    assert evaluate(together, graph(facts)) == evaluate(apart, graph(facts))


@settings(max_examples=50, deadline=None)
@given(queries)
def test_formal_strings_round_trip(query):
    assert parse(to_text(query)) == query


@pytest.mark.parametrize("text", ["", "[a", "r([a]", "([a])", "([a] & [b] | [c])", "[a] [b]", "r()", "[a] &"])
def test_malformed_formal_strings_are_refused_with_a_position(text):
    with pytest.raises(ValueError, match="formal query"):
        parse(text)


# ------------------------------------------------------------------------------------------------ questions


@pytest.mark.parametrize("kind", KINDS)
def test_gold_answers_are_what_the_formal_query_denotes(kind):
    for seed in range(25):
        world = build_world(seed, "train", 60)
        corpus = write_corpus([world], seed=seed, style=Style(num_phrasings=NUM_PHRASINGS), num_distractors=20)
        question = build_question(kind, world, corpus, Random(seed), Style(num_phrasings=4))
        if question is None:
            continue
        members = evaluate(parse(to_text(question.query)), world)
        assert set(question.answers) == (members or {"unknown"})
        assert (not members) == (kind == "unanswerable")
        assert all(name in question.text for name in constants(question.query))
        texts = {p.id: p.text for p in corpus.passages}
        assert all(any(name in texts[passage] for passage in question.evidence) for name in question.answers if members)


@pytest.mark.parametrize(("kind", "num_hops"), [("2hop", 2), ("3hop", 3)])
def test_no_single_search_answers_a_chain(kind, num_hops):
    family = SearchQA(kinds={kind: 1.0}, num_phrasings=NUM_PHRASINGS)
    for index in range(60):
        task = family.task("train", index)
        passages = {p.id: p for p in family.retriever(task).passages}
        (start,) = constants(parse(task.payload["query"]))
        assert len(set(task.payload["evidence"])) == num_hops
        last = passages[task.payload["evidence"][-1]]
        assert task.payload["answers"][0] in last.text
        assert start not in last.text + last.title
        first = passages[task.payload["evidence"][0]]
        assert task.payload["answers"][0] not in first.text


def test_tasks_are_pure_and_json():
    first, second = SearchQA(kinds=ALL_KINDS, seed=4), SearchQA(kinds=ALL_KINDS, seed=4)
    tasks = [first.task("train", index) for index in range(40)]
    assert [second.task("train", index) for index in reversed(range(40))] == tasks[::-1]
    assert len({task.id for task in tasks}) == 40
    assert all(json.loads(json.dumps(dict(task.payload))) == task.payload for task in tasks)
    assert [SearchQA(kinds=ALL_KINDS, seed=5).task("train", index).id for index in range(40)] != [
        task.id for task in tasks
    ]


def test_the_mix_of_kinds_follows_the_weights():
    family = SearchQA(kinds={"1hop": 1.0, "2hop": 3.0, "3hop": 0.0})
    kinds = [family.task("train", index).payload["kind"] for index in range(300)]
    assert set(kinds) == {"1hop", "2hop"}
    assert 190 < kinds.count("2hop") < 260  # 225 expected, standard deviation 7.5


def test_the_fixed_corpus_has_the_size_asked_for_and_both_splits():
    family = SearchQA(mode="fixed", num_passages=1000, kinds=ALL_KINDS)
    tasks = [family.task(split, index) for split in ("train", "heldout") for index in range(30)]
    retriever = family.retriever(tasks[0])
    assert all(family.retriever(task) is retriever for task in tasks)
    assert len(retriever.passages) == 1000
    ids = {p.id for p in retriever.passages}
    assert all(set(task.payload["evidence"]) <= ids for task in tasks)


# ------------------------------------------------------------------------------------------------ retrieval


def test_retrieval_finds_both_hops():
    family = SearchQA(kinds={"2hop": 1.0}, num_phrasings=NUM_PHRASINGS)
    hits = total = 0
    for index in range(100):
        task = family.task("heldout", index)
        retriever = family.retriever(task)
        texts = {p.id: p.text for p in retriever.passages}
        for passage in task.payload["evidence"]:
            fact = read_fact(texts[passage])
            assert fact is not None
            relation, subject, _ = fact
            hits += passage in [p.id for p in retriever.search(f"{relation} of {subject}", 3)]
            total += 1
    assert hits / total >= 0.97


def test_ties_keep_the_order_of_the_corpus():
    passages = [Passage(f"p{i}", "", "red stone") for i in range(20)] + [Passage("best", "", "red red stone stone")]
    retriever = WordRetriever(passages)
    assert [p.id for p in retriever.search("Red, STONE!", 4)] == ["best", "p0", "p1", "p2"]


@pytest.mark.parametrize("query", ["", "   ", "?!", "zebra", "\ud800", "💥" * 1000])
def test_queries_that_match_nothing_find_nothing(query):
    assert WordRetriever([Passage("p", "", "red stone"), Passage("q", "Blue", "")]).search(query, 3) == []


def test_an_index_of_nothing_and_a_large_top_k():
    assert WordRetriever([]).search("red", 3) == []
    assert WordRetriever([Passage("p", "", "!")]).search("red", 3) == []
    assert [p.id for p in WordRetriever([Passage("p", "", "red"), Passage("q", "", "blue")]).search("red", 50)] == ["p"]
