#include "client/cli/dataset_commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/human.h"
#include "client/cli/table.h"
#include "client/cli/transfer_view.h"
#include "client/lib/dataset_upload.h"

namespace millrace {
namespace {

constexpr int kPageSize = 200;
// A table of ten thousand files helps nobody; JSON has them all.
constexpr int kShownFiles = 50;

std::string Documents(const v1::Dataset& dataset) {
  return dataset.state() == v1::Dataset::READY
             ? HumanCount(static_cast<double>(dataset.document_count()))
             : "-";
}

}  // namespace

absl::StatusOr<int> UploadDatasetCommand(const Session& session, const std::string& id,
                                         const std::string& path) {
  std::string name = ResourceName("datasets", id);
  absl::StatusOr<v1::Dataset> dataset;
  {
    TransferView view(session, "uploading", name);
    dataset = UploadDataset(*session.connection, ResourceId(name), path, view.Options());
  }
  if (absl::IsCancelled(dataset.status())) {
    session.Note("interrupted; the same command goes on where it ended");
  }
  if (!dataset.ok()) return dataset.status();
  if (session.Print(*dataset)) return 0;
  session.out() << name << " " << v1::Dataset::State_Name(dataset->state()) << ": "
                << HumanBytes(dataset->size_bytes()) << ", " << Documents(*dataset)
                << (dataset->document_count() == 1 ? " document" : " documents")
                << "\nuse it in a job file: data: {train: " << name << "}" << std::endl;
  return 0;
}

absl::StatusOr<int> ListDatasets(const Session& session) {
  v1::ListDatasetsResponse all;
  v1::ListDatasetsRequest request;
  request.set_page_size(kPageSize);
  do {
    absl::StatusOr<v1::ListDatasetsResponse> page = session.connection->Call(
        session.connection->datasets(), &v1::DatasetService::StubInterface::ListDatasets, request);
    if (!page.ok()) return page.status();
    for (v1::Dataset& dataset : *page->mutable_datasets()) {
      *all.add_datasets() = std::move(dataset);
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (session.Print(all)) return 0;
  if (all.datasets().empty()) {
    session.out() << "no datasets; add one: millrace datasets upload ID PATH" << std::endl;
    return 0;
  }
  Table table(
      {{"DATASET"}, {"STATE"}, {"SIZE", Table::kRight}, {"DOCUMENTS", Table::kRight}, {"CREATED"}});
  for (const v1::Dataset& dataset : all.datasets()) {
    table.AddRow({ResourceId(dataset.name()), v1::Dataset::State_Name(dataset.state()),
                  HumanBytes(dataset.size_bytes()), Documents(dataset),
                  HumanAge(dataset.create_time(), session.now())});
  }
  session.out() << table.Format(session.terminal());
  return 0;
}

absl::StatusOr<int> ShowDataset(const Session& session, const std::string& id) {
  v1::GetDatasetRequest request;
  request.set_name(ResourceName("datasets", id));
  absl::StatusOr<v1::Dataset> dataset = session.connection->Call(
      session.connection->datasets(), &v1::DatasetService::StubInterface::GetDataset, request);
  if (!dataset.ok()) return dataset.status();
  if (session.Print(*dataset)) return 0;
  Fields fields;
  fields.Add("Dataset", ResourceId(dataset->name()));
  fields.Add("State", v1::Dataset::State_Name(dataset->state()));
  fields.Add("Size", HumanBytes(dataset->size_bytes()));
  fields.Add("Documents", Documents(*dataset));
  fields.Add("Created", absl::StrCat(HumanTime(dataset->create_time()), " (",
                                     HumanAge(dataset->create_time(), session.now()), ")"));
  session.out() << fields.Format(session.terminal()) << "\n";
  Table table({{"FILE"}, {"SIZE", Table::kRight}, {"RECEIVED", Table::kRight}, {"SHA-256"}});
  for (int i = 0; i < std::min(kShownFiles, dataset->files_size()); ++i) {
    const v1::DatasetFile& file = dataset->files(i);
    double ratio = file.size_bytes() == 0 ? 1
                                          : static_cast<double>(file.committed_bytes()) /
                                                static_cast<double>(file.size_bytes());
    table.AddRow({file.path(), HumanBytes(file.size_bytes()), HumanPercent(ratio),
                  file.sha256().substr(0, 12)});
  }
  session.out() << table.Format(session.terminal());
  if (dataset->files_size() > kShownFiles) {
    session.out() << "and " << dataset->files_size() - kShownFiles << " more (see -o json)\n";
  }
  return 0;
}

absl::StatusOr<int> DeleteDataset(const Session& session, const std::string& id) {
  v1::DeleteDatasetRequest request;
  request.set_name(ResourceName("datasets", id));
  absl::StatusOr<google::protobuf::Empty> done = session.connection->Call(
      session.connection->datasets(), &v1::DatasetService::StubInterface::DeleteDataset, request);
  if (!done.ok()) return done.status();
  if (!session.Print(*done)) session.out() << "deleted " << request.name() << std::endl;
  return 0;
}

}  // namespace millrace
