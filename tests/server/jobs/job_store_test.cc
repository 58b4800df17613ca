#include "server/jobs/job_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "server/base/errors.h"
#include "tests/server/jobs/fakes.h"

namespace millrace {
namespace {

using v1::Job;

std::unique_ptr<JobStore> OpenStore(const std::string& path, JobStore::Options options = {}) {
  auto store = JobStore::Open(path, options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

absl::Status Create(JobStore* store, const std::string& id) {
  return store->Write([&](JobTransaction& t) {
    StoredJob job;
    job.id = id;
    job.job.mutable_spec()->set_name(id);
    return t.Create(job).status();
  });
}

absl::Status AppendStep(JobTransaction& t, const std::string& id, int64_t step) {
  auto job = t.Get(id);
  if (!job.ok()) return job.status();
  v1::JobEvent event;
  event.mutable_step()->set_step(step);
  return t.Append(*job, event);
}

TEST(JobStoreTest, KeepsJobsAndEventsAcrossReopening) {
  const std::string path = MakeDataPaths().Database();
  {
    auto store = OpenStore(path);
    ASSERT_TRUE(Create(store.get(), "a").ok());
    ASSERT_TRUE(store->Write([](JobTransaction& t) { return AppendStep(t, "a", 7); }).ok());
  }
  auto store = OpenStore(path);
  const auto job = store->GetJob("a");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job.state(), Job::QUEUED);
  EXPECT_EQ(job->job.last_sequence(), 2);
  const auto page = store->ReadEvents("a", 0, 10);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->events.size(), 2);
  EXPECT_EQ(page->events[1].step().step(), 7);
}

TEST(JobStoreTest, SaysWhichFileIsDamaged) {
  const std::string path = MakeDataPaths().Database();
  std::ofstream(path) << std::string(9000, 'x');
  const absl::Status status = JobStore::Open(path, {}).status();
  EXPECT_NE(status.message().find("millrace.db is damaged"), absl::string_view::npos) << status;
}

TEST(JobStoreTest, LosesNothingThatWasCommittedWhenItsProcessIsKilled) {
  const std::string path = MakeDataPaths().Database();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto store = OpenStore(path);
    if (!Create(store.get(), "a").ok()) _exit(1);
    for (int64_t step = 1;; ++step) {
      if (!store->Write([=](JobTransaction& t) { return AppendStep(t, "a", step); }).ok()) _exit(1);
      if (write(pipe_ends[1], &step, sizeof(step)) != sizeof(step)) _exit(1);
    }
  }
  ASSERT_GT(child, 0);
  int64_t step = 0;
  while (step < 20) ASSERT_EQ(read(pipe_ends[0], &step, sizeof(step)), sizeof(step));
  kill(child, SIGKILL);
  int how;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFSIGNALED(how));
  close(pipe_ends[1]);
  int64_t last_told = step;
  while (read(pipe_ends[0], &step, sizeof(step)) == sizeof(step)) last_told = step;
  close(pipe_ends[0]);

  auto store = OpenStore(path);
  const auto page = store->ReadEvents("a", 0, 1000000);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->events[0].state_change().to(), Job::QUEUED);
  // Reading checks that no sequence is left out.
  EXPECT_GE(page->events.back().step().step(), last_told);
  EXPECT_EQ(page->last_sequence, page->events.back().sequence());
}

TEST(JobStoreTest, UndoesAllOfAChangeThatFails) {
  auto store = OpenStore(MakeDataPaths().Database());
  ASSERT_TRUE(Create(store.get(), "a").ok());
  const absl::Status status = store->Write([](JobTransaction& t) -> absl::Status {
    EXPECT_TRUE(AppendStep(t, "a", 1).ok());
    return absl::CancelledError("not this time");
  });
  EXPECT_EQ(status, absl::CancelledError("not this time"));
  const auto page = store->ReadEvents("a", 0, 10);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->events.size(), 1);
  EXPECT_EQ(page->last_sequence, 1);
}

TEST(JobStoreTest, ChangesThatWaitTogetherShareACommitAndFailAlone) {
  JobStore::Options options;
  options.commit_interval = absl::Hours(1);
  auto store = OpenStore(MakeDataPaths().Database(), options);
  int commits = 0;
  store->set_commit_observer([&](absl::Duration) { ++commits; });
  ASSERT_TRUE(Create(store.get(), "a").ok());
  std::vector<absl::Status> results;
  for (int64_t step = 1; step <= 5; ++step) {
    store->WriteSoon(
        [=](JobTransaction& t) -> absl::Status {
          if (step == 3) return absl::InternalError("three");
          return AppendStep(t, "a", step);
        },
        [&](absl::Status status) { results.push_back(status); });
  }
  // An urgent one takes them along.
  ASSERT_TRUE(store->Write([](JobTransaction& t) { return AppendStep(t, "a", 6); }).ok());
  EXPECT_EQ(commits, 2);
  ASSERT_EQ(results.size(), 5);
  EXPECT_TRUE(results[1].ok());
  EXPECT_EQ(results[2], absl::InternalError("three"));
  const auto page = store->ReadEvents("a", 1, 10);
  ASSERT_TRUE(page.ok());
  std::vector<int64_t> steps;
  for (const auto& event : page->events) steps.push_back(event.step().step());
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 4, 5, 6}));
}

