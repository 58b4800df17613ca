// A step as data: typed instructions with explicit operands and dependencies.
//
// Instructions are in issue order. Those of one stream run in that order; between streams, an
// instruction starts after those that it waits for. Nothing else orders them.
#ifndef MILLRACE_ENGINE_SCHEDULE_SCHEDULE_H_
#define MILLRACE_ENGINE_SCHEDULE_SCHEDULE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace {

enum class StreamId : uint8_t {
  kUpload,
  kCompute,
  kDownload,
  kHost,  // what the host itself does: optimizer, embedding rows, gradient norms
};
inline constexpr int kNumStreams = 4;
absl::string_view NameOf(StreamId stream);

enum class Opcode : uint8_t {
  // Upload stream.
  kUpload,            // host weights of `unit`, or a range of them -> slot
  kUploadRows,        // gathered rows and positions of a micro-batch -> its first layer input
  kFetchInput,        // host memory -> a layer's input
  kFetchAccumulator,  // host memory -> the gradient that earlier micro-batches made
  // Compute stream.
  kBlockForward,       // input -> output; fills saved and remade
  kBlockRecompute,     // input -> saved and remade
  kBlockRemake,        // input, saved -> remade
  kBlockBackward,      // input, saved, remade, residual gradient -> residual gradient, gradient
  kHead,               // input -> loss, residual gradient, gradient
  kHeadEvaluate,       // input -> loss
  kHeadStatistics,     // input, a tile of the head's weights -> statistics; the last: loss
  kHeadTileGradient,   // input, statistics, a tile -> hidden gradient, the tile's gradient
  kHeadInputGradient,  // input, hidden gradient -> residual gradient, gradient of the final norm
  kConvertGradient,    // f32 accumulator -> as the host keeps it
  // Download stream.
  kOffloadInput,        // a layer's input -> host memory
  kOffloadAccumulator,  // the gradient so far -> host memory
  kDownloadGradient,    // device -> host gradient of `unit`, or a range of it
  kDownloadRows,        // residual gradient of a micro-batch -> host
  // Host stream.
  kUpdate,                  // optimizer on `unit`; gradient -> weights
  kEmbedGather,             // rows of a micro-batch -> staging, or straight to the layer's input
  kClearEmbeddingGradient,  // what no head overwrites
  kEmbedScatter,            // adds a micro-batch's rows to the embedding's gradient
  kGradientNorm,            // adds the squares of `unit`'s gradient
};
absl::string_view NameOf(Opcode opcode);

enum class BufferKind : uint8_t {
  // Nobody's arena: HostState's slabs, and numbers.
  kHostWeights,  // one a unit
  kLoss,
  kNorm,
  // The host arena.
  kHostGradient,     // as HostState's optimizer reads it
  kHostAccumulator,  // f32, between the micro-batches of a batch-major step
  kHostInput,        // a layer's input between forward and backward
  kStaging,          // rows of the embedding on their way
  // The device arena.
  kRotaryTable,
  kPositions,  // of a micro-batch's tokens
  kWeightSlot,
  kHeadSlot,          // the head's slab; with tiles, what lies before its projection
  kTileSlot,          // a tile of the head's weights
  kTiedSlot,          // the embedding's slab for a tied head
  kInput,             // of a layer, for a micro-batch
  kResidualGradient,  // of a micro-batch
  kSaved,             // activations of a block for backward
  kRemade,            // those that element-wise passes make again
  kBlockScratch,
  kHeadScratch,
  kHeadStatistics,   // of a micro-batch
  kHiddenGradient,   // f32, of a micro-batch's normed hidden states
  kAccumulator,      // gradient of a unit while it is made
  kHeadAccumulator,  // of the head; with tiles, of what lies before its projection
  kTileAccumulator,
  kTiedAccumulator,
  kConverted,  // a gradient as the host keeps it
  kHeadConverted,
  kTileConverted,
  kOpsWorkspace,
};
absl::string_view NameOf(BufferKind kind);

enum class MemorySpace : uint8_t { kNone, kHost, kDevice };
MemorySpace SpaceOf(BufferKind kind);

struct Buffer {
  BufferKind kind;
  int index = 0;      // unit, slot, pass or micro-batch
  size_t bytes = 0;   // 0: bound to memory of somebody else's
  size_t offset = 0;  // in its arena
};

// An operand: bytes [offset, offset + bytes) of a buffer that an instruction reads or writes.
struct Access {
  int buffer;
  bool write;
  size_t bytes;
  size_t offset = 0;
};

// Index of a buffer, or none.
inline constexpr int kNone = -1;

struct Instruction {
  Opcode opcode;
  StreamId stream;
  int unit = kNone;
  int micro_batch = kNone;
  // Of the unit's slab, elements; of the head's tiles, classes. 0: all.
  int64_t begin = 0;
  int64_t count = 0;
  // Operands by role.
  int weights = kNone;
  int tied_weights = kNone;  // the embedding's slab, for a head that shares it
  int input = kNone;
  int output = kNone;
  int saved = kNone;
  int remade = kNone;  // kNone: behind what is saved
  int scratch = kNone;
  int positions = kNone;
  int gradient = kNone;
  int tied_gradient = kNone;
  // The first to write its gradient this step: overwrites instead of adding.
  bool first_gradient = false;
  // Of a range of a gradient: its device buffers begin with the range, not with the slab.
  bool range_only = false;

  std::vector<Access> accesses;
  // Indices of earlier instructions on other streams.
  std::vector<int> waits;
};

struct Schedule {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  size_t device_bytes = 0;
  size_t host_bytes = 0;
};

// One line an instruction, for people.
std::string ToString(const Schedule& schedule);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_SCHEDULE_H_
