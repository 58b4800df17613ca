"""Makes tests/golden/sampling/cases.json: what transformers' logits processors leave of logits.

    python tests/golden/make_sampling.py

Each case has logits, the text so far and the options; `kept` are the tokens that may be drawn, in
ascending order, `probabilities` theirs.
"""

import json
import pathlib

import torch
import transformers
from transformers.generation import logits_process as lp

VOCAB = 61
OPTIONS = [
    dict(temperature=1.0),
    dict(temperature=0.7),
    dict(temperature=1.0, top_k=5),
    dict(temperature=1.7, top_k=50, top_p=0.8),
    dict(temperature=1.0, top_p=0.5),
    dict(temperature=0.8, top_p=0.95),
    dict(temperature=1.0, top_p=0.01),
    dict(temperature=1.3, min_p=0.2),
    dict(temperature=1.0, top_k=20, top_p=0.9, min_p=0.1),
    dict(temperature=1.0, repetition_penalty=1.5),
    dict(temperature=0.9, top_k=10, top_p=0.9, min_p=0.05, repetition_penalty=1.3),
    dict(temperature=1.0, top_k=3, repetition_penalty=0.8),
]


def processors(options):
    """In the order of GenerationMixin."""
    made = lp.LogitsProcessorList()
    if options.get("repetition_penalty", 1.0) != 1.0:
        made.append(lp.RepetitionPenaltyLogitsProcessor(options["repetition_penalty"]))
    if options["temperature"] != 1.0:
        made.append(lp.TemperatureLogitsWarper(options["temperature"]))
    if options.get("top_k", 0) != 0:
        made.append(lp.TopKLogitsWarper(options["top_k"]))
    if options.get("top_p", 1.0) < 1.0:
        made.append(lp.TopPLogitsWarper(options["top_p"]))
    if options.get("min_p", 0.0) > 0.0:
        made.append(lp.MinPLogitsWarper(options["min_p"]))
    return made


def main():
    generator = torch.Generator().manual_seed(4)
    cases = []
    for i, options in enumerate(OPTIONS):
        # In 64ths, so that a short decimal is exact; ties where two fall together.
        logits = (torch.randn(1, VOCAB, generator=generator) * 2 * 64).round() / 64
        if options.get("top_k") == 5:  # a tie at the border
            order = logits[0].argsort(descending=True)
            logits[0, order[5]] = logits[0, order[4]]
        text = torch.randint(0, VOCAB, (1, 12), generator=generator)
        scores = processors(options)(text, logits.clone())
        kept = torch.isfinite(scores[0]).nonzero().flatten()
        cases.append({
            "options": options,
            "text": text[0].tolist(),
            "logits": logits[0].tolist(),
            "kept": kept.tolist(),
            "probabilities": scores[0].softmax(-1)[kept].tolist(),
        })
    folder = pathlib.Path(__file__).parent / "sampling"
    folder.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    versions = json.dumps({"torch": torch.__version__, "transformers": transformers.__version__})
    (folder / "cases.json").write_text(f'{{"versions": {versions}, "cases": [\n{lines}\n]}}\n')


main()
