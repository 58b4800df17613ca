#include "server/blobs/blob.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

constexpr int kFormat = 1;
// Every other key is a fact.
constexpr const char* kKeys[] = {"format", "id", "state", "create_time", "files"};

absl::StatusOr<StoredBlob> FromJson(nlohmann::ordered_json manifest, absl::string_view path) {
  StoredBlob blob;
  if (manifest.at("format").get<int>() != kFormat) {
    return absl::DataLossError(absl::StrCat(path, ": written by another version of Millrace"));
  }
  blob.id = manifest.at("id").get<std::string>();
  blob.ready = manifest.at("state").get<std::string>() == "READY";
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, manifest.at("create_time").get<std::string>(),
                       &blob.create_time, &error)) {
    return absl::DataLossError(absl::StrCat(path, ": create_time: ", error));
  }
  for (const nlohmann::ordered_json& entry : manifest.at("files")) {
    BlobFile file;
    file.path = entry.at("path").get<std::string>();
    file.size_bytes = entry.at("size_bytes").get<int64_t>();
    file.sha256 = entry.at("sha256").get<std::string>();
    file.modified_nanos = entry.value("modified_nanos", int64_t{0});
    blob.size_bytes += file.size_bytes;
    blob.files.push_back(std::move(file));
  }
  for (const char* key : kKeys) manifest.erase(key);
  blob.facts = std::move(manifest);
  return blob;
}

}  // namespace

std::string WriteManifest(const StoredBlob& blob) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const BlobFile& file : blob.files) {
    files.push_back(
        {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
    if (file.modified_nanos != 0) files.back()["modified_nanos"] = file.modified_nanos;
  }
  nlohmann::ordered_json manifest = {
      {"format", kFormat},
      {"id", blob.id},
      {"state", blob.ready ? "READY" : "UPLOADING"},
      {"create_time", absl::FormatTime(absl::RFC3339_full, blob.create_time, absl::UTCTimeZone())},
  };
  manifest.update(blob.facts);
  manifest["files"] = std::move(files);
  // Names come from UTF-8 fields of messages; `replace` only keeps dump() from throwing.
  return manifest.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<StoredBlob> ReadBlobManifest(absl::string_view text, absl::string_view path) {
  try {
    return FromJson(nlohmann::ordered_json::parse(text.begin(), text.end()), path);
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged (", error.what(), "); delete the folder it lies in"));
  }
}

int64_t NumberFact(const StoredBlob& blob, const char* name, int64_t fallback) {
  const auto found = blob.facts.find(name);
  return found != blob.facts.end() && found->is_number_integer() ? found->get<int64_t>() : fallback;
}

std::string TextFact(const StoredBlob& blob, const char* name) {
  const auto found = blob.facts.find(name);
  return found != blob.facts.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace millrace
