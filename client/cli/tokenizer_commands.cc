#include "client/cli/tokenizer_commands.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/human.h"
#include "client/cli/status_line.h"
#include "client/cli/table.h"
#include "client/lib/local_file.h"
#include "client/lib/tokenizers.h"

namespace millrace {
namespace {

using Stub = v1::TokenizerService::StubInterface;

constexpr int kPageSize = 200;
constexpr int kBarColumns = 22;

// Draws on standard error, so that standard output stays for the result.
class TrainingView {
 public:
  explicit TrainingView(const Session& session)
      : session_(session), line_(*session.environment.error, LineTerminal(session)) {}

  void Show(const v1::TrainTokenizerResponse::Progress& progress) {
    const double ratio = progress.total() > 0 ? static_cast<double>(progress.done()) /
                                                    static_cast<double>(progress.total())
                                              : 0;
    const bool reading = progress.phase() == "reading";
    const std::string amount =
        reading ? absl::StrCat(HumanBytes(progress.done()), " of ", HumanBytes(progress.total()))
                : absl::StrCat(progress.done(), " of ", progress.total(), " tokens");
    line_.Show({progress.phase(), HumanPercent(ratio), amount,
                ProgressBar(ratio, kBarColumns, session_.terminal().unicode)});
  }
  void Clear() { line_.Clear(); }

 private:
  static Terminal LineTerminal(const Session& session) {
    Terminal terminal = session.environment.error_terminal;
    terminal.interactive = terminal.interactive && session.format == OutputFormat::kTable;
    return terminal;
  }

  const Session& session_;
  StatusLine line_;
};

}  // namespace

absl::StatusOr<int> TrainTokenizerCommand(const Session& session, const TrainTokenizerArgs& args) {
  const std::string dataset = ResourceName("datasets", args.dataset);
  v1::TrainTokenizerRequest request;
  request.set_tokenizer_id(args.id.empty() ? absl::StrCat(ResourceId(dataset), "-", args.vocab_size)
                                           : ResourceId(ResourceName("tokenizers", args.id)));
  request.set_dataset(dataset);
  request.set_vocab_size(args.vocab_size);
  request.set_min_frequency(args.min_frequency);
  for (const std::string& token : args.special_tokens) request.add_special_tokens(token);
  request.set_split(args.split);
  absl::StatusOr<v1::Tokenizer> tokenizer;
  {
    TrainingView view(session);
    tokenizer = TrainTokenizer(
        *session.connection, request,
        [&view](const v1::TrainTokenizerResponse::Progress& progress) { view.Show(progress); },
        [&](const absl::Status&) {
          view.Clear();
          session.Note("the connection to the daemon broke; training anew");
        });
  }
  if (!tokenizer.ok()) return tokenizer.status();
  if (session.Print(*tokenizer)) return 0;
  session.out() << tokenizer->name() << ": " << tokenizer->vocab_size() << " tokens";
  if (tokenizer->vocab_size() < args.vocab_size) {
    session.out() << " (the dataset has no more pairs worth a token)";
  }
  session.out() << "\nuse it in a job file: tokenizer: " << tokenizer->name() << std::endl;
  return 0;
}

absl::StatusOr<int> ListTokenizers(const Session& session) {
  v1::ListTokenizersResponse all;
  v1::ListTokenizersRequest request;
  request.set_page_size(kPageSize);
  do {
    absl::StatusOr<v1::ListTokenizersResponse> page =
        session.connection->Call(session.connection->tokenizers(), &Stub::ListTokenizers, request);
    if (!page.ok()) return page.status();
    for (v1::Tokenizer& tokenizer : *page->mutable_tokenizers()) {
      *all.add_tokenizers() = std::move(tokenizer);
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (session.Print(all)) return 0;
  if (all.tokenizers().empty()) {
    session.out() << "no tokenizers; train one: millrace tokenizer train DATASET --vocab-size N"
                  << std::endl;
    return 0;
  }
  Table table({{"TOKENIZER"},
               {"VOCABULARY", Table::kRight},
               {"DATASET"},
               {"SIZE", Table::kRight},
               {"CREATED"}});
  for (const v1::Tokenizer& tokenizer : all.tokenizers()) {
    table.AddRow({ResourceId(tokenizer.name()), absl::StrCat(tokenizer.vocab_size()),
                  ResourceId(tokenizer.dataset()), HumanBytes(tokenizer.size_bytes()),
                  HumanAge(tokenizer.create_time(), session.now())});
  }
  session.out() << table.Format(session.terminal());
  return 0;
}

absl::StatusOr<int> ShowTokenizer(const Session& session, const std::string& id) {
  v1::GetTokenizerRequest request;
  request.set_name(ResourceName("tokenizers", id));
  absl::StatusOr<v1::Tokenizer> tokenizer =
      session.connection->Call(session.connection->tokenizers(), &Stub::GetTokenizer, request);
  if (!tokenizer.ok()) return tokenizer.status();
  if (session.Print(*tokenizer)) return 0;
  Fields fields;
  fields.Add("Tokenizer", ResourceId(tokenizer->name()));
  fields.Add("Vocabulary", absl::StrCat(tokenizer->vocab_size()));
  fields.Add("Trained on", tokenizer->dataset());
  fields.Add("Size", HumanBytes(tokenizer->size_bytes()));
  fields.Add("Created", absl::StrCat(HumanTime(tokenizer->create_time()), " (",
                                     HumanAge(tokenizer->create_time(), session.now()), ")"));
  session.out() << fields.Format(session.terminal());
  return 0;
}

absl::StatusOr<int> DownloadTokenizerCommand(const Session& session, const std::string& id,
                                             const std::string& path) {
  const std::string name = ResourceName("tokenizers", id);
  const std::string target = path.empty() ? absl::StrCat(ResourceId(name), ".json") : path;
  absl::Status status = CheckReplaceable(target);
  if (!status.ok()) return status;
  absl::StatusOr<std::string> content =
      FetchTokenizer(*session.connection, name, [](const absl::Status&) {});
  if (!content.ok()) return content.status();
  absl::StatusOr<LocalFile> file = LocalFile::OpenForWriting(target);
  if (!file.ok()) return file.status();
  status = file->Truncate(0);
  if (status.ok()) status = file->Write(0, *content);
  if (status.ok()) status = file->Sync();
  if (!status.ok()) return status;
  if (session.format == OutputFormat::kTable) {
    session.out() << target << " has " << name << " ("
                  << HumanBytes(static_cast<int64_t>(content->size())) << ")" << std::endl;
  }
  return 0;
}

absl::StatusOr<int> DeleteTokenizer(const Session& session, const std::string& id) {
  v1::DeleteTokenizerRequest request;
  request.set_name(ResourceName("tokenizers", id));
  absl::StatusOr<google::protobuf::Empty> done =
      session.connection->Call(session.connection->tokenizers(), &Stub::DeleteTokenizer, request);
  if (!done.ok()) return done.status();
  if (!session.Print(*done)) session.out() << "deleted " << request.name() << std::endl;
  return 0;
}

}  // namespace millrace
