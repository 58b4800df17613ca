#include "client/cli/model_commands.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/human.h"
#include "client/cli/table.h"
#include "client/cli/transfer_view.h"
#include "client/lib/model_files.h"
#include "client/lib/model_upload.h"

namespace millrace {
namespace {

using Stub = v1::ModelService::StubInterface;

constexpr int kPageSize = 200;

bool IsReady(const v1::Model& model) { return model.state() == v1::Model::READY; }

// Of a model that is READY; else there is nothing to tell yet.
std::string Known(const v1::Model& model, const std::string& value) {
  return IsReady(model) && !value.empty() ? value : "-";
}

std::string Parameters(const v1::Model& model) {
  return Known(model, HumanParameters(model.parameter_count()));
}

std::string Count(const v1::Model& model, int64_t count) {
  return Known(model, absl::StrCat(count));
}

// Tells the result of an upload or a registration, and what to do with it.
int Tell(const Session& session, const v1::Model& model) {
  if (session.Print(model)) return 0;
  session.out() << model.name() << " " << v1::Model::State_Name(model.state()) << ": "
                << Known(model, model.family()) << ", " << Parameters(model) << " parameters, "
                << HumanBytes(model.size_bytes()) << " of " << Known(model, model.weight_type())
                << "\nuse it in a job file: model: {from: " << model.name() << "}" << std::endl;
  return 0;
}

std::string LeftOut(const std::string& path, const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == kShown) {
      shown.push_back(absl::StrCat(names.size() - kShown, " more"));
      break;
    }
    std::error_code error;
    const auto size = std::filesystem::file_size(std::filesystem::path(path) / name, error);
    shown.push_back(error ? name
                          : absl::StrCat(name, " (", HumanBytes(static_cast<int64_t>(size)), ")"));
  }
  return absl::StrCat("left out, as no model needs it: ", absl::StrJoin(shown, ", "));
}

}  // namespace

absl::StatusOr<int> UploadModelCommand(const Session& session, const std::string& id,
                                       const std::string& path) {
  absl::StatusOr<ModelFiles> files = ListModelFiles(path);
  if (!files.ok()) return files.status();
  const std::string chosen = id.empty() ? ModelIdFor(path) : id;
  if (chosen.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no id can be made of ", path, "; give one with --id"));
  }
  const std::string name = ResourceName("models", chosen);
  if (!files->left_out.empty()) session.Note(LeftOut(path, files->left_out));
  absl::StatusOr<v1::Model> model;
  {
    TransferView view(session, "uploading", name);
    model = UploadModel(*session.connection, ResourceId(name), path, *files, view.Options());
  }
  if (absl::IsCancelled(model.status())) {
    session.Note("interrupted; the same command goes on where it ended");
  }
  if (!model.ok()) return model.status();
  return Tell(session, *model);
}

absl::StatusOr<int> RegisterModelCommand(const Session& session, const std::string& id,
                                         const std::string& path) {
  v1::RegisterModelRequest request;
  request.set_model_id(ResourceId(ResourceName("models", id)));
  request.set_path(path);
  absl::StatusOr<v1::Model> model =
      session.connection->Call(session.connection->models(), &Stub::RegisterModel, request);
  if (!model.ok()) return model.status();
  return Tell(session, *model);
}

absl::StatusOr<int> ListModels(const Session& session) {
  v1::ListModelsResponse all;
  v1::ListModelsRequest request;
  request.set_page_size(kPageSize);
  do {
    absl::StatusOr<v1::ListModelsResponse> page =
        session.connection->Call(session.connection->models(), &Stub::ListModels, request);
    if (!page.ok()) return page.status();
    for (v1::Model& model : *page->mutable_models()) *all.add_models() = std::move(model);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (session.Print(all)) return 0;
  if (all.models().empty()) {
    session.out() << "no models; add one: millrace models upload PATH" << std::endl;
    return 0;
  }
  Table table({{"MODEL"},
               {"STATE"},
               {"FAMILY"},
               {"PARAMETERS", Table::kRight},
               {"VOCABULARY", Table::kRight},
               {"CONTEXT", Table::kRight},
               {"TYPE"},
               {"SIZE", Table::kRight},
               {"CREATED"}});
  for (const v1::Model& model : all.models()) {
    table.AddRow({ResourceId(model.name()), v1::Model::State_Name(model.state()),
                  Known(model, model.family()), Parameters(model), Count(model, model.vocab_size()),
                  Count(model, model.context_length()), Known(model, model.weight_type()),
                  HumanBytes(model.size_bytes()), HumanAge(model.create_time(), session.now())});
  }
  session.out() << table.Format(session.terminal());
  return 0;
}

absl::StatusOr<int> ShowModel(const Session& session, const std::string& id) {
  v1::GetModelRequest request;
  request.set_name(ResourceName("models", id));
  absl::StatusOr<v1::Model> model =
      session.connection->Call(session.connection->models(), &Stub::GetModel, request);
  if (!model.ok()) return model.status();
  if (session.Print(*model)) return 0;
  Fields fields;
  fields.Add("Model", ResourceId(model->name()));
  fields.Add("State", v1::Model::State_Name(model->state()));
  if (IsReady(*model)) {
    fields.Add("Format", v1::Model::Format_Name(model->format()));
    fields.Add("Family", model->family());
    fields.Add("Parameters", absl::StrCat(Parameters(*model), " (", model->parameter_count(), ")"));
    fields.Add("Weights", model->weight_type());
    fields.Add("Layers", absl::StrCat(model->layer_count(), " of width ", model->hidden_size()));
    fields.Add("Vocabulary", absl::StrCat(model->vocab_size()));
    fields.Add("Context", absl::StrCat(model->context_length(), " tokens"));
    fields.Add("Tokenizer", model->tokenizer().empty() ? "none" : model->tokenizer());
  }
  for (const std::string& note : model->notes()) fields.Add("Note", note);
  fields.Add("Size", HumanBytes(model->size_bytes()));
  fields.Add("Lies at", model->path());
  fields.Add("Created", absl::StrCat(HumanTime(model->create_time()), " (",
                                     HumanAge(model->create_time(), session.now()), ")"));
  session.out() << fields.Format(session.terminal()) << "\n";
  Table table({{"FILE"}, {"SIZE", Table::kRight}, {"RECEIVED", Table::kRight}, {"SHA-256"}});
  for (const v1::ModelFile& file : model->files()) {
    double ratio = file.size_bytes() == 0 ? 1
                                          : static_cast<double>(file.committed_bytes()) /
                                                static_cast<double>(file.size_bytes());
    table.AddRow({file.path(), HumanBytes(file.size_bytes()), HumanPercent(ratio),
                  file.sha256().substr(0, 12)});
  }
  session.out() << table.Format(session.terminal());
  return 0;
}

absl::StatusOr<int> DeleteModel(const Session& session, const std::string& id) {
  v1::DeleteModelRequest request;
  request.set_name(ResourceName("models", id));
  absl::StatusOr<google::protobuf::Empty> done =
      session.connection->Call(session.connection->models(), &Stub::DeleteModel, request);
  if (!done.ok()) return done.status();
  if (!session.Print(*done)) session.out() << "deleted " << request.name() << std::endl;
  return 0;
}

}  // namespace millrace
