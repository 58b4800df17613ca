// Stand-ins for what surrounds the job manager: a launcher whose workers are played by the test,
// and a validator that accepts everything or refuses with a given error.
#ifndef MILLRACE_TESTS_SERVER_JOBS_FAKES_H_
#define MILLRACE_TESTS_SERVER_JOBS_FAKES_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/base/errors.h"
#include "server/base/paths.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_planner.h"

namespace millrace {

inline constexpr absl::Duration kPatience = absl::Seconds(10);

class FakeValidator : public SpecValidator {
 public:
  absl::StatusOr<ValidatedSpec> ResolveAndValidate(const v1::JobSpec& spec) override {
    absl::MutexLock lock(&mutex_);
    if (!error_.ok()) return error_;
    ValidatedSpec validated;
    validated.spec = spec;
    if (validated.spec.tokenizer().empty()) validated.spec.set_tokenizer("byte");
    validated.plan.set_fits(true);
    validated.plan.set_device("cpu");
    return validated;
  }
  void set_error(absl::Status error) {
    absl::MutexLock lock(&mutex_);
    error_ = std::move(error);
  }

 private:
  absl::Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

// Answers every request with the same plan, or refuses with a given error.
class FakePlanner : public JobPlanner {
 public:
  absl::StatusOr<v1::PlanJobResponse> Plan(const v1::PlanJobRequest& request) override {
    absl::MutexLock lock(&mutex_);
    request_ = request;
    if (!error_.ok()) return error_;
    v1::PlanJobResponse response;
    response.mutable_plan()->set_fits(true);
    response.mutable_plan()->set_device(request.device());
    if (request.trace()) response.set_trace(std::string(size_t{5} << 20, 't'));
    return response;
  }
  void set_error(absl::Status error) {
    absl::MutexLock lock(&mutex_);
    error_ = std::move(error);
  }
  v1::PlanJobRequest request() {
    absl::MutexLock lock(&mutex_);
    return request_;
  }

 private:
  absl::Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  v1::PlanJobRequest request_ ABSL_GUARDED_BY(mutex_);
};

// Records what the manager asks for. Tests wait for it and play the worker through WorkerOf.
class FakeLauncher : public WorkerLauncher {
 public:
  absl::Status Start(const std::string& job_id, int32_t attempt, const v1::JobSpec& spec) override {
    absl::MutexLock lock(&mutex_);
    starts_.push_back({job_id, attempt});
    return start_error_;
  }
  absl::StatusOr<bool> Adopt(const std::string& job_id, int32_t attempt) override {
    absl::MutexLock lock(&mutex_);
    if (!adopt_error_.ok()) return adopt_error_;
    return alive_.count(job_id) > 0;
  }
  void RequestStop(const std::string& job_id, int32_t attempt,
                   const std::string& trigger) override {
    absl::MutexLock lock(&mutex_);
    stops_.push_back({job_id, trigger});
  }
  void RequestCancel(const std::string& job_id, int32_t attempt, absl::Duration grace) override {
    absl::MutexLock lock(&mutex_);
    cancels_.push_back(job_id);
  }

  // Workers that an earlier daemon left.
  void set_alive(const std::string& job_id) {
    absl::MutexLock lock(&mutex_);
    alive_.insert(job_id);
  }
  void set_start_error(absl::Status error) {
    absl::MutexLock lock(&mutex_);
    start_error_ = std::move(error);
  }
  void set_adopt_error(absl::Status error) {
    absl::MutexLock lock(&mutex_);
    adopt_error_ = std::move(error);
  }
  bool WaitForStart(const std::string& job_id, int32_t attempt) {
    return WaitFor([&] { return Contains(starts_, std::pair(job_id, attempt)); });
  }
  bool WaitForStop(const std::string& job_id, const std::string& trigger) {
    return WaitFor([&] { return Contains(stops_, std::pair(job_id, trigger)); });
  }
  bool WaitForCancel(const std::string& job_id) {
    return WaitFor([&] { return Contains(cancels_, job_id); });
  }
  std::vector<std::pair<std::string, int32_t>> starts() {
    absl::MutexLock lock(&mutex_);
    return starts_;
  }

 private:
  template <typename T>
  static bool Contains(const std::vector<T>& all, const T& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  template <typename Condition>
  bool WaitFor(Condition condition) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&condition), kPatience);
  }

  absl::Mutex mutex_;
  absl::Status start_error_ ABSL_GUARDED_BY(mutex_);
  absl::Status adopt_error_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> alive_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, int32_t>> starts_;
  std::vector<std::pair<std::string, std::string>> stops_;
  std::vector<std::string> cancels_;
};

inline v1::CreateJobRequest MakeCreateRequest(const std::string& id) {
  v1::CreateJobRequest request;
  request.set_job_id(id);
  request.mutable_spec()->set_name("plays");
  request.mutable_spec()->mutable_data()->set_train("datasets/plays");
  request.mutable_spec()->mutable_train()->set_steps(100);
  return request;
}

