"""The models of make_golden.py: every family, and every setting that changes its mathematics.

A model is tiny, and of shapes that do not hide mistakes: fewer key/value heads than heads, heads
that are not hidden_size / heads wide where the family allows it, windows shorter than documents,
soft caps that bite.
"""

import dataclasses

import transformers

VOCAB = 37


@dataclasses.dataclass
class Model:
    config: transformers.PreTrainedConfig
    # Each, laid over the config, must change the logits: the proof that a setting is at work.
    contrasts: list = dataclasses.field(default_factory=list)
    # Of tests/golden/batches. "whole": one document as long as the micro-batch, for rotary
    # embeddings that depend on the longest position.
    batches: str = "packed"
    prompt_length: int = 9


NO_SPECIAL_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)


def rope(rope_type="default", rope_theta=500.0, **parameters):
    """A new dict each time: configs write into what they are given."""
    return dict(rope_parameters=dict(rope_type=rope_type, rope_theta=rope_theta, **parameters))


def layers(pattern):
    kinds = dict(s="sliding_attention", f="full_attention")
    return dict(layer_types=[kinds[kind] for kind in pattern])


def gpt2(**changes):
    return transformers.GPT2Config(**(dict(
        vocab_size=VOCAB, n_embd=12, n_layer=2, n_head=3, n_inner=20, n_positions=48,
        layer_norm_epsilon=1e-3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        **NO_SPECIAL_TOKENS) | changes))


def gpt_neox(**changes):
    return transformers.GPTNeoXConfig(**(dict(
        vocab_size=VOCAB, hidden_size=12, intermediate_size=18, num_hidden_layers=2,
        num_attention_heads=3, max_position_embeddings=48, layer_norm_eps=1e-3,
        **NO_SPECIAL_TOKENS) | changes))


def llama_like(config_class, **changes):
    """Heads wider than hidden_size / num_attention_heads, unless told `head_dim=None`."""
    parameters = dict(
        vocab_size=VOCAB, hidden_size=12, intermediate_size=14, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=48,
        rms_norm_eps=1e-3, **NO_SPECIAL_TOKENS) | changes
    if parameters["head_dim"] is None:  # not every class has the field, but all models look for it
        del parameters["head_dim"]
    return config_class(**parameters)


def llama(**changes):
    return llama_like(transformers.LlamaConfig, **changes)


def mistral(**changes):
    return llama_like(transformers.MistralConfig, **changes)


def qwen2(**changes):
    return llama_like(transformers.Qwen2Config, **changes)


def qwen3(**changes):
    return llama_like(transformers.Qwen3Config, **changes)


def olmo2(**changes):
    return llama_like(transformers.Olmo2Config, **changes)


# Heads wide enough for several frequencies, and few of them.
WIDE_HEADS = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=12)


def gemma2(**changes):
    return llama_like(transformers.Gemma2Config, **(dict(
        hidden_size=10, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, query_pre_attn_scalar=11, sliding_window=7, attn_logit_softcapping=2.0,
        final_logit_softcapping=5.0) | changes))


def gemma3(**changes):
    return llama_like(transformers.Gemma3TextConfig, **(dict(
        hidden_size=10, intermediate_size=12, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, query_pre_attn_scalar=5, sliding_window=7,
        sliding_window_pattern=3) | changes))


def gemma3_rope(full=None, sliding=None):
    return dict(rope_parameters=dict(
        full_attention=full or dict(rope_type="linear", factor=3.0, rope_theta=2000.0),
        sliding_attention=sliding or dict(rope_type="default", rope_theta=50.0)))


def phi3(**changes):
    return llama_like(transformers.Phi3Config, **(dict(
        hidden_size=16, head_dim=None, original_max_position_embeddings=48) | changes))


def phi3_long(original, maximum, **parameters):
    """longrope over 6 of the 8 dimensions of each head."""
    return phi3(
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=maximum,
        original_max_position_embeddings=original, tie_word_embeddings=True,
        **rope("longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.25, 1.75],
               long_factor=[1.5, 3.0, 5.0], **parameters))


