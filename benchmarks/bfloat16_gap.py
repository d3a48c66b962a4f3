"""How far two orders of the same arithmetic are apart in a model's own bfloat16, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/bfloat16_gap.py MODEL_FOLDER

A text is scored by transformers alone, once in one pass and once token by token with its cache. Printed are the mean
and the largest difference of the tokens' log-probabilities in nats, with the output layer in bfloat16 and in
float32."""

from __future__ import annotations

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
        gap = (scores[0] - scores[1]).abs()
        report[f"head_in_{name}"] = {"mean": round(float(gap.mean()), 4), "largest": round(float(gap.max()), 3)}
        report["largest_logit"] = round(float(logits[0].abs().max()), 1)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
