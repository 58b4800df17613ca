#include "engine/schedule/trace.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

Schedule ThreeInstructions() {
  Schedule schedule;
  schedule.buffers = {{.kind = BufferKind::kHostWeights}, {.kind = BufferKind::kWeightSlot}};
  Instruction upload{.opcode = Opcode::kUpload, .stream = StreamId::kUpload, .unit = 3};
  upload.accesses = {{0, false, 640}, {1, true, 640}};
  Instruction forward{
      .opcode = Opcode::kBlockForward, .stream = StreamId::kCompute, .unit = 3, .micro_batch = 2};
  forward.accesses = {{1, false, 640}};
  Instruction update{.opcode = Opcode::kUpdate, .stream = StreamId::kHost, .unit = 0};
  schedule.instructions = {upload, forward, update};
  return schedule;
}

// Complete events, and the name of each track by its number.
struct Parsed {
  std::vector<json> events;
  std::map<int, std::string> tracks;

  explicit Parsed(const std::string& text) {
    const json trace = json::parse(text);
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") events.push_back(event);
      if (event.at("name") == "thread_name") {
        tracks[event.at("tid")] = event.at("args").at("name");
      }
    }
  }
};

TEST(TraceTest, EveryInstructionIsAnEventOnTheTrackOfItsStream) {
  const std::vector<Interval> intervals = {{0, 0.25}, {0.25, 0.5}, {0.125, 0.75}};
  const Parsed trace(TraceJson(MakeTraceEvents(ThreeInstructions(), intervals, /*step=*/7)));
  ASSERT_EQ(trace.events.size(), 3u);
  ASSERT_EQ(trace.tracks.size(), 3u);
  const char* names[] = {"upload", "block_forward", "update"};
  const char* tracks[] = {"upload", "compute", "host"};
  for (size_t i = 0; i < 3; ++i) {
    const json& event = trace.events[i];
    EXPECT_EQ(event.at("name"), names[i]);
    EXPECT_EQ(trace.tracks.at(event.at("tid")), tracks[i]);
    EXPECT_EQ(event.at("pid"), trace.events[0].at("pid"));
    EXPECT_DOUBLE_EQ(event.at("ts"), intervals[i].start * 1e6);
    EXPECT_DOUBLE_EQ(event.at("dur"), intervals[i].seconds() * 1e6);
    EXPECT_EQ(event.at("args").at("step"), 7);
  }
  EXPECT_EQ(trace.events[0].at("args"), json({{"step", 7}, {"unit", 3}, {"bytes", 640}}));
  EXPECT_EQ(trace.events[1].at("args"), json({{"step", 7}, {"unit", 3}, {"micro_batch", 2}}));
  EXPECT_EQ(trace.events[2].at("args"), json({{"step", 7}, {"unit", 0}}));
}

TEST(TraceTest, TimeBeginsWithTheEarliestEvent) {
  std::vector<TraceEvent> events = {
      {.track = "data", .name = "load", .start = 1e6 + 2, .end = 1e6 + 3, .flops = 5},
      {.track = "step", .name = "step 1", .start = 1e6, .end = 1e6 + 4}};
  const Parsed trace(TraceJson(events));
  EXPECT_DOUBLE_EQ(trace.events[0].at("ts"), 2e6);
  EXPECT_EQ(trace.events[0].at("args"), json({{"flops", 5.0}}));
  EXPECT_DOUBLE_EQ(trace.events[1].at("ts"), 0);
}

TEST(TraceTest, WhatFollowsAtOnceDoesNotOverlap) {
  std::vector<TraceEvent> events;
  for (int i = 0; i < 1000; ++i) {
    events.push_back({.track = "compute", .name = "x", .start = i / 3e8, .end = (i + 1) / 3e8});
  }
  double end = 0;
  const Parsed trace(TraceJson(events));
  for (const json& event : trace.events) {
    EXPECT_GE(event.at("ts").get<double>(), end - 1e-6);
    end = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
}

TEST(TraceTest, NamesMayHoldAnything) {
  const std::vector<TraceEvent> events = {{.track = "a\"b\\", .name = "line\nbreak ä"}};
  const Parsed trace(TraceJson(events));
  EXPECT_EQ(trace.tracks.begin()->second, "a\"b\\");
  EXPECT_EQ(trace.events[0].at("name"), "line\nbreak ä");
}

TEST(TraceTest, NothingAtAllIsATraceToo) { EXPECT_TRUE(Parsed(TraceJson({})).events.empty()); }

}  // namespace
}  // namespace millrace
