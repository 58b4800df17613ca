#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/ops/cpu/amx_product.h"
#include "engine/ops/cpu/amx_tiles.h"
#include "engine/ops/cpu/matmul.h"
#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Sizes {
  int64_t m, n, k;
};

struct Form {
  bool a_transposed, b_transposed, bias, addend;
  DType c_type;
};

std::vector<Form> AllForms() {
  std::vector<Form> forms;
  for (const DType c_type : {DType::kF32, DType::kBF16}) {
    for (int bits = 0; bits < 16; ++bits) {
      forms.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, c_type});
    }
  }
  return forms;
}

// A product with rows wider than they need to be, its operands, and what must come out.
class Case {
 public:
  Case(Sizes s, Form form, size_t offset = 0)
      : a_stride_((form.a_transposed ? s.m : s.k) + 3),
        b_stride_((form.b_transposed ? s.k : s.n) + 5),
        c_stride_(s.n + 7),
        a_(DType::kBF16, RandomDoubles((form.a_transposed ? s.k : s.m) * a_stride_, 1), offset),
        b_(DType::kBF16, RandomDoubles((form.b_transposed ? s.n : s.k) * b_stride_, 2), 2 * offset),
        bias_(DType::kBF16, RandomDoubles(s.n, 3)),
        addend_(form.c_type, RandomDoubles(s.m * c_stride_, 4)),
        c_(form.c_type, Doubles(s.m * c_stride_, 77), 3 * offset) {
    product_ = {.m = s.m,
                .n = s.n,
                .k = s.k,
                .type = DType::kBF16,
                .a = a_.data(),
                .a_stride = a_stride_,
                .a_transposed = form.a_transposed,
                .b = b_.data(),
                .b_stride = b_stride_,
                .b_transposed = form.b_transposed,
                .c = c_.data(),
                .c_stride = c_stride_,
                .c_type = form.c_type,
                .bias = form.bias ? bias_.data() : nullptr,
                .addend = form.addend ? addend_.data() : nullptr};
  }

  const Product& product() const { return product_; }
  const Tensor& c() const { return c_; }
  // Between the rows of c nothing may be written.
  void Check() const {
    Doubles want(product_.m * c_stride_, 77);
    const Doubles a = a_.values(), b = b_.values(), bias = bias_.values();
    const Doubles addend = addend_.values();
    for (int64_t i = 0; i < product_.m; ++i) {
      for (int64_t j = 0; j < product_.n; ++j) {
        double sum = product_.bias != nullptr ? bias[j] : 0;
        if (product_.addend != nullptr) sum += addend[i * c_stride_ + j];
        for (int64_t k = 0; k < product_.k; ++k) {
          sum += a[product_.a_transposed ? k * a_stride_ + i : i * a_stride_ + k] *
                 b[product_.b_transposed ? j * b_stride_ + k : k * b_stride_ + j];
        }
        want[i * c_stride_ + j] = sum;
      }
    }
    ExpectClose(c_.values(), want, RoundingOf(c_.type(), c_.type() == DType::kF32 ? 32 : 0.1), "c");
    const Doubles got = c_.values();
    for (int64_t i = 0; i < product_.m; ++i) {
      for (int64_t j = product_.n; j < c_stride_; ++j) ASSERT_EQ(got[i * c_stride_ + j], 77);
    }
  }

 private:
  const int64_t a_stride_, b_stride_, c_stride_;
  Tensor a_, b_, bias_, addend_, c_;
  Product product_;
};

TEST(AmxProductTest, MatchesReference) {
  if (!AmxAvailable()) GTEST_SKIP() << "no AMX here";
  for (const Sizes s : {Sizes{1, 1, 1}, Sizes{33, 47, 65}, Sizes{64, 32, 32}, Sizes{17, 130, 31},
                        Sizes{70, 96, 500}, Sizes{96, 64, 1100}}) {
    for (const Form& form : AllForms()) {
      Case c(s, form);
      AlignedBuffer scratch = AlignedBuffer::Allocate(AmxScratchBytes(c.product()), "test").value();
      RunAmxProduct(c.product(), scratch.data());
      c.Check();
    }
  }
}

