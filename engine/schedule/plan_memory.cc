#include "engine/schedule/plan_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "engine/base/aligned_buffer.h"
#include "engine/schedule/emitter.h"
#include "engine/schedule/step_buffers.h"

namespace millrace {
namespace {

absl::string_view PurposeOf(BufferKind kind) {
  switch (kind) {
    case BufferKind::kWeightSlot:
    case BufferKind::kHeadSlot:
    case BufferKind::kTileSlot:
    case BufferKind::kTiedSlot:
      return "slots";
    case BufferKind::kHostGradient:
    case BufferKind::kHostAccumulator:
    case BufferKind::kAccumulator:
    case BufferKind::kHeadAccumulator:
    case BufferKind::kTileAccumulator:
    case BufferKind::kTiedAccumulator:
    case BufferKind::kConverted:
    case BufferKind::kHeadConverted:
    case BufferKind::kTileConverted:
      return "gradients";
    case BufferKind::kHostInput:
    case BufferKind::kInput:
    case BufferKind::kResidualGradient:
    case BufferKind::kSaved:
    case BufferKind::kRemade:
    case BufferKind::kHeadStatistics:
    case BufferKind::kHiddenGradient:
      return "activations";
    case BufferKind::kStaging:
      return "staging";
    default:
      return "workspace";
  }
}

}  // namespace

Schedule BuffersOf(const ScheduledModel& model, const Plan& plan) {
  Emitter emitter;
  StepBuffers::Make(model, plan, PassesOf(model, plan), /*training=*/true, emitter);
  return std::move(emitter).Finish();
}

std::vector<MemoryItem> MemoryByPurpose(const Schedule& schedule, MemorySpace space) {
  std::vector<MemoryItem> items;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.bytes == 0 || SpaceOf(buffer.kind) != space) continue;
    const absl::string_view purpose = PurposeOf(buffer.kind);
    auto item = std::find_if(items.begin(), items.end(),
                             [&](const MemoryItem& i) { return i.purpose == purpose; });
    if (item == items.end()) {
      items.push_back({std::string(purpose), 0});
      item = std::prev(items.end());
    }
    item->bytes += AlignUp(buffer.bytes, kSlabAlignment);
  }
  return items;
}

}  // namespace millrace
