#include "engine/schedule/schedule.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace millrace {
absl::string_view NameOf(StreamId stream) {
  switch (stream) {
    case StreamId::kUpload:
      return "upload";
    case StreamId::kCompute:
      return "compute";
    case StreamId::kDownload:
      return "download";
  }
  return "unknown";
}

absl::string_view NameOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kUpdate:
      return "update";
    case Opcode::kUpload:
      return "upload";
    case Opcode::kEmbedForward:
      return "embed_forward";
    case Opcode::kBlockForward:
      return "block_forward";
    case Opcode::kBlockRecompute:
      return "block_recompute";
    case Opcode::kBlockBackward:
      return "block_backward";
    case Opcode::kHead:
      return "head";
    case Opcode::kHeadEvaluate:
      return "head_evaluate";
    case Opcode::kClearEmbeddingGradient:
      return "clear_embedding_gradient";
    case Opcode::kEmbedBackward:
      return "embed_backward";
    case Opcode::kConvertGradient:
      return "convert_gradient";
    case Opcode::kDownloadGradient:
      return "download_gradient";
    case Opcode::kGradientNorm:
      return "gradient_norm";
  }
  return "unknown";
}

absl::string_view NameOf(BufferKind kind) {
  switch (kind) {
    case BufferKind::kHostWeights:
      return "host_weights";
    case BufferKind::kHostGradient:
      return "host_gradient";
    case BufferKind::kLoss:
      return "loss";
    case BufferKind::kNorm:
      return "norm";
    case BufferKind::kRotaryTable:
      return "rotary_table";
    case BufferKind::kPositions:
      return "positions";
    case BufferKind::kWeightSlot:
      return "weight_slot";
    case BufferKind::kResidual:
      return "residual";
    case BufferKind::kResidualGradient:
      return "residual_gradient";
    case BufferKind::kSaved:
      return "saved";
    case BufferKind::kBlockScratch:
      return "block_scratch";
    case BufferKind::kHeadScratch:
      return "head_scratch";
    case BufferKind::kAccumulator:
      return "accumulator";
    case BufferKind::kConverted:
      return "converted";
    case BufferKind::kOpsWorkspace:
      return "ops_workspace";
  }
  return "unknown";
}

std::string ToString(const Schedule& schedule) {
  std::string text;
  for (size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& instruction = schedule.instructions[i];
    absl::StrAppend(&text, i, " ", NameOf(instruction.stream), " ", NameOf(instruction.opcode));
    if (instruction.unit != kNone) absl::StrAppend(&text, " unit ", instruction.unit);
    if (instruction.micro_batch != kNone) {
      absl::StrAppend(&text, " micro-batch ", instruction.micro_batch);
    }
    for (const Access& access : instruction.accesses) {
      const Buffer& buffer = schedule.buffers[access.buffer];
      absl::StrAppend(&text, access.write ? " >" : " <", NameOf(buffer.kind), "[", buffer.index,
                      "]");
    }
    if (!instruction.waits.empty()) {
      absl::StrAppend(&text, " waits ", absl::StrJoin(instruction.waits, ","));
    }
    text += '\n';
  }
  return text;
}

}  // namespace millrace
