#include "engine/model/families.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/model/config_keys.h"

namespace millrace {
namespace {

using nlohmann::json;

// Reads one config by the rows of its family, collecting what is wrong.
class ConfigParser {
 public:
  ConfigParser(const json& config, const FamilyKeys& family, std::vector<FieldProblem>& problems)
      : config_(config), family_(family), problems_(problems) {}

  ModelSpec Parse(std::optional<int64_t> tokenizer_vocab) {
    spec_ = family_.base;
    for (const WholeKey& key : family_.wholes) ReadWhole(key);
    for (const RealKey& key : family_.reals) ReadReal(key);
    for (const SwitchKey& key : family_.switches) ReadSwitch(key);
    for (const FixedKey& key : family_.fixed) CheckFixed(key);
    ReadRotary();
    CheckUnknownKeys();
    DeriveVocabulary(tokenizer_vocab);
    if (problems_.empty()) CheckShape();
    return spec_;
  }

 private:
  void Complain(absl::string_view field, std::string message) {
    problems_.push_back({std::string(field), std::move(message)});
  }

  // The value of a key or of its other name; nullptr when absent or null.
  const json* Find(absl::string_view key, absl::string_view alias = "") {
    for (absl::string_view name : {key, alias}) {
      const auto found = config_.find(std::string(name));
      if (name.empty() || found == config_.end() || found->is_null()) continue;
      name_ = std::string(name);
      return &*found;
    }
    name_ = std::string(key);
    return nullptr;
  }

  void ReadWhole(const WholeKey& key) {
    const json* value = Find(key.name, key.alias);
    if (!value) {
      spec_.*key.member = key.fallback;  // 0: derived from others later
      return;
    }
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= 1 && number <= static_cast<double>(key.most)) || number != std::floor(number)) {
      Complain(name_, absl::StrCat(Show(*value), " is not a whole number from 1 to ", key.most));
      return;
    }
    spec_.*key.member = static_cast<int64_t>(number);
    if (!key.alias.empty() && name_ == key.name) {
      const json* other = Find(key.alias);
      if (other && *other != *value) {
        Complain(key.alias, absl::StrCat(Show(*other), " differs from ", key.name, " (",
                                         Show(*value), "), its other name; give one of them"));
      }
    }
  }

  void ReadReal(const RealKey& key) {
    const json* value = Find(key.name);
    spec_.*key.member = value ? ToReal(*value, key.name, key.least, key.most) : key.fallback;
  }

  double ToReal(const json& value, absl::string_view field, double least, double most) {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (number >= least && number <= most) return number;
    Complain(field, absl::StrCat(Show(value), " is not a number from ", least, " to ", most));
    return least;
  }

  void ReadSwitch(const SwitchKey& key) {
    const json* value = Find(key.name);
    bool on = key.fallback;
    if (value && value->is_boolean()) {
      on = value->get<bool>();
    } else if (value) {
      Complain(key.name, absl::StrCat(Show(*value), " is not true or false"));
    }
    for (bool ModelSpec::*member : key.members) spec_.*member = on;
  }

  void CheckFixed(const FixedKey& key) {
    const json* value = Find(key.name);
    if (!value) return;
    for (const json& allowed : key.allowed) {
      if (*value == allowed) return;
    }
    const std::string choices = absl::StrJoin(
        key.allowed, " or ",
        [](std::string* out, const json& allowed) { absl::StrAppend(out, Show(allowed)); });
    Complain(key.name,
             absl::StrCat(Show(*value), " is not supported (", key.meaning, "); set it to ",
                          choices.empty() ? "null" : choices, " or leave it out"));
  }

  // `rope_theta` and `rope_scaling`, or, as newer configs write them, `rope_parameters`.
  void ReadRotary() {
    if (spec_.position != PositionKind::kRotary) return;
    if (const json* theta = Find("rope_theta")) {
      spec_.rotary.theta = ToReal(*theta, "rope_theta", kLeastRotaryTheta, kMostRotaryTheta);
    }
    const json* parameters = Find("rope_parameters");
    if (!parameters) return;
    if (!parameters->is_object()) {
      Complain("rope_parameters", absl::StrCat(Show(*parameters), " is not an object"));
      return;
    }
    for (const auto& [key, value] : parameters->items()) {
      const std::string field = absl::StrCat("rope_parameters.", key);
      if (key == "rope_theta") {
        const double theta = ToReal(value, field, kLeastRotaryTheta, kMostRotaryTheta);
        if (Find("rope_theta") && theta != spec_.rotary.theta) {
          Complain(field, absl::StrCat(theta, " differs from rope_theta (", spec_.rotary.theta,
                                       "); give one of them"));
        }
        spec_.rotary.theta = theta;
      } else if ((key == "rope_type" || key == "type")
                     ? value != "default"
                     : !(key == "partial_rotary_factor" && value == 1.0)) {
        Complain(field, absl::StrCat(Show(value),
                                     " is not supported (scaled or partial rotary embedding); only "
                                     "rope_type \"default\" with rope_theta is"));
      }
    }
  }