inline v1::WorkerReport StepReport(int64_t sequence, int64_t step, double loss = 1.0) {
  v1::WorkerReport report;
  report.set_sequence(sequence);
  report.mutable_step()->set_step(step);
  report.mutable_step()->set_loss(loss);
  report.mutable_step()->set_step_seconds(0.5);
  return report;
}

inline v1::WorkerReport PreparedReport(int64_t sequence) {
  v1::WorkerReport report;
  report.set_sequence(sequence);
  report.mutable_prepared();
  return report;
}

inline v1::WorkerReport EndedReport(int64_t sequence, v1::WorkerReport::Ended::Outcome outcome,
                                    v1::Reason reason = v1::REASON_UNSPECIFIED,
                                    const std::string& message = "") {
  v1::WorkerReport report;
  report.set_sequence(sequence);
  report.mutable_ended()->set_outcome(outcome);
  report.mutable_ended()->set_reason(reason);
  report.mutable_ended()->set_message(message);
  return report;
}

// An empty data folder of its own for each test.
inline DataPaths MakeDataPaths() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = absl::StrCat(test->test_suite_name(), "-", test->name());
  for (char& c : name) {
    if (c == '/') c = '-';
  }
  const std::string root = absl::StrCat(testing::TempDir(), "/", name);
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root + "/jobs");
  return DataPaths(root);
}

// A job manager over a real store, with fakes around it, that can be stopped and started again.
class JobManagerTest : public testing::Test {
 protected:
  JobManagerTest() : options_{MakeDataPaths()} {}

  void StartManager() {
    auto store = JobStore::Open(options_.paths.Database(), {});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    launcher_ = std::make_unique<FakeLauncher>();
    for (const std::string& id : alive_at_start_) launcher_->set_alive(id);
    manager_ = std::make_unique<JobManager>(options_, store_.get(), launcher_.get(), &validator_);
    ASSERT_TRUE(manager_->RemoveLeftovers().ok());
    const absl::Status started = manager_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  // As a daemon that died: nobody tells the workers.
  void StopManager() {
    manager_ = nullptr;
    store_ = nullptr;
  }

  void SetUp() override { StartManager(); }
  void TearDown() override { StopManager(); }

  void CreateJob(const std::string& id) {
    const auto job = manager_->CreateJob(MakeCreateRequest(id));
    ASSERT_TRUE(job.ok()) << job.status();
  }

  // Creates a job and brings it to RUNNING; reports 1 to 2 are used (Prepared, step 1).
  void CreateRunningJob(const std::string& id) {
    CreateJob(id);
    ASSERT_TRUE(launcher_->WaitForStart(id, 1));
    ASSERT_TRUE(Report(id, 1, {PreparedReport(1), StepReport(2, 1)}).ok());
    ASSERT_EQ(StateOf(id), v1::Job::RUNNING);
  }

  absl::StatusOr<int64_t> Report(const std::string& id, int32_t attempt,
                                 std::vector<v1::WorkerReport> reports) {
    std::promise<absl::StatusOr<int64_t>> done;
    manager_->ApplyReports(id, attempt, std::move(reports),
                           [&](absl::StatusOr<int64_t> result) { done.set_value(result); });
    return done.get_future().get();
  }

  // The exit is stored when this returns.
  void Exit(const std::string& id, int32_t attempt, v1::Reason reason = v1::REASON_CRASH) {
    manager_->WorkerExited(id, attempt, {"killed by signal 9", reason});
    // Later in the same queue.
    (void)store_->Write([](JobTransaction&) { return absl::OkStatus(); });
  }

  v1::Job Get(const std::string& id) {
    auto job = manager_->GetJob(id);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : v1::Job();
  }

  v1::Job::State StateOf(const std::string& id) { return Get(id).state(); }

  // Waits for commits until the job is in `state`.
  bool WaitForState(const std::string& id, v1::Job::State state) {
    absl::Mutex mutex;
    bool reached = false;
    const auto look = [&] {
      const bool now = StateOf(id) == state;
      absl::MutexLock lock(&mutex);
      reached = reached || now;
    };
    auto subscription = manager_->Subscribe(id, look);
    look();
    absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }

  std::vector<v1::JobEvent> Events(const std::string& id) {
    auto page = manager_->ReadEvents(id, 0, 100000);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? page->events : std::vector<v1::JobEvent>();
  }

  // `QUEUED PREPARING RUNNING`, from the events.
  std::string StatesSoFar(const std::string& id) {
    std::string states;
    for (const v1::JobEvent& event : Events(id)) {
      if (!event.has_state_change()) continue;
      absl::StrAppend(&states, states.empty() ? "" : " ",
                      v1::Job::State_Name(event.state_change().to()));
    }
    return states;
  }

  JobManager::Options options_;
  std::set<std::string> alive_at_start_;
  FakeValidator validator_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<FakeLauncher> launcher_;
  std::unique_ptr<JobManager> manager_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_SERVER_JOBS_FAKES_H_
