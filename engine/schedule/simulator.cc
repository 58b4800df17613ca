#include "engine/schedule/simulator.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

// Shorter stretches of time are rounding errors.
constexpr double kInstant = 1e-12;

// Work in progress. At full speed it uses `demand[r]` of resource r, the most needed one wholly.
struct Running {
  size_t instruction;
  double latency_left;  // seconds
  double left;          // seconds at full speed
  std::array<double, kNumResources> demand;
  double speed = 0;

  bool fluid() const { return latency_left <= 0; }
};

Running Begin(size_t instruction, const Work& work) {
  Running running{
      .instruction = instruction, .latency_left = work.latency, .left = 0, .demand = {}};
  running.left = *std::max_element(work.seconds.begin(), work.seconds.end());
  for (int r = 0; r < kNumResources; ++r) {
    running.demand[r] = running.left > 0 ? work.seconds[r] / running.left : 0;
  }
  return running;
}

// Speeds of those that run at one time. The scarcest resource is shared first: whoever asks for
// less than an even share gets that, the others the same amount of it.
void ShareResources(std::vector<Running>& running) {
  std::array<double, kNumResources> free;
  free.fill(1.0);
  std::vector<Running*> open;
  for (Running& r : running) {
    r.speed = 0;
    if (r.fluid()) open.push_back(&r);
  }
  while (!open.empty()) {
    // For each resource the speed of its most limited user; the least of all is settled.
    double least = 1.0;
    Running* slowest = nullptr;
    for (int r = 0; r < kNumResources; ++r) {
      std::vector<Running*> users;
      double asked = 0;
      for (Running* user : open) {
        if (user->demand[r] <= 0) continue;
        users.push_back(user);
        asked += user->demand[r];
      }
      if (asked <= free[r]) continue;
      std::sort(users.begin(), users.end(),
                [r](const Running* a, const Running* b) { return a->demand[r] < b->demand[r]; });
      double left = free[r], share = 0;
      for (size_t u = 0; u < users.size(); ++u) {
        share = left / static_cast<double>(users.size() - u);
        left -= std::min(share, users[u]->demand[r]);
      }
      const double speed = share / users.back()->demand[r];
      if (speed < least) {
        least = speed;
        slowest = users.back();
      }
    }
    std::vector<Running*> settled;
    if (slowest == nullptr) {
      settled = open;
    } else {
      settled.push_back(slowest);
    }
    for (Running* user : settled) {
      user->speed = least;
      for (int r = 0; r < kNumResources; ++r) {
        free[r] = std::max(0.0, free[r] - user->demand[r] * user->speed);
      }
      open.erase(std::find(open.begin(), open.end(), user));
    }
  }
}

class Run {
 public:
  Run(const Schedule& schedule, absl::Span<const Work> work, bool unified)
      : schedule_(schedule), work_(work), done_(work.size(), false) {
    result_.intervals.resize(work.size());
    result_.device_peak_bytes = schedule.device_bytes;
    result_.host_peak_bytes = schedule.host_bytes;
    for (size_t i = 0; i < work.size(); ++i) {
      const size_t queue = unified ? 0 : static_cast<size_t>(schedule.instructions[i].stream);
      queues_[queue].push_back(i);
    }
  }

  Simulation Finish() && {
    while (StartReady() || !running_.empty()) Advance();
    result_.seconds = now_;
    for (size_t i = 0; i < work_.size(); ++i) {
      result_.flops += work_[i].flops;
      if (schedule_.instructions[i].stream == StreamId::kCompute) {
        result_.device_busy_seconds += result_.intervals[i].seconds();
      }
      for (int r = 0; r < kNumResources; ++r) result_.used_seconds[r] += work_[i].seconds[r];
    }
    result_.stalls = AttributeStalls(schedule_, result_.intervals);
    return std::move(result_);
  }

 private:
  bool StartReady() {
    bool started = false;
    for (size_t q = 0; q < queues_.size(); ++q) {
      if (busy_[q] || heads_[q] == queues_[q].size()) continue;
      const size_t i = queues_[q][heads_[q]];
      const std::vector<int>& waits = schedule_.instructions[i].waits;
      if (!std::all_of(waits.begin(), waits.end(), [&](int wait) { return done_[wait]; })) continue;
      running_.push_back(Begin(i, work_[i]));
      queue_of_.push_back(q);
      busy_[q] = true;
      result_.intervals[i].start = now_;
      started = true;
    }
    if (started) ShareResources(running_);
    return started;
  }

  // To the next moment at which something ends.
  void Advance() {
    double step = std::numeric_limits<double>::infinity();
    for (const Running& r : running_) {
      if (!r.fluid()) {
        step = std::min(step, r.latency_left);
      } else if (r.left <= kInstant) {
        step = 0;
      } else if (r.speed > 0) {
        step = std::min(step, r.left / r.speed);
      }
    }
    now_ += step;
    for (size_t k = running_.size(); k-- > 0;) {
      Running& r = running_[k];
      if (!r.fluid()) {
        r.latency_left -= step;
        if (r.latency_left <= kInstant) r.latency_left = 0;
        if (!r.fluid() || r.left > kInstant) continue;
      } else {
        r.left -= step * r.speed;
        if (r.left > kInstant) continue;
      }
      done_[r.instruction] = true;
      result_.intervals[r.instruction].end = now_;
      busy_[queue_of_[k]] = false;
      ++heads_[queue_of_[k]];
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(k));
      queue_of_.erase(queue_of_.begin() + static_cast<ptrdiff_t>(k));
    }
    ShareResources(running_);
  }

  const Schedule& schedule_;
  absl::Span<const Work> work_;
  Simulation result_;
  std::array<std::vector<size_t>, kNumStreams> queues_;
  std::array<size_t, kNumStreams> heads_ = {};
  std::array<bool, kNumStreams> busy_ = {};
  std::vector<bool> done_;
  std::vector<Running> running_;
  std::vector<size_t> queue_of_;  // of each in running_
  double now_ = 0;
};

}  // namespace

Simulation Simulate(const Schedule& schedule, absl::Span<const Work> work, bool unified) {
  return Run(schedule, work, unified).Finish();
}

Simulation Simulate(const Schedule& schedule, const CostModel& cost, bool unified) {
  std::vector<Work> work;
  work.reserve(schedule.instructions.size());
  for (const Instruction& instruction : schedule.instructions) {
    work.push_back(cost.Of(instruction));
  }
  return Simulate(schedule, work, unified);
}

}  // namespace millrace
