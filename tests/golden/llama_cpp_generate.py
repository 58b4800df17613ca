"""Greedy tokens by llama.cpp, to hold against `tests/bench/generate --print`.

    python tests/golden/llama_cpp_generate.py MODEL.gguf --tokens 48 < prompts.txt

Needs the package llama-cpp-python. The file should hold F32 weights: of quantized ones llama.cpp
multiplies activations in 8 bits.
"""

import argparse
import sys

import llama_cpp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--context", type=int, default=512)
    a = parser.parse_args()
    model = llama_cpp.Llama(
        a.model, n_ctx=a.context, verbose=False, type_k=0, type_v=0, n_threads=2)
    for line in sys.stdin:
        ids = model.tokenize(line.rstrip("\n").encode(), add_bos=True, special=True)
        tokens = []
        for token in model.generate(ids, temp=0.0, repeat_penalty=1.0):
            if len(tokens) == a.tokens:
                break
            tokens.append(token)
            if token == model.token_eos():
                break
        print(tokens, flush=True)


main()
