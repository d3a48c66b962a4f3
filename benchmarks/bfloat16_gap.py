"""Measure how far two orders of the same arithmetic are apart in a model's bfloat16, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/bfloat16_gap.py MODEL_FOLDER

A text is scored with transformers alone: in one pass, token by token with its cache, and exactly, in one pass with the
same weights in float32. Prints the mean and the largest difference of the tokens' log-probabilities in nats between the
first two, with the output layer in bfloat16 and in float32, and from each of them to the exact scores."""

from __future__ import annotations

import copy
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = (
    "What is the author of Blue Lantern ? The author is Mira Tolen. She was born in 1912 in a small town near the sea, "
    "and her first book, Late Crown, was published by North Press when she was twenty-four."
)


@torch.no_grad()
def main(folder: str) -> None:
    """Measure and print."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    whole = model.model(ids).last_hidden_state
    cache, states = None, []
    for at in range(ids.shape[1]):
        output = model.model(ids[:, at : at + 1], past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        states.append(output.last_hidden_state)
    single = torch.cat(states, 1)
    report: dict[str, object] = {"tokens": ids.shape[1] - 1}
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        head = model.lm_head.weight.to(dtype)
        logits = [(hidden.to(dtype) @ head.T).float() for hidden in (whole, single)]
        scores = [row.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None]) for row in logits]
        report[f"head_in_{name}"] = describe(scores[0] - scores[1])
        report["largest_logit"] = round(float(logits[0].abs().max()), 1)
        if dtype is torch.bfloat16:
            exact = copy.deepcopy(model).float()(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])
            report["one_pass_to_exact"] = describe(scores[0] - exact)
            report["token_by_token_to_exact"] = describe(scores[1] - exact)
    print(json.dumps(report, indent=1))


def describe(gap: torch.Tensor) -> dict[str, float]:
    """Mean and largest difference."""
    return {"mean": round(float(gap.abs().mean()), 4), "largest": round(float(gap.abs().max()), 3)}


if __name__ == "__main__":
    main(sys.argv[1])
