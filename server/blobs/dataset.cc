#include "server/blobs/dataset.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

constexpr int kFormat = 1;

}  // namespace

std::string WriteDatasetManifest(const Dataset& dataset) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const DatasetFile& file : dataset.files) {
    files.push_back(
        {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  const nlohmann::ordered_json manifest = {
      {"format", kFormat},
      {"id", dataset.id},
      {"state", dataset.ready ? "READY" : "UPLOADING"},
      {"create_time",
       absl::FormatTime(absl::RFC3339_full, dataset.create_time, absl::UTCTimeZone())},
      {"document_count", dataset.document_count},
      {"files", std::move(files)},
  };
  // Names come from UTF-8 fields of messages; `replace` only keeps dump() from throwing.
  return manifest.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Dataset> ReadDatasetManifest(absl::string_view text, absl::string_view path) {
  Dataset dataset;
  try {
    const nlohmann::json manifest = nlohmann::json::parse(text.begin(), text.end());
    if (manifest.at("format").get<int>() != kFormat) {
      return absl::DataLossError(absl::StrCat(path, ": written by another version of Millrace"));
    }
    dataset.id = manifest.at("id").get<std::string>();
    dataset.ready = manifest.at("state").get<std::string>() == "READY";
    dataset.document_count = manifest.at("document_count").get<int64_t>();
    std::string error;
    if (!absl::ParseTime(absl::RFC3339_full, manifest.at("create_time").get<std::string>(),
                         &dataset.create_time, &error)) {
      return absl::DataLossError(absl::StrCat(path, ": create_time: ", error));
    }
    for (const nlohmann::json& entry : manifest.at("files")) {
      DatasetFile file;
      file.path = entry.at("path").get<std::string>();
      file.size_bytes = entry.at("size_bytes").get<int64_t>();
      file.sha256 = entry.at("sha256").get<std::string>();
      dataset.size_bytes += file.size_bytes;
      dataset.files.push_back(std::move(file));
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged (", error.what(), "); delete the dataset's folder"));
  }
  return dataset;
}

}  // namespace millrace
