#include "server/worker/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "server/worker/job_lock.h"
#include "server/worker/unsent_reports.h"
#include "tests/server/worker/recording_sink.h"
#include "tests/server/worker/temp_folder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() : paths_(MakeTempFolder()) { std::filesystem::create_directories(JobFolder()); }

  std::string JobFolder() const { return paths_.Job("one"); }

  std::unique_ptr<Supervisor> MakeSupervisor() {
    Supervisor::Options options{.paths = paths_};
    options.worker_program =
        absl::StrCat(getenv("TEST_SRCDIR"), "/millrace/tests/server/worker/fake_worker");
    options.socket = paths_.WorkerSocket();
    options.stop_grace = absl::Milliseconds(200);
    options.terminate_grace = absl::Milliseconds(200);
    auto supervisor = std::make_unique<Supervisor>(options);
    supervisor->SetSink(&sink_);
    return supervisor;
  }

  absl::Status Start(Supervisor& supervisor, const std::string& behaviour) {
    v1::JobSpec spec;
    spec.set_name(behaviour);
    return supervisor.Start("one", 1, spec);
  }

  WorkerExit ExitOf(const std::string& behaviour) {
    auto supervisor = MakeSupervisor();
    const absl::Status status = Start(*supervisor, behaviour);
    if (!status.ok()) return {.description = status.ToString()};
    return sink_.WaitForExit();
  }

  int WaitForOwner() {
    auto owner = FindJobLockOwner(JobFolder(), absl::Seconds(30));
    return owner.ok() && owner->has_value() ? (*owner)->pid : 0;
  }

  DataPaths paths_;
  RecordingSink sink_;
};

TEST_F(SupervisorTest, TellsExitCodeAndLastErrorOfTheLog) {
  const WorkerExit exit = ExitOf("invalid");
  EXPECT_EQ(exit.reason, v1::REASON_INVALID);
  EXPECT_THAT(exit.description, HasSubstr("exit code 3"));
  EXPECT_THAT(exit.description, HasSubstr("train.steps: 0 is too few"));
  EXPECT_THAT(exit.description, Not(HasSubstr("bye")));
  EXPECT_TRUE(JobLock::Take(JobFolder()).ok()) << "the lock is free when the exit is told";
}

TEST_F(SupervisorTest, TellsTheSignal) {
  const WorkerExit exit = ExitOf("killed");
  EXPECT_EQ(exit.reason, v1::REASON_CRASH);
  EXPECT_THAT(exit.description, HasSubstr("signal 9 (Killed)"));
}

TEST_F(SupervisorTest, KnowsAFailedAllocation) {
  const WorkerExit exit = ExitOf("abort");
  EXPECT_EQ(exit.reason, v1::REASON_OUT_OF_MEMORY);
}

TEST_F(SupervisorTest, StartsWorkersInASessionOfTheirOwn) {
  ExitOf("session");
  EXPECT_THAT(*ReadFile(paths_.AttemptLog("one", 1)), HasSubstr("session 1 of its own"));
}

TEST_F(SupervisorTest, RefusesASecondWorkerForAJob) {
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(Start(*supervisor, "patient").ok());
  v1::JobSpec spec;
  EXPECT_EQ(supervisor->Start("one", 2, spec).code(), absl::StatusCode::kUnavailable);
  supervisor->RequestCancel("one", 1, absl::ZeroDuration());
  sink_.WaitForExit();
}

TEST_F(SupervisorTest, NamesAProgramThatIsNotThere) {
  Supervisor supervisor({.paths = paths_, .worker_program = "/no/such/program"});
  supervisor.SetSink(&sink_);
  const absl::Status status = Start(supervisor, "patient");
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/program"));
  EXPECT_TRUE(JobLock::Take(JobFolder()).ok());
}

TEST_F(SupervisorTest, KillsACancelledWorkerThatDoesNotEnd) {
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(Start(*supervisor, "stubborn").ok());
  supervisor->RequestCancel("one", 1, absl::Milliseconds(50));
  const WorkerExit exit = sink_.WaitForExit();
  EXPECT_THAT(exit.description, HasSubstr("killed because it had not ended 50ms after"));
}

TEST_F(SupervisorTest, TerminatesAWorkerThatDoesNotStop) {
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(Start(*supervisor, "patient").ok());
  supervisor->RequestStop("one", 1, "PAUSE");
  EXPECT_THAT(sink_.WaitForExit().description, HasSubstr("signal 15"));
}

TEST_F(SupervisorTest, KillsAWorkerThatIgnoresTermination) {
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(Start(*supervisor, "stubborn").ok());
  supervisor->RequestStop("one", 1, "PAUSE");
  EXPECT_THAT(sink_.WaitForExit().description, HasSubstr("killed because"));
}

