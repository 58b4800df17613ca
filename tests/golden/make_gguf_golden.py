"""Makes tests/golden/gguf: files that the gguf package wrote, and what it and Hugging Face make of them.

    pip install gguf safetensors numpy && python tests/golden/make_gguf_golden.py

- quants.gguf: for each type T a tensor "T" of random blocks ([2, 256]) and, in F32, "T.values": what the package's own
  dequantization makes of it. "Q8_0.input" (F32) is what "Q8_0" was quantized from.
- llama.gguf, gpt2.gguf: tiny models as llama.cpp's converter writes them: the rows of heads interleaved (llama), matrices
  transposed (gpt2).
- llama.safetensors, gpt2.safetensors: the same models as a model directory has them.
"""

import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent / "gguf"
QUANTIZED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Where the binary16 scales of a block lie.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
random = np.random.default_rng(4)


def random_blocks(name, rows, columns):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = random.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    for place in SCALES[name]:
        scales = random.normal(0, 0.05, blocks.shape[:2]).astype(np.float16)
        scales.flat[0] = 5e-7  # subnormal
        blocks[:, :, place:place + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def write_quants():
    writer = gguf.GGUFWriter(FOLDER / "quants.gguf", "llama")
    for name in QUANTIZED:
        kind = gguf.GGMLQuantizationType[name]
        if name == "Q8_0":
            values = random.normal(0, 1, (2, 256)).astype(np.float32)
            writer.add_tensor("Q8_0.input", values)
            stored = gguf.quantize(values, kind)
        else:
            stored = random_blocks(name, 2, 256)
        writer.add_tensor(name, stored, raw_dtype=kind)
        writer.add_tensor(name + ".values", gguf.dequantize(stored, kind))
    halves = np.concatenate([random.normal(0, 1, 60), [65504, 6e-8, 1e-6, -0.0]]).astype(np.float16)
    writer.add_tensor("F16", halves)
    writer.add_tensor("F16.values", halves.astype(np.float32))
    bf16 = gguf.quantize(random.normal(0, 1, (1, 64)).astype(np.float32), gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("BF16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("BF16.values", gguf.dequantize(bf16, gguf.GGMLQuantizationType.BF16))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def matrix(*shape):
    return random.normal(0, 0.3, shape).astype(np.float16)


def vector(size):
    return random.normal(0, 0.3, size).astype(np.float32)


def permute(weights, heads):
    """As the converter's LlamaModel.permute."""
    return (weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2)
            .reshape(weights.shape))


def write_model(name, writer, tensors, to_gguf):
    """tensors: by name in a model directory. to_gguf: (directory's name, GGUF's name, change of the values)."""
    for hub, own, change in to_gguf:
        writer.add_tensor(own, np.ascontiguousarray(change(tensors[hub])))
    finish(writer)
    save_file(tensors, FOLDER / f"{name}.safetensors")


def same(values):
    return values


def write_llama():
    hidden, heads, kv_heads, width, middle, vocabulary = 16, 4, 2, 6, 24, 19
    writer = gguf.GGUFWriter(FOLDER / "llama.gguf", "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(middle)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(500000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token{i}" for i in range(vocabulary)])
    writer.add_token_types([1] * vocabulary)
    writer.add_eos_token_id(2)
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden),
        layer + "self_attn.q_proj.weight": (heads * width, hidden),
        layer + "self_attn.k_proj.weight": (kv_heads * width, hidden),
        layer + "self_attn.v_proj.weight": (kv_heads * width, hidden),
        layer + "self_attn.o_proj.weight": (hidden, heads * width),
        layer + "mlp.gate_proj.weight": (middle, hidden), layer + "mlp.up_proj.weight": (middle, hidden),
        layer + "mlp.down_proj.weight": (hidden, middle),
    }
    tensors = {name: matrix(*shape) for name, shape in shapes.items()}
    for norm in ["model.norm.weight", layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight"]:
        tensors[norm] = vector(hidden)
    for module, rows in [("q", heads * width), ("k", kv_heads * width), ("v", kv_heads * width), ("o", hidden)]:
        tensors[f"{layer}self_attn.{module}_proj.bias"] = vector(rows)
    query, key = (lambda values: permute(values, heads)), (lambda values: permute(values, kv_heads))
    write_model("llama", writer, tensors, [
        ("model.embed_tokens.weight", "token_embd.weight", same),
        (layer + "input_layernorm.weight", "blk.0.attn_norm.weight", same),
        (layer + "mlp.down_proj.weight", "blk.0.ffn_down.weight", same),
        (layer + "mlp.gate_proj.weight", "blk.0.ffn_gate.weight", same),
        (layer + "mlp.up_proj.weight", "blk.0.ffn_up.weight", same),
        (layer + "post_attention_layernorm.weight", "blk.0.ffn_norm.weight", same),
        (layer + "self_attn.k_proj.weight", "blk.0.attn_k.weight", key),
        (layer + "self_attn.k_proj.bias", "blk.0.attn_k.bias", key),
        (layer + "self_attn.o_proj.weight", "blk.0.attn_output.weight", same),
        (layer + "self_attn.o_proj.bias", "blk.0.attn_output.bias", same),
        (layer + "self_attn.q_proj.weight", "blk.0.attn_q.weight", query),
        (layer + "self_attn.q_proj.bias", "blk.0.attn_q.bias", query),
        (layer + "self_attn.v_proj.weight", "blk.0.attn_v.weight", same),
        (layer + "self_attn.v_proj.bias", "blk.0.attn_v.bias", same),
        ("model.norm.weight", "output_norm.weight", same), ("lm_head.weight", "output.weight", same)])


def write_gpt2():
    hidden, vocabulary = 16, 19
    writer = gguf.GGUFWriter(FOLDER / "gpt2.gguf", "gpt2")
    writer.add_context_length(32)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4 * hidden)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-5)
    modules = [("wte", "token_embd", (vocabulary, hidden)), ("wpe", "position_embd", (32, hidden)),
               ("h.0.attn.c_attn", "blk.0.attn_qkv", (hidden, 3 * hidden)),
               ("h.0.attn.c_proj", "blk.0.attn_output", (hidden, hidden)),
               ("h.0.mlp.c_fc", "blk.0.ffn_up", (hidden, 4 * hidden)),
               ("h.0.mlp.c_proj", "blk.0.ffn_down", (4 * hidden, hidden)),
               ("h.0.ln_1", "blk.0.attn_norm", (hidden,)), ("h.0.ln_2", "blk.0.ffn_norm", (hidden,)),
               ("ln_f", "output_norm", (hidden,))]
    tensors, to_gguf = {}, []
    for hub, own, shape in modules:
        hub = "transformer." + hub
        conv = len(shape) == 2 and ".h." in hub
        tensors[hub + ".weight"] = matrix(*shape) if len(shape) == 2 else vector(*shape)
        to_gguf.append((hub + ".weight", own + ".weight", np.transpose if conv else same))
        if ".h." in hub or "ln_f" in hub:
            tensors[hub + ".bias"] = vector(shape[-1])
            to_gguf.append((hub + ".bias", own + ".bias", same))
    write_model("gpt2", writer, tensors, to_gguf)


FOLDER.mkdir(exist_ok=True)
write_quants()
write_llama()
write_gpt2()
