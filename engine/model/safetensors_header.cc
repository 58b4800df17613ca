#include "engine/model/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 50;
constexpr size_t kMostExtents = 16;
constexpr int kMostSkippedDepth = 64;
constexpr absl::string_view kMetadata = "__metadata__";

struct DTypeName {
  absl::string_view name;
  FileDType dtype;
  int64_t bits;
};

constexpr DTypeName kDTypeNames[] = {
    {"F32", FileDType::kF32, 32},      {"F16", FileDType::kF16, 16},
    {"BF16", FileDType::kBF16, 16},    {"F64", FileDType::kOther, 64},
    {"I64", FileDType::kOther, 64},    {"U64", FileDType::kOther, 64},
    {"I32", FileDType::kOther, 32},    {"U32", FileDType::kOther, 32},
    {"I16", FileDType::kOther, 16},    {"U16", FileDType::kOther, 16},
    {"I8", FileDType::kOther, 8},      {"U8", FileDType::kOther, 8},
    {"BOOL", FileDType::kOther, 8},    {"F8_E4M3", FileDType::kOther, 8},
    {"F8_E5M2", FileDType::kOther, 8},
};

const DTypeName* FindDType(absl::string_view name) {
  for (const DTypeName& candidate : kDTypeNames) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

absl::string_view NameOf(FileDType dtype) {
  for (const DTypeName& candidate : kDTypeNames) {
    if (candidate.dtype == dtype) return candidate.name;
  }
  return "";
}

// A name or another text of the file, as an error shows it.
std::string Shown(absl::string_view text) {
  constexpr size_t kMost = 200;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text.substr(0, kMost)),
                      text.size() > kMost ? "..." : "", "\"");
}

// What one tensor's object says; nothing where it does not say it.
struct Description {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, offsets;
};

