"""What a config.json of each family may say, and what of it the model's code looks at.

configs/fields.json, for each family:
- fields: the fields of its config class, with their defaults;
- older: keys of older files that the class turns into fields;
- read: names that the code of the model takes from the config;
- rope: keys of rope_parameters and rope_scaling.
"""

import dataclasses
import inspect
import json
import re

import transformers

FAMILIES = ["gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text",
            "phi3", "olmo2"]


def jsonable(value):
    return value if isinstance(value, (type(None), bool, int, float, str, list, dict)) else str(value)


def fields_of(family):
    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[family]
    model_class = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING[config_class]
    fields = {field.name: jsonable(field.default) for field in dataclasses.fields(config_class)
              if field.default is not dataclasses.MISSING}
    older = set(config_class.attribute_map)
    for ancestor in config_class.__mro__:
        for name in ("__post_init__", "convert_rope_params_to_dict"):
            if name in vars(ancestor):
                code = inspect.getsource(getattr(ancestor, name))
                older |= set(re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"', code))
    code = inspect.getsource(inspect.getmodule(model_class))
    read = set(re.findall(r"config\.([a-z]\w*)", code))
    read |= set(re.findall(r'getattr\(\s*(?:self\.)?config,\s*"(\w+)"', code))
    rope = transformers.modeling_rope_utils.RopeParameters.__annotations__
    return dict(fields=fields, older=sorted(older - set(fields)), read=sorted(read),
                rope=sorted(rope))


def write_fields(folder):
    folder.mkdir(exist_ok=True)
    text = json.dumps({family: fields_of(family) for family in FAMILIES}, indent=1)
    (folder / "fields.json").write_text(text + "\n")
