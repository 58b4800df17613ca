#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/json_file.h"
#include "engine/base/status_macros.h"
#include "engine/data/byte_pieces.h"
#include "engine/data/gguf_pre_tokenizers.h"
#include "engine/data/gguf_tokenizer.h"
#include "engine/data/post_processor.h"
#include "engine/data/sentencepiece_file.h"
#include "engine/data/unicode_text.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;
using Kind = SentencePieceModel::Kind;

constexpr char kMark[] = "\xe2\x96\x81";  // ▁
// Of tokens that nothing is merged into: below any other.
constexpr float kLeastScore = -1e7;
// All ways to cut a token in two are looked at.
constexpr size_t kMostTokenBytes = 1024;

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("GGUF has no word for ", what));
}

// The token that tokenizer_config.json has under `name`: a string, or an object with its content.
std::string Named(const json& config, const char* name) {
  json token = config.value(name, json());
  if (token.is_object()) token = token.value("content", json());
  return token.is_string() ? token.get<std::string>() : "";
}

std::optional<int64_t> IdOf(const std::string& token, const GgufTokenizer& gguf) {
  const auto found = std::find(gguf.tokens.begin(), gguf.tokens.end(), token);
  if (token.empty() || found == gguf.tokens.end()) return std::nullopt;
  return found - gguf.tokens.begin();
}

// Sets the ids of the special tokens that the config names, and what else it says. A token that
// texts begin with is the begin, whatever the config calls so.
void ReadConfig(const json& config, GgufTokenizer* gguf) {
  const auto find = [&](const char* name) { return IdOf(Named(config, name), *gguf); };
  const bool begins = gguf->add_begin.value_or(false) && gguf->begin_id.has_value();
  if (const auto id = find("bos_token"); id && !begins) gguf->begin_id = id;
  if (const auto id = find("eos_token")) gguf->end_id = id;
  if (const auto id = find("unk_token")) gguf->unknown_id = id;
  if (const auto id = find("pad_token")) gguf->padding_id = id;
  const json chat_template = config.value("chat_template", json());
  if (chat_template.is_string()) gguf->chat_template = chat_template.get<std::string>();
}

// Gives `id` a token; where others have none yet, they are unused ones.
absl::Status Put(int64_t id, const std::string& token, Kind kind, int64_t vocab_size,
                 GgufTokenizer* gguf) {
  if (id < 0 || id >= vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("token \"", token.substr(0, 100), "\" has id ",
                                                   id, ", but the model has ", vocab_size));
  }
  if (token.empty() || token.size() > kMostTokenBytes) {
    return Refuse(absl::StrCat("token ", id, ", which has ", token.size(), " bytes, not 1 to ",
                               kMostTokenBytes));
  }
  gguf->tokens[static_cast<size_t>(id)] = token;
  gguf->token_types[static_cast<size_t>(id)] = static_cast<int32_t>(kind);
  return absl::OkStatus();
}

void MakeUnused(int64_t vocab_size, GgufTokenizer* gguf) {
  for (int64_t id = 0; id < vocab_size; ++id) gguf->tokens.push_back(absl::StrCat("[PAD", id, "]"));
  gguf->token_types.assign(gguf->tokens.size(), static_cast<int32_t>(Kind::kUnused));
}

std::pair<std::string, std::string> PartsOf(const json& merge) {
  if (merge.is_array()) return {merge.at(0).get<std::string>(), merge.at(1).get<std::string>()};
  return absl::StrSplit(merge.get<std::string>(), absl::MaxSplits(' ', 1));
}

absl::Status ReadByteLevel(const json& file, GgufTokenizer* gguf) {
  MILLRACE_ASSIGN_OR_RETURN(const GgufPreTokenizer* pre, MatchGgufPreTokenizer(file));
  gguf->model = "gpt2";
  gguf->pre = std::string(pre->name);
  for (const json& merge : file.at("model").at("merges")) {
    const auto [left, right] = PartsOf(merge);
    gguf->merges.push_back(absl::StrCat(left, " ", right));
  }
  return absl::OkStatus();
}

