#include "engine/model/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/model/gguf_config.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes bytes of a GGUF file by hand.
class Bytes {
 public:
  Bytes& U32(uint32_t value) {
    AppendGgufUint32(value, &bytes_);
    return *this;
  }
  Bytes& U64(uint64_t value) {
    AppendGgufUint64(value, &bytes_);
    return *this;
  }
  Bytes& Text(absl::string_view value) {
    AppendGgufString(value, &bytes_);
    return *this;
  }
  Bytes& Header(uint64_t tensors, uint64_t values, uint32_t version = 3) {
    bytes_ += "GGUF";
    return U32(version).U64(tensors).U64(values);
  }
  Bytes& Tensor(absl::string_view name, const std::vector<uint64_t>& extents, GgmlType type,
                uint64_t offset) {
    Text(name).U32(extents.size());
    for (uint64_t extent : extents) U64(extent);
    return U32(static_cast<uint32_t>(type)).U64(offset);
  }
  // The data's begin, and so many bytes of it.
  Bytes& Data(size_t size) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + size);
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string PathOf(const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/file.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string ErrorOf(const Bytes& bytes) {
  const auto file = GgufFile::Open(PathOf(bytes.str()));
  EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << file.status();
  return std::string(file.status().message());
}

TEST(GgufFile, ValuesOfAllTypesAreReadAndKept) {
  Bytes bytes;
  bytes.Header(0, 14, 2);
  const auto value = [&](absl::string_view key, GgufValueType type) -> Bytes& {
    return bytes.Text(key).U32(static_cast<uint32_t>(type));
  };
  value("u32", GgufValueType::kUint32).U32(4'000'000'000u);
  value("i32", GgufValueType::kInt32).U32(static_cast<uint32_t>(-5));
  value("f32", GgufValueType::kFloat32).U32(std::bit_cast<uint32_t>(1e-5f));
  value("u64", GgufValueType::kUint64).U64(std::numeric_limits<uint64_t>::max());
  value("i64", GgufValueType::kInt64).U64(static_cast<uint64_t>(-6));
  value("f64", GgufValueType::kFloat64).U64(std::bit_cast<uint64_t>(0.1));
  value("text", GgufValueType::kString).Text("words");
  value("i32s", GgufValueType::kArray).U32(5).U64(2).U32(1).U32(static_cast<uint32_t>(-1));
  value("texts", GgufValueType::kArray).U32(8).U64(2).Text("a").Text("");
  value("nested", GgufValueType::kArray).U32(9).U64(1).U32(4).U64(1).U32(7);
  std::string all = bytes.str();
  for (const auto& [key, type, content] :
       {std::tuple<const char*, GgufValueType, std::string>{"u8", GgufValueType::kUint8, "\xff"},
        {"i8", GgufValueType::kInt8, "\xff"},
        {"u16", GgufValueType::kUint16, "\x01\x02"},
        {"bool", GgufValueType::kBool, "\x01"}}) {
    AppendGgufString(key, &all);
    AppendGgufUint32(static_cast<uint32_t>(type), &all);
    all += content;
  }
  const auto file = GgufFile::Open(PathOf(all));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto at = [&](absl::string_view key) { return *(*file)->FindValue(key); };
  EXPECT_EQ(at("u32").whole(), 4'000'000'000);
  EXPECT_EQ(at("i32").whole(), -5);
  EXPECT_EQ(at("f32").real(), 1e-5);
  EXPECT_EQ(at("f32").whole(), std::nullopt);
  EXPECT_EQ(at("u64").whole(), std::nullopt);
  EXPECT_EQ(at("i64").real(), -6.0);
  EXPECT_EQ(at("f64").real(), 0.1);
  EXPECT_EQ(at("text").text(), "words");
  EXPECT_EQ(at("u8").whole(), 255);
  EXPECT_EQ(at("i8").whole(), -1);
  EXPECT_EQ(at("u16").whole(), 0x201);
  EXPECT_EQ(at("bool").boolean(), true);
  EXPECT_THAT(*at("i32s").wholes(), ElementsAre(1, -1));
  EXPECT_THAT(*at("texts").texts(), ElementsAre("a", ""));
  EXPECT_EQ(at("nested").wholes(), std::nullopt);
  EXPECT_EQ(at("nested").encoded().size(), 12 + 12 + 4);
  EXPECT_EQ((*file)->FindValue("absent"), nullptr);
}

TEST(GgufFile, WhatIsNoGgufFileIsSaid) {
  EXPECT_TRUE(absl::IsNotFound(GgufFile::Open("/nowhere.gguf").status()));
  EXPECT_THAT(ErrorOf(Bytes()), HasSubstr("is no GGUF file"));
  EXPECT_THAT(ErrorOf(Bytes().U64(7).U64(7).U64(7)), HasSubstr("is no GGUF file"));
  EXPECT_THAT(ErrorOf(Bytes().Header(0, 0, 1)), HasSubstr("versions 2 and 3"));
  EXPECT_THAT(ErrorOf(Bytes().Header(0, 0, 0x03000000)), HasSubstr("big-endian"));
  EXPECT_TRUE(absl::IsInvalidArgument(GgufFile::Open(::testing::TempDir()).status()));
}

TEST(GgufFile, CountsThatTheFileCannotHoldAreRefused) {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  EXPECT_THAT(ErrorOf(Bytes().Header(kHuge, 0).Data(64)), HasSubstr("cannot hold"));
  EXPECT_THAT(ErrorOf(Bytes().Header(0, kHuge).Data(64)), HasSubstr("cannot hold"));
  const auto array = [](uint32_t element, uint64_t count) {
    return ErrorOf(Bytes().Header(0, 1).Text("list").U32(9).U32(element).U64(count).Data(64));
  };
  for (uint32_t element : {0, 4, 8, 9, 10, 12}) {
    EXPECT_THAT(array(element, kHuge), HasSubstr("metadata \"list\" is cut short"));
  }
  EXPECT_THAT(array(13, 1), HasSubstr("\"list\""));
  EXPECT_THAT(ErrorOf(Bytes().Header(0, 1).Text("key").U32(8).U64(kHuge).Data(64)),
              HasSubstr("\"key\""));
  EXPECT_THAT(ErrorOf(Bytes().Header(0, 1).U64(kHuge).Data(64)), HasSubstr("metadata value 0"));
  Bytes deep;
  deep.Header(0, 1).Text("deep").U32(9);
  for (int i = 0; i < 100; ++i) deep.U32(9).U64(1);
  EXPECT_THAT(ErrorOf(deep), HasSubstr("\"deep\""));
}

TEST(GgufFile, BadTensorsAreNamed) {
  constexpr GgmlType kF32 = GgmlType::kF32;
  const auto one = [](const std::vector<uint64_t>& extents, GgmlType type, uint64_t offset) {
    const std::string error =
        ErrorOf(Bytes().Header(1, 0).Tensor("w", extents, type, offset).Data(128));
    EXPECT_THAT(error, HasSubstr("tensor \"w\""));
    return error;
  };
  EXPECT_THAT(one({33}, kF32, 0), HasSubstr("cut short"));
  EXPECT_THAT(one({32}, kF32, 32), HasSubstr("cut short"));
  EXPECT_THAT(one({32}, kF32, 7), HasSubstr("offset"));
  EXPECT_THAT(one({32}, kF32, uint64_t{1} << 63), HasSubstr("offset"));
  EXPECT_THAT(one({0}, kF32, 0), HasSubstr("extent"));
  EXPECT_THAT(one({uint64_t{1} << 40, uint64_t{1} << 40}, kF32, 0), HasSubstr("extent"));
  EXPECT_THAT(one({}, kF32, 0), HasSubstr("dimensions"));
  EXPECT_THAT(one({1, 1, 1, 1, 1}, kF32, 0), HasSubstr("dimensions"));
  EXPECT_THAT(one({33}, GgmlType::kQ8_0, 0), HasSubstr("blocks of 32"));
  EXPECT_THAT(one({32}, static_cast<GgmlType>(16), 0),
              AllOf(HasSubstr("ggml type 16"), HasSubstr("Q4_K")));
  const auto two = [](absl::string_view name, uint64_t offset) {
    return ErrorOf(
        Bytes().Header(2, 0).Tensor("a", {16}, kF32, 0).Tensor(name, {16}, kF32, offset).Data(128));
  };
  EXPECT_THAT(two("b", 32), HasSubstr("tensor \"b\" overlaps tensor \"a\""));
  EXPECT_THAT(two("a", 64), HasSubstr("tensor \"a\" is there twice"));
  EXPECT_THAT(two(std::string(65, 'x'), 64), HasSubstr("name of tensor 1"));
}

TEST(GgufFile, AlignmentIsTheFilesOwn) {
  const auto aligned = [](uint32_t alignment, uint64_t offset) {
    return Bytes()
        .Header(1, 1)
        .Text("general.alignment")
        .U32(4)
        .U32(alignment)
        .Tensor("w", {2}, GgmlType::kF32, offset);
  };
  EXPECT_TRUE(GgufFile::Open(PathOf(aligned(8, 8).Data(64).str())).ok());
  EXPECT_THAT(ErrorOf(aligned(64, 32).Data(256)), HasSubstr("offset"));
  for (uint32_t alignment : {0, 3, 1 << 30}) {
    EXPECT_THAT(ErrorOf(aligned(alignment, 0).Data(64)), HasSubstr("general.alignment"));
  }
}

TEST(GgufFile, RangesBeyondATensorAreRefused) {
  const auto file = GgufFile::Open("tests/golden/gguf/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const GgufTensor& tensor = (*file)->tensors().at("Q4_K");
  std::vector<float> values(512);
  EXPECT_TRUE((*file)->Read(tensor, 0, absl::MakeSpan(values)).ok());
  EXPECT_TRUE((*file)->Read(tensor, 512, {}).ok());
  EXPECT_TRUE(absl::IsOutOfRange((*file)->Read(tensor, 1, absl::MakeSpan(values))));
  EXPECT_TRUE(absl::IsOutOfRange((*file)->Read(tensor, -1, absl::MakeSpan(values))));
  EXPECT_TRUE(absl::IsOutOfRange((*file)->Read(tensor, 513, {})));
}

// Reads all that there is to read.
void Use(const std::string& bytes) {
  const auto file = GgufFile::Open(PathOf(bytes));
  if (!file.ok()) return;
  (void)GgufConfig(**file);
  for (const auto& [key, value] : (*file)->metadata()) {
    (void)value.whole();
    (void)value.reals();
    (void)value.texts();
  }
  const auto tensors = GgufTensors(*file);
  if (!tensors.ok()) return;
  for (const StoredTensor& tensor : *tensors) {
    std::vector<float> values(7);
    (void)tensor.read(0, absl::MakeSpan(values));
  }
}

TEST(GgufFile, DamagedFilesNeverCrash) {
  for (const char* name : {"llama", "gpt2", "quants"}) {
    const auto original = ReadFile(absl::StrCat("tests/golden/gguf/", name, ".gguf"));
    ASSERT_TRUE(original.ok());
    std::mt19937 random(7);
    // Headers are short; data is only values.
    const size_t interesting = std::min<size_t>(original->size(), 2500);
    for (int round = 0; round < 300; ++round) {
      std::string bytes = *original;
      for (int flips = random() % 4; flips >= 0; --flips) {
        const size_t place = random() % interesting;
        bytes[place] =
            static_cast<char>(random() % 3 == 0 ? random() : bytes[place] ^ (1 << random() % 8));
      }
      if (round % 3 == 0) bytes.resize(random() % interesting);
      Use(bytes);
    }
    for (size_t size = 0; size < interesting; size += 11) Use(original->substr(0, size));
  }
}

TEST(GgufWriter, WhatIsWrittenIsReadAgain) {
  const std::string path = ::testing::TempDir() + "/written.gguf";
  const GgufMetadata metadata = {{"general.name", GgufValue::String("x")},
                                 {"flag", GgufValue::Bool(true)},
                                 {"scores", GgufValue::Float32s({0.5f, -1.0f})},
                                 {"types", GgufValue::Int32s({1, 3})},
                                 {"tokens", GgufValue::Strings({"a", "\xff"})}};
  auto writer = GgufWriter::Create(path, metadata,
                                   {{"a", &InfoOf(GgmlType::kF32), {3, 5}},
                                    {"b", &InfoOf(GgmlType::kQ8_0), {2, 64}},
                                    {"c", &InfoOf(GgmlType::kBF16), {7}}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Finish()));
  std::vector<float> values(15 + 128 + 7);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 100);
  const absl::Span<const float> all = values;
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Append(all.first(16))));
  ASSERT_TRUE(writer->Append(all.first(15)).ok());
  for (size_t i = 15; i < 143; i += 4) ASSERT_TRUE(writer->Append(all.subspan(i, 4)).ok());
  ASSERT_TRUE(writer->Append(all.subspan(143)).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->sha256(), *Sha256OfFile(path));

  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  for (const auto& [key, value] : metadata) {
    ASSERT_NE((*file)->FindValue(key), nullptr) << key;
    EXPECT_EQ((*file)->FindValue(key)->encoded(), value.encoded());
  }
  size_t first = 0;
  for (const char* name : {"a", "b", "c"}) {
    const GgufTensor& tensor = (*file)->tensors().at(name);
    std::vector<float> read(tensor.count());
    ASSERT_TRUE((*file)->Read(tensor, 0, absl::MakeSpan(read)).ok());
    for (size_t i = 0; i < read.size(); ++i) EXPECT_NEAR(read[i], values[first + i], 0.4) << name;
    first += read.size();
  }
}

TEST(GgufWriter, WhatCannotBeWrittenIsNamed) {
  const std::string path = ::testing::TempDir() + "/refused.gguf";
  const auto error = [&](const GgufMetadata& metadata, std::vector<GgufTensor> tensors) {
    return std::string(GgufWriter::Create(path, metadata, std::move(tensors)).status().message());
  };
  const GgmlTypeInfo* f32 = &InfoOf(GgmlType::kF32);
  EXPECT_THAT(error({}, {{"a", f32, {1}}, {"a", f32, {1}}}), HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(error({{"k", GgufValue::Bool(true)}, {"k", GgufValue::Bool(true)}}, {}),
              HasSubstr("\"k\" is there twice"));
  EXPECT_THAT(error({}, {{"a", &InfoOf(GgmlType::kQ4_K), {256}}}), HasSubstr("type Q4_K"));
  EXPECT_THAT(error({}, {{"a", &InfoOf(GgmlType::kQ8_0), {32, 33}}}), HasSubstr("whole blocks"));
  EXPECT_THAT(error({}, {{std::string(64, 'a'), f32, {1}}}), HasSubstr("long a name"));
  auto writer = GgufWriter::Create(path, {}, {{"a", &InfoOf(GgmlType::kF16), {2}}});
  ASSERT_TRUE(writer.ok());
  EXPECT_THAT(std::string(writer->Append({1.0f, 70000.0f}).message()),
              HasSubstr("\"a\" has a value that F16 cannot hold"));
}

}  // namespace
}  // namespace millrace
