"""A model folder behind an endpoint: replies are sampled from its weights and conversations continue."""

import asyncio
import json
from pathlib import Path

import pytest

from turnwise.core.errors import ConfigError, StoreError
from turnwise.gateway.server import GatewayServer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import train_tokenizer
from turnwise.runs.serve import build_gateway, load_served
from turnwise.testing import build_tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train_tokenizer(["What is 17 + 18 ?"] * 40, vocab_size=400, special_tokens=("<|endoftext|>",))
    tokenizer.save_pretrained(tmp_path)
    build_tiny_model(vocab_size=400).save_pretrained(tmp_path)
    return tmp_path


def test_a_model_folder_is_served(folder: Path) -> None:
    system = load_served(folder)
    assert isinstance(system.renderer, TemplateRenderer)

    async def play() -> None:
        import httpx

        gateway = build_gateway(system, model="tiny", key="secret")
        server = GatewayServer(gateway)
        headers = {"authorization": "Bearer secret"}
        async with httpx.AsyncClient(base_url=await server.start(), headers=headers, timeout=120) as client:
            asked = {"role": "user", "content": "What is 17 ?"}
            body = {"model": "tiny", "max_tokens": 5, "messages": [asked], "temperature": 0, "logprobs": True}
            answers = [(await client.post("/v1/chat/completions", json=body)).json() for _ in range(2)]
            messages = [answer["choices"][0]["message"]["content"] for answer in answers]
            assert messages[0] == messages[1]  # greedy
            assert len(answers[0]["choices"][0]["logprobs"]["content"]) == answers[0]["usage"]["completion_tokens"]
            echo = {"role": "assistant", "content": messages[1]}
            more = [asked, echo, {"role": "user", "content": "And 18 ?"}]
            answer = (await client.post("/v1/chat/completions", json={**body, "messages": more})).json()
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            counts = gateway.count()
            assert (counts["opened"], counts["branched"], counts["continued"]) == (1, 1, 1)
            forced = {**body, "response_format": {"type": "json_object"}, "max_tokens": 40}
            text = (await client.post("/v1/chat/completions", json=forced)).json()["choices"][0]["message"]["content"]
            assert text.lstrip().startswith("{")
            ahead = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": "^(?=b)c"}}}
            refused = await client.post("/v1/chat/completions", json={**body, "response_format": ahead})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")
            for ids in ([len(system.tokenizer)], [5, 2**31 - 1]):
                refused = await client.post("/v1/completions", json={"model": "tiny", "prompt": ids})
                assert refused.status_code == 400
                assert (
                    f"{ids[-1]} is no token; the vocabulary has {len(system.tokenizer)}"
                    in refused.json()["error"]["message"]
                )
            for odd in ({"top_p": 0, "temperature": 1}, {"temperature": 1e-30}):
                answer = (await client.post("/v1/chat/completions", json={**body, **odd})).json()
                assert answer["choices"][0]["message"] == answers[0]["choices"][0]["message"]  # the likeliest tokens
        await server.close()
        await system.close()

    asyncio.run(play())


CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_model_with_a_chat_template_is_streamed_as_it_samples(tmp_path: Path) -> None:
    marks = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer = train_tokenizer(["What is 17 + 18 ?"] * 40, vocab_size=400, special_tokens=marks)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(tmp_path)
    build_tiny_model(vocab_size=400).save_pretrained(tmp_path)
    system = load_served(tmp_path)

    async def play() -> list[str]:
        import httpx

        server = GatewayServer(build_gateway(system, model="tiny"))
        body = {"model": "tiny", "max_tokens": 40, "seed": 1, "messages": [{"role": "user", "content": "What is 17 ?"}]}
        told = []
        async with httpx.AsyncClient(base_url=await server.start(), timeout=120) as client:
            url = "/v1/chat/completions"
            whole = (await client.post(url, json=body)).json()["choices"][0]["message"]["content"]
            async with client.stream("POST", url, json={**body, "stream": True}) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        told.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")
        await server.close()
        await system.close()
        assert len(whole) < 400  # the length of a piece of a whole reply
        return [text for text in told if text]

    assert len(asyncio.run(play())) > 3


def test_what_is_neither_a_run_nor_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a run folder"):
        load_served(tmp_path)
    with pytest.raises(ConfigError, match="nothing-there"):
        load_served(tmp_path / "nothing-there")


def test_a_model_that_fits_once_is_served_with_the_conversations_that_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 256 conversations of 8192 tokens of SmolLM2-135M would need 95 GiB: it was refused on every laptop.
    monkeypatch.setattr("turnwise.runs.serve.read_memory_size", lambda device: 800 * 2**20)
    system = load_served(folder, context=4096, conversations=10_000)
    asyncio.run(system.close())
    assert 1 <= system.config.engine.max_concurrency < 10_000
