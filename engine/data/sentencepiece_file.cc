#include "engine/data/sentencepiece_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/data/byte_pieces.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

using Piece = SentencePieceModel::Piece;
using Kind = SentencePieceModel::Kind;

constexpr size_t kMostPieces = size_t{1} << 24;
constexpr size_t kMostPieceBytes = 1024;

absl::Status Problem(absl::string_view problem) { return absl::InvalidArgumentError(problem); }

absl::Status Malformed() {
  return Problem("is no SentencePiece model: it is no message of Protocol Buffers");
}

// A field of a message in the wire format of Protocol Buffers.
struct Field {
  uint64_t number = 0;
  enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 } wire = kVarint;
  uint64_t value = 0;       // kVarint, and the bits of kFixed32
  absl::string_view bytes;  // kBytes
};

std::optional<uint64_t> TakeVarint(absl::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Takes a field off the front of `*bytes`; false when there is no whole one.
bool TakeField(absl::string_view* bytes, Field* field) {
  const std::optional<uint64_t> tag = TakeVarint(bytes);
  if (!tag || *tag >> 3 == 0) return false;
  field->number = *tag >> 3;
  field->wire = static_cast<Field::Wire>(*tag & 7);
  uint64_t length = 0;
  switch (field->wire) {
    case Field::kVarint: {
      const std::optional<uint64_t> value = TakeVarint(bytes);
      field->value = value.value_or(0);
      return value.has_value();
    }
    case Field::kFixed64:
      length = 8;
      break;
    case Field::kFixed32:
      length = 4;
      break;
    case Field::kBytes: {
      const std::optional<uint64_t> value = TakeVarint(bytes);
      if (!value) return false;
      length = *value;
      break;
    }
    default:
      return false;  // groups
  }
  if (length > bytes->size()) return false;
  field->bytes = bytes->substr(0, length);
  bytes->remove_prefix(length);
  if (field->wire == Field::kFixed32) {
    uint32_t bits;
    std::memcpy(&bits, field->bytes.data(), sizeof(bits));
    field->value = bits;
  }
  return true;
}

// Calls take(field) for the fields of a message; those of an unknown number are passed over, as
// they are by whatever reads a newer message than it knows.
template <typename Take>
absl::Status ForFields(absl::string_view bytes, Take take) {
  Field field;
  while (!bytes.empty()) {
    if (!TakeField(&bytes, &field)) return Malformed();
    MILLRACE_RETURN_IF_ERROR(take(field));
  }
  return absl::OkStatus();
}

absl::Status Read(const Field& field, std::string* out) {
  if (field.wire != Field::kBytes) return Malformed();
  *out = std::string(field.bytes);
  return absl::OkStatus();
}

absl::Status Read(const Field& field, bool* out) {
  if (field.wire != Field::kVarint) return Malformed();
  *out = field.value != 0;
  return absl::OkStatus();
}

absl::StatusOr<Piece> ReadPiece(absl::string_view bytes, size_t id) {
  Piece piece;
  MILLRACE_RETURN_IF_ERROR(ForFields(bytes, [&](const Field& field) -> absl::Status {
    if (field.number == 1) return Read(field, &piece.text);
    if (field.number == 2) {
      if (field.wire != Field::kFixed32) return Malformed();
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof(bits));
    } else if (field.number == 3) {
      if (field.wire != Field::kVarint || field.value < 1 || field.value > 6) {
        return Problem(absl::StrCat("piece ", id, " is of a type that is not known"));
      }
      piece.kind = static_cast<Kind>(field.value);
    }
    return absl::OkStatus();
  }));
  std::string storage;
  if (piece.text.empty() || piece.text.size() > kMostPieceBytes) {
    return Problem(absl::StrCat("piece ", id, " must have 1 to ", kMostPieceBytes, " bytes"));
  }
  if (WellFormed(piece.text, &storage).data() != piece.text.data()) {
    return Problem(absl::StrCat("piece ", id, " is not UTF-8"));
  }
  if (!std::isfinite(piece.score)) {
    return Problem(absl::StrCat("the score of piece ", id, " is no number"));
  }
  return piece;
}

