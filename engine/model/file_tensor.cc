#include "engine/model/file_tensor.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

absl::Status LayoutError(const FileTensor& tensor, absl::string_view message) {
  return absl::InternalError(absl::StrCat("the layout of tensor \"", tensor.name, "\" ", message));
}

FileTensor TensorOf(const TensorLayout& layout, const TensorPart& part) {
  FileTensor tensor;
  tensor.name = part.name;
  tensor.matrix = IsMatrix(layout.role);
  tensor.transposed = part.transposed;
  tensor.rows = part.file_rows();
  tensor.columns = layout.columns;
  return tensor;
}

bool SameShape(const FileTensor& a, const FileTensor& b) {
  return a.matrix == b.matrix && a.transposed == b.transposed && a.rows == b.rows &&
         a.columns == b.columns;
}

absl::Status CheckRuns(const FileTensor& tensor) {
  int64_t row = 0;
  for (const RowRun& run : tensor.runs) {
    if (run.first_row != row) {
      return LayoutError(
          tensor, absl::StrCat(run.first_row < row ? "has row " : "leaves out row ",
                               std::min(row, run.first_row), run.first_row < row ? " twice" : ""));
    }
    row += run.rows;
  }
  if (row == tensor.rows) return absl::OkStatus();
  return LayoutError(tensor, absl::StrCat("covers ", row, " rows of ", tensor.rows));
}

}  // namespace

absl::StatusOr<std::vector<FileTensor>> ListFileTensors(const std::vector<SlabLayout>& layouts) {
  std::vector<FileTensor> tensors;
  std::map<absl::string_view, size_t> places;  // views of the layouts' names
  for (const SlabLayout& slab : layouts) {
    for (const TensorLayout& layout : slab.tensors) {
      for (const TensorPart& part : layout.parts) {
        FileTensor tensor = TensorOf(layout, part);
        const auto [place, is_new] = places.emplace(part.name, tensors.size());
        if (is_new) {
          tensors.push_back(std::move(tensor));
        } else if (!SameShape(tensors[place->second], tensor)) {
          return LayoutError(tensor, "differs from part to part");
        }
        tensors[place->second].runs.push_back({part.row_in_file, part.rows, slab.index,
                                               layout.offset + part.first_row * layout.columns});
      }
    }
  }
  for (FileTensor& tensor : tensors) {
    std::sort(tensor.runs.begin(), tensor.runs.end(),
              [](const RowRun& a, const RowRun& b) { return a.first_row < b.first_row; });
    MILLRACE_RETURN_IF_ERROR(CheckRuns(tensor));
  }
  return tensors;
}

}  // namespace millrace
