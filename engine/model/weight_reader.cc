#include "engine/model/weight_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/model/transpose.h"

namespace millrace {
namespace {

// A piece is large enough to read in one go and small enough to be in the cache when it is passed
// on.
constexpr int64_t kPieceElements = int64_t{1} << 18;
// Rows of a file's transposed tensor in a piece at least, and so the elements that a sink gets.
constexpr int64_t kLeastTransposedRows = 64;

// Part of one tensor: elements [first, first + count) of `run`, or, of a tensor that the file has
// transposed, rows [first, first + count) of the file's.
struct Piece {
  const TensorSource* source;
  const RowRun* run;  // nullptr: transposed
  int64_t first, count;

  // Where it begins in the file, in elements of its tensor.
  int64_t element() const {
    const FileTensor& tensor = *source->tensor;
    return run ? run->first_row * tensor.columns + first : first * tensor.rows;
  }
};

void AddPieces(const TensorSource& source, const RowRun* run, int64_t total, int64_t most,
               std::vector<Piece>& pieces) {
  for (int64_t first = 0; first < total; first += most) {
    pieces.push_back({&source, run, first, std::min(most, total - first)});
  }
}

// All pieces in the order of the files.
std::vector<Piece> Divide(absl::Span<const TensorSource> sources) {
  std::vector<Piece> pieces;
  for (const TensorSource& source : sources) {
    const FileTensor& tensor = *source.tensor;
    if (tensor.transposed != source.stored.transposed) {
      AddPieces(source, nullptr, tensor.columns,
                std::max(kPieceElements / tensor.rows, kLeastTransposedRows), pieces);
      continue;
    }
    for (const RowRun& run : tensor.runs) {
      AddPieces(source, &run, run.rows * tensor.columns, kPieceElements, pieces);
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    const auto key = [](const Piece& piece) {
      const StoredTensor& stored = piece.source->stored;
      return std::tuple(absl::string_view(stored.file), stored.position, piece.element());
    };
    return key(a) < key(b);
  });
  return pieces;
}

// One thread's buffers, and what it does to a piece.
class PieceReader {
 public:
  PieceReader(SlabSink sink, const ReadOptions& options) : sink_(sink), options_(options) {}

  absl::Status Read(const Piece& piece) {
    if (!piece.run) return ReadTransposed(piece);
    const StoredTensor& stored = piece.source->stored;
    const int64_t offset = piece.run->offset + piece.first;
    if (options_.bf16 && stored.read_bf16) {
      MILLRACE_ASSIGN_OR_RETURN(const absl::Span<BFloat16> place,
                                (*options_.bf16)(piece.run->unit, offset, piece.count));
      return stored.read_bf16(piece.element(), place);
    }
    values_.resize(piece.count);
    MILLRACE_RETURN_IF_ERROR(stored.read(piece.element(), absl::MakeSpan(values_)));
    return sink_(piece.run->unit, offset, values_);
  }

 private:
  // Rows of the file are columns of the slabs' tensor: each of its rows gets `piece.count`
  // elements.
  absl::Status ReadTransposed(const Piece& piece) {
    const FileTensor& tensor = *piece.source->tensor;
    values_.resize(piece.count * tensor.rows);
    MILLRACE_RETURN_IF_ERROR(piece.source->stored.read(piece.element(), absl::MakeSpan(values_)));
    for (const RowRun& run : tensor.runs) {
      turned_.resize(run.rows * piece.count);
      TransposeColumns(values_, piece.count, tensor.rows, run.first_row, run.rows, turned_.data());
      for (int64_t row = 0; row < run.rows; ++row) {
        MILLRACE_RETURN_IF_ERROR(
            sink_(run.unit, run.offset + row * tensor.columns + piece.first,
                  absl::MakeConstSpan(turned_).subspan(row * piece.count, piece.count)));
      }
    }
    return absl::OkStatus();
  }

  SlabSink sink_;
  const ReadOptions& options_;
  std::vector<float> values_, turned_;
};

}  // namespace

absl::Status ReadTensors(absl::Span<const TensorSource> sources, SlabSink sink,
                         const ReadOptions& options) {
  const std::vector<Piece> pieces = Divide(sources);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status status;  // under `mutex`
  const auto work = [&](int) {
    PieceReader reader(sink, options);
    while (true) {
      const size_t index = next++;
      if (index >= pieces.size()) return;
      absl::Status read = reader.Read(pieces[index]);
      if (read.ok()) continue;
      next = pieces.size();
      const std::lock_guard lock(mutex);
      if (status.ok()) status = std::move(read);
      return;
    }
  };
  if (options.threads) {
    options.threads->Run(work);
  } else {
    work(0);
  }
  return status;
}

absl::StatusOr<bool> SameValues(const StoredTensor& a, const StoredTensor& b) {
  int64_t count = 1;
  for (int64_t extent : a.shape) count *= extent;
  std::vector<float> left, right;
  for (int64_t first = 0; first < count; first += kPieceElements) {
    const size_t taken = static_cast<size_t>(std::min(kPieceElements, count - first));
    left.resize(taken);
    right.resize(taken);
    MILLRACE_RETURN_IF_ERROR(a.read(first, absl::MakeSpan(left)));
    MILLRACE_RETURN_IF_ERROR(b.read(first, absl::MakeSpan(right)));
    if (std::memcmp(left.data(), right.data(), taken * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace millrace
