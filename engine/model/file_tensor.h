// The tensors of a model directory, and where in the slabs their rows are: what the parts of all
// layouts (slab_layout.h) say, seen from the file. Readers and writers of weights go by it.
//
//   MILLRACE_ASSIGN_OR_RETURN(const std::vector<FileTensor> tensors, ListFileTensors(layouts));
#ifndef MILLRACE_ENGINE_MODEL_FILE_TENSOR_H_
#define MILLRACE_ENGINE_MODEL_FILE_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/slab_layout.h"

namespace millrace {

// Rows [first_row, first_row + rows) of a file's tensor: rows · columns elements from `offset` on
// in the slab of `unit`.
struct RowRun {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t unit = 0;
  int64_t offset = 0;
};

struct FileTensor {
  std::string name;
  // A vector has one column and is [rows] in the file; a matrix is [rows, columns] there, or
  // [columns, rows] when transposed.
  bool matrix = false;
  bool transposed = false;
  int64_t rows = 0;
  int64_t columns = 1;
  // In order of rows, each row once.
  std::vector<RowRun> runs;

  int64_t count() const { return rows * columns; }
  std::vector<int64_t> shape() const {
    if (!matrix) return {rows};
    return transposed ? std::vector<int64_t>{columns, rows} : std::vector<int64_t>{rows, columns};
  }
};

// In the order in which the layouts first name them. INTERNAL names a tensor whose parts do not
// agree with each other, overlap, or leave out a row: the layouts' mistake.
absl::StatusOr<std::vector<FileTensor>> ListFileTensors(const std::vector<SlabLayout>& layouts);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_FILE_TENSOR_H_
