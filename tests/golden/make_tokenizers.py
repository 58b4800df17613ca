"""Makes the tokenizer_* folders beside it: small tokenizers, strings, and the ids and text that Hugging Face's
`tokenizers`, or `sentencepiece`, make of them.

    python tests/golden/make_tokenizers.py
"""
import io
import json
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizer_strings import WORDS, strings

HERE = pathlib.Path(__file__).parent
STRINGS = 160
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CORPUS = [" ".join(WORDS)] * 3 + [text.decode(errors="replace") for text in strings(300, [], seed=7)]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 420, ["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("[R]", rstrip=True)])
    tokenizer.add_tokens([AddedToken("the", single_word=True), AddedToken("  ", normalized=True), AddedToken("<mask>!")])
    return tokenizer


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 420, ["<|begin_of_text|>", "<|end_of_text|>"],
          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return tokenizer


def metaspace():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    train(tokenizer, 520, ["<unk>", "<s>", "</s>"] + BYTES, limit_alphabet=120, max_token_length=8)
    return tokenizer


def prepend():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Metaspace()
    # A few bytes are left out, so that there are unknown characters.
    train(tokenizer, 400, ["<unk>", "<s>", "</s>"] + BYTES[:0xe3], limit_alphabet=80, max_token_length=6)
    return tokenizer


def accents():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
        normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.NFKC(), normalizers.NFD()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(),
        pre_tokenizers.Split("a", behavior="merged_with_previous"),
        pre_tokenizers.Split(Regex("[ou]"), behavior="merged_with_next"),
        pre_tokenizers.Split("z", behavior="removed")])
    train(tokenizer, 260, ["[UNK]", "</s>"], limit_alphabet=150)
    tokenizer.add_tokens([AddedToken("Café", normalized=True), AddedToken("HE", normalized=True, single_word=True)])
    return tokenizer


def train(tokenizer, size, special_tokens, **options):
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=special_tokens,
                                                              show_progress=False, **options))


def sentencepiece_bpe():
    return train_sentencepiece(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                               remove_extra_whitespaces=False, vocab_size=600)


def sentencepiece_unigram():
    # Capital vowels become small ones, a ligature two letters, a line's end a space, a soft hyphen nothing.
    rules = {"A": "a", "E": "e", "\ufb01": "fi", "\n": " ", "\xad": "", "e\u0301": "\xe9"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for source, target in rules.items():
            print(*(" ".join(f"{ord(c):X}" for c in text) for text in (source, target)), sep="\t", file=file, flush=True)
        return train_sentencepiece(model_type="unigram", normalization_rule_tsv=file.name, vocab_size=200,
                                   hard_vocab_limit=False, treat_whitespace_as_suffix=True)


def train_sentencepiece(**options):
    words = [word for word in WORDS if max(map(ord, word)) < 0x250]
    lines = [" ".join(a + b for a, b in zip(words[i:], words)) for i in range(20)] + [" ".join(words)] * 9
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, user_defined_symbols=["<sep>", "foo_", "▁▁a"],
        control_symbols=["<ctl>"], character_coverage=0.98, num_threads=1, minloglevel=2, **options)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # a temporary file's name
    return proto.SerializeToString()


def make_sentencepiece(make):
    folder = HERE / f"tokenizer_{make.__name__}"
    folder.mkdir(exist_ok=True)
    model = make()
    (folder / "tokenizer.model").write_bytes(model)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
    cases = []
    for text in strings(STRINGS, ["<s>", "</s>", "<unk>", "<sep>", "<ctl>", "foo_", "foo_bar"], seed=3):
        ids = tokenizer.encode(text.decode(errors="replace"))
        cases.append(json.dumps({"bytes": text.hex(), "ids": ids, "decoded": tokenizer.decode(ids)}))
    (folder / "cases.json").write_text("[" + ",\n".join(cases) + "]\n")


def trained():
    """Not cases but a corpus, and what Hugging Face's trainer makes of it."""
    folder = HERE / "tokenizer_trained"
    folder.mkdir(exist_ok=True)
    lines = [" ".join(WORDS[i:i + 40]) for i in range(0, len(WORDS), 7)]
    texts = lines * 2 + [text.decode(errors="replace") for text in strings(150, [], seed=11)]
    texts = [text.replace("\0", "") for text in texts if text]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=900, min_frequency=2, special_tokens=["<|endoftext|>", "<|pad|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.decoder = decoders.ByteLevel()
    file = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    trained()
    for make in (sentencepiece_bpe, sentencepiece_unigram):
        make_sentencepiece(make)
    for make in (gpt2, llama3, metaspace, prepend, accents):
        folder = HERE / f"tokenizer_{make.__name__}"
        folder.mkdir(exist_ok=True)
        file = json.loads(make().to_str())
        # Bytes are tokens of the model alone.
        file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] not in BYTES]
        if make is gpt2:
            file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
        (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ends = {tokenizer.token_to_id(end) for end in ("<|endoftext|>", "<|end_of_text|>", "</s>")}
        cases = []
        for text in strings(STRINGS, [token["content"] for token in file["added_tokens"]], seed=3):
            ids = tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids
            cases.append(json.dumps({
                "bytes": text.hex(), "ids": ids,
                "decoded": None if ends & set(ids) else tokenizer.decode(ids, skip_special_tokens=False)}))
        (folder / "cases.json").write_text("[" + ",\n".join(cases) + "]\n")


if __name__ == "__main__":
    main()
