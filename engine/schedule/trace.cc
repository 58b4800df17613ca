#include "engine/schedule/trace.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;

size_t CopiedBytes(const Instruction& instruction) {
  if (instruction.stream != StreamId::kUpload && instruction.stream != StreamId::kDownload) {
    return 0;
  }
  size_t bytes = 0;
  for (const Access& access : instruction.accesses) bytes += access.write ? access.bytes : 0;
  return bytes;
}

int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

// The format counts in microseconds.
double Microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

std::string Metadata(const char* what, int thread, const char* key, const Json& value) {
  const Json event = {{"ph", "M"},
                      {"pid", kProcess},
                      {"tid", thread},
                      {"name", what},
                      {"args", Json::object({{key, value}})}};
  return event.dump();
}

std::string CompleteEvent(const TraceEvent& event, int thread, double origin) {
  Json arguments = Json::object();
  if (event.step > 0) arguments["step"] = event.step;
  if (event.unit != kNone) arguments["unit"] = event.unit;
  if (event.micro_batch != kNone) arguments["micro_batch"] = event.micro_batch;
  if (event.bytes > 0) arguments["bytes"] = event.bytes;
  if (event.flops > 0) arguments["flops"] = event.flops;
  // Both ends are rounded, not the duration: what follows at once does not overlap.
  const int64_t start = Nanoseconds(event.start - origin);
  const int64_t end = Nanoseconds(event.end - origin);
  const Json json = {
      {"ph", "X"},          {"pid", kProcess},           {"tid", thread},
      {"name", event.name}, {"ts", Microseconds(start)}, {"dur", Microseconds(end - start)},
      {"args", arguments}};
  return json.dump();
}

}  // namespace

std::vector<TraceEvent> MakeTraceEvents(const Schedule& schedule,
                                        absl::Span<const Interval> intervals, int64_t step,
                                        double begin) {
  std::vector<TraceEvent> events;
  events.reserve(intervals.size());
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Instruction& instruction = schedule.instructions[i];
    events.push_back({.track = std::string(NameOf(instruction.stream)),
                      .name = std::string(NameOf(instruction.opcode)),
                      .start = begin + intervals[i].start,
                      .end = begin + intervals[i].end,
                      .step = step,
                      .unit = instruction.unit,
                      .micro_batch = instruction.micro_batch,
                      .bytes = CopiedBytes(instruction)});
  }
  return events;
}

std::string TraceJson(absl::Span<const TraceEvent> events) {
  double origin = events.empty() ? 0 : events.front().start;
  for (const TraceEvent& event : events) origin = std::min(origin, event.start);
  std::vector<std::string> tracks, lines = {Metadata("process_name", 0, "name", "millrace")};
  std::vector<std::string> complete;
  for (const TraceEvent& event : events) {
    const auto track = std::find(tracks.begin(), tracks.end(), event.track);
    const int thread = static_cast<int>(track - tracks.begin()) + 1;
    if (track == tracks.end()) {
      tracks.push_back(event.track);
      lines.push_back(Metadata("thread_name", thread, "name", event.track));
      lines.push_back(Metadata("thread_sort_index", thread, "sort_index", thread));
    }
    complete.push_back(CompleteEvent(event, thread, origin));
  }
  lines.insert(lines.end(), std::make_move_iterator(complete.begin()),
               std::make_move_iterator(complete.end()));
  return absl::StrCat("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n",
                      absl::StrJoin(lines, ",\n"), "\n]}\n");
}

}  // namespace millrace
