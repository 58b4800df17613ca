// A whole run on each device: what is told, and what is left in the job's folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/train/stop_control.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/training_fixture.h"

namespace millrace {
namespace {

struct Outcome {
  std::vector<double> losses, gradient_norms;
  std::map<std::string, std::string> checkpoint;  // content by name
};

class DevicesTest : public testing::Test {
 protected:
  Outcome Run(const TrainSpec& spec) {
    const std::string folder = NewJobFolder();
    RecordingObserver observer;
    StopControl stop;
    const auto result = Train(spec, folder, observer, stop);
    EXPECT_TRUE(result.ok()) << result.status();
    Outcome outcome;
    for (const StepMetrics& metrics : observer.steps) {
      outcome.losses.push_back(metrics.loss);
      outcome.gradient_norms.push_back(metrics.gradient_norm);
    }
    for (const char* name : {"model.safetensors", "optimizer_state.bin"}) {
      outcome.checkpoint[name] = *ReadFile(folder + "/checkpoints/12/" + name);
    }
    return outcome;
  }

  const std::string folder_ = NewJobFolder();
  TrainSpec spec_ = SmallJob(WriteText(folder_));
};

TEST_F(DevicesTest, ADiscreteDeviceChangesNothingOfARun) {
  for (double clip_norm : {1.0, 0.0}) {
    spec_.clip_norm = clip_norm;
    spec_.device = "cpu";
    spec_.link_gbps.reset();
    const Outcome unified = Run(spec_);
    spec_.device = "cpu-discrete";
    for (std::optional<double> link_gbps : {std::optional<double>(), std::optional(0.05)}) {
      spec_.link_gbps = link_gbps;
      const Outcome discrete = Run(spec_);
      EXPECT_EQ(discrete.losses, unified.losses);
      EXPECT_EQ(discrete.gradient_norms, unified.gradient_norms);
      EXPECT_TRUE(discrete.checkpoint == unified.checkpoint);
    }
  }
}

// The other half of the promise, where it goes on: a run may change its device when it is resumed.
TEST_F(DevicesTest, ARunMayGoOnOnAnotherDevice) {
  const Outcome expected = Run(spec_);
  const std::string folder = NewJobFolder();
  for (const char* device : {"cpu-discrete", "cpu"}) {
    spec_.device = device;
    RecordingObserver observer;
    StopControl stop;
    if (spec_.device == "cpu-discrete") {
      observer.on_step = [&stop](int64_t step) {
        if (step == 5) stop.RequestStop("PAUSE");
      };
    }
    ASSERT_TRUE(Train(spec_, folder, observer, stop).ok());
    EXPECT_EQ(observer.start_step, spec_.device == "cpu" ? 5 : 0);
  }
  for (const auto& [name, content] : expected.checkpoint) {
    EXPECT_TRUE(*ReadFile(folder + "/checkpoints/12/" + name) == content) << name;
  }
}

}  // namespace
}  // namespace millrace
