#include "engine/ops/cpu/matmul.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dnnl.hpp"
#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/amx_product.h"
#include "engine/ops/cpu/amx_tiles.h"

namespace millrace {
namespace {

// Compiled products kept a thread; a job has a few dozen shapes.
constexpr size_t kMaxCompiled = 1024;

const dnnl::engine& Engine() {
  static const dnnl::engine* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

// All of a Product but its pointers.
struct Shape {
  int64_t m, n, k, a_stride, b_stride, c_stride;
  DType type, c_type;
  bool a_transposed, b_transposed, bias, accumulate;

  explicit Shape(const Product& p)
      : m(p.m),
        n(p.n),
        k(p.k),
        a_stride(p.a_stride),
        b_stride(p.b_stride),
        c_stride(p.c_stride),
        type(p.type),
        c_type(p.c_type),
        a_transposed(p.a_transposed),
        b_transposed(p.b_transposed),
        bias(p.bias != nullptr),
        accumulate(p.addend != nullptr) {}
  bool operator==(const Shape&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    return H::combine(std::move(h), s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride, s.type,
                      s.c_type, s.a_transposed, s.b_transposed, s.bias, s.accumulate);
  }
};

dnnl::memory::data_type TypeOf(DType type) {
  return type == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc Matrix(int64_t rows, int64_t columns, DType type, int64_t stride,
                          bool transposed) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, TypeOf(type), strides};
}

// A product made ready for one shape, with its operands' places.
class Compiled {
 public:
  explicit Compiled(const Shape& s) {
    const dnnl::memory::desc a = Matrix(s.m, s.k, s.type, s.a_stride, s.a_transposed);
    const dnnl::memory::desc b = Matrix(s.k, s.n, s.type, s.b_stride, s.b_transposed);
    const dnnl::memory::desc c = Matrix(s.m, s.n, s.c_type, s.c_stride, false);
    const dnnl::memory::desc bias({1, s.n}, TypeOf(s.type), dnnl::memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops add;
      add.append_sum();
      attributes.set_post_ops(add);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description =
        s.bias ? dnnl::matmul::primitive_desc(Engine(), a, b, bias, c, attributes)
               : dnnl::matmul::primitive_desc(Engine(), a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description(
        s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c), attributes,
        Engine());
#endif
    product_ = dnnl::matmul(description);
    scratch_bytes_ = description.scratchpad_desc().get_size();
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(a, Engine(), nullptr)},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(b, Engine(), nullptr)},
                  {DNNL_ARG_DST, dnnl::memory(c, Engine(), nullptr)}};
    if (s.bias) arguments_.emplace(DNNL_ARG_BIAS, dnnl::memory(bias, Engine(), nullptr));
    if (scratch_bytes_ > 0) {
      arguments_.emplace(DNNL_ARG_SCRATCHPAD,
                         dnnl::memory(description.scratchpad_desc(), Engine(), nullptr));
    }
  }

  size_t scratch_bytes() const { return scratch_bytes_; }

  void Execute(const dnnl::stream& stream, const Product& p, void* scratch) {
    // oneDNN takes all operands as mutable, and writes the result alone.
    arguments_.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(p.a), stream);
    arguments_.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(p.b), stream);
    arguments_.at(DNNL_ARG_DST).set_data_handle(p.c, stream);
    if (p.bias != nullptr) {
      arguments_.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(p.bias), stream);
    }
    if (scratch_bytes_ > 0) {
      arguments_.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch, stream);
    }
    product_.execute(stream, arguments_);
  }

 private:
  dnnl::matmul product_;
  size_t scratch_bytes_ = 0;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// oneDNN adds to c in place.
void CopyAddend(const Product& p) {
  if (p.addend == nullptr || p.addend == p.c) return;
  const auto size = static_cast<int64_t>(SizeOf(p.c_type));
  for (int64_t row = 0; row < p.m; ++row) {
    const int64_t at = row * p.c_stride * size;
    std::memcpy(static_cast<std::byte*>(p.c) + at, static_cast<const std::byte*>(p.addend) + at,
                static_cast<size_t>(p.n * size));
  }
}

