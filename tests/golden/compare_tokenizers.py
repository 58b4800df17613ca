"""Holds our tokenizers against Hugging Face's, on generated strings: ids and decoded text.

    bazel build //tests/engine/data:tokenize_strings
    python tests/golden/compare_tokenizers.py [--count 100000] TOKENIZER.json...
"""
import argparse
import json
import pathlib
import struct
import subprocess

from tokenizers import Tokenizer
from tokenizer_strings import strings


def ours(tool, path, texts):
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    out = subprocess.run([tool, path], input=data, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in texts:
        (count,) = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{count}i", out, at + 4))
        at += 4 + 4 * count
        (length,) = struct.unpack_from("<I", out, at)
        yield ids, out[at + 4:at + 4 + length]
        at += 4 + length


def end_tokens(path):
    """What may end documents; a tokenizer_config.json here has "eos_token" as a string."""
    config = pathlib.Path(path).parent / "tokenizer_config.json"
    if config.exists():
        return [json.loads(config.read_text())["eos_token"]]
    return ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tool", default="bazel-bin/tests/engine/data/tokenize_strings")
    args = parser.parse_args()
    failed = False
    for path in args.tokenizers:
        theirs = Tokenizer.from_file(path)
        added = json.load(open(path))["added_tokens"]
        texts = list(strings(args.count, [token["content"] for token in added[:40]], args.seed))
        replaced = [text.decode(errors="replace") for text in texts]
        expected = [encoding.ids for encoding in theirs.encode_batch(replaced, add_special_tokens=False)]
        wrong_ids = wrong_text = lossless = decoded = 0
        ends = {theirs.token_to_id(end) for end in end_tokens(path)}
        for text, ids, (our_ids, our_text) in zip(replaced, expected, ours(args.tool, path, texts)):
            if ids != our_ids:
                wrong_ids += 1
                if wrong_ids <= 5:
                    print("ids:", repr(text), "\n  theirs", ids, "\n  ours  ", our_ids)
                continue
            if ends & set(ids):
                continue  # ours leaves the end of a document out
            decoded += 1
            lossless += our_text == text.encode()
            if theirs.decode(ids, skip_special_tokens=False) != our_text.decode(errors="replace"):
                wrong_text += 1
                if wrong_text <= 3:
                    print("text:", repr(text), "\n  theirs", repr(theirs.decode(ids, skip_special_tokens=False)),
                          "\n  ours  ", our_text)
        print(f"{path}: ids identical on {len(texts) - wrong_ids} of {len(texts)} strings, decoded text on "
              f"{decoded - wrong_text} of {decoded}, decode(encode(x)) = x on {lossless}", flush=True)
        failed |= wrong_ids + wrong_text > 0
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
