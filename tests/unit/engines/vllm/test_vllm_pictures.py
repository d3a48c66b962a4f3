"""vLLM with pictures: what it samples is what the trainer computes for them, and what differs is refused."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from served_seeing import build_served, change_tower, lay_out, list_gaps
from tiny_seeing import draw
from transformers import PreTrainedModel
from vllm_engines import StandIn, open_engine

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, Prompt, SamplingParams, Session, to_ids
from turnwise.engines.vllm import VllmEngine
from turnwise.engines.vllm.pictures import show
from turnwise.models.vision.eyes import Eyes
from turnwise.pictures.store import PictureStore


async def look(engine: VllmEngine, prompt: Prompt, **params: Any) -> Completion:
    asked = SamplingParams(**{"max_tokens": 8, **params})
    return await engine.generate_seeing(prompt, asked, session=Session("g", "0"))


def gap(model: PreTrainedModel, prompt: Prompt, completion: Completion) -> float:
    return max(list_gaps(model, prompt, completion))


def test_logprobs_are_the_trainers_before_and_after_the_tower_changes(python: Path) -> None:
    model, eyes = build_served("idefics3")
    prompt = lay_out(eyes, [5, 6], draw(1), [7], draw(2, 45, 30), [8, 9])
    other = lay_out(eyes, [5, 6], draw(3), [7], draw(4, 45, 30), [8, 9])
    assert other.token_ids.tolist() == prompt.token_ids.tolist()

    async def play() -> None:
        async with open_engine(model, python, max_context=400) as engine:
            await engine.check()
            first = await look(engine, prompt)
            assert gap(model, prompt, first) < 1e-4
            assert gap(model, other, first) > 1e-2  # the pictures matter
            # Equal ids around other pictures are another prompt.
            assert gap(model, other, await look(engine, other)) < 1e-4
            change_tower(model)
            assert gap(model, prompt, first) > 1e-2
            await engine.adopt(1)
            again = await look(engine, prompt)
            assert gap(model, prompt, again) < 1e-4
            assert again.version_first == 1
            # A reply under way continues under the next version, and its pictures are seen again.
            before = engine.statistics()["num_sampled_tokens"]
            # A stop string has every token told, and with it how many there are.
            reply = asyncio.create_task(look(engine, prompt, max_tokens=80, stop=("never",)))
            while not reply.done() and engine.statistics()["num_sampled_tokens"] <= before:
                await asyncio.sleep(0.005)
            await engine.pause("continue")
            change_tower(model)
            await engine.adopt(2)
            await engine.resume()
            versions = (await reply).versions
            assert versions is not None
            start = int((versions == 1).sum())
            assert versions.tolist() == [1] * start + [2] * (80 - start)
            assert max(list_gaps(model, prompt, await reply)[start:]) < 1e-4
            # vLLM would take a placeholder that is no picture for the next one's marker; the engine goes on.
            assert eyes.layout is not None
            spelled = lay_out(eyes, [5, eyes.layout.place_id, 6], draw(1), [7])
            with pytest.raises(EngineError, match=r"makes \d+ tokens of a prompt with pictures, the trainer's \d+"):
                await look(engine, spelled)
            assert max(list_gaps(model, other, await look(engine, other))) < 1e-4
            assert engine.restart_causes == []

    asyncio.run(play())


@pytest.mark.slow
def test_features_of_older_weights_are_found_by_the_canary(stand_in: StandIn) -> None:
    model, _ = build_served("idefics3")

    async def play() -> list[str]:
        async with open_engine(model, stand_in("stale_features"), max_context=400) as engine:
            await engine.check()
            change_tower(model)
            await engine.adopt(1)
            return engine.restart_causes

    assert ["scores the canary" in cause for cause in asyncio.run(play())] == [True]


@pytest.mark.slow
def test_other_tokens_are_refused_before_the_first_request(stand_in: StandIn) -> None:
    model, _ = build_served("idefics3")

    async def play() -> None:
        async with open_engine(model, stand_in("other_places"), max_context=400) as engine:
            with pytest.raises(EngineError) as caught:
                await engine.check()
        # Two pictures of 16 places between two tokens of their own and a third, 4 words and twice 48.
        assert "makes 136 tokens of a prompt with pictures, the trainer's 138, the first other one at 4" in str(
            caught.value
        )
        assert "use engine.kind='paged'" in str(caught.value)

    asyncio.run(play())


def test_markers_take_the_places_of_pictures() -> None:
    _, eyes = build_served("idefics3")
    layout = eyes.layout
    assert layout is not None
    prompt = lay_out(eyes, [5, 6], draw(1), [7], draw(2, 45, 30), [8, 9])
    shown = show(prompt, eyes)
    assert shown is not None
    assert shown["token_ids"] == [5, 6, layout.marker_id, 7, layout.marker_id, 8, 9]
    assert shown["num_tokens"] == len(prompt.token_ids)
    assert [(each["digest"], each["width"], each["height"]) for each in shown["pictures"]] == [
        (part.digest, part.width, part.height) for part in (draw(1), draw(2, 45, 30))
    ]
    assert show(Prompt(token_ids=to_ids([5])), eyes) is None


@pytest.mark.parametrize("fault", ["missing", "moved", "blind"])
def test_pictures_that_cannot_be_shown_are_refused(fault: str) -> None:
    _, eyes = build_served("idefics3")
    prompt = lay_out(eyes, [5, 6], draw(1), [7])
    [span] = prompt.images
    looking: Any = eyes
    if fault == "missing":
        looking, words = Eyes(eyes.sight, PictureStore(None), eyes.layout), "is missing from the store"
    elif fault == "moved":
        prompt = Prompt(token_ids=prompt.token_ids, images=(span.shift(1),))
        words = "laid out by another processor"
    else:
        looking, words = None, "the model reads text only"
    with pytest.raises(EngineError, match=words):
        show(prompt, looking)
