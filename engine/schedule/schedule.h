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

enum class StreamId : uint8_t { kUpload, kCompute, kDownload };
inline constexpr int kNumStreams = 3;
absl::string_view NameOf(StreamId stream);

enum class Opcode : uint8_t {
  kUpdate,          // upload/download stream, host: optimizer on `unit`; gradient -> weights
  kUpload,          // host weights of `unit` -> slot
  kEmbedForward,    // host gather of the rows of a micro-batch -> residual
  kBlockForward,    // input -> output; fills saved
  kBlockRecompute,  // input -> saved
  kBlockBackward,   // input, saved, residual gradient -> residual gradient, gradient
  kHead,            // input -> loss, residual gradient, gradient
  kHeadEvaluate,    // input -> loss
  kClearEmbeddingGradient,  // host
  kEmbedBackward,           // host scatter-add of a micro-batch's residual gradient
  kConvertGradient,         // f32 accumulator -> as the host keeps it
  kDownloadGradient,        // device -> host gradient of `unit`
  kGradientNorm,            // host: adds the squares of `unit`'s gradient
};
absl::string_view NameOf(Opcode opcode);

enum class BufferKind : uint8_t {
  // Host memory, not in the arena.
  kHostWeights,   // one a unit
  kHostGradient,  // one a unit
  kLoss,
  kNorm,
  // Device memory.
  kRotaryTable,
  kPositions,  // of a micro-batch's tokens
  kWeightSlot,
  kResidual,          // input of a unit for a micro-batch
  kResidualGradient,  // of a micro-batch
  kSaved,             // activations of a block for backward
  kBlockScratch,
  kHeadScratch,
  kAccumulator,  // gradient of a unit while it is made
  kConverted,    // the same as the host keeps it
  kOpsWorkspace,
};
absl::string_view NameOf(BufferKind kind);

struct Buffer {
  BufferKind kind;
  int index = 0;  // unit, slot or micro-batch
  size_t bytes = 0;
  // Of the device arena; host buffers and bound ones have bytes of 0 there.
  size_t offset = 0;
};

// An operand: `bytes` of a buffer that an instruction reads or writes.
struct Access {
  int buffer;
  bool write;
  size_t bytes;
};

// Index of a buffer, or none.
inline constexpr int kNone = -1;

struct Instruction {
  Opcode opcode;
  StreamId stream;
  int unit = kNone;
  int micro_batch = kNone;
  // Operands by role.
  int weights = kNone;
  int tied_weights = kNone;  // the embedding's slab, for a head that shares it
  int input = kNone;
  int output = kNone;
  int saved = kNone;
  int scratch = kNone;
  int gradient = kNone;
  int tied_gradient = kNone;
  // The first to write its gradient this step: overwrites instead of adding.
  bool first_gradient = false;

  std::vector<Access> accesses;
  // Indices of earlier instructions on other streams.
  std::vector<int> waits;
};

struct Schedule {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  size_t device_bytes = 0;
};

// One line an instruction, for people.
std::string ToString(const Schedule& schedule);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_SCHEDULE_H_
