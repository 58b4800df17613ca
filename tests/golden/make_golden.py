"""Makes the reference values in this folder: tiny models of every family, in PyTorch's float32.

Run outside of CI, in an environment with torch, transformers, numpy and safetensors:

    python tests/golden/make_golden.py [--output FOLDER] [NAME ...]

makes all models, or those named. README.md says what each file holds.
"""

import argparse
import copy
import json
import pathlib

import numpy
import safetensors
import torch
import transformers
from golden_configs import MODELS, VOCAB
from golden_fields import write_fields
from golden_legacy import legacy_config
from safetensors.torch import load_file, save_file

STEPS = 20
OPTIMIZER = dict(
    learning_rate=1e-3, betas=[0.9, 0.95], epsilon=1e-5, weight_decay=0.1, clip_norm=1.0
)
TOKENS = 48
# Lengths of the documents of each step's micro-batch, over and over.
DOCUMENTS = dict(
    packed=[[10, 14, 24], [24, 1, 23], [7, 7, 10, 24], [24, 24], [3, 21, 12, 12]],
    whole=[[TOKENS]],
)
NEW_TOKENS = 24


def make_batch(lengths, generator):
    """A micro-batch in the form of engine/data/batch.h. Some targets are ignored."""
    inputs = torch.randint(0, VOCAB, (TOKENS,), generator=generator)
    targets = torch.full((TOKENS,), -1)
    boundaries = [0]
    for length in lengths:
        begin = boundaries[-1]
        targets[begin:begin + length - 1] = inputs[begin + 1:begin + length]
        boundaries.append(begin + length)
    targets[torch.randint(0, TOKENS, (3,), generator=generator)] = -1
    return dict(inputs=inputs.tolist(), targets=targets.tolist(), boundaries=boundaries)


def make_batches():
    generator = torch.Generator().manual_seed(1)
    return {name: [make_batch(lengths[step % len(lengths)], generator) for step in range(STEPS)]
            for name, lengths in DOCUMENTS.items()}


def make_model(config, seed):
    """A model all of whose parameters are random, norms and biases too, so that each one counts."""
    generator = torch.Generator().manual_seed(seed)
    config = copy.deepcopy(config)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            if parameter.dim() > 1:
                parameter.copy_(0.35 * noise)
            else:  # norms begin at 1, or at 0 where 1 is added to them; biases at 0
                parameter.add_((0.1 if name.endswith("bias") else 0.2) * noise)
    return model


def in_float64(model):
    """In float64, but for what the model itself makes in float32 whatever it is given."""
    for module in model.modules():
        if hasattr(module, "reorder_and_upcast_attn"):
            module.reorder_and_upcast_attn = False  # it refuses
    return model.double()


def logits_of(model, batch):
    """[tokens, vocab]. Each document runs alone, so no mask is needed to keep them apart."""
    inputs = torch.tensor(batch["inputs"])
    bounds = batch["boundaries"]
    return torch.cat([model(inputs[b:e][None], use_cache=False).logits[0]
                      for b, e in zip(bounds, bounds[1:])])


def make_optimizer(model):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [dict(params=decayed, weight_decay=OPTIMIZER["weight_decay"]),
         dict(params=others, weight_decay=0.0)],
        lr=OPTIMIZER["learning_rate"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["epsilon"])


