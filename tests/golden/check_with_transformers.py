"""Loads model directories that Millrace wrote with transformers, and compares what they compute.

Run outside of CI, after the test that writes them:

    TEST_TMPDIR=/tmp/written bazel-bin/tests/engine/model/model_directory_test
    python tests/golden/check_with_transformers.py \\
        /tmp/written/ReadsAndWritesTheDirectoriesOfTransformersUnchanged

Each folder NAME.* in there must hold the weights of tests/golden/NAME.
"""

import json
import pathlib
import sys

import torch
import transformers
from make_golden import logits_of
from safetensors.torch import load_file


def check(folder, golden):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype="auto")
    problems = {key: value for key, value in info.items() if value}
    assert not problems, problems
    assert model.dtype == torch.float32, model.dtype
    expected = transformers.AutoModelForCausalLM.from_pretrained(golden)
    for (name, ours), (_, theirs) in zip(
            model.named_parameters(), expected.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    batches = json.loads((golden / "steps.json").read_text())["batches"]
    batch = json.loads((golden.parent / "batches" / f"{batches}.json").read_text())[0]
    with torch.no_grad():
        difference = logits_of(model.eval(), batch) - load_file(golden / "golden.safetensors")["logits"]
    assert difference.abs().max() < 1e-5, difference.abs().max()
    print(f"{folder.name}: loads, weights equal, logits within {difference.abs().max():.1e}")


def main():
    root = pathlib.Path(sys.argv[1])
    for folder in sorted(root.iterdir()):
        check(folder, pathlib.Path(__file__).parent / folder.name.split(".")[0])


if __name__ == "__main__":
    main()
