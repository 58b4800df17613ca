"""Prints how far the engine is from each golden model, as a table, from the XML of the test:

    bazel test //tests/engine/train:parity_test
    python tests/golden/parity_table.py bazel-testlogs/tests/engine/train/parity_test/test.xml
"""

import sys
import xml.etree.ElementTree

COLUMNS = {
    "logits": ("LogitsAfterEveryToken", "worst_logit"),
    "loss": ("LossNormAndGradientsOfTheFirstStep", "worst_loss"),
    "gradients": ("LossNormAndGradientsOfTheFirstStep", "worst_tensor"),
    "losses of 20 steps": ("TwentyStepsOfAdamWWithClipping", "worst_loss"),
    "weights after": ("TwentyStepsOfAdamWWithClipping", "worst_tensor"),
    "losses in bf16": ("Bf16FollowsAtItsPrecision", "worst_loss"),
}


def main():
    found = {}
    for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
        test, _, model = case.get("name").partition("/")
        for item in case.iter("property"):
            found[model, test, item.get("name")] = item.get("value")
    print("| model |", " | ".join(COLUMNS), "|")
    print("| --- |" + " --- |" * len(COLUMNS))
    for model in sorted({key[0] for key in found}):
        print(f"| {model} |",
              " | ".join(found.get((model, *where), "-") for where in COLUMNS.values()), "|")
    worst = [max((float(value) for key, value in found.items() if key[1:] == where), default=0)
             for where in COLUMNS.values()]
    print("| worst |", " | ".join(f"{value:.1e}" for value in worst), "|")


if __name__ == "__main__":
    main()