def train(model, batches):
    """Trains `model` in place; its first logits and gradients, last weights, and what it was like."""
    optimizer = make_optimizer(model)
    tensors, steps = {}, []
    for batch in batches:
        logits = logits_of(model, batch)
        loss = torch.nn.functional.cross_entropy(
            logits, torch.tensor(batch["targets"]), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        if not steps:
            tensors["logits"] = logits.detach().clone()
            for key, parameter in model.named_parameters():
                tensors["gradient." + key] = parameter.grad.detach().clone()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip_norm"])
        optimizer.step()
        steps.append(dict(loss=loss.item(), gradient_norm=norm.item()))
    for key, parameter in model.named_parameters():
        tensors["after." + key] = parameter.detach().clone()
    return tensors, steps


def rename_as_saved(tensors, folder):
    """Gives tensors the names of model.safetensors, where one is called otherwise in the model."""
    saved = set(load_file(folder / "model.safetensors"))
    for prefix in ("gradient.", "after."):
        ours = {key.removeprefix(prefix) for key in tensors if key.startswith(prefix)}
        for old, new in zip(ours - saved, saved - ours, strict=True):
            assert len(ours - saved) == 1, (ours, saved)
            tensors[prefix + new] = tensors.pop(prefix + old)


def rounding(run, exact):
    """The largest relative distance, L2 for tensors, of a run to one in float64, and of what."""
    tensors, steps = run
    exact_tensors, exact_steps = exact
    return max(
        [(((value - exact_tensors[key]).norm() / exact_tensors[key].norm()).item(), key)
         for key, value in tensors.items()] +
        [(abs(step[key] / exact_step[key] - 1), key)
         for step, exact_step in zip(steps, exact_steps) for key in step])


def make_run(name, batches):
    """A model, its training, and how exact float32 is for it. Random models on which it is not,
    because they divide by norms of almost nothing, are passed over."""
    golden = MODELS[name]
    seed = sum(name.encode())
    while True:
        run = train(make_model(golden.config, seed), batches)
        exact = train(in_float64(make_model(golden.config, seed)), batches)
        error, worst = rounding(run, exact)
        if error < 3e-5:
            return make_model(golden.config, seed), run, error
        print(f"{name}: {worst} is {error:.1g} from float64; another seed")
        seed += 1


@torch.no_grad()
def generate(model, length):
    """What follows greedily on a prompt. Every token is chosen by the logits of a run over all
    before it, clearly, so that rounding cannot change it."""
    best = None
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, VOCAB, (length,), generator=generator).tolist()
        margin = float("inf")
        for _ in range(NEW_TOKENS):
            top = model(torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
            margin = min(margin, (top.values[0] - top.values[1]).item())
            tokens.append(top.indices[0].item())
        found = dict(prompt=tokens[:length], tokens=tokens[length:], margin=margin)
        if margin > 0.01 and (best is None or len(set(best["tokens"])) < len(set(tokens[length:]))):
            best = found
    with_cache = model.generate(
        torch.tensor([best["prompt"]]), max_new_tokens=NEW_TOKENS, do_sample=False)
    assert with_cache[0, length:].tolist() == best["tokens"], "the cache changes the text"
    return best


def check_contrasts(name, model, batch, logits):
    """Each setting that `name` is there for changes its logits."""
    for changes in MODELS[name].contrasts:
        other = make_model(type(model.config)(**(MODELS[name].config.to_dict() | changes)), 0)
        other.load_state_dict(model.state_dict(), strict=False)
        with torch.no_grad():
            difference = (logits_of(other, batch) - logits).abs().max().item()
        assert difference > 5e-4, f"{name}: {changes} changes the logits by {difference:.1g} only"


def make(name, batches, root):
    golden = MODELS[name]
    folder = root / name
    folder.mkdir(exist_ok=True)
    model, (tensors, steps), error = make_run(name, batches[golden.batches])
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    legacy = legacy_config(json.loads((folder / "config.json").read_text()))
    (folder / "legacy.json").write_text(json.dumps(legacy, indent=1) + "\n")
    batch = batches[golden.batches][0]
    with torch.no_grad():
        check_contrasts(name, model, batch, logits_of(model, batch))
    generation = generate(model, golden.prompt_length)
    (folder / "generation.json").write_text(json.dumps(generation) + "\n")

    rename_as_saved(tensors, folder)
    save_file({key: value.contiguous() for key, value in tensors.items()},
              folder / "golden.safetensors")
    text = json.dumps(dict(optimizer=OPTIMIZER, batches=golden.batches, steps=steps))
    (folder / "steps.json").write_text(text.replace('}, {"loss"', '},\n{"loss"') + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name:22} {size / 1024:5.1f} KiB, loss {steps[0]['loss']:.3f} to "
          f"{steps[-1]['loss']:.3f}, gradients {min(s['gradient_norm'] for s in steps):.2f} at "
          f"least, float64 within {error:.0e}, {len(set(generation['tokens']))} tokens by "
          f"{generation['margin']:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    batches = make_batches()
    (arguments.output / "batches").mkdir(exist_ok=True)
    for name, steps in batches.items():
        (arguments.output / "batches" / f"{name}.json").write_text(
            json.dumps(steps).replace('}, {"inputs"', '},\n{"inputs"') + "\n")
    for name in arguments.names:
        make(name, batches, arguments.output)
    write_fields(arguments.output / "configs")
    versions = dict(torch=torch.__version__, transformers=transformers.__version__,
                    safetensors=safetensors.__version__, numpy=numpy.__version__)
    (arguments.output / "versions.json").write_text(json.dumps(versions) + "\n")


if __name__ == "__main__":
    main()
