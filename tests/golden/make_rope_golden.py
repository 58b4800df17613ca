"""Makes tests/golden/rope/cases.json: what transformers makes of rotary embeddings' parameters.

    python tests/golden/make_rope_golden.py

Each case has the `config` it is made from (`head_dim`, `max_position_embeddings`, `rope_parameters`), the
`sequence_length` (null: not told), and the `inverse_frequencies` (float32) and `attention_factor` that come of them.
"""

import json
import pathlib

import numpy as np
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LONG = [round(1 + 0.37 * i, 2) for i in range(16)]
SHORT = [round(1 + 0.01 * i, 2) for i in range(16)]
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=2048)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG,
                original_max_position_embeddings=4096)
DYNAMIC = dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)
# name, head_dim, max_position_embeddings, sequence_length, rope_parameters
CASES = [
    ("linear", 64, 4096, None, dict(rope_type="linear", rope_theta=10000.0, factor=8.0)),
    ("linear of a part", 80, 4096, None,
     dict(rope_type="linear", rope_theta=25000.0, factor=2.5, partial_rotary_factor=0.25)),
    ("dynamic within the original positions", 64, 2048, 1000, DYNAMIC),
    ("dynamic beyond them", 64, 2048, 5000, DYNAMIC),
    ("dynamic of a part", 64, 2048, 4097, dict(DYNAMIC, factor=3.5, partial_rotary_factor=0.5)),
    ("yarn", 64, 8192, None, YARN),
    ("yarn not truncated", 128, 8192, None, dict(YARN, truncate=False, factor=32.0)),
    ("yarn with betas and a factor of attention", 96, 8192, None,
     dict(YARN, beta_fast=16.0, beta_slow=2.0, attention_factor=0.87)),
    ("yarn with scales of the factor", 64, 8192, None, dict(YARN, factor=40.0, mscale=1.0, mscale_all_dim=0.7)),
    ("yarn whose ramp has no width", 8, 64, None,
     dict(YARN, beta_fast=1.2, beta_slow=1.2, truncate=False, original_max_position_embeddings=64)),
    ("yarn whose ramp begins before the first pair", 8, 64, None, dict(YARN, original_max_position_embeddings=16)),
    ("yarn whose ramp ends before it", 16, 16, None, dict(YARN, original_max_position_embeddings=4)),
    ("yarn whose ramp ends after the last pair", 8, 1 << 20, None,
     dict(YARN, rope_theta=100.0, original_max_position_embeddings=1 << 20)),
    ("yarn whose ramp is all after it", 8, 1 << 20, None,
     dict(YARN, rope_theta=2.0, original_max_position_embeddings=1 << 20)),
    ("yarn of a part", 80, 8192, None, dict(YARN, partial_rotary_factor=0.4)),
    ("llama3", 128, 131072, None, LLAMA3),
    ("llama3 of small heads", 64, 131072, None, dict(LLAMA3, factor=32.0)),
    ("llama3 with other bounds", 64, 512, None,
     dict(LLAMA3, rope_theta=10000.0, low_freq_factor=0.5, high_freq_factor=8.0, original_max_position_embeddings=256)),
    ("longrope short", 32, 131072, 4096, LONGROPE),
    ("longrope long", 32, 131072, 4097, LONGROPE),
    ("longrope with a factor", 32, 131072, None, dict(LONGROPE, factor=16.0)),
    ("longrope of a part", 64, 131072, 10000, dict(LONGROPE, attention_factor=1.25, partial_rotary_factor=0.5)),
]


def case(name, head_dim, max_positions, sequence_length, parameters):
    config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim,
                         max_position_embeddings=max_positions, rope_parameters=dict(parameters))
    frequencies, attention_factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu", sequence_length)
    assert frequencies.isfinite().all(), name
    return {
        "name": name,
        "config": {"head_dim": head_dim, "max_position_embeddings": max_positions, "rope_parameters": parameters},
        "sequence_length": sequence_length,
        "inverse_frequencies": [float(str(np.float32(f))) for f in frequencies.numpy()],
        "attention_factor": attention_factor,
    }


path = pathlib.Path(__file__).parent / "rope" / "cases.json"
path.parent.mkdir(exist_ok=True)
path.write_text("[\n" + ",\n".join(json.dumps(case(*c)) for c in CASES) + "\n]\n")