absl::Status ReadTrainerSpec(absl::string_view bytes, SentencePieceModel* model) {
  return ForFields(bytes, [&](const Field& field) -> absl::Status {
    switch (field.number) {
      case 3: {
        constexpr uint64_t kWord = 3, kChar = 4;
        if (field.wire != Field::kVarint) return Malformed();
        if (field.value == kWord || field.value == kChar) {
          return Problem(absl::StrCat("is a model of ",
                                      field.value == kWord ? "words" : "characters",
                                      "; unigram and BPE models are supported"));
        }
        if (field.value != 1 && field.value != 2) return Problem("is of a type that is not known");
        model->type = static_cast<SentencePieceModel::Type>(field.value);
        return absl::OkStatus();
      }
      case 24:
        return Read(field, &model->whitespace_as_suffix);
      case 35:
        return Read(field, &model->byte_fallback);
      case 44:
        return Read(field, &model->unknown_text);
      case 46:
        return Read(field, &model->begin_piece);
      case 47:
        return Read(field, &model->end_piece);
    }
    return absl::OkStatus();
  });
}

absl::Status ReadNormalizerSpec(absl::string_view bytes, SentencePieceModel* model) {
  return ForFields(bytes, [&](const Field& field) -> absl::Status {
    switch (field.number) {
      case 2:
        return Read(field, &model->character_map);
      case 3:
        return Read(field, &model->add_dummy_prefix);
      case 4:
        return Read(field, &model->remove_extra_whitespaces);
      case 5:
        return Read(field, &model->escape_whitespaces);
    }
    return absl::OkStatus();
  });
}

absl::Status CheckDenormalizerSpec(absl::string_view bytes) {
  return ForFields(bytes, [](const Field& field) {
    return field.number == 2 && !field.bytes.empty()
               ? Problem("has a denormalizer, which is not supported")
               : absl::OkStatus();
  });
}

absl::Status CheckPieces(SentencePieceModel* model) {
  absl::flat_hash_set<absl::string_view> seen;
  std::array<bool, 256> bytes{};
  for (size_t id = 0; id < model->pieces.size(); ++id) {
    const Piece& piece = model->pieces[id];
    if (!seen.insert(piece.text).second) {
      return Problem(absl::StrCat("piece ", id, ", \"", absl::Utf8SafeCHexEscape(piece.text),
                                  "\", is there twice"));
    }
    if (piece.kind == Kind::kUnknown) {
      if (model->unknown_id >= 0) return Problem("has two unknown tokens");
      model->unknown_id = static_cast<int32_t>(id);
    }
    if (piece.kind == Kind::kByte) {
      const int byte = ByteOfPiece(piece.text);
      if (byte < 0) return Problem(absl::StrCat("piece ", id, " stands for no byte"));
      bytes[static_cast<size_t>(byte)] = true;
    }
  }
  if (model->unknown_id < 0) return Problem("has no unknown token");
  const auto known = std::count(bytes.begin(), bytes.end(), true);
  if (model->byte_fallback ? known != 256 : known != 0) {
    return Problem(absl::StrCat("has tokens for ", known, " bytes where it must have ",
                                model->byte_fallback ? "256" : "none"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(absl::string_view bytes) {
  SentencePieceModel model;
  MILLRACE_RETURN_IF_ERROR(ForFields(bytes, [&](const Field& field) -> absl::Status {
    if (field.number < 1 || field.number > 5) return absl::OkStatus();
    if (field.wire != Field::kBytes) return Malformed();
    switch (field.number) {
      case 1: {
        if (model.pieces.size() == kMostPieces) return Problem("has too many pieces");
        MILLRACE_ASSIGN_OR_RETURN(model.pieces.emplace_back(),
                                  ReadPiece(field.bytes, model.pieces.size()));
        return absl::OkStatus();
      }
      case 2:
        return ReadTrainerSpec(field.bytes, &model);
      case 3:
        return ReadNormalizerSpec(field.bytes, &model);
      case 5:
        return CheckDenormalizerSpec(field.bytes);
      default:
        return absl::OkStatus();  // self-test data
    }
  }));
  if (model.pieces.empty()) return Problem("is no SentencePiece model: it has no pieces");
  MILLRACE_RETURN_IF_ERROR(CheckPieces(&model));
  return model;
}

}  // namespace millrace