  void CheckUnknownKeys() {
    const std::vector<absl::string_view> known = KnownKeys(family_);
    for (const auto& [key, value] : config_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const absl::string_view close = ClosestKey(key, known);
      Complain(key, absl::StrCat(
                        "is not a key of a ", family_.model_type, " config; ",
                        close.empty() ? "remove it" : absl::StrCat("did you mean ", close, "?")));
    }
  }

  void DeriveVocabulary(std::optional<int64_t> tokenizer_vocab) {
    if (!Find("vocab_size")) {
      if (tokenizer_vocab) spec_.vocab_size = *tokenizer_vocab;
    } else if (tokenizer_vocab && spec_.vocab_size >= 1 && spec_.vocab_size < *tokenizer_vocab) {
      Complain("vocab_size",
               absl::StrCat(spec_.vocab_size, " is less than the tokenizer's vocabulary (",
                            *tokenizer_vocab, "); raise it or leave it out"));
    }
  }

  // Fills in what follows from other fields and checks that the fields fit each other.
  void CheckShape() {
    if (spec_.num_kv_heads == 0) spec_.num_kv_heads = spec_.num_heads;
    if (spec_.intermediate_size == 0) spec_.intermediate_size = 4 * spec_.hidden_size;
    const absl::string_view heads = family_.KeyOf(&ModelSpec::num_heads);
    if (spec_.head_dim == 0) {
      if (spec_.hidden_size % spec_.num_heads != 0) {
        const bool may_give = !family_.KeyOf(&ModelSpec::head_dim).empty();
        Complain(
            family_.KeyOf(&ModelSpec::hidden_size),
            absl::StrCat(spec_.hidden_size, " is not divisible by ", heads, " (", spec_.num_heads,
                         "); choose a multiple", may_give ? " or give head_dim" : ""));
        return;
      }
      spec_.head_dim = spec_.hidden_size / spec_.num_heads;
    }
    spec_.attention_scale = 1.0 / std::sqrt(static_cast<double>(spec_.head_dim));
    if (spec_.position == PositionKind::kRotary) spec_.rotary_width = spec_.head_dim;
    if (spec_.position == PositionKind::kRotary && spec_.head_dim % 2 != 0) {
      Complain(Find("head_dim") ? "head_dim" : family_.KeyOf(&ModelSpec::hidden_size),
               absl::StrCat("heads are ", spec_.head_dim,
                            " wide; rotary position embedding needs an even width"));
    }
    if (spec_.num_heads % spec_.num_kv_heads != 0) {
      Complain(family_.KeyOf(&ModelSpec::num_kv_heads),
               absl::StrCat(spec_.num_kv_heads, " does not divide ", heads, " (", spec_.num_heads,
                            "); choose a divisor"));
    }
  }

  const json& config_;
  const FamilyKeys& family_;
  std::vector<FieldProblem>& problems_;
  ModelSpec spec_;
  std::string name_;  // under which Find() looked last
};

const FamilyKeys* FindFamily(absl::string_view model_type) {
  for (const FamilyKeys& family : AllFamilyKeys()) {
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
  for (const FamilyKeys& family : AllFamilyKeys()) names.emplace_back(family.model_type);
  return names;
}

absl::StatusOr<ModelSpec> ParseModelConfig(const json& config,
                                           std::optional<int64_t> tokenizer_vocab,
                                           std::vector<FieldProblem>* problems) {
  std::vector<FieldProblem> found;
  ModelSpec spec;
  if (const FamilyKeys* family = FamilyOf(config, found)) {
    spec = ConfigParser(config, *family, found).Parse(tokenizer_vocab);
  }
  absl::Status status = StatusOf(found);
  if (problems) *problems = std::move(found);
  if (!status.ok()) return status;
  return spec;
}

json WriteModelConfig(const ModelSpec& spec, const WriteConfigOptions& options) {
  const FamilyKeys* family = FindFamily(spec.model_type);
  if (!family) family = &AllFamilyKeys().front();
  json config = {{"architectures", {family->architecture}},
                 {"model_type", family->model_type},
                 {"torch_dtype", options.torch_dtype},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", nullptr},
                 {"use_cache", true}};
  if (options.end_of_document) {
    config["bos_token_id"] = *options.end_of_document;
    config["eos_token_id"] = *options.end_of_document;
  }
  for (const WholeKey& key : family->wholes) config[std::string(key.name)] = spec.*key.member;
  for (const RealKey& key : family->reals) config[std::string(key.name)] = spec.*key.member;
  for (const SwitchKey& key : family->switches) {
    config[std::string(key.name)] = spec.*key.members.front();
  }
  if (spec.position == PositionKind::kRotary) config["rope_theta"] = spec.rotary.theta;
  for (const FixedKey& key : family->fixed) {
    if (!key.allowed.empty()) config[std::string(key.name)] = key.allowed.front();
  }
  return config;
}

}  // namespace millrace
