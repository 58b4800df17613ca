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
    case StreamId::kHost:
      return "host";
  }
  return "unknown";
}

absl::string_view NameOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kUpload:
      return "upload";
    case Opcode::kUploadRows:
      return "upload_rows";
    case Opcode::kFetchInput:
      return "fetch_input";
    case Opcode::kFetchAccumulator:
      return "fetch_accumulator";
    case Opcode::kBlockForward:
      return "block_forward";
    case Opcode::kBlockRecompute:
      return "block_recompute";
    case Opcode::kBlockRemake:
      return "block_remake";
    case Opcode::kBlockBackward:
      return "block_backward";
    case Opcode::kHead:
      return "head";
    case Opcode::kHeadEvaluate:
      return "head_evaluate";
    case Opcode::kHeadStatistics:
      return "head_statistics";
    case Opcode::kHeadTileGradient:
      return "head_tile_gradient";
    case Opcode::kHeadInputGradient:
      return "head_input_gradient";
    case Opcode::kConvertGradient:
      return "convert_gradient";
    case Opcode::kOffloadInput:
      return "offload_input";
    case Opcode::kOffloadAccumulator:
      return "offload_accumulator";
    case Opcode::kDownloadGradient:
      return "download_gradient";
    case Opcode::kDownloadRows:
      return "download_rows";
    case Opcode::kUpdate:
      return "update";
    case Opcode::kEmbedGather:
      return "embed_gather";
    case Opcode::kClearEmbeddingGradient:
      return "clear_embedding_gradient";
    case Opcode::kEmbedScatter:
      return "embed_scatter";
    case Opcode::kGradientNorm:
      return "gradient_norm";
  }
  return "unknown";
}

absl::string_view NameOf(BufferKind kind) {
  switch (kind) {
    case BufferKind::kHostWeights:
      return "host_weights";
    case BufferKind::kLoss:
      return "loss";
    case BufferKind::kNorm:
      return "norm";
    case BufferKind::kHostGradient:
      return "host_gradient";
    case BufferKind::kHostAccumulator:
      return "host_accumulator";
    case BufferKind::kHostInput:
      return "host_input";
    case BufferKind::kStaging:
      return "staging";
    case BufferKind::kRotaryTable:
      return "rotary_table";
    case BufferKind::kPositions:
      return "positions";
    case BufferKind::kWeightSlot:
      return "weight_slot";
    case BufferKind::kTileSlot:
      return "tile_slot";
    case BufferKind::kTileAccumulator:
      return "tile_accumulator";
    case BufferKind::kTileConverted:
      return "tile_converted";
    case BufferKind::kHeadSlot:
      return "head_slot";
    case BufferKind::kTiedSlot:
      return "tied_slot";
    case BufferKind::kInput:
      return "input";
    case BufferKind::kResidualGradient:
      return "residual_gradient";
    case BufferKind::kSaved:
      return "saved";
    case BufferKind::kRemade:
      return "remade";
    case BufferKind::kBlockScratch:
      return "block_scratch";
    case BufferKind::kHeadScratch:
      return "head_scratch";
    case BufferKind::kHeadStatistics:
      return "head_statistics";
    case BufferKind::kHiddenGradient:
      return "hidden_gradient";
    case BufferKind::kAccumulator:
      return "accumulator";
    case BufferKind::kHeadAccumulator:
      return "head_accumulator";
    case BufferKind::kTiedAccumulator:
      return "tied_accumulator";
    case BufferKind::kConverted:
      return "converted";
    case BufferKind::kHeadConverted:
      return "head_converted";
    case BufferKind::kOpsWorkspace:
      return "ops_workspace";
  }
  return "unknown";
}

MemorySpace SpaceOf(BufferKind kind) {
  switch (kind) {
    case BufferKind::kHostWeights:
    case BufferKind::kLoss:
    case BufferKind::kNorm:
      return MemorySpace::kNone;
    case BufferKind::kHostGradient:
    case BufferKind::kHostAccumulator:
    case BufferKind::kHostInput:
    case BufferKind::kStaging:
      return MemorySpace::kHost;
    default:
      return MemorySpace::kDevice;
  }
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
    if (instruction.count > 0) {
      absl::StrAppend(&text, " [", instruction.begin, ", ", instruction.begin + instruction.count,
                      ")");
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
