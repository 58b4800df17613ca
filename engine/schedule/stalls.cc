#include "engine/schedule/stalls.h"

#include <algorithm>
#include <array>
#include <vector>

namespace millrace {
namespace {

double& StallOf(Opcode opcode, StepStalls& stalls) {
  switch (opcode) {
    case Opcode::kUpdate:
      return stalls.optimizer;
    case Opcode::kUpload:
      return stalls.weights;
    case Opcode::kFetchInput:
    case Opcode::kOffloadInput:
      return stalls.activations;
    case Opcode::kFetchAccumulator:
    case Opcode::kOffloadAccumulator:
    case Opcode::kConvertGradient:
    case Opcode::kDownloadGradient:
    case Opcode::kDownloadRows:
    case Opcode::kClearEmbeddingGradient:
    case Opcode::kEmbedScatter:
    case Opcode::kGradientNorm:
      return stalls.gradients;
    default:
      return stalls.data;
  }
}

class Attribution {
 public:
  Attribution(const Schedule& schedule, absl::Span<const Interval> intervals)
      : schedule_(schedule), intervals_(intervals), before_(intervals.size(), kNone) {
    std::array<int, kNumStreams> last;
    last.fill(kNone);
    for (size_t i = 0; i < intervals.size(); ++i) {
      int& previous = last[static_cast<size_t>(schedule.instructions[i].stream)];
      before_[i] = previous;
      previous = static_cast<int>(i);
    }
  }

  StepStalls Run() {
    double computed_until = 0;
    int computed = kNone, last = kNone;  // newest of the compute stream; last of all to end
    const int count = static_cast<int>(intervals_.size());
    for (int i = 0; i < count; ++i) {
      if (last == kNone || intervals_[i].end > intervals_[last].end) last = i;
      if (schedule_.instructions[i].stream != StreamId::kCompute) continue;
      Follow(Latest(i), computed, i, computed_until, intervals_[i].start);
      computed_until = std::max(computed_until, intervals_[i].end);
      computed = i;
    }
    if (last != kNone) Follow(last, computed, count, computed_until, intervals_[last].end);
    return stalls_;
  }

 private:
  // Of what instruction `i` had to wait for, the one that ended last.
  int Latest(int i) const {
    int latest = before_[i];
    for (int wait : schedule_.instructions[i].waits) {
      if (latest == kNone || intervals_[wait].end > intervals_[latest].end) latest = wait;
    }
    return latest;
  }

  // The gap [begin, end) between instructions `earlier` and `later` of the compute stream, at whose
  // end `cause` was done.
  void Follow(int cause, int earlier, int later, double begin, double end) {
    while (end > begin && cause != kNone && intervals_[cause].end > begin) {
      end = Count(cause, std::max(begin, std::min(end, intervals_[cause].start)), end);
      cause = Latest(cause);
    }
    for (int i = later - 1; i > earlier && end > begin; --i) {
      const Interval& ran = intervals_[i];
      if (ran.start >= begin && ran.end <= end) end = Count(i, ran.start, end);
    }
    if (end > begin) stalls_.data += end - begin;
  }
  double Count(int cause, double begin, double end) {
    StallOf(schedule_.instructions[cause].opcode, stalls_) += end - begin;
    return begin;
  }

  const Schedule& schedule_;
  absl::Span<const Interval> intervals_;
  std::vector<int> before_;  // the instruction ahead of each in its stream
  StepStalls stalls_;
};

}  // namespace

StepStalls AttributeStalls(const Schedule& schedule, absl::Span<const Interval> intervals) {
  return Attribution(schedule, intervals).Run();
}

}  // namespace millrace
