// From tokens as a tokenizer file writes them back to text.
#ifndef MILLRACE_ENGINE_DATA_TOKEN_DECODER_H_
#define MILLRACE_ENGINE_DATA_TOKEN_DECODER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace millrace {

// Immutable; any thread may call.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void Apply(std::vector<std::string>* tokens) const = 0;
};

class TokenDecoder {
 public:
  // `value`: the file's "decoder", null for none (then tokens are joined with spaces, as Hugging
  // Face does). Known: ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence.
  static absl::StatusOr<TokenDecoder> Parse(const nlohmann::json& value);

  // Not UTF-8 where byte-level tokens are cut inside a character.
  std::string Decode(std::vector<std::string> tokens) const;

 private:
  absl::Status AddSteps(const nlohmann::json& value, int depth);

  std::vector<std::unique_ptr<const DecoderStep>> steps_;
  bool none_ = true;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_TOKEN_DECODER_H_