TEST(JobStoreTest, ListenerHearsOfAChangeOnlyOnceReadersSeeIt) {
  auto store = OpenStore(MakeDataPaths().Database());
  std::vector<int64_t> seen;
  store->set_listener([&](const Committed& committed) {
    const auto job = store->GetJob(committed.job_id);
    ASSERT_TRUE(job.ok());
    EXPECT_EQ(job->job.last_sequence(), committed.events.back().sequence());
    seen.push_back(committed.events.back().sequence());
  });
  ASSERT_TRUE(Create(store.get(), "a").ok());
  ASSERT_TRUE(store->Write([](JobTransaction& t) { return AppendStep(t, "a", 1); }).ok());
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2}));
}

TEST(JobStoreTest, BringsADatabaseOfTheFirstVersionUpToDate) {
  const std::string path = MakeDataPaths().Database();
  {
    auto store = OpenStore(path);
    ASSERT_TRUE(store
                    ->Write([&](JobTransaction& t) {
                      StoredJob job;
                      job.id = "a";
                      job.job.mutable_spec()->mutable_data()->set_train("datasets/plays");
                      return t.Create(job).status();
                    })
                    .ok());
  }
  {
    auto database = Database::Open(path);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)
                    ->Execute("ALTER TABLE jobs RENAME COLUMN needs TO dataset;"
                              "PRAGMA user_version = 1")
                    .ok());
  }
  auto store = OpenStore(path);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(*store->JobsThatNeed("datasets/plays"), std::vector<std::string>{"a"});
}

TEST(JobStoreTest, RefusesADatabaseOfAnotherVersion) {
  const std::string path = MakeDataPaths().Database();
  {
    auto database = Database::Open(path);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->Execute("PRAGMA user_version = 999").ok());
  }
  const auto store = JobStore::Open(path, {});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(store.status().message().find("schema version 999"), absl::string_view::npos);
}

TEST(DatabaseTest, FullDiskIsToldApartAndLeavesTheDatabaseUsable) {
  auto database = Database::Open(MakeDataPaths().Database());
  ASSERT_TRUE(database.ok());
  // A limit on pages stands for the end of the disk.
  ASSERT_TRUE((*database)->Execute("CREATE TABLE t (b BLOB); PRAGMA max_page_count = 10").ok());
  const std::string large(1 << 20, 'x');
  const absl::Status full = (*database)->Run("INSERT INTO t VALUES (?)", Blob{large});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(full), "DISK_FULL");
  EXPECT_NE(full.message().find("no space left for /"), absl::string_view::npos) << full;
  EXPECT_TRUE((*database)->Run("INSERT INTO t VALUES (?)", Blob{"small"}).ok());
}

TEST(DatabaseTest, AParameterThatCannotBeBoundFailsTheQueryAndNotTheNext) {
  auto database = Database::Open(MakeDataPaths().Database());
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE((*database)->Execute("CREATE TABLE t (a INTEGER)").ok());
  const absl::Status status = (*database)->Run("INSERT INTO t VALUES (?)", 1, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("bind parameter 2 of"), absl::string_view::npos) << status;
  EXPECT_EQ(*(*database)->Integer("SELECT COUNT(*) FROM t", -1), 0);
  EXPECT_TRUE((*database)->Run("INSERT INTO t VALUES (?)", 1).ok());
}

TEST(JobStoreTest, ListsQueuedJobsWithTheirPlaces) {
  auto store = OpenStore(MakeDataPaths().Database());
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Create(store.get(), id).ok());
  ASSERT_TRUE(store
                  ->Write([](JobTransaction& t) -> absl::Status {
                    auto job = t.Get("a");
                    if (!job.ok()) return job.status();
                    return t.Transition(*job, Job::PAUSED, v1::REASON_USER, "");
                  })
                  .ok());
  const auto jobs = store->ListJobs(INT64_MAX, {}, 10);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  std::vector<int32_t> places;
  for (const StoredJob& stored : *jobs) places.push_back(stored.job.queue_position());
  EXPECT_EQ(places, (std::vector<int32_t>{2, 1, 0})) << "newest first; the last one does not wait";
  for (const StoredJob& stored : *jobs) {
    EXPECT_EQ(store->GetJob(stored.id)->job.queue_position(), stored.job.queue_position());
  }
}

}  // namespace
}  // namespace millrace