// The two halves of a product, of rows or columns.
std::array<Product, 2> Halves(const Product& p) {
  constexpr int64_t kGrain = 64;
  const bool rows = p.m >= p.n;
  const int64_t count = rows ? p.m : p.n;
  const int64_t first = count > kGrain ? (count / 2 + kGrain - 1) / kGrain * kGrain : count / 2;
  Product low = p, high = p;
  const auto at = [first](const void* data, int64_t stride, DType type) {
    return static_cast<const std::byte*>(data) +
           first * stride * static_cast<int64_t>(SizeOf(type));
  };
  const int64_t c_stride = rows ? p.c_stride : 1;
  (rows ? low.m : low.n) = first;
  (rows ? high.m : high.n) = count - first;
  if (rows) {
    high.a = at(p.a, p.a_transposed ? 1 : p.a_stride, p.type);
  } else {
    high.b = at(p.b, p.b_transposed ? p.b_stride : 1, p.type);
    if (p.bias != nullptr) high.bias = at(p.bias, 1, p.type);
  }
  high.c = const_cast<std::byte*>(at(p.c, c_stride, p.c_type));
  if (p.addend != nullptr) high.addend = at(p.addend, c_stride, p.c_type);
  return {low, high};
}

// Whether oneDNN may use the features `isa`: the CPU has them, and ONEDNN_MAX_CPU_ISA allows it.
bool OneDnnHas(dnnl::cpu_isa isa) {
#if defined(__x86_64__)
  // The values are sets of features.
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
#else
  return false;
#endif
}

}  // namespace

class Matmul::Thread {
 public:
  void set_scratch(std::byte* scratch) { scratch_ = scratch; }

  absl::Status Run(const Product& product) {
    if (AmxSuits(product) && CpuUsesAmx()) {
      MILLRACE_ASSIGN_OR_RETURN(std::byte * scratch, Scratch(AmxScratchBytes(product)));
      RunAmxProduct(product, scratch);
      return absl::OkStatus();
    }
    try {
      // A setting of the calling thread alone.
      omp_set_num_threads(1);
      const Shape shape(product);
      auto found = compiled_.find(shape);
      if (found == compiled_.end()) {
        if (compiled_.size() >= kMaxCompiled) compiled_.clear();
        found = compiled_.emplace(shape, std::make_unique<Compiled>(shape)).first;
      }
      Compiled& compiled = *found->second;
      if (compiled.scratch_bytes() > kScratchBytesPerThread && std::max(product.m, product.n) > 1) {
        for (const Product& half : Halves(product)) MILLRACE_RETURN_IF_ERROR(Run(half));
        return absl::OkStatus();
      }
      MILLRACE_ASSIGN_OR_RETURN(std::byte * scratch, Scratch(compiled.scratch_bytes()));
      CopyAddend(product);
      compiled.Execute(stream_, product, scratch);
      return absl::OkStatus();
    } catch (const dnnl::error& error) {
      const std::string message =
          absl::StrCat("matrix product [", product.m, ", ", product.k, "] x [", product.k, ", ",
                       product.n, "] in ", NameOf(product.type), " -> ", NameOf(product.c_type),
                       ": oneDNN: ", error.what());
      return error.status == dnnl_out_of_memory ? absl::ResourceExhaustedError(message)
                                                : absl::InternalError(message);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("out of memory in a matrix product");
    }
  }

 private:
  absl::StatusOr<std::byte*> Scratch(size_t bytes) {
    if (scratch_ != nullptr && bytes <= kScratchBytesPerThread) return scratch_;
    if (bytes > own_scratch_.size()) {
      MILLRACE_ASSIGN_OR_RETURN(own_scratch_, AlignedBuffer::Allocate(bytes, "a matrix product"));
    }
    return own_scratch_.data();
  }

  dnnl::stream stream_{Engine()};
  absl::flat_hash_map<Shape, std::unique_ptr<Compiled>> compiled_;
  std::byte* scratch_ = nullptr;
  AlignedBuffer own_scratch_;
};

Matmul::Matmul(int threads) : threads_(new std::unique_ptr<Thread>[threads]) {
  for (int i = 0; i < threads; ++i) threads_[i] = std::make_unique<Thread>();
}
Matmul::~Matmul() = default;

absl::Status Matmul::Run(int thread, const Product& product) {
  if (product.m == 0 || product.n == 0) return absl::OkStatus();
  return threads_[thread]->Run(product);
}

void Matmul::SetScratch(int thread, std::byte* data) { threads_[thread]->set_scratch(data); }

bool CpuUsesAmx() {
  static const bool use = OneDnnHas(dnnl::cpu_isa::avx512_core_amx) && AmxAvailable();
  return use;
}

bool CpuMultipliesBf16() { return OneDnnHas(dnnl::cpu_isa::avx512_core_bf16); }

}  // namespace millrace
