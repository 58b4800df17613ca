"""The same as generate_main.cc by transformers, to hold against it.

    python tests/bench/generate/transformers_generate.py MODEL --dtype float32 --texts 8 --tokens 128
    python tests/bench/generate/transformers_generate.py MODEL --print < prompts.txt

MODEL is a model directory or a GGUF file (which needs the `gguf` package).
"""

import argparse
import os
import sys
import time

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--print", action="store_true")
    a = parser.parse_args()
    where = {"pretrained_model_name_or_path": a.model}
    if os.path.isfile(a.model):
        where = {
            "pretrained_model_name_or_path": os.path.dirname(a.model) or ".",
            "gguf_file": os.path.basename(a.model),
        }
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=a.dtype).eval()
    greedy = dict(do_sample=False, max_new_tokens=a.tokens, pad_token_id=0)
    if a.print:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        for line in sys.stdin:
            ids = tokenizer(line.rstrip("\n"), return_tensors="pt").input_ids
            out = model.generate(ids, attention_mask=torch.ones_like(ids), **greedy)
            print(out[0, ids.shape[1]:].tolist(), flush=True)
        return
    ids = torch.tensor([[100 + (7 * i + 13 * j) % 1000 for j in range(a.prompt_tokens)]
                        for i in range(a.texts)])
    best, passes = 0, []

    class Clock(transformers.StoppingCriteria):
        """Notes when each pass is done."""

        def __call__(self, input_ids, scores, **kwargs):
            passes.append(time.perf_counter())
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    clock = transformers.StoppingCriteriaList([Clock()])
    fastest = float("inf")
    for _ in range(a.runs):
        times = []
        for tokens in (1, a.tokens):
            start = time.perf_counter()
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                           max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0,
                           stopping_criteria=clock)
            fastest = min([fastest] + [b - a for a, b in zip(passes, passes[1:])])
            passes.clear()
            times.append(time.perf_counter() - start)
        best = max(best, a.texts * (a.tokens - 1) / (times[1] - times[0]))
    print(f"{a.dtype}, {a.texts} texts: {best:.1f} tokens/s (fastest pass {a.texts / fastest:.1f})")


main()
