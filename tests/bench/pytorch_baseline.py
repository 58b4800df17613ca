#!/usr/bin/env python3
"""PyTorch's speed on the models that `//tests/bench:train` trains, in the same form.

    python3 -m venv ~/torch && ~/torch/bin/pip install torch transformers
    ~/torch/bin/python tests/bench/pytorch_baseline.py --preset gpt2-124m

Trains from random weights under bf16 autocast with fused AdamW and gradient clipping, eager and
through torch.compile, and prints one JSON object a mode: tokens/s at the median step and the peak resident
memory of a process of its own.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import time

PRESETS = {
    "gpt2-124m": ("gpt2", dict()),
    "llama-125m": (
        "llama",
        dict(
            vocab_size=32000,
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=12,
            num_key_value_heads=12,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
        ),
    ),
}


def build(preset):
    import transformers

    family, fields = PRESETS[preset]
    if family == "gpt2":
        config = transformers.GPT2Config(
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False, **fields
        )
        return transformers.GPT2LMHeadModel(config)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(use_cache=False, **fields))


def measure(args, mode, results):
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    model = build(args.preset)
    vocab = model.config.vocab_size
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    forward = torch.compile(model) if mode == "compile" else model
    seconds, losses = [], []
    for _ in range(args.steps):
        tokens = torch.randint(0, vocab, (args.batch, args.sequence))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[min(3, len(seconds) - 1) :])
    results.put(
        {
            "program": f"pytorch {torch.__version__} {mode}",
            "preset": args.preset,
            "batch": args.batch,
            "sequence": args.sequence,
            "step_seconds": step,
            "tokens_per_second": args.batch * args.sequence / step,
            "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "last_loss": losses[-1],
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--modes", nargs="*", default=["eager", "compile"])
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for mode in args.modes:
        results = context.Queue()
        process = context.Process(target=measure, args=(args, mode, results))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"{mode} ended with {process.exitcode}")
        print(json.dumps(results.get()), flush=True)


if __name__ == "__main__":
    main()
