#include "engine/model/families.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/model/config_keys.h"
#include "engine/model/config_reader.h"
#include "engine/model/family_table.h"
#include "engine/model/layer_types.h"
#include "engine/model/rope_config.h"

namespace millrace {
namespace {

using nlohmann::json;

struct ActivationName {
  absl::string_view name;
  ActivationKind kind;
};

// As transformers names them; of several that are the same in f32, the first is written.
constexpr ActivationName kActivationNames[] = {
    {"silu", ActivationKind::kSilu},
    {"swish", ActivationKind::kSilu},
    {"gelu", ActivationKind::kGelu},
    {"gelu_python", ActivationKind::kGelu},
    {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
    {"gelu_new", ActivationKind::kGeluTanh},
    {"gelu_fast", ActivationKind::kGeluTanh},
    {"gelu_accurate", ActivationKind::kGeluTanh},
    {"gelu_python_tanh", ActivationKind::kGeluTanh},
    {"relu", ActivationKind::kRelu},
};

const ActivationName* FindActivation(const json& value) {
  for (const ActivationName& activation : kActivationNames) {
    if (value == std::string(activation.name)) return &activation;
  }
  return nullptr;
}

std::string Choices(const std::vector<json>& allowed) {
  return absl::StrJoin(allowed, " or ", [](std::string* out, const json& value) {
    absl::StrAppend(out, Show(value));
  });
}

// Reads one config by the rows of its family, collecting what is wrong.
class ConfigParser {
 public:
  ConfigParser(const json& config, const FamilyKeys& family, std::vector<FieldProblem>& problems,
               std::vector<FieldProblem>* notes)
      : reader_(config, problems), family_(family), notes_(notes) {}

  ModelSpec Parse(std::optional<int64_t> tokenizer_vocab) {
    spec_ = family_.base;
    for (const WholeKey& key : family_.wholes) ReadWhole(key);
    for (const RealKey& key : family_.reals) ReadReal(key);
    for (const SwitchKey& key : family_.switches) {
      const bool on = reader_.Switch(key.name, key.fallback);
      for (bool ModelSpec::*member : key.members) spec_.*member = on;
    }
    ReadActivation();
    for (const DropoutKey& key : family_.dropouts) CheckDropout(key);
    for (const FixedKey& key : family_.fixed) CheckFixed(key);
    CheckUnknownKeys();
    DeriveVocabulary(tokenizer_vocab);
    if (family_.read_own) family_.read_own(reader_, spec_);
    if (!reader_.has_problems()) DeriveShape();
    if (!reader_.has_problems()) ReadWindow(family_.window, reader_, spec_);
    if (!reader_.has_problems() && spec_.position == PositionKind::kRotary) {
      ReadRope(family_.rope, reader_, spec_);
    }
    return spec_;
  }

 private:
  void ReadWhole(const WholeKey& key) {
    const bool has_name = reader_.Find(key.name) != nullptr;
    const absl::string_view name = has_name || key.alias.empty() ? key.name : key.alias;
    const json* value = reader_.Find(name);
    if (!value) {
      const bool is_zero = key.null == Null::kZero && reader_.IsNull(key.name);
      spec_.*key.member = is_zero ? 0 : key.fallback;  // 0: derived from others later
      return;
    }
    spec_.*key.member = reader_.Whole(*value, name, 1, key.most);
    const json* other = has_name ? reader_.Find(key.alias) : nullptr;
    if (other && *other != *value) {
      reader_.Complain(key.alias,
                       absl::StrCat(Show(*other), " differs from ", key.name, " (", Show(*value),
                                    "), its other name; give one of them"));
    }
  }

  void ReadReal(const RealKey& key) {
    const json* value = reader_.Find(key.name);
    const bool is_zero = key.null == Null::kZero && reader_.IsNull(key.name);
    spec_.*key.member = value     ? reader_.Real(*value, key.name, key.least, key.most)
                        : is_zero ? 0.0
                                  : key.fallback;
  }

  void ReadActivation() {
    const ActivationKey& key = family_.activation;
    const json* given = reader_.Find(key.name);
    const json value = given ? *given : json(std::string(key.fallback));
    const ActivationName* activation = FindActivation(value);
    if (!activation) {
      const std::string choices =
          absl::StrJoin(kActivationNames, ", ", [](std::string* out, const ActivationName& choice) {
            absl::StrAppend(out, choice.name);
          });
      reader_.Complain(key.name,
                       absl::StrCat(Show(value), " is not supported; choose one of ", choices));
      return;
    }
    spec_.activation = activation->kind;
    const json* other = key.beside.empty() ? nullptr : reader_.Find(key.beside);
    if (!other) return;
    const ActivationName* same = FindActivation(*other);
    if (!same || same->kind != activation->kind) {
      reader_.Complain(key.beside, absl::StrCat(Show(*other), " differs from ", key.name, " (",
                                                Show(value), "), which counts; remove it"));
    }
  }

  void CheckDropout(const DropoutKey& key) {
    const json* value = reader_.Find(key.name);
    if (!value || *value == 0.0) return;
    if (notes_ && value->is_number() && *value > 0.0 && *value < 1.0) {
      notes_->push_back(
          {std::string(key.name), absl::StrCat(Show(*value), ": training goes without dropout")});
      return;
    }
    reader_.Complain(key.name, absl::StrCat(Show(*value),
                                            " is not supported (dropout); set it to 0.0 or "
                                            "leave it out"));
  }

  void CheckFixed(const FixedKey& key) {
    const json* value = reader_.Find(key.name);
    if (!value || std::find(key.allowed.begin(), key.allowed.end(), *value) != key.allowed.end()) {
      return;
    }
    reader_.Complain(
        key.name,
        absl::StrCat(Show(*value), " is not supported (", key.meaning, "); set it to ",
                     key.allowed.empty() ? "null" : Choices(key.allowed), " or leave it out"));
  }

  void CheckUnknownKeys() {
    const std::vector<absl::string_view> known = KnownKeys(family_);
    for (const auto& [key, value] : reader_.config().items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const absl::string_view close = ClosestKey(key, known);
      reader_.Complain(
          key,
          absl::StrCat("is not a key of a ", family_.model_type, " config; ",
                       close.empty() ? "remove it" : absl::StrCat("did you mean ", close, "?")));
    }
  }

  void DeriveVocabulary(std::optional<int64_t> tokenizer_vocab) {
    if (!tokenizer_vocab) return;
    if (!reader_.Find("vocab_size")) {
      spec_.vocab_size = *tokenizer_vocab;
    } else if (spec_.vocab_size < *tokenizer_vocab) {
      reader_.Complain("vocab_size",
                       absl::StrCat(spec_.vocab_size, " is less than the tokenizer's vocabulary (",
                                    *tokenizer_vocab, "); raise it or leave it out"));
    }
  }

  // Fills in what follows from other fields and checks that the fields fit each other.
  void DeriveShape() {
    if (spec_.num_kv_heads == 0) spec_.num_kv_heads = spec_.num_heads;
    if (spec_.intermediate_size == 0) spec_.intermediate_size = 4 * spec_.hidden_size;
    const absl::string_view heads = family_.KeyOf(&ModelSpec::num_heads);
    if (spec_.head_dim == 0) {
      if (spec_.hidden_size % spec_.num_heads != 0) {
        const bool may_give = !family_.KeyOf(&ModelSpec::head_dim).empty();
        reader_.Complain(
            family_.KeyOf(&ModelSpec::hidden_size),
            absl::StrCat(spec_.hidden_size, " is not divisible by ", heads, " (", spec_.num_heads,
                         "); choose a multiple", may_give ? " or give head_dim" : ""));
        return;
      }
      spec_.head_dim = spec_.hidden_size / spec_.num_heads;
    }
    if (spec_.attention_scale == 0.0) {
      spec_.attention_scale = 1.0 / std::sqrt(static_cast<double>(spec_.head_dim));
    }
    if (spec_.position == PositionKind::kRotary && spec_.head_dim % 2 != 0) {
      reader_.Complain(
          reader_.Find("head_dim") ? "head_dim" : family_.KeyOf(&ModelSpec::hidden_size),
          absl::StrCat("heads are ", spec_.head_dim,
                       " wide; rotary position embedding needs an even width"));
    }
    if (spec_.num_heads % spec_.num_kv_heads != 0) {
      reader_.Complain(family_.KeyOf(&ModelSpec::num_kv_heads),
                       absl::StrCat(spec_.num_kv_heads, " does not divide ", heads, " (",
                                    spec_.num_heads, "); choose a divisor"));
    }
  }

  ConfigReader reader_;
  const FamilyKeys& family_;
  std::vector<FieldProblem>* notes_;
  ModelSpec spec_;
};

// The family's own name for it where that is one.
absl::string_view NameOf(const ActivationKey& key, ActivationKind kind) {
  const ActivationName* fallback = FindActivation(std::string(key.fallback));
  if (fallback && fallback->kind == kind) return key.fallback;
  for (const ActivationName& activation : kActivationNames) {
    if (activation.kind == kind) return activation.name;
  }
  return key.fallback;
}

const FamilyKeys* FindFamily(absl::string_view model_type) {
  for (const FamilyKeys& family : FamilyTable()) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

// The family that `config` names; nullptr with a problem when it names none.
const FamilyKeys* FamilyOf(const json& config, std::vector<FieldProblem>& problems) {
  if (!config.is_object()) {
    problems.push_back({"config", absl::StrCat(Show(config), " is not an object with model_type")});
    return nullptr;
  }
  const std::string choices = absl::StrJoin(FamilyNames(), ", ");
  const auto model_type = config.find("model_type");
  if (model_type == config.end()) {
    problems.push_back({"model_type", absl::StrCat("is missing; give one of: ", choices)});
    return nullptr;
  }
  const FamilyKeys* family =
      model_type->is_string() ? FindFamily(model_type->get<std::string>()) : nullptr;
  if (!family) {
    problems.push_back({"model_type", absl::StrCat(Show(*model_type),
                                                   " is not a family that is supported; "
                                                   "choose one of: ",
                                                   choices)});
  }
  return family;
}

}  // namespace

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const FamilyKeys& family : FamilyTable()) names.emplace_back(family.model_type);
  return names;
}

absl::StatusOr<ModelSpec> ParseModelConfig(const json& config,
                                           std::optional<int64_t> tokenizer_vocab,
                                           std::vector<FieldProblem>* problems,
                                           std::vector<FieldProblem>* notes) {
  std::vector<FieldProblem> found;
  ModelSpec spec;
  if (const FamilyKeys* family = FamilyOf(config, found)) {
    spec = ConfigParser(config, *family, found, notes).Parse(tokenizer_vocab);
  }
  absl::Status status = StatusOf(found);
  if (problems) *problems = std::move(found);
  if (!status.ok()) return status;
  return spec;
}

json WriteModelConfig(const ModelSpec& spec, const WriteConfigOptions& options) {
  const FamilyKeys* family = FindFamily(spec.model_type);
  if (!family) family = &FamilyTable().front();
  // Token ids are written even where there are none: a class's own may be outside the vocabulary.
  json config = {{"architectures", {family->architecture}},
                 {"model_type", family->model_type},
                 {"torch_dtype", options.torch_dtype},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", nullptr},
                 {"pad_token_id", nullptr},
                 {"use_cache", true}};
  if (options.end_of_document) {
    config["bos_token_id"] = options.begin_of_document.value_or(*options.end_of_document);
    config["eos_token_id"] = *options.end_of_document;
  }
  for (const WholeKey& key : family->wholes) config[std::string(key.name)] = spec.*key.member;
  for (const RealKey& key : family->reals) {
    const bool is_null = key.null == Null::kZero && spec.*key.member == 0.0;
    config[std::string(key.name)] = is_null ? json() : json(spec.*key.member);
  }
  for (const SwitchKey& key : family->switches) {
    config[std::string(key.name)] = spec.*key.members.front();
  }
  config[std::string(family->activation.name)] =
      std::string(NameOf(family->activation, spec.activation));
  for (const DropoutKey& key : family->dropouts) {
    if (key.is_written) config[std::string(key.name)] = 0.0;
  }
  WriteWindow(family->window, spec, config);
  if (spec.position == PositionKind::kRotary) WriteRope(family->rope, spec, config);
  if (family->write_own) family->write_own(spec, config);
  return config;
}

}  // namespace millrace
