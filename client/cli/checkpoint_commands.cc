#include "client/cli/checkpoint_commands.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/human.h"
#include "client/cli/table.h"
#include "client/cli/transfer_view.h"
#include "client/lib/checkpoint_download.h"
#include "client/lib/local_file.h"

namespace millrace {
namespace {

constexpr int kPageSize = 200;

std::string EvaluationLoss(const v1::Checkpoint& checkpoint) {
  return checkpoint.has_evaluation_loss() ? HumanLoss(checkpoint.evaluation_loss()) : "-";
}

absl::StatusOr<v1::Checkpoint> Find(const Session& session, const std::string& job,
                                    const std::string& step) {
  v1::GetCheckpointRequest request;
  request.set_name(absl::StrCat(ResourceName("jobs", job), "/checkpoints/", step));
  return session.connection->Call(session.connection->checkpoints(),
                                  &v1::CheckpointService::StubInterface::GetCheckpoint, request);
}

}  // namespace

absl::StatusOr<int> ListCheckpoints(const Session& session, const std::string& job) {
  v1::ListCheckpointsResponse all;
  v1::ListCheckpointsRequest request;
  request.set_parent(ResourceName("jobs", job));
  request.set_page_size(kPageSize);
  do {
    absl::StatusOr<v1::ListCheckpointsResponse> page =
        session.connection->Call(session.connection->checkpoints(),
                                 &v1::CheckpointService::StubInterface::ListCheckpoints, request);
    if (!page.ok()) return page.status();
    for (v1::Checkpoint& checkpoint : *page->mutable_checkpoints()) {
      *all.add_checkpoints() = std::move(checkpoint);
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (session.Print(all)) return 0;
  if (all.checkpoints().empty()) {
    session.out() << "no checkpoints of " << request.parent() << " yet" << std::endl;
    return 0;
  }
  Table table({{"STEP", Table::kRight},
               {"SIZE", Table::kRight},
               {"EVALUATION", Table::kRight},
               {"CREATED"}});
  for (const v1::Checkpoint& checkpoint : all.checkpoints()) {
    table.AddRow({absl::StrCat(checkpoint.step()), HumanBytes(checkpoint.size_bytes()),
                  EvaluationLoss(checkpoint), HumanAge(checkpoint.create_time(), session.now())});
  }
  session.out() << table.Format(session.terminal());
  return 0;
}

absl::StatusOr<int> ShowCheckpoint(const Session& session, const std::string& job,
                                   const std::string& step) {
  absl::StatusOr<v1::Checkpoint> checkpoint = Find(session, job, step);
  if (!checkpoint.ok()) return checkpoint.status();
  if (session.Print(*checkpoint)) return 0;
  v1::ListCheckpointFilesRequest request;
  request.set_name(checkpoint->name());
  absl::StatusOr<v1::ListCheckpointFilesResponse> files =
      session.connection->Call(session.connection->checkpoints(),
                               &v1::CheckpointService::StubInterface::ListCheckpointFiles, request);
  if (!files.ok()) return files.status();
  Fields fields;
  fields.Add("Checkpoint", checkpoint->name());
  fields.Add("Step", absl::StrCat(checkpoint->step()));
  fields.Add("Size", HumanBytes(checkpoint->size_bytes()));
  fields.Add("Evaluation", EvaluationLoss(*checkpoint));
  fields.Add("Created", absl::StrCat(HumanTime(checkpoint->create_time()), " (",
                                     HumanAge(checkpoint->create_time(), session.now()), ")"));
  session.out() << fields.Format(session.terminal()) << "\n";
  Table table({{"FILE"}, {"SIZE", Table::kRight}, {"SHA-256"}});
  for (const v1::CheckpointFile& file : files->files()) {
    table.AddRow({file.path(), HumanBytes(file.size_bytes()), file.sha256()});
  }
  session.out() << table.Format(session.terminal());
  return 0;
}

absl::StatusOr<int> DownloadCheckpointCommand(const Session& session, const std::string& job,
                                              const std::string& step,
                                              const std::string& directory) {
  // `latest` is looked up once, so that an interrupted download goes on with the same checkpoint.
  absl::StatusOr<v1::Checkpoint> checkpoint = Find(session, job, step);
  if (!checkpoint.ok()) return checkpoint.status();
  std::string target = directory.empty() ? absl::StrCat(ResourceId(ResourceName("jobs", job)), "-",
                                                        checkpoint->step())
                                         : directory;
  absl::Status status;
  {
    TransferView view(session, "downloading", absl::StrCat("step ", checkpoint->step()));
    status = DownloadCheckpoint(*session.connection, checkpoint->name(), target, view.Options());
  }
  if (absl::IsCancelled(status)) {
    session.Note(absl::StrCat("interrupted; go on with: millrace checkpoints download ",
                              ResourceId(ResourceName("jobs", job)), " ", checkpoint->step(),
                              " -d ", target));
  }
  if (!status.ok()) return status;
  if (session.Print(*checkpoint)) return 0;
  session.out() << target << " has step " << checkpoint->step() << " ("
                << HumanBytes(checkpoint->size_bytes()) << ", every SHA-256 checked)" << std::endl;
  return 0;
}

absl::StatusOr<int> ExportCheckpointCommand(const Session& session, const ExportArgs& args) {
  if (args.format == "hf") {
    if (!args.weight_type.empty()) {
      return absl::InvalidArgumentError(
          "--type is for --format gguf; a Hugging Face folder has the job's own type");
    }
    return DownloadCheckpointCommand(session, args.job, args.step, args.out);
  }
  // `latest` is looked up once, so that what is fetched is what was exported.
  absl::StatusOr<v1::Checkpoint> checkpoint = Find(session, args.job, args.step);
  if (!checkpoint.ok()) return checkpoint.status();
  v1::ExportCheckpointRequest request;
  request.set_name(checkpoint->name());
  request.set_format(args.format);
  request.set_weight_type(args.weight_type);
  absl::StatusOr<v1::CheckpointFile> file;
  {
    TransferView view(session, "exporting", absl::StrCat("step ", checkpoint->step()));
    file = ExportCheckpoint(*session.connection, request, view.Options());
  }
  if (!file.ok()) return file.status();
  const std::string target = args.out.empty() ? ResourceId(file->path()) : args.out;
  absl::Status status = CheckReplaceable(target);
  if (!status.ok()) return status;
  {
    TransferView view(session, "downloading", target);
    status = DownloadExport(*session.connection, checkpoint->name(), *file, target, view.Options());
  }
  if (absl::IsCancelled(status)) {
    session.Note("interrupted; the same command goes on where it ended");
  }
  if (!status.ok()) return status;
  if (session.Print(*file)) return 0;
  session.out() << target << " has step " << checkpoint->step() << " ("
                << HumanBytes(file->size_bytes()) << ", SHA-256 checked)" << std::endl;
  return 0;
}

}  // namespace millrace
