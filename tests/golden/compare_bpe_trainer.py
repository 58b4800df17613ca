"""Holds our training of byte-level BPE against Hugging Face's: vocabulary, merges and seconds.

    bazel build //tests/engine/data:train_bpe
    python tests/golden/compare_bpe_trainer.py [--vocab-size 32000] [--split gpt2] DATASET.jsonl
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

from make_tokenizers import LLAMA3
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

SPLITS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--min-frequency", type=int, default=2)
    parser.add_argument("--split", choices=SPLITS, default="gpt2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tool", default="bazel-bin/tests/engine/data/train_bpe")
    args = parser.parse_args()
    documents = [json.loads(line)["text"] for line in open(args.dataset)]
    print(f"{len(documents)} documents, {sum(len(text.encode()) for text in documents) / 1e6:.1f} MB")

    begin = time.time()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SPLITS[args.split]
    trainer = trainers.BpeTrainer(vocab_size=args.vocab_size, min_frequency=args.min_frequency, show_progress=False,
                                  special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents, trainer)
    print(f"theirs: {time.time() - begin:.2f} s")
    theirs = json.loads(tokenizer.to_str())["model"]
    with tempfile.TemporaryDirectory() as folder:
        print("ours: ", end="", flush=True)
        subprocess.run([args.tool, args.dataset, folder, str(args.vocab_size), str(args.min_frequency), args.split,
                        str(args.threads)], check=True)
        ours = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())["model"]
        loaded = Tokenizer.from_file(folder + "/tokenizer.json")
    same_ids = all(tokenizer.encode(text).ids == loaded.encode(text).ids for text in documents[:1000])
    print(f"vocabulary identical: {ours['vocab'] == theirs['vocab']} ({len(theirs['vocab'])} tokens), merges identical: "
          f"{ours['merges'] == theirs['merges']} ({len(theirs['merges'])}), ids in Hugging Face identical: {same_ids}")
    raise SystemExit(ours["vocab"] != theirs["vocab"] or ours["merges"] != theirs["merges"] or not same_ids)


if __name__ == "__main__":
    main()
