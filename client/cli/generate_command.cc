#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/exit_codes.h"
#include "client/cli/generation_commands.h"
#include "client/cli/human.h"
#include "client/cli/model_argument.h"
#include "client/lib/generation.h"
#include "proto/job_file/text_check.h"

namespace millrace {
namespace {

using v1::GenerateTextResponse;

absl::StatusOr<std::string> ReadAll(const Session& session, const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(*session.environment.in), {});
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a folder; give a file"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.fail() && text.empty()) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  return text;
}

// One prompt a line, of JSON objects their "prompt"; empty lines are left out.
absl::Status AddPromptsOf(const std::string& text, const std::string& path,
                          v1::GenerateTextRequest* request) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripSuffix(line, "\r");
    if (line.empty()) continue;
    if (line[0] != '{') {
      request->add_prompts(std::string(line));
      continue;
    }
    const auto object = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!object.is_object() || !object.contains("prompt") || !object["prompt"].is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": no JSON object with a text \"prompt\""));
    }
    request->add_prompts(object["prompt"].get<std::string>());
  }
  if (request->prompts_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no prompt"));
  }
  return absl::OkStatus();
}

// Text that a message can carry.
absl::Status CheckPrompts(const v1::GenerateTextRequest& request) {
  constexpr size_t kMostBytes = 2 << 20;
  size_t bytes = 0;
  for (int i = 0; i < request.prompts_size(); ++i) {
    const std::string& prompt = request.prompts(i);
    bytes += prompt.size();
    if (!IsUtf8(prompt)) {
      return absl::InvalidArgumentError(absl::StrCat("prompt ", i + 1, " is not text in UTF-8"));
    }
  }
  if (bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompts have ", bytes, " bytes together; at most ", kMostBytes, " go in one call"));
  }
  return absl::OkStatus();
}

absl::Status AddPrompts(const Session& session, const GenerateArgs& args,
                        v1::GenerateTextRequest* request) {
  for (const std::string& prompt : args.prompts) {
    if (prompt != "-") {
      request->add_prompts(prompt);
      continue;
    }
    absl::StatusOr<std::string> text = ReadAll(session, "-");
    if (!text.ok()) return text.status();
    request->add_prompts(*std::move(text));
  }
  if (!args.prompts_file.empty()) {
    const absl::StatusOr<std::string> text = ReadAll(session, args.prompts_file);
    if (!text.ok()) return text.status();
    const absl::Status added = AddPromptsOf(*text, args.prompts_file, request);
    if (!added.ok()) return added;
  }
  return CheckPrompts(*request);
}

// What has come of each prompt.
class TextView {
 public:
  TextView(const Session& session, const v1::GenerateTextRequest& request)
      : session_(session), request_(request), texts_(request.prompts_size()) {}

  void On(const GenerateTextResponse& response) {
    if (response.has_started()) started_ = response.started();
    if (response.has_piece()) OnPiece(response.piece());
    if (response.has_finished()) finished_ = response.finished();
  }

  // After the last message, whatever the end.
  void Close() {
    if (streams() && line_open_) session_.out() << std::endl;
    line_open_ = false;
  }

  // How long it took, for a person.
  void Figures() const {
    if (!session_.environment.error_terminal.interactive) return;
    std::string load;
    if (started_.load_seconds() > 0) {
      load = absl::StrFormat("loaded in %.1fs, ", started_.load_seconds());
    }
    // The first token of each text comes with its prompt.
    const auto later = finished_.generated_tokens() - request_.prompts_size();
    session_.Note(absl::StrFormat(
        "%s: %s%s prompt tokens in %.2fs, %s tokens (%.1f/s), seed %d", started_.model(), load,
        HumanCount(static_cast<double>(finished_.prompt_tokens())), finished_.prompt_seconds(),
        HumanCount(static_cast<double>(finished_.generated_tokens())),
        later > 0 ? static_cast<double>(later) / finished_.generation_seconds() : 0.0,
        started_.seed()));
  }

 private:
  bool streams() const {
    return session_.format == OutputFormat::kTable && request_.prompts_size() == 1;
  }

  std::string Shown(const std::string& text) const {
    return session_.terminal().interactive ? Sanitize(text, /*keep_lines=*/true) : text;
  }

  void OnPiece(const GenerateTextResponse::Piece& piece) {
    if (piece.prompt() < 0 || piece.prompt() >= static_cast<int>(texts_.size())) return;
    GenerateTextResponse::Piece& text = texts_[piece.prompt()];
    text.set_prompt(piece.prompt());
    text.mutable_text()->append(piece.text());
    text.mutable_tokens()->MergeFrom(piece.tokens());
    text.set_finish_reason(piece.finish_reason());
    if (streams()) {
      session_.out() << Shown(piece.text()) << std::flush;
      if (!piece.text().empty()) line_open_ = piece.text().back() != '\n';
    } else {
      // In the order of the prompts.
      while (printed_ < texts_.size() && texts_[printed_].finish_reason() != 0) Print(printed_++);
    }
  }

  void Print(size_t index) {
    const GenerateTextResponse::Piece& text = texts_[index];
    if (session_.Print(text)) return;
    const std::string& prompt = request_.prompts(static_cast<int>(index));
    session_.out() << Styled(session_.terminal(), Style::kBold,
                             absl::StrCat(index + 1, ": ",
                                          Ellipsize(Sanitize(prompt, /*keep_lines=*/false), 70)))
                   << "\n"
                   << Shown(text.text()) << "\n\n"
                   << std::flush;
  }

  const Session& session_;
  const v1::GenerateTextRequest& request_;
  std::vector<GenerateTextResponse::Piece> texts_;
  size_t printed_ = 0;
  bool line_open_ = false;
  GenerateTextResponse::Started started_;
  GenerateTextResponse::Finished finished_;
};

}  // namespace

absl::StatusOr<int> Generate(const Session& session, const GenerateArgs& args) {
  v1::GenerateTextRequest request = args.request;
  absl::Status status = AddPrompts(session, args, &request);
  if (!status.ok()) return status;
  TextView view(session, request);
  status = WithModelName(args.model, [&](const std::string& name) {
    request.set_model(name);
    return GenerateText(*session.connection, request,
                        [&](const GenerateTextResponse& response) { view.On(response); });
  });
  view.Close();
  if (absl::IsCancelled(status)) return kExitInterrupted;
  if (!status.ok()) return status;
  view.Figures();
  return 0;
}

}  // namespace millrace
