#include "engine/model/safetensors.h"

#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string PathOf(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// A file of this header and so many bytes of data.
std::string FileOf(const std::string& header, size_t data_bytes) {
  std::string path = PathOf("hostile.safetensors");
  const uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << header << std::string(data_bytes, '\1');
  return path;
}

std::string ErrorOf(const std::string& header, size_t data_bytes) {
  const absl::StatusOr<SafetensorsReader> reader =
      SafetensorsReader::Open(FileOf(header, data_bytes));
  EXPECT_TRUE(absl::IsInvalidArgument(reader.status())) << header << reader.status();
  return std::string(reader.status().message());
}

std::string RawErrorOf(const std::string& bytes) {
  const std::string path = PathOf("raw.safetensors");
  std::ofstream(path, std::ios::binary) << bytes;
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(absl::IsInvalidArgument(reader.status())) << reader.status();
  return std::string(reader.status().message());
}

template <typename T>
absl::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(Safetensors, ReadsWhatItWrote) {
  const std::string path = PathOf("written.safetensors");
  const std::vector<float> a = {1.5f, -2.0f, 1e-40f, std::numeric_limits<float>::infinity(), 5, 6};
  const std::vector<uint16_t> b = {0x3f80, 0xc000, 0x7f80};  // 1, -2, infinity
  absl::StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Create(
      path, {{"z.weight", FileDType::kF32, {2, 3}}, {"a.bias", FileDType::kBF16, {3}}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Append(BytesOf(a).substr(0, 5)).ok());
  ASSERT_TRUE(writer->Append(BytesOf(a).substr(5)).ok());
  ASSERT_TRUE(writer->Append(BytesOf(b)).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->size_bytes(), std::filesystem::file_size(path));
  EXPECT_EQ(writer->sha256(), *Sha256OfFile(path));

  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ(reader->tensors().size(), 2);
  const SafetensorsEntry& z = reader->tensors().at("z.weight");
  EXPECT_THAT(z.shape, ElementsAre(2, 3));
  EXPECT_EQ(z.offset_bytes % 8, 0);
  std::vector<float> values(6);
  ASSERT_TRUE(reader->Read(z, 0, absl::MakeSpan(values)).ok());
  EXPECT_EQ(values, a);
  values.resize(2);
  ASSERT_TRUE(reader->Read(reader->tensors().at("a.bias"), 1, absl::MakeSpan(values)).ok());
  EXPECT_THAT(values, ElementsAre(-2.0f, std::numeric_limits<float>::infinity()));
}

TEST(Safetensors, AWriterThatGotTooFewBytesDoesNotFinish) {
  absl::StatusOr<SafetensorsWriter> writer =
      SafetensorsWriter::Create(PathOf("short.safetensors"), {{"a", FileDType::kF32, {2}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append("1234").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Finish()));
}

TEST(Safetensors, HalfPrecisionIsReadExactly) {
  const std::vector<uint16_t> halves = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0001,
                                        0x83ff, 0x0400, 0x7c00, 0xfc00, 0x7e00};
  const std::string path = PathOf("half.safetensors");
  absl::StatusOr<SafetensorsWriter> writer =
      SafetensorsWriter::Create(path, {{"h", FileDType::kF16, {11}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(BytesOf(halves)).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> values(11);
  ASSERT_TRUE(reader->Read(reader->tensors().at("h"), 0, absl::MakeSpan(values)).ok());
  EXPECT_TRUE(std::isnan(values.back()));
  values.pop_back();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(values, ElementsAre(0.0f, -0.0f, 1.0f, -2.0f, 65504.0f, 0x1p-24f, -1023 * 0x1p-24f,
                                  0x1p-14f, kInfinity, -kInfinity));
  EXPECT_TRUE(std::signbit(values[1]));
}

TEST(Safetensors, OtherTypesMayBeThereButCannotBeRead) {
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(
      FileOf(R"({"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> values(3);
  const absl::Status status = reader->Read(reader->tensors().at("mask"), 0, absl::MakeSpan(values));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"mask\""));
}

TEST(Safetensors, EmptyTensorsAndScalarsAndMetadataAreFine) {
  const absl::StatusOr<SafetensorsReader> reader =
      SafetensorsReader::Open(FileOf(R"({"__metadata__":{"format":"pt"},
                 "none":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},
                 "one":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
                                     4));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->tensors().size(), 2);
  EXPECT_EQ(reader->tensors().at("one").count(), 1);
}

TEST(Safetensors, HeadersThatLieAreRefused) {
  struct Case {
    const char* header;
    size_t data_bytes;
    const char* message;
  };
  const Case cases[] = {
      {"", 0, "not a JSON object"},
      {"[]", 0, "not a JSON object"},
      {"{\"a\":", 0, "not a JSON object"},
      {"\xff\xfe{}", 0, "not a JSON object"},
      {R"({"a":[]})", 0, "tensor \"a\" lacks one of dtype, shape, data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor \"a\" lacks"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4,
       "tensor \"a\" has an unknown dtype \"F31\""},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype 7"},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape that is not a list"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
       "impossible shape with -1 in it"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4,
       "impossible shape with 1.5 in it"},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4,
       "impossible shape with \"1\" in it"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4,
       "impossible shape with a list in it"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
       4, "too many numbers"},
      {R"({"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}})", 4, "not a JSON object"},
      {R"({"a":{"dtype":"F32","shape":[1e3],"data_offsets":[0,4000]}})", 4000, "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}})", 0,
       "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
       "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "not two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":"0,4"}})", 4, "not two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "damaged or cut short"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4,
       "data_offsets with -4 in them"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.5]}})", 4,
       "data_offsets with 4.5 in them"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}})", 4,
       "data_offsets with 18446744073709551616 in them"},
      {R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4,
       "tensor \"a\" has dtype twice"},
      {R"({"__metadata__":"pt"})", 0, "tensor \"__metadata__\" lacks"},
      {R"({} {})", 0, "not a JSON object"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "damaged or cut short"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4,
       "damaged or cut short"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "tensor \"a\" takes 4 bytes, but F32 [2] takes 8"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
           "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "tensor \"b\" overlaps another one"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, "tensor \"b\" follows 4 bytes that belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "tensor \"a\" follows 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 6,
       "ends with 2 bytes that belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "tensor \"a\" is there twice"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(ErrorOf(c.header, c.data_bytes), HasSubstr(c.message)) << c.header;
  }
}