TEST_F(SupervisorTest, LeavesWorkersToTheNextDaemon) {
  auto first = MakeSupervisor();
  ASSERT_TRUE(Start(*first, "patient").ok());
  first.reset();
  EXPECT_TRUE(sink_.exits().empty());

  auto second = MakeSupervisor();
  ASSERT_TRUE(*second->Adopt("one", 1));
  const int pid = WaitForOwner();
  ASSERT_GT(pid, 0);
  EXPECT_EQ(kill(pid, 0), 0) << "it lives";
  kill(pid, SIGKILL);
  sink_.WaitForExit();
  EXPECT_EQ(sink_.exits().size(), 1);
}

TEST_F(SupervisorTest, TakesALockOfAnUnknownProcessForALivingWorker) {
  auto lock = JobLock::Take(JobFolder());
  ASSERT_TRUE(lock.ok());
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(*supervisor->Adopt("one", 1));
  v1::WorkerCommand got;
  ASSERT_TRUE(
      supervisor->Attach("one", 1, [&](const v1::WorkerCommand& command) { got = command; }).ok());
  supervisor->RequestStop("one", 1, "PAUSE");
  EXPECT_TRUE(got.has_stop());
  supervisor->Detach("one", 1);
  EXPECT_TRUE(sink_.exits().empty());
  lock = absl::CancelledError("given up");
  EXPECT_THAT(sink_.WaitForExit().description, HasSubstr("the worker is gone"));
}

TEST_F(SupervisorTest, StartsNothingOnceItEnds) {
  auto supervisor = MakeSupervisor();
  supervisor->Shutdown();
  EXPECT_EQ(Start(*supervisor, "patient").code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(JobLock::Take(JobFolder()).ok()) << "no process is left";
}

TEST_F(SupervisorTest, PassesNoCommandToAnotherAttempt) {
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(Start(*supervisor, "patient").ok());
  supervisor->RequestCancel("one", 2, absl::ZeroDuration());
  supervisor->RequestStop("one", 2, "PAUSE");
  v1::WorkerCommand got;
  ASSERT_TRUE(
      supervisor->Attach("one", 1, [&](const v1::WorkerCommand& command) { got = command; }).ok());
  EXPECT_EQ(got.command_case(), v1::WorkerCommand::COMMAND_NOT_SET);
  supervisor->Detach("one", 1);
  supervisor->RequestCancel("one", 1, absl::ZeroDuration());
  sink_.WaitForExit();
}

TEST_F(SupervisorTest, DoesNotAdoptAWorkerThatIsGone) {
  ExitOf("killed");
  auto second = MakeSupervisor();
  EXPECT_FALSE(*second->Adopt("one", 1));
  EXPECT_FALSE(*second->Adopt("never-started", 1));
}

TEST_F(SupervisorTest, PassesOnWhatAWorkerLeftOnDisk) {
  ExitOf("unsent");
  const auto reports = sink_.WaitForReports(1);
  ASSERT_EQ(reports.size(), 1);
  EXPECT_EQ(reports[0].ended().outcome(), v1::WorkerReport::Ended::SUCCEEDED);
  EXPECT_TRUE(ReadUnsentReports(paths_.Attempt("one", 1))->empty()) << "and removes it";
}

TEST_F(SupervisorTest, PassesOnWhatAWorkerLeftWhileNoDaemonRan) {
  std::filesystem::create_directories(paths_.Attempt("one", 1));
  v1::WorkerReport report;
  report.set_sequence(1);
  report.mutable_ended()->set_outcome(v1::WorkerReport::Ended::STOPPED);
  ASSERT_TRUE(WriteUnsentReports(paths_.Attempt("one", 1), {report}).ok());
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(*supervisor->Adopt("one", 1));
  EXPECT_EQ(sink_.WaitForReports(1).size(), 1);
  sink_.WaitForExit();
}

TEST_F(SupervisorTest, SendsHomeAWorkerThatNobodyKnows) {
  auto supervisor = MakeSupervisor();
  v1::WorkerCommand got;
  const auto send = [&](const v1::WorkerCommand& command) { got = command; };
  EXPECT_EQ(supervisor->Attach("one", 1, send).status().code(), absl::StatusCode::kUnavailable)
      << "it may still be adopted";
  supervisor->AcceptWorkers();
  ASSERT_TRUE(supervisor->Attach("one", 1, send).ok());
  EXPECT_TRUE(got.has_cancel());
}

TEST_F(SupervisorTest, KeepsACommandForAWorkerThatIsNotConnectedYet) {
  auto supervisor = MakeSupervisor();
  ASSERT_TRUE(Start(*supervisor, "patient").ok());
  supervisor->RequestStop("one", 1, "SHUTDOWN");
  v1::WorkerCommand got;
  ASSERT_TRUE(
      supervisor->Attach("one", 1, [&](const v1::WorkerCommand& command) { got = command; }).ok());
  EXPECT_EQ(got.stop().trigger(), "SHUTDOWN");
  supervisor->RequestCancel("one", 1, absl::ZeroDuration());
  EXPECT_TRUE(got.has_cancel()) << "a cancellation beats a stop";
}

}  // namespace
}  // namespace millrace
