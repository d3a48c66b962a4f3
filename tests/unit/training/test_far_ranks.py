"""Ranks that do not see the memory of the trainer's process: the same bits, over their sockets."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks_world import Case, add_experts, find_gap, make_batch, make_samples, train

from turnwise.batching.collate import Packing
from turnwise.core.errors import TrainingError
from turnwise.models.checksums import compute_checksums
from turnwise.models.structure import build_structure, describe_structure, list_tensors, with_tensors
from turnwise.training.forward import score_logprobs
from turnwise.training.ranks import pieces
from turnwise.training.ranks.communication import find_interface, listen
from turnwise.training.ranks.memory import SharedMemory, make_tensors, open_memory
from turnwise.training.ranks.trainer import RankedTrainer

CASE = Case(critic="separate", kl=0.1)


@pytest.fixture
def _hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    describe = SharedMemory.describe
    monkeypatch.setattr(SharedMemory, "describe", lambda memory: {**describe(memory), "pid": 0})


@pytest.fixture(scope="module")
def near() -> Iterator[RankedTrainer]:
    trainer = CASE.build_ranked(2)
    trainer.remember()  # now they start
    yield trainer
    trainer.close()


@pytest.mark.slow
@pytest.mark.usefixtures("_hidden")
def test_far_ranks_train_and_store_as_near_ones_do(tmp_path: Path, near: RankedTrainer) -> None:
    far = CASE.build_ranked(2)
    for step in (1, 2):
        assert train(near, CASE, step).sums == train(far, CASE, step).sums
    assert (near.group.num_far, far.group.num_far) == (0, 2)
    assert find_gap(near.model, far.model) == 0
    by_near, by_far = tmp_path / "near", tmp_path / "far"
    by_near.mkdir()
    by_far.mkdir()
    near.save(by_near, {"step": 0})
    far.save(by_far, {"step": 0})
    far.load(by_near)
    near.load(by_far)
    assert compute_checksums(far.model) == compute_checksums(near.model)
    assert train(near, CASE, 3).sums == train(far, CASE, 3).sums
    far.close()


@pytest.mark.slow
@pytest.mark.usefixtures("_hidden")
def test_a_far_rank_that_drifted_is_named_and_one_that_is_killed_changes_nothing() -> None:
    far = Case().build_ranked(2)
    train(far, Case(), 1)
    weight, batch = far.model.get_input_embeddings().weight, make_batch(far, Case(), 2)
    with torch.no_grad():
        weight[-1, 0] += 1
    with pytest.raises(TrainingError, match=r"rank 1 of 2 \(process \d+\) holds another model.embed_tokens.weight"):
        far.step(batch)
    with torch.no_grad():
        weight[-1, 0] -= 1
    before, pids = compute_checksums(far.model), far.group.pids
    os.kill(pids[1], signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (pids[1], signal.SIGKILL)).start()
    with pytest.raises(TrainingError, match=r"rank 1 of 2 \(process \d+\) was ended by signal 9"):
        far.step(batch)
    assert compute_checksums(far.model) == before


def test_memory_is_opened_by_its_mark_and_written_in_place() -> None:
    model = torch.nn.Linear(3, 2).share_memory()
    memory = SharedMemory(list_tensors(model))
    description = memory.describe()
    opened = open_memory(description)
    assert opened is not None
    opened["weight"].fill_(7.0)
    assert torch.equal(model.weight, torch.full((2, 3), 7.0))
    number, mark = description["mark"]
    assert open_memory({**description, "mark": [number, mark[::-1]]}) is None
    assert open_memory({**description, "pid": 0}) is None
    assert {name: t.shape for name, t in make_tensors(description).items()} == {"weight": (2, 3), "bias": (2,)}


def test_tensors_come_together_from_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {"a": torch.arange(10.0), "b": torch.arange(6, dtype=torch.int16).view(2, 3), "c": torch.ones(3).bfloat16()}
    for size in (1, 7, 40, 1 << 20):
        monkeypatch.setattr(pieces, "PIECE_BYTES", size)
        got = {name: torch.zeros_like(tensor) for name, tensor in sent.items()}
        messages = list(pieces.cut_tensors(sent.items()))
        # 40 + 12 + 6 bytes
        assert sum(pieces.put_pieces(message, got) for message in messages) == 58
        assert all(torch.equal(got[name], sent[name]) for name in sent)
    for wrong in (["a", 33, np.zeros(8, np.uint8)], ["d", 0, np.zeros(1, np.uint8)]):
        with pytest.raises(TrainingError, match="do not fit this model"):
            pieces.put_pieces([wrong], got)


def test_a_folder_comes_together_and_no_file_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 4)
    files = {"in/one": b"123456789", "in/deeper/two": b"", "in/three": b"1234"}
    for name, data in files.items():
        path = tmp_path / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for piece in pieces.cut_folder(tmp_path / "from", tmp_path / "from" / "in"):
        pieces.put_file(tmp_path / "to", piece)
    assert {name: (tmp_path / "to" / name).read_bytes() for name in files} == files
    with pytest.raises(TrainingError, match="is not a path in a checkpoint"):
        pieces.put_file(tmp_path / "to", ["../out", 0, np.zeros(1, np.uint8)])
    assert not (tmp_path / "out").exists()


def test_a_rank_listens_at_one_address_of_an_interface_of_its_own() -> None:
    assert find_interface("127.0.0.1") == "lo"
    with listen("127.0.0.1") as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    # TEST-NET-1 of RFC 5737: nobody's.
    with pytest.raises(TrainingError, match=r"no network interface of .* has the address 192\.0\.2\.1"):
        find_interface("192.0.2.1")
    with pytest.raises(TrainingError, match=r"cannot listen at 192.0.2.1"):
        listen("192.0.2.1")


@pytest.mark.parametrize("case", [Case(), Case(dtype="bfloat16"), Case(is_adapted=True), Case(is_mixture=True)])
def test_a_structure_with_the_tensors_is_the_model(case: Case) -> None:
    if case.is_adapted:
        pytest.importorskip("peft")
    model = case.build_policy()
    built = with_tensors(build_structure(describe_structure(model), torch.device("cpu")), list_tensors(model))
    flags = [[(name, p.dtype, p.requires_grad) for name, p in each.named_parameters()] for each in (model, built)]
    assert flags[0] == flags[1]
    assert built.lm_head.weight is built.get_input_embeddings().weight
    assert not built.training
    samples = add_experts(make_samples(1)) if case.is_mixture else make_samples(1)
    packing = Packing(micro_batch_tokens=40, shared_prefix=True)
    scores = [score_logprobs(each, samples, 1.0, **packing) for each in (model, built)]
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(*scores, strict=True))
