#include "server/inference/inference_pool.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/base/errors.h"
#include "tests/server/worker/temp_folder.h"

namespace millrace {
namespace {

class InferencePoolTest : public testing::Test {
 protected:
  void Start(InferencePool::Options options = {}) {
    options.folder = folder_ + "/inference";
    options.worker_program = "tests/server/inference/fake_infer_worker";
    options.free_bytes = [this] { return free_bytes_; };
    options.weight_bytes = [](const std::string&, const std::string&) { return 1000; };
    auto pool = InferencePool::Start(std::move(options));
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }

  ResolvedModel Model(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::app).put('x');
    return {"models/" + name, path};
  }

  // The number of the process that answers, or the error.
  absl::StatusOr<int> Ask(const ResolvedModel& model, int max_tokens = 1,
                          absl::Notification* answered = nullptr,
                          grpc::ClientContext* context = nullptr) {
    grpc::ClientContext own;
    if (context == nullptr) context = &own;
    int pid = 0;
    const absl::Status status =
        pool_->Call(model, "f32", context, [&](v1::InferenceService::Stub& stub) {
          v1::GenerateTextRequest request;
          request.set_max_tokens(max_tokens);
          const auto reader = stub.GenerateText(context, request);
          v1::GenerateTextResponse response;
          while (reader->Read(&response)) {
            EXPECT_TRUE(absl::SimpleAtoi(response.piece().text(), &pid));
            if (answered != nullptr) answered->Notify();
          }
          return reader->Finish();
        });
    if (!status.ok()) return status;
    return pid;
  }

  static bool Lives(int pid) { return kill(pid, 0) == 0; }

  const std::string folder_ = MakeTempFolder();
  int64_t free_bytes_ = int64_t{1} << 40;
  std::unique_ptr<InferencePool> pool_;
};

TEST_F(InferencePoolTest, CallsOfAModelShareAProcess) {
  Start();
  const ResolvedModel model = Model("a");
  const auto first = Ask(model);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*Ask(model), *first);
  EXPECT_EQ(pool_->loaded_models(), 1);
  pool_ = nullptr;
  EXPECT_FALSE(Lives(*first));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/inference")) << "sockets, logs and tokens go";
}

TEST_F(InferencePoolTest, AnotherModelTakesThePlaceOfTheOneUsedLongestAgo) {
  Start({.max_loaded_models = 2});
  const int a = *Ask(Model("a")), b = *Ask(Model("b"));
  ASSERT_TRUE(Ask({"models/a", folder_ + "/a"}).ok());
  ASSERT_TRUE(Ask(Model("c")).ok());
  EXPECT_TRUE(Lives(a));
  EXPECT_FALSE(Lives(b));
  EXPECT_EQ(pool_->loaded_models(), 2);
}

TEST_F(InferencePoolTest, WhatLiesAtAPathNowIsLoadedAnew) {
  Start();
  const int before = *Ask(Model("a"));
  // One byte more, and another time.
  EXPECT_NE(*Ask(Model("a")), before);
}

TEST_F(InferencePoolTest, ALoadedModelNeedsItsFilesNoMore) {
  Start();
  const ResolvedModel model = Model("a");
  const int before = *Ask(model);
  std::filesystem::remove(model.path);
  EXPECT_EQ(*Ask(model), before);
}

TEST_F(InferencePoolTest, ACrashIsToldWithTheLastWordsAndTheNextCallStartsAnew) {
  Start();
  const ResolvedModel model = Model("crash");
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = Ask(model).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "a page was not there")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "models/crash")) << status;
  }
}

TEST_F(InferencePoolTest, AProcessThatEndsBeforeItListensIsAnError) {
  Start();
  const absl::Status status = Ask(Model("dead")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no such processor")) << status;
}

TEST_F(InferencePoolTest, FaultsOfFieldsAndOfModelsAreToldApart) {
  Start();
  const ResolvedModel model = Model("a");
  const int pid = *Ask(model);
  const absl::Status field = Ask(model, 101).status();
  EXPECT_EQ(ReasonOf(field), "CONFIG_INVALID");
  ASSERT_EQ(FieldViolationsOf(field).size(), 1u);
  EXPECT_EQ(FieldViolationsOf(field)[0].field, "max_tokens");
  // It is no fault of the process.
  EXPECT_EQ(*Ask(model), pid);
  EXPECT_EQ(ReasonOf(Ask(Model("broken")).status()), "MODEL_INVALID");
}

TEST_F(InferencePoolTest, MoreCallsThanMayRunAreBusy) {
  Start({.max_calls = 1});
  const ResolvedModel slow = Model("slow");
  absl::Notification answered;
  grpc::ClientContext context;
  std::thread call([&] {
    const absl::Status status = Ask(slow, 1, &answered, &context).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  });
  answered.WaitForNotification();
  EXPECT_EQ(ReasonOf(Ask(slow).status()), "BUSY");
  context.TryCancel();
  call.join();
}

TEST_F(InferencePoolTest, AModelInUseKeepsItsPlaceAndItsMemory) {
  Start();
  const ResolvedModel slow = Model("slow");
  absl::Notification answered;
  grpc::ClientContext context;
  std::thread call([&] { Ask(slow, 1, &answered, &context).IgnoreError(); });
  answered.WaitForNotification();
  EXPECT_EQ(ReasonOf(Ask(Model("a")).status()), "BUSY");
  pool_->EndIdle();
  EXPECT_EQ(pool_->loaded_models(), 1);
  context.TryCancel();
  call.join();
  pool_->EndIdle();
  EXPECT_EQ(pool_->loaded_models(), 0);
}

TEST_F(InferencePoolTest, AnIdleProcessEnds) {
  Start({.idle_time = absl::ZeroDuration()});
  const auto pid = Ask(Model("a"));
  ASSERT_TRUE(pid.ok()) << pid.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (pool_->loaded_models() > 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_FALSE(Lives(*pid));
}

TEST_F(InferencePoolTest, WithoutMemoryNothingIsLoaded) {
  Start({.max_loaded_models = 2});
  const int idle = *Ask(Model("a"));
  free_bytes_ = 10;
  const absl::Status status = Ask(Model("b")).status();
  EXPECT_EQ(ReasonOf(status), "HOST_MEMORY_INSUFFICIENT");
  EXPECT_TRUE(absl::StrContains(status.message(), "needs")) << status;
  // What could be spared went first.
  EXPECT_FALSE(Lives(idle));
}

}  // namespace
}  // namespace millrace
