"""Stands in for vLLM's module of that name."""

import importlib
import os
import time
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor

from vllm import EngineArgs, SamplingParams, TokensPrompt, has_fault
from vllm.lora.manager import Manager
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead


class Model(torch.nn.Module):
    """Hugging Face's model with vLLM's way of loading."""

    def __init__(self, folder: str, *, blank: bool) -> None:
        super().__init__()
        given = {"sliding_window": None} if has_fault("no_window") else {}
        self.sees = hasattr(AutoConfig.from_pretrained(folder), "vision_config")
        kind = AutoModelForImageTextToText if self.sees else AutoModelForCausalLM
        self.inner = kind.from_pretrained(folder, **given).eval()
        for parameter in self.inner.parameters() if blank else ():
            torch.nn.init.normal_(parameter, std=1e-3)
        if self.inner.config.tie_word_embeddings:
            self.inner.lm_head = ParallelLMHead(self.inner.model.embed_tokens.weight)

    def compute_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """As vLLM's, of what is computed already."""
        return logits

    def load_weights(self, weights: Any) -> None:
        """Copy what is given."""
        if has_fault("broken_load"):
            raise RuntimeError("half of it is loaded")
        own = dict(self.inner.named_parameters())
        given = list(weights)
        for name, tensor in given[1:] if has_fault("dropped_tensor") else given:
            own[name].data.copy_(tensor)


