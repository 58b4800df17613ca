#include "server/blobs/dataset_store.h"

#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/data/documents.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<BlobStore>> OpenDatasets(BlobStore::Options options) {
  options.kind = &kDatasetKind;
  options.inspect = [](const std::string& folder) -> absl::StatusOr<nlohmann::ordered_json> {
    MILLRACE_ASSIGN_OR_RETURN(const DocumentCounts counts, CheckDocuments(folder));
    return nlohmann::ordered_json{{"document_count", counts.documents}};
  };
  return BlobStore::Open(std::move(options));
}

}  // namespace millrace
