"""Makes tests/golden/gguf/FAMILY.gguf of models in tests/golden, with the gguf package.

    pip install gguf safetensors numpy && python tests/golden/make_gguf_families.py

Tensors have the names that the package's own mapping gives them, and the values that llama.cpp's
converter writes: rows of heads interleaved (llama), norms plus one (gemma), factors of scaled
rotary embeddings as tensors (llama 3, longrope). Matrices are F16, the rest F32.
"""

import json
import math
import pathlib

import gguf
import numpy as np
from safetensors.numpy import load_file

FOLDER = pathlib.Path(__file__).parent
MODELS = {"llama_llama3": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2",
          "gemma3_text": "gemma3", "phi3_longrope_long": "phi3"}


def permute(weights, heads):
    """As the converter's LlamaModel.permute."""
    return (weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2)
            .reshape(weights.shape))


def llama3_factors(rope, width):
    """What the frequencies of pairs are divided by."""
    low, high, context = (rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"])
    factors = []
    for i in range(width // 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * i / width)
        if wavelength < context / high:
            factors.append(1)
        elif wavelength > context / low:
            factors.append(rope["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return factors


def write_rope(writer, architecture, config, head_dim):
    rope = config["rope_parameters"]
    if architecture == "gemma3":
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    width = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", np.array(llama3_factors(rope, width), np.float32))
    elif rope["rope_type"] == "longrope":
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))


def write(name, architecture):
    config = json.loads((FOLDER / name / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    layers = config["num_hidden_layers"]
    writer = gguf.GGUFWriter(FOLDER / "gguf" / f"{name}.gguf", architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if architecture != "phi3":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if architecture.startswith("gemma"):
        writer.add_sliding_window(config["sliding_window"])
    if architecture == "gemma3":
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])
    if architecture == "phi3":
        writer.add_sliding_window(config["sliding_window"] or 0)
    write_rope(writer, architecture, config, head_dim)
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    names = gguf.get_tensor_name_map(kind, layers)
    for hub, values in sorted(load_file(FOLDER / name / "model.safetensors").items()):
        own = names.get_name(hub, try_suffixes=(".weight", ".bias"))
        if architecture == "llama" and "q_proj" in hub:
            values = permute(values, heads)
        if architecture == "llama" and "k_proj" in hub:
            values = permute(values, kv_heads)
        if architecture.startswith("gemma") and hub.endswith("norm.weight"):
            values = values + np.float32(1)
        writer.add_tensor(own, np.ascontiguousarray(values.astype(np.float16 if values.ndim > 1 else np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


for model, kind in MODELS.items():
    write(model, kind)
