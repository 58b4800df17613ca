// The content of a SentencePiece model file (tokenizer.model): a message `ModelProto` of
// sentencepiece_model.proto (github.com/google/sentencepiece).
//
// Read here rather than by the SentencePiece library: that brings a Protocol Buffers runtime of its
// own, whose symbols collide with those of the one that gRPC needs, so that no process can hold
// both; and it believes the tables of a file that it is given.
#ifndef MILLRACE_ENGINE_DATA_SENTENCEPIECE_FILE_H_
#define MILLRACE_ENGINE_DATA_SENTENCEPIECE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

struct SentencePieceModel {
  // Values are those in files.
  enum class Type { kUnigram = 1, kBpe = 2 };
  enum class Kind {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  struct Piece {
    std::string text;  // not empty, well-formed UTF-8
    float score = 0;   // finite
    Kind kind = Kind::kNormal;
  };

  Type type = Type::kUnigram;
  std::vector<Piece> pieces;        // by id
  int32_t unknown_id = -1;          // there is always one
  std::string begin_piece = "<s>";  // of a text; empty for none
  std::string end_piece = "</s>";
  std::string unknown_text = " \xe2\x81\x87 ";  // what the unknown token is decoded to
  // Characters without a piece are the pieces of their bytes, all 256 of which are there.
  bool byte_fallback = false;

  // Normalization.
  std::string character_map;  // sentencepiece_normalizer.h; empty: characters stay as they are
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool whitespace_as_suffix = false;
};

// INVALID_ARGUMENT says what is malformed, missing or not supported: models of words or of
// characters, denormalizers, pieces that are there twice.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(absl::string_view bytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_SENTENCEPIECE_FILE_H_