// Whether spaces become "▁" and nothing else is done; with one before the text it sets `*prefix`.
bool OnlyMarksSpaces(const json& file, bool* prefix) {
  const json mark = kMark;
  json steps = file.value("normalizer", json());
  if (steps.is_object() && steps.value("type", "") == "Sequence") {
    steps = json(steps.at("normalizers"));
  } else {
    steps = steps.is_null() ? json::array() : json::array({steps});
  }
  bool marked = false;
  *prefix = false;
  for (const json& step : steps) {
    const std::string type = step.value("type", "");
    if (type == "Prepend" && step.value("prepend", json()) == mark) {
      *prefix = true;
    } else if (type == "Replace" && step.value("pattern", json()) == json{{"String", " "}} &&
               step.value("content", json()) == mark) {
      marked = true;
    } else {
      return false;
    }
  }
  const json pre = file.value("pre_tokenizer", json());
  // Gemma's: there is no space left to cut at.
  const bool nothing = pre.is_object() && pre.value("type", "") == "Split" &&
                       pre.value("pattern", json()) == json{{"String", " "}};
  if (pre.is_null() || nothing) return marked;
  if (marked || pre.value("type", "") != "Metaspace" || pre.value("replacement", json()) != mark ||
      pre.value("split", true)) {
    return false;
  }
  *prefix = pre.value("prepend_scheme", "always") != "never";
  return true;
}

// Whether `text` is one character again and again.
bool IsRun(absl::string_view text) {
  size_t first = 0;
  NextCharacter(text, &first);
  return text.substr(first) == text.substr(0, text.size() - first);
}