YARN = dict(factor=4.0, original_max_position_embeddings=24)
YARN_BETAS = YARN | dict(beta_fast=6.0, beta_slow=0.5)

MODELS = {
    "gpt2": Model(gpt2(n_inner=None, layer_norm_epsilon=1e-5), [dict(activation_function="gelu")]),
    "gpt2_layer_scaling": Model(
        gpt2(n_layer=3, activation_function="gelu", tie_word_embeddings=False,
             scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True),
        [dict(scale_attn_by_inverse_layer_idx=False), dict(activation_function="gelu_new")]),
    "gpt2_unscaled_relu": Model(
        gpt2(activation_function="relu", scale_attn_weights=False),
        [dict(scale_attn_weights=True), dict(activation_function="gelu")]),
    "gpt2_silu": Model(gpt2(activation_function="silu"), [dict(activation_function="gelu")]),

    "gpt_neox": Model(
        gpt_neox(hidden_size=16, num_attention_heads=2),  # a quarter of 8 dimensions rotates
        [dict(use_parallel_residual=False), rope(rope_theta=10000.0, partial_rotary_factor=0.5),
         dict(hidden_act="gelu_new")]),
    "gpt_neox_serial": Model(
        gpt_neox(use_parallel_residual=False, tie_word_embeddings=True, attention_bias=False,
                 hidden_act="gelu_new", **rope(partial_rotary_factor=0.5)),
        [dict(use_parallel_residual=True), dict(hidden_act="gelu")]),
    "gpt_neox_linear": Model(
        gpt_neox(hidden_act="relu", **rope("linear", factor=2.5, partial_rotary_factor=1.0)),
        [dict(hidden_act="gelu"), rope(partial_rotary_factor=1.0)]),

    "llama_gqa": Model(llama()),
    "llama_tied": Model(
        llama(num_key_value_heads=4, head_dim=None, hidden_size=16, tie_word_embeddings=True)),
    "llama_bias": Model(
        llama(num_key_value_heads=1, attention_bias=True, mlp_bias=True, **rope()),
        [rope(rope_theta=1000.0)]),
    "llama_gelu": Model(
        llama(hidden_act="gelu"), [dict(hidden_act="gelu_pytorch_tanh"), dict(hidden_act="silu")]),
    "llama_gelu_tanh": Model(
        llama(hidden_act="gelu_pytorch_tanh", mlp_bias=True), [dict(hidden_act="gelu")]),
    "llama_relu": Model(llama(hidden_act="relu", attention_bias=True), [dict(hidden_act="gelu")]),
    "llama_linear": Model(llama(**WIDE_HEADS, **rope("linear", factor=2.5)), [rope()]),
    "llama_dynamic": Model(
        llama(**WIDE_HEADS, max_position_embeddings=32, **rope("dynamic", factor=2.0)), [rope()],
        batches="whole", prompt_length=8),  # the text is as long as max_position_embeddings
    "llama_yarn": Model(
        llama(**WIDE_HEADS, **rope("yarn", rope_theta=10000.0, **YARN)),
        [rope(rope_theta=10000.0)]),
    "llama_yarn_factor": Model(
        llama(**WIDE_HEADS, **rope("yarn", **YARN_BETAS, attention_factor=0.8, truncate=False)),
        [rope("yarn", **YARN_BETAS, attention_factor=0.8),
         rope("yarn", **YARN_BETAS, truncate=False),
         rope("yarn", **YARN, attention_factor=0.8, truncate=False)]),
    "llama_yarn_mscale": Model(
        llama(**WIDE_HEADS, **rope("yarn", **YARN, mscale=1.5, mscale_all_dim=0.5)),
        [rope("yarn", **YARN)]),
    "llama_llama3": Model(
        llama(**WIDE_HEADS, **rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=32)),
        [rope()]),

    "mistral": Model(
        mistral(sliding_window=7, **rope()), [dict(sliding_window=None), dict(sliding_window=8)]),
    "mistral_full": Model(
        mistral(sliding_window=None, hidden_act="gelu", tie_word_embeddings=True,
                num_hidden_layers=3)),

    "qwen2": Model(
        qwen2(hidden_size=16, head_dim=None, tie_word_embeddings=True, sliding_window=7)),
    "qwen2_window": Model(
        qwen2(num_hidden_layers=3, use_sliding_window=True, sliding_window=7, max_window_layers=1),
        [dict(use_sliding_window=False, layer_types=None), layers("sss")]),
    "qwen2_yarn": Model(
        qwen2(**WIDE_HEADS, use_sliding_window=True, sliding_window=5, **layers("sf"),
              **rope("yarn", **YARN)),
        [rope(), layers("fs")]),

    "qwen3": Model(qwen3(tie_word_embeddings=True)),
    "qwen3_window": Model(
        qwen3(num_hidden_layers=3, attention_bias=True, use_sliding_window=True, sliding_window=6,
              hidden_act="gelu", **layers("sfs")),
        [dict(use_sliding_window=False, layer_types=None)]),

    "gemma2": Model(
        gemma2(),
        [dict(attn_logit_softcapping=None), dict(final_logit_softcapping=None),
         dict(query_pre_attn_scalar=8), layers("fff"), dict(sliding_window=6),
         dict(hidden_activation="silu")]),
    "gemma2_uncapped": Model(
        gemma2(attn_logit_softcapping=None, final_logit_softcapping=None, attention_bias=True,
               tie_word_embeddings=False, hidden_activation="gelu", num_hidden_layers=2,
               **layers("fs"), **rope("linear", factor=2.5)),
        [layers("sf"), rope(), dict(hidden_activation="gelu_pytorch_tanh")]),

    "gemma3_text": Model(
        gemma3(**gemma3_rope()),
        [layers("ffff"), dict(query_pre_attn_scalar=6),
         gemma3_rope(full=dict(rope_type="default", rope_theta=2000.0)),
         gemma3_rope(sliding=dict(rope_type="default", rope_theta=2000.0))]),
    "gemma3_text_capped": Model(
        gemma3(final_logit_softcapping=4.0, attention_bias=True, tie_word_embeddings=False,
               hidden_activation="gelu", num_hidden_layers=2, **layers("fs")),
        [dict(final_logit_softcapping=None), dict(hidden_activation="gelu_pytorch_tanh")]),
    "gemma3_text_yarn": Model(
        gemma3(num_hidden_layers=2, **layers("fs"), **gemma3_rope(
            full=dict(rope_type="yarn", rope_theta=500.0, **YARN),
            sliding=dict(rope_type="linear", rope_theta=50.0, factor=2.0))),
        [gemma3_rope(sliding=dict(rope_type="linear", rope_theta=50.0, factor=2.0)),
         gemma3_rope(full=dict(rope_type="yarn", rope_theta=500.0, **YARN))]),

    "phi3": Model(
        phi3(sliding_window=7, **rope()),
        [dict(sliding_window=None), rope(partial_rotary_factor=0.5)]),
    "phi3_partial": Model(
        phi3(hidden_act="gelu", **rope(partial_rotary_factor=0.5)),
        [rope(), dict(hidden_act="silu")]),
    "phi3_longrope_short": Model(
        phi3_long(original=64, maximum=256), [rope(partial_rotary_factor=0.75)], batches="whole"),
    "phi3_longrope_long": Model(
        phi3_long(original=16, maximum=64), [rope(partial_rotary_factor=0.75)], batches="whole",
        prompt_length=20),
    "phi3_longrope_factor": Model(
        phi3_long(original=16, maximum=64, attention_factor=0.7),
        [rope(partial_rotary_factor=0.75)], batches="whole", prompt_length=20),

    "olmo2": Model(olmo2(hidden_size=16, head_dim=None, **rope()), [rope(rope_theta=1000.0)]),
    "olmo2_bias": Model(
        olmo2(attention_bias=True, tie_word_embeddings=True, hidden_act="gelu",
              num_key_value_heads=1, **rope("linear", factor=2.5)),
        [rope(), dict(hidden_act="silu")]),
}
