"""Configs as transformers wrote them before version 5, and most model directories still have them."""

import copy

import transformers


def rope_of(parameters):
    """`rope_scaling`: the parameters but for those that had keys of their own; null when default."""
    scaling = {key: value for key, value in parameters.items()
               if key not in ("rope_theta", "partial_rotary_factor")}
    return None if scaling["rope_type"] == "default" else scaling


def legacy_config(config):
    """`config` (a config.json of transformers 5) in the older form, which means the same."""
    legacy = {key: value for key, value in config.items()
              if key not in ("rope_parameters", "dtype", "_sliding_window_pattern")}
    legacy["torch_dtype"] = "float32"
    legacy["transformers_version"] = "4.40.0"
    family = config["model_type"]
    rope = config.get("rope_parameters")
    if family == "gpt2":
        return legacy
    if family == "gemma3_text":
        legacy["rope_theta"] = rope["full_attention"]["rope_theta"]
        legacy["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        legacy["rope_scaling"] = rope_of(rope["full_attention"])
        if rope_of(rope["sliding_attention"]):  # there was no key for that
            legacy["rope_parameters"] = rope
            for key in ("rope_theta", "rope_local_base_freq", "rope_scaling"):
                del legacy[key]
        layers = config["layer_types"]
        for pattern in range(1, len(layers) + 1):
            if layers == ["full_attention" if i % pattern == 0 else "sliding_attention"
                          for i in range(1, len(layers) + 1)]:
                legacy["sliding_window_pattern"] = pattern
                del legacy["layer_types"]
                break
    else:
        scaling = rope_of(rope)
        if scaling and family != "llama":
            scaling["type"] = scaling.pop("rope_type")
            if family == "phi3":  # it is beside rope_scaling
                del scaling["original_max_position_embeddings"]
        legacy["rope_scaling"] = scaling
        if family == "gpt_neox":
            legacy["rotary_emb_base"] = rope["rope_theta"]
            legacy["rotary_pct"] = rope["partial_rotary_factor"]
        else:
            legacy["rope_theta"] = rope["rope_theta"]
            if "partial_rotary_factor" in rope:
                legacy["partial_rotary_factor"] = rope["partial_rotary_factor"]
    again = transformers.AutoConfig.for_model(**copy.deepcopy(legacy)).to_dict()
    ours = transformers.AutoConfig.for_model(**copy.deepcopy(config)).to_dict()
    for key in ("rope_parameters", "layer_types"):
        mine, theirs = again.get(key), ours.get(key)
        if isinstance(mine, dict):
            mine = {k: v for k, v in mine.items() if k != "type"}
        assert mine == theirs, (key, mine, theirs)
    return legacy
