"""Dense and hybrid search, the sentence embedder, and natural wording."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from turnwise.core.errors import ConfigError
from turnwise.core.types import FloatArray, text_message
from turnwise.environments.search_qa.corpus import Passage, read_fact
from turnwise.environments.search_qa.dense import DenseRetriever, HybridRetriever
from turnwise.environments.search_qa.embedder import MIN_CACHED_TEXTS, SentenceEmbedder
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.projection import Constant, Project
from turnwise.environments.search_qa.retrieval import WordRetriever
from turnwise.environments.search_qa.wordings import innermost_phrase, natural_question

COLOURS = {"crimson": (1.0, 0.0), "red": (0.8, 0.6), "blue": (0.0, 1.0), "sky": (0.0, 1.0)}
"""Unit vectors by hand: crimson . red = 0.8, crimson . blue = 0, red . blue = 0.6."""
PASSAGES = tuple(Passage(f"p{index}", "", text) for index, text in enumerate(("blue", "red", "crimson", "sky")))


class ByHand:
    def embed(self, texts: Sequence[str]) -> FloatArray:
        return np.array([COLOURS[text] for text in texts])


def ids(passages: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def test_dense_search_orders_by_cosine_and_keeps_the_corpus_order_of_ties() -> None:
    retriever = DenseRetriever(PASSAGES, ByHand())
    assert ids(retriever.search("crimson", 3)) == ["p2", "p1", "p0"]  # 1, 0.8, then 0 twice
    assert ids(retriever.search("sky", 2)) == ["p0", "p3"]  # both 1
    assert retriever.search("sky", 0) == []
    assert DenseRetriever((), ByHand()).search("sky", 3) == []


def test_fusion_by_hand() -> None:
    words = WordRetriever(PASSAGES)
    hybrid = HybridRetriever(words, DenseRetriever(PASSAGES, ByHand()))
    # "red": words list p1 alone. Dense: p1 (1), p2 (0.8), p0 and p3 (0.6). p1 scores 2/61, p2 1/62, p0 1/63, p3 1/64.
    assert ids(hybrid.search("red", 9)) == ["p1", "p2", "p0", "p3"]
    assert ids(hybrid.search("red", 1)) == ["p1"]
    with pytest.raises(ValueError, match="same passages"):
        HybridRetriever(words, WordRetriever(PASSAGES[:2]))


def write_encoder(folder: Path) -> BertModel:
    """A tiny encoder with random weights."""
    words = ["[PAD]", "[UNK]", "red", "blue", "stone", "sky"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            vocab_size=len(words), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
        )
    ).eval()
    model.save_pretrained(folder)
    return model


def test_an_embedding_is_the_mean_of_the_last_layer_whatever_shares_its_batch(tmp_path: Path) -> None:
    model = write_encoder(tmp_path)
    embedder = SentenceEmbedder(tmp_path, cache=None)
    alone = embedder.embed(["red stone"])
    with torch.no_grad():
        mean = model(torch.tensor([[2, 4]])).last_hidden_state[0].mean(0)
    np.testing.assert_allclose(alone[0], (mean / mean.norm()).numpy(), atol=1e-6)
    together = embedder.embed(["sky", "red stone", "blue blue blue stone sky"])
    np.testing.assert_allclose(together[1], alone[0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_a_corpus_is_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_encoder(tmp_path / "encoder")
    texts = [f"red {index}" for index in range(MIN_CACHED_TEXTS)]
    first = SentenceEmbedder(tmp_path / "encoder", cache=tmp_path / "cache").embed(texts)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    second = SentenceEmbedder(tmp_path / "encoder", cache=tmp_path / "cache")
    computed: list[int] = []
    compute = second._compute

    def count(batch: Sequence[str]) -> FloatArray:
        computed.append(len(batch))
        return compute(batch)

    monkeypatch.setattr(second, "_compute", count)
    np.testing.assert_array_equal(second.embed(texts), first)
    assert computed == []
    second.embed([*texts, "sky"])
    assert computed == [MIN_CACHED_TEXTS + 1]


def test_an_encoder_is_whole_but_for_what_is_not_read(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(file).items() if not name.startswith("pooler.")}
    save_file({**tensors, "cls.predictions.bias": torch.zeros(6)}, file, metadata={"format": "pt"})
    assert len(SentenceEmbedder(tmp_path, cache=None).embed(["red stone"])) == 1
    del tensors["encoder.layer.1.output.dense.bias"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(
        ConfigError, match=r"embedder: .* lacks 1 tensor of the model \(encoder\.layer\.1\.output\.dense"
    ):
        SentenceEmbedder(tmp_path, cache=None)


def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no model"):
        SentenceEmbedder(tmp_path, cache=None)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match="cannot be loaded as an encoder"):
        SentenceEmbedder(tmp_path, cache=None)


# ------------------------------------------------------------------------------------------------- natural wording


def test_a_chain_by_hand() -> None:
    author = Project("author", Constant("Blue Lantern"))
    assert innermost_phrase(author) == "author of Blue Lantern"
    assert innermost_phrase(Project("birthplace", author), "natural") == "Who wrote Blue Lantern?"
    question = natural_question(Project("birthplace", author))
    assert question == "Where was the person who wrote Blue Lantern born?"


NATURAL = {"wording": "natural", "kinds": {"no_search": 0.2, "1hop": 0.3, "2hop": 0.4, "unanswerable": 0.1}}


def test_facts_are_told_naturally_and_read_back() -> None:
    family = SearchQA(**NATURAL, num_distractors=0)
    for index in range(20):
        passages = family.retriever(family.task("train", index)).passages
        facts = [read_fact(passage.text) for passage in passages]
        assert all(fact is not None and fact[1] == p.title for fact, p in zip(facts, passages, strict=True))
        assert not any(f"the {fact[0]} of" in p.text for fact, p in zip(facts, passages, strict=True) if fact)


@pytest.mark.parametrize(("policy", "low", "high"), [("oracle", 0.95, 1.0), ("naive", 0.3, 0.8)])
def test_the_scripted_policies_understand_natural_questions(policy: str, low: float, high: float) -> None:
    family = SearchQA(**NATURAL, num_distractors=0, prompt="chat")
    right = 0
    for index in range(60):
        task = family.task("heldout", index)
        messages = list(task.prompt)
        actor = family.policy(policy)
        while (reply := actor.reply(task, messages, Random(index))).tool_calls:
            query = json.loads(reply.tool_calls[0].arguments)["query"]
            texts = "\n".join(p.text for p in family.retriever(task).search(query, 3))
            messages += [reply, text_message("tool", texts, tool_call_id=reply.tool_calls[0].id, name="search")]
        right += reply.text.removeprefix("<answer> ").removesuffix(" </answer>") in task.payload["answers"]
    assert low <= right / 60 <= high


def test_a_kind_without_natural_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="no wording for kinds intersection"):
        SearchQA(wording="natural", kinds={"intersection": 1.0})
