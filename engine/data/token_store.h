// A dataset as one stream of tokens on disk: of every document the token that begins documents,
// where the tokenizer has one, its own, and the one that ends documents.
//
// Files in the store's folder: tokens.bin (u16, or u32 for vocabularies above 65,536; little
// endian), documents.bin (u64: the stream's length after each document), manifest.json (what they
// were made of, their sizes and hashes; written last).
#ifndef MILLRACE_ENGINE_DATA_TOKEN_STORE_H_
#define MILLRACE_ENGINE_DATA_TOKEN_STORE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/data/tokenizer.h"

namespace millrace {

// Read-only memory maps; any thread may read.
class TokenStore {
 public:
  // Called every megabyte or so of text with what is done of the dataset's bytes. A status that is
  // not OK ends the preparation with it.
  using Progress = absl::FunctionRef<absl::Status(int64_t done_bytes, int64_t total_bytes)>;

  // Opens the store in `folder` if it was made of the files at `dataset` as they are now (names,
  // sizes, times of change) by this tokenizer, and tokenizes the dataset into it otherwise. An
  // interrupted preparation leaves nothing that would be taken for a store.
  static absl::StatusOr<TokenStore> Prepare(const std::string& dataset, const Tokenizer& tokenizer,
                                            const std::string& folder, Progress progress);

  TokenStore(TokenStore&& other) noexcept;
  TokenStore& operator=(TokenStore&& other) noexcept;
  ~TokenStore();

  // Tokens of the stream.
  int64_t size() const { return size_; }
  // The stream's length after each document; the last is size().
  absl::Span<const uint64_t> document_ends() const { return document_ends_; }
  // Changes when any token does: a resumed job checks that it goes on with the same data.
  const std::string& sha256() const { return sha256_; }

  // Tokens [first, first + out.size()).
  void Read(int64_t first, absl::Span<int32_t> out) const;

 private:
  TokenStore() = default;
  struct Map {
    const void* data = nullptr;
    size_t bytes = 0;
  };

  static absl::StatusOr<TokenStore> Open(const std::string& folder);
  static absl::StatusOr<Map> MapFile(const std::string& path, uint64_t bytes);

  Map tokens_, documents_;
  bool wide_ = false;  // u32
  int64_t size_ = 0;
  absl::Span<const uint64_t> document_ends_;
  std::string sha256_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_TOKEN_STORE_H_
