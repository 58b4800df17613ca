"""Holds our tokenizers against Hugging Face's `tokenizers` and `sentencepiece`, on generated strings: ids, decoded text.

    bazel build //tests/engine/data:tokenize_strings
    python tests/golden/compare_tokenizers.py [--count 100000] TOKENIZER...

TOKENIZER is a tokenizer.json, a tokenizer.model, or OURS=THEIRS: a file for us (a GGUF file) and one for the reference.
real_tokenizers.py makes some. Decoded text that ends or begins inside a character is compared as U+FFFD.
"""
import argparse
import json
import pathlib
import struct
import subprocess

import sentencepiece
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


class HuggingFace:
    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(path)
        added = json.load(open(path))["added_tokens"]
        self.specials = [token["content"] for token in added[:40]]
        config = pathlib.Path(path).parent / "tokenizer_config.json"
        ends = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"]
        if config.exists():
            ends = [json.loads(config.read_text())["eos_token"]]
        self.ends = {self.tokenizer.token_to_id(end) for end in ends}

    def encode(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)


class SentencePiece:
    def __init__(self, path):
        self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=path)
        self.specials = ["<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<0x41>"]
        self.ends = set()  # never found in text

    def encode(self, texts):
        return self.tokenizer.encode(texts)

    def decode(self, ids):
        return self.tokenizer.decode(ids)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tool", default="bazel-bin/tests/engine/data/tokenize_strings")
    args = parser.parse_args()
    failed = False
    for path in args.tokenizers:
        path, _, reference = path.partition("=")
        reference = reference or path
        theirs = (HuggingFace if reference.endswith(".json") else SentencePiece)(reference)
        texts = list(strings(args.count, theirs.specials, args.seed))
        replaced = [text.decode(errors="replace") for text in texts]
        expected = theirs.encode(replaced)
        wrong_ids = wrong_text = lossless = decoded = 0
        for text, ids, (our_ids, our_text) in zip(replaced, expected, ours(args.tool, path, texts)):
            if ids != our_ids:
                wrong_ids += 1
                if wrong_ids <= 5:
                    print("ids:", repr(text), "\n  theirs", ids, "\n  ours  ", our_ids)
                continue
            if theirs.ends & set(ids):
                continue  # ours leaves the end of a document out
            decoded += 1
            lossless += our_text == text.encode()
            if theirs.decode(ids) != our_text.decode(errors="replace"):
                wrong_text += 1
                if wrong_text <= 3:
                    print("text:", repr(text), "\n  theirs", repr(theirs.decode(ids)),
                          "\n  ours  ", our_text)
        print(f"{path}: ids identical on {len(texts) - wrong_ids} of {len(texts)} strings, decoded text on "
              f"{decoded - wrong_text} of {decoded}, decode(encode(x)) = x on {lossless}", flush=True)
        failed |= wrong_ids + wrong_text > 0
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