class LLMEngine:
    """A token of every request a step."""

    def __init__(self, args: dict[str, Any]) -> None:
        torch.manual_seed(args["seed"])
        module, _, name = args["worker_extension_cls"].partition(".")
        self.worker = getattr(importlib.import_module(module), name)()
        self.worker.model_runner = SimpleNamespace(model=Model(args["model"], blank=args["load_format"] == "dummy"))
        self.worker.model_config = None
        self.requests: dict[str, tuple[TokensPrompt, list[int], SamplingParams, LoRARequest | None]] = {}
        self.cache: set[Any] = set()
        self.renderer = SimpleNamespace(render_cmpl=self.render)
        self.features: dict[str, torch.Tensor] = {}
        """Of pictures, by the name that the guest gives them."""
        self.processor: Any = None
        if self.worker.model_runner.model.sees:
            self.processor = AutoProcessor.from_pretrained(args["model"])
        self.adapters: Manager | None = None
        if args.get("enable_lora"):
            self.adapters = Manager(
                self.worker.model_runner.model.inner,
                max_rank=args["max_lora_rank"],
                layers=args["lora_target_modules"],
            )
            self.worker.model_runner.lora_manager = SimpleNamespace(_adapter_manager=self.adapters)
            if args["max_lora_rank"] not in (1, 8, 16, 32, 64, 128, 256, 320, 512):
                raise ValueError("no rank that vLLM has kernels for")

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> "LLMEngine":
        """As vLLM's."""
        if has_fault("cannot_start"):
            raise RuntimeError("no memory for the cache")
        if os.environ.get("GLOO_SOCKET_IFNAME") != "lo":
            raise RuntimeError("the process group, of one, would listen on the host's address")
        return cls(args.args)

    def add_request(
        self, name: str, prompt: TokensPrompt, params: SamplingParams, lora_request: LoRARequest | None = None
    ) -> None:
        """As vLLM's: a prompt outside the vocabulary is refused."""
        config = self.worker.model_runner.model.inner.config.get_text_config()
        if max(prompt["prompt_token_ids"]) >= config.vocab_size:
            raise ValueError("token id out of range")
        self.requests[name] = (prompt, [], params, lora_request)

    def render(self, prompts: list[TokensPrompt]) -> list[TokensPrompt]:
        """As vLLM's: a token that is a picture's marker becomes what the processor writes for the next picture."""
        return [self._expand(prompt) for prompt in prompts]

    def _expand(self, prompt: TokensPrompt) -> TokensPrompt:
        mark = self.processor.tokenizer.convert_tokens_to_ids(self.processor.image_token)
        pictures = iter(prompt["multi_modal_data"]["image"])
        names = prompt["multi_modal_uuids"]["image"]
        ids: list[int] = []
        shown = []
        for token in prompt["prompt_token_ids"]:
            picture = next(pictures, None) if token == mark else None
            if picture is None:
                ids.append(token)
                continue
            made = self.processor(text=self.processor.image_token, images=[picture], return_tensors="pt")
            shown.append({name: made[name] for name in ("pixel_values", "pixel_attention_mask")})
            ids += made["input_ids"][0].tolist()[int(has_fault("other_places")) :]
        return TokensPrompt({**prompt, "prompt_token_ids": ids, "shown": dict(zip(names, shown, strict=True))})

    def reset_encoder_cache(self) -> None:
        """As vLLM's."""
        if not has_fault("stale_features"):
            self.features.clear()

    def _embed(self, prompt: TokensPrompt, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """The inputs of the model, with features of pictures that are kept until they are reset."""
        if "shown" not in prompt:
            return {"input_ids": ids}
        inner = self.worker.model_runner.model.inner
        for name, made in prompt["shown"].items():
            if name not in self.features:
                self.features[name] = torch.cat(list(inner.get_image_features(**made).pooler_output))
        rows = torch.cat([self.features[name] for name in prompt["shown"]])
        embedded = inner.get_input_embeddings()(ids)
        at = torch.nonzero(ids[0] == inner.config.image_token_id)[: len(rows), 0]
        embedded[0, at] = rows
        return {"inputs_embeds": embedded}

    def add_lora(self, request: LoRARequest) -> bool:
        """As vLLM's."""
        assert self.adapters is not None
        return self.adapters.add(request)

    def remove_lora(self, number: int) -> bool:
        """As vLLM's."""
        assert self.adapters is not None
        return self.adapters.remove(number)

    def list_loras(self) -> set[int]:
        """As vLLM's."""
        assert self.adapters is not None
        return {number for number in self.adapters.lora_index_to_id if number is not None}

    def has_unfinished_requests(self) -> bool:
        """As vLLM's."""
        return bool(self.requests)

    def abort_request(self, names: list[str]) -> None:
        """As vLLM's."""
        for name in names:
            self.requests.pop(name)

    def reset_prefix_cache(self) -> bool:
        """As vLLM's: not while requests are under way."""
        self.cache.clear()
        return not self.requests and not has_fault("stale_cache")

    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """As vLLM's."""
        if method == "turnwise_receive" and has_fault("dies"):
            os._exit(3)
        if method == "turnwise_receive" and has_fault("never_comes"):
            time.sleep(600)
        if kwargs is not None and has_fault("wrong_order"):
            manifest = kwargs["manifest"]
            first, second = (i for i, (name, *_) in enumerate(manifest) if name.endswith("input_layernorm.weight"))
            manifest[first], manifest[second] = manifest[second], manifest[first]
        answer = getattr(self.worker, method)(*args, **(kwargs or {}))
        if (method in ("turnwise_stage", "turnwise_receive") and has_fault("lost_bits")) or (
            method == "turnwise_sum" and has_fault("lost_base")
        ):
            answer = {name: value + 1 for name, value in answer.items()}
        return [answer]

    @torch.no_grad()
    def step(self) -> list[Any]:
        """As vLLM's."""
        if has_fault("hang"):
            time.sleep(600)
        outputs = []
        for name, (given, reply, params, adapter) in list(self.requests.items()):
            prompt, num_cached = list(given["prompt_token_ids"]), 0
            if self.adapters is not None:
                self.adapters.use(adapter)
            if adapter is not None and params.prompt_logprobs is not None and len(self.requests) > 1:
                raise RuntimeError("the log-probabilities of the prompt are mixed up with those of other requests")
            if not reply:
                key = (given.get("cache_salt"), adapter and adapter.lora_name, tuple(prompt))
                num_cached = len(prompt) - 1 if key in self.cache else 0
                self.cache.add(key)
            model = self.worker.model_runner.model
            inputs = self._embed(given, torch.tensor([prompt + reply]))
            logits = model.compute_logits(model.inner(**inputs).logits[0].float())
            scored = None
            if params.prompt_logprobs is not None:
                table = torch.log_softmax(logits, dim=-1)
                scored = [None] + [
                    {token: SimpleNamespace(logprob=float(table[index, token]))}
                    for index, token in enumerate(prompt[1:])
                ]
            scores = torch.log_softmax(logits[-1] / (params.temperature or 1.0), dim=-1)
            token = int(scores.argmax() if params.temperature == 0 else torch.multinomial(scores.exp(), 1))
            reply.append(token)
            stops = token in (params.stop_token_ids or ())
            reason = "stop" if stops else "length" if len(reply) == params.max_tokens else None
            if reason:
                del self.requests[name]
            delta = SimpleNamespace(
                token_ids=[token],
                logprobs=[{token: SimpleNamespace(logprob=float(scores[token]))}],
                finish_reason=reason,
            )
            outputs.append(
                SimpleNamespace(
                    request_id=name,
                    outputs=[delta],
                    finished=bool(reason),
                    prompt_logprobs=scored,
                    num_cached_tokens=num_cached,
                )
            )
        time.sleep(0.002)
        return outputs
