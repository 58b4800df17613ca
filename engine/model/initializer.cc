#include "engine/model/initializer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/string_view.h"
#include "engine/model/normal_fill.h"

namespace millrace {
namespace {

// 64-bit FNV-1a of a tensor's name: the same in every version of this program.
uint64_t StreamOf(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

enum class Fill : uint8_t { kZeros, kOnes, kNormal, kNormalResidual };

Fill FillOf(TensorRole role) {
  switch (role) {
    case TensorRole::kAttentionNorm:
    case TensorRole::kQueryNorm:
    case TensorRole::kKeyNorm:
    case TensorRole::kAttentionPostNorm:
    case TensorRole::kMlpNorm:
    case TensorRole::kMlpPostNorm:
    case TensorRole::kFinalNorm:
      return Fill::kOnes;
    case TensorRole::kAttentionNormBias:
    case TensorRole::kQkvBias:
    case TensorRole::kAttentionOutputBias:
    case TensorRole::kAttentionPostNormBias:
    case TensorRole::kMlpNormBias:
    case TensorRole::kMlpInBias:
    case TensorRole::kMlpOutBias:
    case TensorRole::kMlpPostNormBias:
    case TensorRole::kFinalNormBias:
      return Fill::kZeros;
    case TensorRole::kAttentionOutput:
    case TensorRole::kMlpOut:
      return Fill::kNormalResidual;
    case TensorRole::kTokenEmbedding:
    case TensorRole::kPositionEmbedding:
    case TensorRole::kQkv:
    case TensorRole::kMlpIn:
    case TensorRole::kOutputProjection:
      return Fill::kNormal;
  }
  return Fill::kZeros;
}

}  // namespace

void InitializeSlab(const ModelSpec& spec, const SlabLayout& layout, uint64_t seed,
                    ThreadPool& threads, absl::Span<float> slab) {
  constexpr int64_t kGrain = 4096;
  threads.ParallelFor(layout.count, kGrain, [&](int64_t begin, int64_t end) {
    std::fill(slab.begin() + begin, slab.begin() + end, 0.0f);
  });
  for (const TensorLayout& tensor : layout.tensors) {
    const Fill fill = FillOf(tensor.role);
    if (fill == Fill::kZeros) continue;
    absl::Span<float> values = slab.subspan(tensor.offset, tensor.count());
    if (fill == Fill::kOnes) {
      std::fill(values.begin(), values.end(), spec.norm_plus_one ? 0.0f : 1.0f);
      continue;
    }
    double deviation = spec.initializer_range;
    if (fill == Fill::kNormalResidual && spec.scaled_residual_init) {
      deviation /= std::sqrt(2.0 * static_cast<double>(spec.num_layers));
    }
    for (const TensorPart& part : tensor.parts) {
      absl::Span<float> rows =
          values.subspan(part.first_row * tensor.columns, part.rows * tensor.columns);
      threads.ParallelFor(rows.size(), kGrain, [&](int64_t begin, int64_t end) {
        FillNormal(seed, StreamOf(part.name),
                   static_cast<uint64_t>(part.row_in_file * tensor.columns + begin),
                   static_cast<float>(deviation), rows.subspan(begin, end - begin));
      });
    }
  }
}

}  // namespace millrace
