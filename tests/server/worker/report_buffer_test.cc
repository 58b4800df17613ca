#include "server/worker/report_buffer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "server/worker/unsent_reports.h"
#include "tests/server/worker/temp_folder.h"

namespace millrace {
namespace {

v1::WorkerReport Step(int64_t step) {
  v1::WorkerReport report;
  report.mutable_step()->set_step(step);
  return report;
}

TEST(ReportBuffer, GivesReportsInOrderUntilAcknowledged) {
  ReportBuffer buffer;
  for (int i = 1; i <= 3; ++i) buffer.Add(Step(10 * i));
  v1::WorkerReport report;
  ASSERT_TRUE(buffer.WaitForNext(0, &report));
  EXPECT_EQ(report.sequence(), 1);
  EXPECT_EQ(report.step().step(), 10);
  EXPECT_GT(report.time().seconds(), 0);

  buffer.Acknowledge(2);
  ASSERT_TRUE(buffer.WaitForNext(0, &report)) << "a new stream begins after what is stored";
  EXPECT_EQ(report.sequence(), 3);
  EXPECT_EQ(buffer.Unacknowledged().size(), 1);
  EXPECT_FALSE(buffer.WaitUntilAllAcknowledged(absl::ZeroDuration()));
  buffer.Acknowledge(3);
  EXPECT_TRUE(buffer.WaitUntilAllAcknowledged(absl::ZeroDuration()));
  buffer.Acknowledge(99);
  buffer.Add(Step(40));
  ASSERT_TRUE(buffer.WaitForNext(3, &report)) << "no sequence is acknowledged before it is given";
  EXPECT_EQ(report.sequence(), 4);
}

TEST(ReportBuffer, WakesTheOneThatWaits) {
  ReportBuffer buffer;
  std::thread adder([&] { buffer.Add(Step(1)); });
  v1::WorkerReport report;
  EXPECT_TRUE(buffer.WaitForNext(0, &report));
  adder.join();
  std::thread interrupter([&] { buffer.Interrupt(); });
  EXPECT_FALSE(buffer.WaitForNext(1, &report));
  interrupter.join();
  EXPECT_FALSE(buffer.WaitForNext(0, &report));
  buffer.Resume();
  EXPECT_TRUE(buffer.WaitForNext(0, &report));
}

TEST(ReportBuffer, StaysBoundedWithoutGapsAndKeepsAllButSteps) {
  ReportBuffer buffer(/*capacity=*/100);
  for (int step = 1; step <= 1000; ++step) {
    buffer.Add(Step(step));
    if (step % 500 == 0) {
      v1::WorkerReport report;
      report.mutable_evaluation()->set_step(step);
      buffer.Add(report);
    }
  }
  const std::vector<v1::WorkerReport> reports = buffer.Unacknowledged();
  ASSERT_EQ(reports.size(), 1002);
  int steps = 0, evaluations = 0;
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].sequence(), static_cast<int64_t>(i) + 1);
    steps += reports[i].has_step();
    evaluations += reports[i].has_evaluation();
  }
  EXPECT_EQ(evaluations, 2);
  EXPECT_LE(steps, 100);
  EXPECT_GE(steps, 45);
  EXPECT_EQ(reports[1000].step().step(), 1000) << "the newest step is always there";

  // The stream gets the same, one by one.
  v1::WorkerReport report;
  for (int64_t sequence = 0; sequence < 1002; ++sequence) {
    ASSERT_TRUE(buffer.WaitForNext(sequence, &report));
    ASSERT_EQ(report.SerializeAsString(), reports[sequence].SerializeAsString());
  }
}

TEST(ReportBuffer, StaysBoundedWhateverTheKind) {
  ReportBuffer buffer(/*capacity=*/100);
  v1::WorkerReport prepared;
  prepared.mutable_prepared();
  buffer.Add(prepared);
  for (int step = 1; step <= 1000; ++step) {
    v1::WorkerReport report;
    report.mutable_checkpoint()->set_step(step);
    buffer.Add(report);
  }
  int prepared_count = 0, checkpoints = 0;
  const std::vector<v1::WorkerReport> reports = buffer.Unacknowledged();
  for (const v1::WorkerReport& report : reports) {
    prepared_count += report.has_prepared();
    checkpoints += report.has_checkpoint();
  }
  EXPECT_EQ(prepared_count, 1);
  EXPECT_LE(checkpoints, 100);
  EXPECT_EQ(reports.back().checkpoint().step(), 1000) << "the newest of a kind is always there";
}

TEST(UnsentReports, AreReadBackAsWritten) {
  const std::string folder = MakeTempFolder();
  EXPECT_TRUE(ReadUnsentReports(folder)->empty());
  EXPECT_TRUE(RemoveUnsentReports(folder).ok());

  ReportBuffer buffer;
  for (int i = 1; i <= 3; ++i) buffer.Add(Step(i));
  ASSERT_TRUE(WriteUnsentReports(folder, buffer.Unacknowledged()).ok());
  auto reports = ReadUnsentReports(folder);
  ASSERT_TRUE(reports.ok()) << reports.status();
  ASSERT_EQ(reports->size(), 3);
  EXPECT_EQ((*reports)[2].step().step(), 3);

  std::ofstream(folder + "/unsent.pb", std::ios::app) << "\x7fgarbage";
  EXPECT_EQ(ReadUnsentReports(folder).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(RemoveUnsentReports(folder).ok());
  EXPECT_TRUE(ReadUnsentReports(folder)->empty());
}

}  // namespace
}  // namespace millrace
