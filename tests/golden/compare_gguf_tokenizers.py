"""Holds the tokenizers in GGUF files that we write against what llama.cpp makes of them: ids, on generated strings.

    pip install llama-cpp-python tokenizers sentencepiece
    bazel build //tests/engine/train:write_vocabulary
    python tests/golden/compare_gguf_tokenizers.py [--count 10000] FOLDER...

FOLDER has a tokenizer.json or a tokenizer.model (real_tokenizers.py makes some). llama.cpp cuts text by code of its own:
for characters of which the two libraries hold different opinions, ids may differ.
"""
import argparse
import pathlib
import subprocess
import tempfile

import llama_cpp
from compare_tokenizers import HuggingFace, SentencePiece
from tokenizer_strings import strings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--tool", default="bazel-bin/tests/engine/train/write_vocabulary")
    args = parser.parse_args()
    for folder in args.folders:
        if (folder / "tokenizer.json").exists():
            theirs = HuggingFace(str(folder / "tokenizer.json"))
            size = theirs.tokenizer.get_vocab_size()
        else:
            theirs = SentencePiece(str(folder / "tokenizer.model"))
            size = theirs.tokenizer.vocab_size()
        # Without special tokens and NUL, which llama.cpp and the references are told of in ways of their own.
        texts = [text.decode(errors="replace") for text in strings(args.count, [], 1) if b"<" not in text]
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            subprocess.run([args.tool, folder, str(size), file.name], check=True)
            model = llama_cpp.Llama(file.name, vocab_only=True, verbose=False)
            ours = [model.tokenize(text.encode(), add_bos=False, special=False) for text in texts]
        wrong = [(text, a, b) for text, a, b in zip(texts, theirs.encode(texts), ours) if a != b]
        print(f"{folder}: ids identical on {len(texts) - len(wrong)} of {len(texts)} strings", flush=True)
        for text, expected, got in sorted(wrong, key=lambda case: len(case[0]))[:3]:
            print("  ", repr(text), expected, got)


if __name__ == "__main__":
    main()