// More columns than stay in the cache, and more of k than is summed at a time, whole tiles and not.
TEST(AmxProductTest, LargerThanTheCache) {
  if (!AmxAvailable()) GTEST_SKIP() << "no AMX here";
  for (const Sizes s : {Sizes{40, 460, 1024}, Sizes{33, 480, 2048}, Sizes{33, 420, 1100},
                        Sizes{400, 33, 4099}, Sizes{33, 1600, 40}}) {
    for (const bool transposed : {false, true}) {
      for (const bool addend : {false, true}) {
        Case c(s, {transposed, transposed, !addend, addend, DType::kF32});
        const size_t bytes = AmxScratchBytes(c.product());
        EXPECT_LE(bytes, kAmxScratchBytes);
        AlignedBuffer scratch = AlignedBuffer::Allocate(bytes, "test").value();
        RunAmxProduct(c.product(), scratch.data());
        c.Check();
      }
    }
  }
}

// A transposed op(a) of which not even one panel is kept over all of k.
TEST(AmxProductTest, SumsOfAnyDepth) {
  if (!AmxAvailable()) GTEST_SKIP() << "no AMX here";
  Case c({33, 20, 52000}, {true, false, true, false, DType::kBF16});
  const size_t bytes = AmxScratchBytes(c.product());
  EXPECT_LE(bytes, kAmxScratchBytes);
  AlignedBuffer scratch = AlignedBuffer::Allocate(bytes, "test").value();
  RunAmxProduct(c.product(), scratch.data());
  c.Check();
}

TEST(AmxProductTest, ScratchIsBounded) {
  for (const int64_t m : {1, 33, 1000, 50257}) {
    for (const int64_t n : {1, 33, 1000, 50257}) {
      for (const int64_t k : {1, 33, 1000, 1025, 50257, 1 << 20}) {
        for (const bool a_transposed : {false, true}) {
          EXPECT_LE(AmxScratchBytes({.m = m, .n = n, .k = k, .a_transposed = a_transposed}),
                    kAmxScratchBytes)
              << m << " " << n << " " << k;
        }
      }
    }
  }
}

// A sum's terms are added in the same order, whichever part of a product it is in.
TEST(AmxProductTest, PartsAddUpToTheSameBits) {
  if (!AmxAvailable()) GTEST_SKIP() << "no AMX here";
  for (const bool a_transposed : {false, true}) {
    Case whole({96, 480, 2100}, {a_transposed, false, true, false, DType::kF32});
    Case parts({96, 480, 2100}, {a_transposed, false, true, false, DType::kF32});
    AlignedBuffer scratch = AlignedBuffer::Allocate(kAmxScratchBytes, "test").value();
    RunAmxProduct(whole.product(), scratch.data());
    for (int64_t begin = 0; begin < 480; begin += 160) {
      Product part = parts.product();
      part.n = 160;
      part.b = static_cast<const BFloat16*>(part.b) + begin;
      part.bias = static_cast<const BFloat16*>(part.bias) + begin;
      part.c = static_cast<float*>(part.c) + begin;
      RunAmxProduct(part, scratch.data());
    }
    EXPECT_TRUE(whole.c().bytes() == parts.c().bytes());
  }
}

TEST(MatmulTest, MatchesReferenceAtAnyAlignment) {
  if (!CpuMultipliesBf16()) GTEST_SKIP() << "no bf16 here";
  Matmul matmul(1);
  for (const Sizes s : {Sizes{33, 47, 65}, Sizes{160, 256, 256}}) {
    for (const Form& form : AllForms()) {
      std::string first;
      for (const size_t offset : {0, 2, 64, 130}) {
        // Elements of f32 are at least on their own boundary.
        Case c(s, form, form.c_type == DType::kF32 ? offset * 2 : offset);
        ASSERT_TRUE(matmul.Run(0, c.product()).ok());
        if (first.empty()) {
          first = c.c().bytes();
          c.Check();
        }
        EXPECT_TRUE(c.c().bytes() == first) << "offset " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
