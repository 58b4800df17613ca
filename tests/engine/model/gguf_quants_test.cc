#include "engine/model/gguf_quants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/float16.h"
#include "engine/model/gguf_file.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

std::shared_ptr<const GgufFile> Golden() {
  const auto file = GgufFile::Open("tests/golden/gguf/quants.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  return *file;
}

std::vector<float> ValuesOf(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = file.tensors().at(name);
  std::vector<float> values(tensor.count());
  EXPECT_TRUE(file.Read(tensor, 0, absl::MakeSpan(values)).ok());
  return values;
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << i << ": " << a[i] << " and " << b[i];
  }
}

TEST(GgufQuants, DecodesEveryTypeToTheBitsOfTheReference) {
  const std::shared_ptr<const GgufFile> file = Golden();
  for (const char* type :
       {"F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}) {
    SCOPED_TRACE(type);
    EXPECT_EQ(file->tensors().at(type).type->name, type);
    ExpectSameBits(ValuesOf(*file, type), ValuesOf(*file, std::string(type) + ".values"));
  }
}

TEST(GgufQuants, AnyRangeOfElementsIsThatOfTheWhole) {
  const std::shared_ptr<const GgufFile> file = Golden();
  for (const char* type : {"F16", "Q4_1", "Q6_K"}) {
    const GgufTensor& tensor = file->tensors().at(type);
    const std::vector<float> whole = ValuesOf(*file, type);
    for (int64_t first = 0; first < tensor.count(); first += 7) {
      for (int64_t count : {1, 30, 31, 300}) {
        if (first + count > tensor.count()) continue;
        std::vector<float> part(count);
        ASSERT_TRUE(file->Read(tensor, first, absl::MakeSpan(part)).ok());
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first));
      }
    }
  }
}

TEST(GgufQuants, EncodesQ8ToTheBytesOfTheReference) {
  const std::shared_ptr<const GgufFile> file = Golden();
  const std::vector<float> values = ValuesOf(*file, "Q8_0.input");
  const GgufTensor& tensor = file->tensors().at("Q8_0");
  std::string bytes(tensor.size_bytes(), '\0');
  tensor.type->encode(values.data(), tensor.count() / 32, reinterpret_cast<uint8_t*>(bytes.data()));
  EXPECT_EQ(bytes, file->BytesOf(tensor));
}

TEST(GgufQuants, EveryHalfIsKeptAndFloatsRoundToTheNearest) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Float16{static_cast<uint16_t>(bits)}.ToFloat();
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Float16::FromFloat(value).ToFloat()));
    } else {
      ASSERT_EQ(Float16::FromFloat(value).bits, bits);
    }
    if ((bits & 0x7fff) >= 0x7bff) continue;
    const float next = Float16{static_cast<uint16_t>(bits + 1)}.ToFloat();
    const float middle = (value + next) / 2;
    ASSERT_EQ(Float16::FromFloat(middle).bits, bits + bits % 2) << middle;
    ASSERT_EQ(Float16::FromFloat(std::nextafter(middle, value)).bits, bits);
    ASSERT_EQ(Float16::FromFloat(std::nextafter(middle, next)).bits, bits + 1);
  }
  EXPECT_EQ(Float16::FromFloat(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Float16::FromFloat(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16::FromFloat(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
}

}  // namespace
}  // namespace millrace