TEST(Safetensors, DeeplyNestedHeadersDoNoHarm) {
  const std::string nested = std::string(2'000'000, '[') + std::string(2'000'000, ']');
  EXPECT_THAT(ErrorOf("{\"a\":" + nested + "}", 0), HasSubstr("tensor \"a\" lacks"));
  EXPECT_THAT(ErrorOf("{\"a\":{\"dtype\":" + nested + "}}", 0), HasSubstr("unknown dtype a list"));
  EXPECT_THAT(ErrorOf("{\"a\":{\"note\":" + nested + "}}", 0),
              HasSubstr("nests more than 64 deep"));
  EXPECT_THAT(ErrorOf("{\"__metadata__\":{\"a\":" + nested + "}}", 0),
              HasSubstr("nests more than"));
}

TEST(Safetensors, WhatLaterVersionsMayAddIsPassedOver) {
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(
      FileOf(R"({"a":{"new":{"shape":[{"x":[]}]},"dtype":"F32","newer":[1,{"dtype":2}],"newest":1.5,
                 "shape":[1],"data_offsets":[0,4]},"__metadata__":{"a":{"dtype":"F32"}}})",
             4));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->tensors().size(), 1);
}

TEST(Safetensors, WhatIsNoFileIsNotWaitedFor) {
  const std::string path = PathOf("pipe.safetensors");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(absl::IsInvalidArgument(reader.status())) << reader.status();
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsReader::Open(::testing::TempDir()).status()));
}

TEST(Safetensors, HeaderLengthsThatLieAreRefused) {
  EXPECT_THAT(RawErrorOf(""), HasSubstr("is no safetensors file: it has 0 bytes"));
  EXPECT_THAT(RawErrorOf("1234567"), HasSubstr("it has 7 bytes"));
  EXPECT_THAT(RawErrorOf(std::string(8, '\xff')), HasSubstr("at most 0 can be"));
  EXPECT_THAT(RawErrorOf(std::string("\x03\0\0\0\0\0\0\0{}", 10)), HasSubstr("at most 2 can be"));
  EXPECT_TRUE(absl::IsNotFound(SafetensorsReader::Open(PathOf("none")).status()));
}

TEST(Safetensors, AnyCutOfAFileIsNoticed) {
  const std::string path = FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  const uintmax_t size = std::filesystem::file_size(path);
  for (uintmax_t cut = 0; cut < size; ++cut) {
    std::filesystem::resize_file(
        FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), cut);
    EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsReader::Open(path).status())) << cut;
  }
}

}  // namespace
}  // namespace millrace
