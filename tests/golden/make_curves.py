"""Trains small models for 200 steps in PyTorch's float32, for the engine to follow in bf16.

    python tests/golden/make_curves.py
    python tests/golden/make_curves.py --large FOLDER
    MILLRACE_CURVES=FOLDER bazel-bin/tests/engine/train/training_curve_test

The first makes curve_llama, which is committed; the second larger models of three families, and
the third trains them in the engine. A folder is a model directory (config.json, model.safetensors)
with, beside them, curve.json: the optimizer, the text (tokens), the shape of a step, and the loss
of each. Step s takes the s-th run of sequences · (length + 1) tokens of the text, over and over.
"""

import argparse
import json
import pathlib

import torch
import transformers
from golden_configs import NO_SPECIAL_TOKENS, layers
from make_golden import OPTIMIZER, make_optimizer

STEPS = 200


def make_text(vocab, tokens, generator):
    """A chain in which what follows depends on two tokens, so that there is something to learn."""
    following = torch.randint(0, vocab, (vocab, vocab, 4), generator=generator)
    text = [0, 1]
    choices = torch.multinomial(
        torch.tensor([0.55, 0.25, 0.15, 0.05]), tokens, replacement=True, generator=generator)
    for choice in choices.tolist():
        # Of the token two places back only its last two bits matter: learnable in 200 steps.
        text.append(following[text[-2] % 4, text[-1], choice].item())
    return text[2:]


def train(model, curve):
    """The loss before each step."""
    optimizer = make_optimizer(model)
    losses = []
    text, count = torch.tensor(curve["text"]), curve["sequences"] * (curve["length"] + 1)
    for step in range(curve["steps"]):
        at = (step * count + torch.arange(count)) % len(text)
        rows = text[at].view(curve["sequences"], -1)
        logits = model(rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def make(folder, config, sequences, length, tokens):
    torch.manual_seed(7)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.bfloat16().save_pretrained(folder)  # half the bytes; both begin from these
    (folder / "generation_config.json").unlink(missing_ok=True)
    text = make_text(config.vocab_size, tokens, torch.Generator().manual_seed(8))
    curve = dict(optimizer=OPTIMIZER, sequences=sequences, length=length, steps=STEPS, text=text)
    # Reloaded, because what is not in the file (tables of frequencies) was rounded too.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").train()
    curve["losses"] = [round(loss, 6) for loss in train(model, curve)]
    (folder / "curve.json").write_text(json.dumps(curve) + "\n")
    print(f"{folder.name}: loss {curve['losses'][0]:.3f} to {curve['losses'][-1]:.3f}, "
          f"{sum(p.numel() for p in model.parameters())} parameters")


SMALL = dict(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    tie_word_embeddings=True, **NO_SPECIAL_TOKENS)
LARGE = dict(
    vocab_size=256, hidden_size=128, intermediate_size=320, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=128,
    **NO_SPECIAL_TOKENS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", type=pathlib.Path)
    root = parser.parse_args().large
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    if not root:
        make(pathlib.Path(__file__).parent / "curve_llama", transformers.LlamaConfig(**SMALL),
             sequences=8, length=32, tokens=5000)
        return
    configs = dict(
        llama=transformers.LlamaConfig(**LARGE),
        gemma2=transformers.Gemma2Config(**LARGE, sliding_window=48, query_pre_attn_scalar=32),
        qwen3=transformers.Qwen3Config(
            **LARGE, use_sliding_window=True, sliding_window=48, **layers("sfsf")))
    for name, config in configs.items():
        make(root / name, config, sequences=8, length=128, tokens=100_000)


if __name__ == "__main__":
    main()
