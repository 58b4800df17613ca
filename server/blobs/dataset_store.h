// The datasets of this node (blob_store.h): texts to train on.
#ifndef MILLRACE_SERVER_BLOBS_DATASET_STORE_H_
#define MILLRACE_SERVER_BLOBS_DATASET_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/blobs/blob.h"
#include "server/blobs/blob_store.h"

namespace millrace {

// Documents of a READY dataset.
inline int64_t DocumentCount(const StoredBlob& dataset) {
  return NumberFact(dataset, "document_count");
}

// A dataset is READY once all of its documents have been read. `kind` and `inspect` need not be
// given.
absl::StatusOr<std::unique_ptr<BlobStore>> OpenDatasets(BlobStore::Options options);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_DATASET_STORE_H_
