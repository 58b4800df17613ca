#include "engine/data/gguf_pre_tokenizers.h"

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Of those that mean the same the first is written.
constexpr GgufPreTokenizer kKnown[] = {
    {.name = "gpt-2"},
    {.name = "llama-bpe", .pattern = kLlama3, .ignore_merges = true},
    {.name = "llama3", .pattern = kLlama3, .ignore_merges = true},
    {.name = "llama-v3", .pattern = kLlama3, .ignore_merges = true},
    {.name = "falcon3", .pattern = kLlama3, .ignore_merges = true},
    {.name = "dbrx", .pattern = kLlama3},
    {.name = "smaug-bpe", .pattern = kLlama3},
    {.name = "smollm", .digits = true},
    {.name = "starcoder", .digits = true},
    {.name = "refact", .digits = true},
    {.name = "qwen2", .pattern = kQwen2, .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2, .nfc = true},
    {.name = "tekken", .pattern = kTekken, .ignore_merges = true},
    {.name = "gpt-4o", .pattern = kGpt4o},
    {.name = "llama4", .pattern = kGpt4o},
    {.name = "olmo", .nfc = true},
    {.name = "mpt", .nfc = true},
};

// What the steps of a pre-tokenizer come to; `problem` is not empty where no name has it.
struct Cut {
  bool digits = false, gpt2 = false, byte_level = false;
  std::string pattern, problem;
};

// The patterns above match all of a text, so that what lies between matches may be removed too.
bool CutsAtMatches(const json& step) {
  return step.value("behavior", "") == (step.value("invert", false) ? "Removed" : "Isolated");
}

void AddStep(const json& step, Cut* cut) {
  const std::string type = step.value("type", "");
  if (type == "Sequence" && step.value("pretokenizers", json()).is_array()) {
    for (const json& part : step["pretokenizers"]) AddStep(part, cut);
  } else if (cut->byte_level) {
    cut->problem = "steps behind ByteLevel";
  } else if (type == "Digits" && step.value("individual_digits", false) && cut->pattern.empty()) {
    cut->digits = true;
  } else if (type == "Split" && cut->pattern.empty() && !cut->digits && CutsAtMatches(step) &&
             step.value("pattern", json()).contains("Regex")) {
    cut->pattern = step.at("pattern").at("Regex").get<std::string>();
  } else if (type == "ByteLevel") {
    cut->byte_level = true;
    cut->gpt2 = step.value("use_regex", true);
    if (step.value("add_prefix_space", true)) cut->problem = "a prefix space";
    if (cut->gpt2 && !cut->pattern.empty()) cut->problem = "two patterns";
  } else {
    cut->problem = absl::StrCat("step \"", type, "\" as it is there");
  }
}

}  // namespace

const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name) {
  for (const GgufPreTokenizer& known : kKnown) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::string GgufPreTokenizerNames() {
  std::string names;
  for (const GgufPreTokenizer& known : kKnown) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", known.name);
  }
  return names;
}

json NormalizerOf(const GgufPreTokenizer& pre) {
  return pre.nfc ? json{{"type", "NFC"}} : json(nullptr);
}

json PreTokenizerOf(const GgufPreTokenizer& pre) {
  json steps = json::array();
  if (pre.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!pre.pattern.empty()) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(pre.pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", pre.pattern.empty()}});
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

absl::StatusOr<const GgufPreTokenizer*> MatchGgufPreTokenizer(const json& tokenizer) {
  const auto refuse = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("GGUF has no name for ", what));
  };
  json normalizer = tokenizer.value("normalizer", json());
  if (normalizer.is_object() && normalizer.value("type", "") == "Sequence" &&
      normalizer.value("normalizers", json()).size() == 1) {
    normalizer = json(normalizer["normalizers"][0]);
  }
  const bool nfc = normalizer.is_object() && normalizer.value("type", "") == "NFC";
  if (!nfc && !normalizer.is_null()) return refuse("this normalizer of a byte-level tokenizer");
  const json pre_tokenizer = tokenizer.value("pre_tokenizer", json());
  Cut cut;
  AddStep(pre_tokenizer, &cut);
  if (!cut.problem.empty()) return refuse(absl::StrCat("this pre-tokenizer: ", cut.problem));
  const bool ignore_merges = tokenizer["model"].value("ignore_merges", false);
  // Without merges every way to cut gives the bytes.
  const bool no_merges = tokenizer["model"].value("merges", json()).empty();
  for (const GgufPreTokenizer& known : kKnown) {
    const bool same = known.digits == cut.digits && known.pattern == cut.pattern &&
                      known.pattern.empty() == cut.gpt2 && known.nfc == nfc &&
                      known.ignore_merges == ignore_merges;
    if (same || (no_merges && !nfc && known.name == "gpt-2")) return &known;
  }
  return refuse(
      absl::StrCat("this pre-tokenizer",
                   cut.pattern.empty() ? "" : absl::StrCat(", which cuts by ", cut.pattern),
                   nfc ? ", with NFC" : "", ignore_merges ? ", with ignore_merges" : ""));
}

}  // namespace millrace
