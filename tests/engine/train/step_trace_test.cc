// Traces of a real run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/base/file.h"
#include "engine/train/stop_control.h"
#include "engine/train/trainer.h"
#include "nlohmann/json.hpp"
#include "tests/engine/train/training_fixture.h"

namespace millrace {
namespace {

using nlohmann::json;

class StepTraceTest : public testing::Test {
 protected:
  void Run(const TrainSpec& spec) {
    const auto result = Train(spec, folder_, observer_, stop_);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  json Read(const TraceSaved& saved) {
    const std::string text = *ReadFile(folder_ + "/" + saved.path);
    EXPECT_EQ(static_cast<int64_t>(text.size()), saved.size_bytes);
    return json::parse(text);
  }

  const std::string folder_ = NewJobFolder();
  TrainSpec spec_ = SmallJob(WriteText(folder_));
  RecordingObserver observer_;
  StopControl stop_;
};

TEST_F(StepTraceTest, ShowsWhatEachStreamDidInTheStepsAskedFor) {
  for (const char* device : {"cpu", "cpu-discrete"}) {
    spec_.device = device;
    spec_.trace_steps = {{3, 5}};
    observer_ = {};
    std::filesystem::remove_all(folder_ + "/checkpoints");
    Run(spec_);
    ASSERT_EQ(observer_.traces.size(), 1u);
    EXPECT_EQ(observer_.traces[0].first_step, 3);
    EXPECT_EQ(observer_.traces[0].last_step, 5);
    EXPECT_EQ(observer_.traces[0].path, "traces/steps-3-5.json");
    const json trace = Read(observer_.traces[0]);

    std::map<int, std::string> tracks;
    std::map<int, double> ends;  // by track
    std::map<int64_t, std::set<std::pair<std::string, int>>> blocks;
    std::map<int64_t, int> events;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "M") {
        if (event.at("name") == "thread_name") {
          tracks[event.at("tid")] = event.at("args").at("name");
        }
        continue;
      }
      const double start = event.at("ts");
      double& end = ends[event.at("tid")];
      EXPECT_GE(start, end - 1e-3) << event;
      end = start + event.at("dur").get<double>();
      EXPECT_GE(event.at("dur").get<double>(), 0) << event;
      const json& arguments = event.at("args");
      const int64_t step = arguments.at("step");
      EXPECT_GE(step, 3);
      EXPECT_LE(step, 5);
      ++events[step];
      if (!arguments.contains("micro_batch")) continue;
      // Two micro-batches through two blocks, and no pass twice.
      const std::string name = event.at("name");
      if (name != "block_forward" && name != "block_backward") continue;
      const int pass =
          10 * arguments.at("unit").get<int>() + arguments.at("micro_batch").get<int>();
      EXPECT_TRUE(blocks[step].insert({name, pass}).second) << event;
    }
    EXPECT_EQ(events.size(), 3u);
    // Before the checkpoint after step 4, the updates that it left are made at once.
    EXPECT_EQ(events[3] + 1, events[4]);
    for (int64_t step : {3, 4, 5}) EXPECT_EQ(blocks[step].size(), 8u) << step;
    std::set<std::string> names;
    for (const auto& [thread, name] : tracks) names.insert(name);
    for (const char* name : {"step", "data", "upload", "compute", "host"}) {
      EXPECT_EQ(names.count(name), 1u) << name;
    }
    EXPECT_EQ(names.count("download"), spec_.device == "cpu" ? 0u : 1u);
  }
}

TEST_F(StepTraceTest, StallsAreWithinTheStep) {
  Run(spec_);
  for (const StepMetrics& metrics : observer_.steps) {
    EXPECT_GT(metrics.stalls.total(), 0);
    EXPECT_LE(metrics.stalls.total(), metrics.step_seconds);
    for (double stall : {metrics.stalls.weights, metrics.stalls.gradients, metrics.stalls.optimizer,
                         metrics.stalls.activations, metrics.stalls.data}) {
      EXPECT_GE(stall, 0);
    }
    EXPECT_GT(metrics.stalls.data, 0);
  }
  EXPECT_TRUE(observer_.traces.empty());
}

TEST_F(StepTraceTest, ARunThatGoesOnWithinTheRangeTracesTheRest) {
  spec_.trace_steps = {{3, 9}};
  observer_.on_step = [this](int64_t step) {
    if (step == 6) stop_.RequestStop("PAUSE");
  };
  Run(spec_);
  EXPECT_TRUE(observer_.traces.empty());
  observer_.on_step = nullptr;
  StopControl again;
  ASSERT_TRUE(Train(spec_, folder_, observer_, again).ok());
  ASSERT_EQ(observer_.traces.size(), 1u);
  EXPECT_EQ(observer_.traces[0].path, "traces/steps-7-9.json");
  Read(observer_.traces[0]);
}

TEST_F(StepTraceTest, ATraceThatCannotBeWrittenIsAWarning) {
  spec_.trace_steps = {{2, 2}};
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/traces", "not a folder").ok());
  Run(spec_);
  EXPECT_TRUE(observer_.traces.empty());
  ASSERT_EQ(observer_.warnings.size(), 1u);
  EXPECT_THAT(observer_.warnings[0], testing::HasSubstr("no trace was written"));
}

}  // namespace
}  // namespace millrace