// The scores with which SentencePiece makes the merges of a list: each is that of what it makes.
// Merges that make two things by turns have none, but those of runs of spaces: their pieces have
// equal scores where SentencePiece made them.
absl::Status ReadScores(const json& merges, GgufTokenizer* gguf) {
  absl::flat_hash_map<std::string, size_t> ids;
  for (size_t id = 0; id < gguf->tokens.size(); ++id) ids[gguf->tokens[id]] = id;
  struct Made {
    size_t id, first, last;  // places in the list
    int ways;
  };
  absl::flat_hash_map<size_t, size_t> place;  // in `made` by id
  std::vector<Made> made;                     // by `first`
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = PartsOf(merges[i]);
    const auto id = ids.find(left + right);
    if (id == ids.end()) return absl::InvalidArgumentError("merges make what is no token");
    const auto [at, added] = place.try_emplace(id->second, made.size());
    if (added) made.push_back({id->second, i, i, 0});
    made[at->second].last = i;
    ++made[at->second].ways;
  }
  float score = 0;
  size_t last = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    const bool by_turns = i > 0 && made[i].first < last;
    if (!by_turns) --score;
    last = std::max(last, made[i].last);
    gguf->scores[made[i].id] = score;
    const std::string& token = gguf->tokens[made[i].id];
    if (by_turns && !(IsRun(token) && IsRun(gguf->tokens[made[i - 1].id]))) {
      return Refuse(absl::StrCat("merges of which some make \"", token, "\" earlier than others"));
    }
  }
  for (const auto& [token, id] : ids) {
    if (gguf->token_types[id] != static_cast<int32_t>(Kind::kNormal)) continue;
    int all = 0;
    size_t at = 0;
    for (NextCharacter(token, &at); at < token.size(); NextCharacter(token, &at)) {
      all += ids.contains(token.substr(0, at)) && ids.contains(token.substr(at));
    }
    const auto ways = place.find(id);
    if (all != (ways == place.end() ? 0 : made[ways->second].ways)) {
      return Refuse(absl::StrCat("merges that leave out a way to make \"", token, "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPieces(const json& file, GgufTokenizer* gguf) {
  const json& model = file.at("model");
  bool prefix = false;
  if (!OnlyMarksSpaces(file, &prefix)) {
    return Refuse("the normalizer or the pre-tokenizer of this tokenizer.json");
  }
  if (!model.value("byte_fallback", false)) return Refuse("characters without \"byte_fallback\"");
  gguf->model = "llama";
  gguf->pre = "default";
  gguf->add_space_prefix = prefix;
  gguf->remove_extra_whitespaces = false;
  gguf->scores.assign(gguf->tokens.size(), kLeastScore);
  const json unknown = model.value("unk_token", json());
  for (size_t id = 0; id < gguf->tokens.size(); ++id) {
    int32_t& type = gguf->token_types[id];
    if (ByteOfPiece(gguf->tokens[id]) >= 0) type = static_cast<int32_t>(Kind::kByte);
    if (unknown.is_string() && gguf->tokens[id] == unknown.get<std::string>()) {
      type = static_cast<int32_t>(Kind::kUnknown);
      gguf->unknown_id = static_cast<int64_t>(id);
    }
  }
  return ReadScores(model.at("merges"), gguf);
}

absl::Status ReadJson(const json& file, int64_t vocab_size, GgufTokenizer* gguf) {
  const json& model = file.at("model");
  if (model.value("type", "BPE") != "BPE")
    return Refuse("models other than BPE in a tokenizer.json");
  MakeUnused(vocab_size, gguf);
  for (const auto& [token, id] : model.at("vocab").items()) {
    MILLRACE_RETURN_IF_ERROR(Put(id.get<int64_t>(), token, Kind::kNormal, vocab_size, gguf));
  }
  for (const json& token : file.value("added_tokens", json::array())) {
    const std::string content = token.at("content").get<std::string>();
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      if (token.value(flag, false)) {
        return Refuse(
            absl::StrCat("\"", flag, "\" of added token \"", content.substr(0, 100), "\""));
      }
    }
    const Kind kind = token.value("special", false) ? Kind::kControl : Kind::kUserDefined;
    MILLRACE_RETURN_IF_ERROR(Put(token.at("id").get<int64_t>(), content, kind, vocab_size, gguf));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string begin,
                            BeginOfPostProcessor(file.value("post_processor", json())));
  gguf->add_begin = !begin.empty();
  gguf->begin_id = IdOf(begin, *gguf);
  if (!begin.empty() && !gguf->begin_id) {
    return absl::InvalidArgumentError(absl::StrCat("post_processor: begins texts with \"",
                                                   begin.substr(0, 100), "\", which is no token"));
  }
  const json decoder = file.value("decoder", json());
  const bool byte_level = decoder.is_object() && decoder.value("type", "") == "ByteLevel";
  return byte_level ? ReadByteLevel(file, gguf) : ReadPieces(file, gguf);
}

absl::Status ReadModelFile(absl::string_view content, const json& config, int64_t vocab_size,
                           GgufTokenizer* gguf) {
  MILLRACE_ASSIGN_OR_RETURN(const SentencePieceModel model, ParseSentencePieceModel(content));
  if (model.type != SentencePieceModel::Type::kBpe) return Refuse("a unigram model");
  if (!model.character_map.empty()) return Refuse("the rules of this tokenizer.model's normalizer");
  if (model.remove_extra_whitespaces) return Refuse("a tokenizer.model that removes spaces");
  if (model.whitespace_as_suffix || !model.escape_whitespaces) {
    return Refuse("what this tokenizer.model does with spaces");
  }
  gguf->model = "llama";
  gguf->pre = "default";
  gguf->add_space_prefix = model.add_dummy_prefix;
  gguf->remove_extra_whitespaces = false;
  MakeUnused(vocab_size, gguf);
  gguf->scores.assign(gguf->tokens.size(), kLeastScore);
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& [text, score, kind] = model.pieces[i];
    const auto id = static_cast<int64_t>(i);
    MILLRACE_RETURN_IF_ERROR(Put(id, text, kind, vocab_size, gguf));
    gguf->scores[i] = score;
    if (text == model.begin_piece && kind == Kind::kControl) gguf->begin_id = id;
    if (text == model.end_piece) gguf->end_id = id;
  }
  gguf->unknown_id = model.unknown_id;
  // A tokenizer.json says itself how texts begin; beside a tokenizer.model the config does.
  gguf->add_begin =
      gguf->begin_id.has_value() && config.value("add_bos_token", json()) != json(false);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufTokenizer> GgufTokenizerOf(absl::string_view tokenizer,
                                              absl::string_view tokenizer_config,
                                              int64_t vocab_size) {
  GgufTokenizer gguf;
  const absl::StatusOr<json> config =
      tokenizer_config.empty() ? json::object() : ParseJson(tokenizer_config);
  if (!config.ok() || !config->is_object()) {
    return absl::InvalidArgumentError("tokenizer_config.json: is no JSON object");
  }
  if (absl::StartsWith(tokenizer, "{")) {
    MILLRACE_ASSIGN_OR_RETURN(const json file, ParseJson(tokenizer));
    try {
      MILLRACE_RETURN_IF_ERROR(ReadJson(file, vocab_size, &gguf));
    } catch (const json::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", error.what()));
    }
  } else {
    MILLRACE_RETURN_IF_ERROR(ReadModelFile(tokenizer, *config, vocab_size, &gguf));
  }
  ReadConfig(*config, &gguf);
  return gguf;
}

}  // namespace millrace
