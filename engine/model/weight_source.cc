#include "engine/model/weight_source.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_files.h"
#include "engine/model/transpose.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<WeightSource>> WeightSource::Open(
    const std::vector<SlabLayout>& layouts, const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<FileTensor> places, ListFileTensors(layouts));
  MILLRACE_ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::Open(path));
  auto source = std::make_unique<WeightSource>();
  for (FileTensor& place : places) {
    std::optional<StoredTensor> stored = weights.Take(place.name);
    if (!stored) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has no tensor \"", place.name, "\""));
    }
    std::vector<int64_t> shape = place.shape();
    if (stored->transposed) std::reverse(shape.begin(), shape.end());
    if (stored->shape != shape || !stored->read) {
      return absl::InvalidArgumentError(absl::StrCat(
          stored->file, ": tensor \"", stored->name_in_file, "\" is not what the config says"));
    }
    const size_t tensor = source->tensors_.size();
    for (const RowRun& rows : place.runs) {
      source->runs_.push_back({rows, rows.rows * place.columns, tensor});
    }
    source->tensors_.push_back({std::move(place), *std::move(stored)});
  }
  std::sort(source->runs_.begin(), source->runs_.end(), [](const Run& a, const Run& b) {
    return std::tie(a.rows.unit, a.rows.offset) < std::tie(b.rows.unit, b.rows.offset);
  });
  return source;
}

absl::Status WeightSource::Read(int64_t unit, int64_t offset, absl::Span<float> out) {
  while (!out.empty()) {
    // The last run that begins at the offset or before it.
    const auto after = std::upper_bound(runs_.begin(), runs_.end(), std::tie(unit, offset),
                                        [](const auto& wanted, const Run& run) {
                                          return wanted < std::tie(run.rows.unit, run.rows.offset);
                                        });
    const Run* run = after == runs_.begin() ? nullptr : &*std::prev(after);
    if (run == nullptr || run->rows.unit != unit || offset >= run->rows.offset + run->count) {
      return absl::OutOfRangeError(
          absl::StrCat("element ", offset, " of unit ", unit, " is no tensor's"));
    }
    const int64_t first = offset - run->rows.offset;
    const size_t count = std::min(out.size(), static_cast<size_t>(run->count - first));
    MILLRACE_RETURN_IF_ERROR(ReadRun(*run, first, out.first(count)));
    offset += static_cast<int64_t>(count);
    out.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status WeightSource::ReadRun(const Run& run, int64_t first, absl::Span<float> out) {
  const Tensor& tensor = tensors_[run.tensor];
  const FileTensor& place = tensor.place;
  const int64_t begin = run.rows.first_row * place.columns + first;
  if (place.transposed == tensor.stored.transposed) return tensor.stored.read(begin, out);
  if (turned_tensor_ != run.tensor) {
    std::vector<float> whole(static_cast<size_t>(place.count()));
    MILLRACE_RETURN_IF_ERROR(tensor.stored.read(0, absl::MakeSpan(whole)));
    turned_.resize(whole.size());
    TransposeColumns(whole, place.columns, place.rows, 0, place.rows, turned_.data());
    turned_tensor_ = run.tensor;
  }
  std::copy_n(turned_.begin() + begin, out.size(), out.begin());
  return absl::OkStatus();
}

}  // namespace millrace