// Follows the parser's tokens and keeps the tensors.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  HeaderReader(int64_t data_offset, int64_t data_bytes)
      : data_offset_(data_offset), data_bytes_(data_bytes) {}

  absl::StatusOr<SafetensorsEntries> Finish() {
    MILLRACE_RETURN_IF_ERROR(status_);
    if (place_ != Place::kEnd) return Malformed();
    MILLRACE_RETURN_IF_ERROR(CheckRanges());
    return std::move(tensors_);
  }

  bool null() override { return Value("null"); }
  bool boolean(bool value) override { return Value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Value(absl::StrCat(value)); }
  bool number_float(number_float_t value, const string_t& text) override { return Value(text); }
  bool number_unsigned(number_unsigned_t value) override {
    std::optional<std::vector<uint64_t>>* list = nullptr;
    if (place_ == Place::kShape) list = &tensor_.shape;
    if (place_ == Place::kOffsets) list = &tensor_.offsets;
    if (!list) return Value(absl::StrCat(value));
    if ((*list)->size() == kMostExtents) return Stop(TensorError("has too many numbers in a list"));
    (*list)->push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::kTensor && field_ == "dtype") {
      tensor_.dtype = value;
      return true;
    }
    return Value(Shown(value));
  }
  bool binary(binary_t&) override { return Stop(Malformed()); }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kBegin:
        place_ = Place::kTensors;
        return true;
      case Place::kTensors:
        if (name_ == kMetadata) return Skip();
        place_ = Place::kTensor;
        tensor_ = {};
        return true;
      case Place::kTensor:
        return IsKnown(field_) ? Value("an object") : Skip();
      case Place::kSkipped:
        return Skip();
      default:
        return Value("an object");
    }
  }

  bool key(string_t& value) override {
    if (place_ == Place::kTensors) {
      name_ = std::move(value);
      if (tensors_.count(name_) || (name_ == kMetadata && std::exchange(has_metadata_, true))) {
        return Stop(TensorError("is there twice"));
      }
    } else if (place_ == Place::kTensor) {
      field_ = std::move(value);
      const bool again = field_ == "dtype"          ? tensor_.dtype.has_value()
                         : field_ == "shape"        ? tensor_.shape.has_value()
                         : field_ == "data_offsets" ? tensor_.offsets.has_value()
                                                    : false;
      if (again) return Stop(TensorError(absl::StrCat("has ", field_, " twice")));
    }
    return true;
  }

  bool end_object() override {
    switch (place_) {
      case Place::kTensors:
        place_ = Place::kEnd;
        return true;
      case Place::kTensor:
        place_ = Place::kTensors;
        status_ = Keep();
        return status_.ok();
      default:
        return Leave();
    }
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
      tensor_.shape.emplace();
      return true;
    }
    if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
      tensor_.offsets.emplace();
      return true;
    }
    if (place_ == Place::kSkipped || (place_ == Place::kTensor && !IsKnown(field_))) return Skip();
    return Value("a list");
  }

  bool end_array() override {
    if (place_ == Place::kSkipped) return Leave();
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return Stop(Malformed());
  }

 private:
  // Inside what the parser is.
  enum class Place : uint8_t { kBegin, kTensors, kTensor, kShape, kOffsets, kSkipped, kEnd };

  struct Range {
    int64_t begin, end;
    const std::string* name;
  };

  static bool IsKnown(absl::string_view field) {
    return field == "dtype" || field == "shape" || field == "data_offsets";
  }
  static absl::Status Malformed() {
    return absl::InvalidArgumentError("its header is not a JSON object");
  }
  absl::Status TensorError(absl::string_view message) const { return TensorError(name_, message); }
  static absl::Status TensorError(absl::string_view name, absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Shown(name), " ", message));
  }

  bool Stop(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return false;
  }

  // What is not described here: a field of later versions, or the metadata.
  bool Skip() {
    if (place_ != Place::kSkipped) outside_ = place_;
    place_ = Place::kSkipped;
    if (++skipped_depth_ <= kMostSkippedDepth) return true;
    return Stop(TensorError(absl::StrCat("nests more than ", kMostSkippedDepth, " deep")));
  }
  bool Leave() {
    if (--skipped_depth_ == 0) place_ = outside_;
    return true;
  }

  // A value that is not what its place asks for; `shown` is how it looks.
  bool Value(absl::string_view shown) {
    switch (place_) {
      case Place::kSkipped:
        return true;
      case Place::kTensors:
        return Stop(TensorError("lacks one of dtype, shape, data_offsets"));
      case Place::kTensor:
        if (field_ == "dtype") return Stop(UnknownDType(shown));
        if (field_ == "shape") return Stop(TensorError("has a shape that is not a list"));
        if (field_ == "data_offsets") return Stop(NotTwoNumbers());
        return true;
      case Place::kShape:
        return Stop(TensorError(absl::StrCat("has an impossible shape with ", shown, " in it")));
      case Place::kOffsets:
        return Stop(TensorError(absl::StrCat("has data_offsets with ", shown, " in them")));
      default:
        return Stop(Malformed());
    }
  }

  absl::Status UnknownDType(absl::string_view shown) const {
    return TensorError(absl::StrCat("has an unknown dtype ", shown));
  }
  absl::Status NotTwoNumbers() const {
    return TensorError("has data_offsets that are not two numbers");
  }

  // The tensor whose object has ended.
  absl::Status Keep() {
    if (!tensor_.dtype || !tensor_.shape || !tensor_.offsets) {
      return TensorError("lacks one of dtype, shape, data_offsets");
    }
    const DTypeName* dtype = FindDType(*tensor_.dtype);
    if (!dtype) return UnknownDType(Shown(*tensor_.dtype));
    SafetensorsEntry entry{name_, dtype->dtype, {}, 0};
    const std::string shape = absl::StrCat("[", absl::StrJoin(*tensor_.shape, ","), "]");
    int64_t count = 1;
    for (uint64_t extent : *tensor_.shape) {
      if (extent > 0 &&
          static_cast<uint64_t>(kMostElements / std::max<int64_t>(count, 1)) < extent) {
        return TensorError(absl::StrCat("has an impossible shape ", shape));
      }
      entry.shape.push_back(static_cast<int64_t>(extent));
      count *= entry.shape.back();
    }
    const std::vector<uint64_t>& offsets = *tensor_.offsets;
    if (offsets.size() != 2) return NotTwoNumbers();
    if (offsets[1] > static_cast<uint64_t>(data_bytes_) || offsets[1] < offsets[0]) {
      return TensorError(absl::StrCat("has data_offsets [", absl::StrJoin(offsets, ","),
                                      "], but the file has ", data_bytes_,
                                      " bytes of data: it is damaged or cut short"));
    }
    const int64_t begin = static_cast<int64_t>(offsets[0]), end = static_cast<int64_t>(offsets[1]);
    if (end - begin != count * dtype->bits / 8) {
      return TensorError(absl::StrCat("takes ", end - begin, " bytes, but ", dtype->name, " ",
                                      shape, " takes ", count * dtype->bits / 8));
    }
    entry.offset_bytes = data_offset_ + begin;
    const auto place = tensors_.emplace(name_, std::move(entry)).first;
    ranges_.push_back({begin, end, &place->first});
    return absl::OkStatus();
  }

  // The format wants the tensors' bytes to be all of the data, each once.
  absl::Status CheckRanges() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    int64_t end = 0;
    for (const Range& range : ranges_) {
      if (range.begin < end) return TensorError(*range.name, "overlaps another one");
      if (range.begin > end) {
        return TensorError(*range.name, absl::StrCat("follows ", range.begin - end,
                                                     " bytes that belong to no tensor"));
      }
      end = range.end;
    }
    if (end == data_bytes_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("it ends with ", data_bytes_ - end, " bytes that belong to no tensor"));
  }

  const int64_t data_offset_, data_bytes_;
  Place place_ = Place::kBegin, outside_ = Place::kBegin;
  int skipped_depth_ = 0;
  bool has_metadata_ = false;
  std::string name_, field_;
  Description tensor_;
  SafetensorsEntries tensors_;
  std::vector<Range> ranges_;
  absl::Status status_;
};

}  // namespace

int64_t SizeOf(FileDType dtype) { return dtype == FileDType::kF32 ? 4 : 2; }

absl::StatusOr<SafetensorsEntries> ParseSafetensorsHeader(absl::string_view text,
                                                          int64_t data_offset, int64_t data_bytes) {
  HeaderReader reader(data_offset, data_bytes);
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.Finish();
}

std::string WriteSafetensorsHeader(const std::vector<SafetensorsEntry>& entries) {
  nlohmann::ordered_json header;
  header[std::string(kMetadata)] = {{"format", "pt"}};
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    const int64_t begin = end;
    end += entry.count() * SizeOf(entry.dtype);
    nlohmann::ordered_json& tensor = header[entry.name];
    tensor["dtype"] = std::string(NameOf(entry.dtype));
    tensor["shape"] = entry.shape;
    tensor["data_offsets"] = {begin, end};
  }
  return header.dump();
}

}  // namespace millrace
