"""Makes the reference values in this folder: tiny models of each family, in PyTorch's float32.

Run outside of CI, in an environment with torch, transformers, numpy and safetensors:

    python tests/golden/make_golden.py [OUTPUT_FOLDER]

README.md says what each file holds.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

VOCAB = 67
STEPS = 5
OPTIMIZER = dict(
    learning_rate=1e-3, betas=[0.9, 0.95], epsilon=1e-6, weight_decay=0.1, clip_norm=1.0
)
# Lengths of the documents in each step's micro-batch. Two sequences of 24 tokens.
DOCUMENTS = [[10, 14, 24], [24, 1, 23], [7, 7, 10, 24], [24, 24], [3, 21, 12, 12]]

LLAMA = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.15,
    bos_token_id=None, eos_token_id=None, pad_token_id=None,
)
MODELS = {
    "llama_gqa": transformers.LlamaConfig(
        **LLAMA, num_key_value_heads=2, tie_word_embeddings=False),
    "llama_tied": transformers.LlamaConfig(
        **LLAMA, num_key_value_heads=4, tie_word_embeddings=True),
    "llama_bias": transformers.LlamaConfig(
        **LLAMA, num_key_value_heads=1, head_dim=12, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=500.0), tie_word_embeddings=False),
    "gpt2": transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=40, initializer_range=0.15,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=None, eos_token_id=None, pad_token_id=None),
}


def make_model(config, generator):
    """A model all of whose parameters are random, norms and biases too, so that each one counts."""
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        with torch.no_grad():
            if is_norm:
                parameter.copy_(1.0 + 0.2 * noise)
            else:
                parameter.copy_((0.1 if parameter.dim() == 1 else 0.15) * noise)
    return model


def make_batch(lengths, generator):
    """A micro-batch in the form of engine/data/batch.h. Some targets are ignored."""
    tokens = sum(lengths)
    inputs = torch.randint(0, VOCAB, (tokens,), generator=generator)
    targets = torch.full((tokens,), -1)
    positions, boundaries = [], [0]
    for length in lengths:
        begin = boundaries[-1]
        targets[begin:begin + length - 1] = inputs[begin + 1:begin + length]
        positions += range(length)
        boundaries.append(begin + length)
    targets[torch.randint(0, tokens, (3,), generator=generator)] = -1
    return dict(inputs=inputs.tolist(), targets=targets.tolist(), positions=positions,
                boundaries=boundaries)


def logits_of(model, batch):
    """[tokens, vocab]. Each document runs alone, so no mask is needed to keep them apart."""
    inputs = torch.tensor(batch["inputs"])
    bounds = batch["boundaries"]
    return torch.cat([model(inputs[b:e][None], use_cache=False).logits[0]
                      for b, e in zip(bounds, bounds[1:])])


def loss_of(logits, batch):
    return torch.nn.functional.cross_entropy(
        logits, torch.tensor(batch["targets"]), ignore_index=-1)


def make_optimizer(model):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [dict(params=decayed, weight_decay=OPTIMIZER["weight_decay"]),
         dict(params=others, weight_decay=0.0)],
        lr=OPTIMIZER["learning_rate"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["epsilon"])


def make(name, config, folder):
    generator = torch.Generator().manual_seed(sum(name.encode()))
    model = make_model(config, generator)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    optimizer = make_optimizer(model)
    tensors, steps = {}, []
    for step, lengths in enumerate(DOCUMENTS[:STEPS]):
        batch = make_batch(lengths, generator)
        logits = logits_of(model, batch)
        loss = loss_of(logits, batch)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            tensors["logits"] = logits.detach().clone()
            for key, parameter in model.named_parameters():
                tensors["gradient." + key] = parameter.grad.detach().clone()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip_norm"])
        optimizer.step()
        steps.append(dict(batch, loss=loss.item(), gradient_norm=norm.item()))
    for key, parameter in model.named_parameters():
        tensors["after." + key] = parameter.detach().clone()
    save_file({key: value.contiguous() for key, value in tensors.items()},
              folder / "golden.safetensors")
    text = json.dumps(dict(optimizer=OPTIMIZER, steps=steps))
    (folder / "steps.json").write_text(text.replace('}, {"inputs"', '},\n{"inputs"') + "\n")
    print(name, [(round(s["loss"], 4), round(s["gradient_norm"], 3)) for s in steps])


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
    root = root if root.is_dir() else root.parent
    for name, config in MODELS.items():
        folder = root / name
        folder.mkdir(exist_ok=True)
        make(name, config, folder)


if __name__ == "__main__":
    main()
