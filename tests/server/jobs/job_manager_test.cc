#include "server/jobs/job_manager.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/server/jobs/fakes.h"

namespace millrace {
namespace {

using v1::Job;

TEST_F(JobManagerTest, CreatedJobHasDefaultsFilledInAndIsQueuedThenPrepared) {
  const auto job = manager_->CreateJob(MakeCreateRequest("plays"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "jobs/plays");
  EXPECT_EQ(job->spec().tokenizer(), "byte");
  EXPECT_EQ(job->progress().total_steps(), 100);
  ASSERT_TRUE(launcher_->WaitForStart("plays", 1));
  EXPECT_EQ(StatesSoFar("plays"), "QUEUED PREPARING");
}

TEST_F(JobManagerTest, CreateIsIdempotentByJobId) {
  CreateJob("plays");
  const auto again = manager_->CreateJob(MakeCreateRequest("plays"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->name(), "jobs/plays");
  EXPECT_EQ(manager_->ListJobs({})->jobs_size(), 1);
}

TEST_F(JobManagerTest, CreateIsIdempotentByRequestId) {
  v1::CreateJobRequest request = MakeCreateRequest("");
  request.set_request_id("once");
  const auto first = manager_->CreateJob(request);
  ASSERT_TRUE(first.ok()) << first.status();
  // Even when the spec could not be accepted any more.
  validator_.set_error(MakeError(ErrorReason::kDatasetNotFound, "datasets/plays is gone"));
  const auto again = manager_->CreateJob(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->name(), first->name());
}

TEST_F(JobManagerTest, IdOfAnotherSpecIsTaken) {
  CreateJob("plays");
  v1::CreateJobRequest other = MakeCreateRequest("plays");
  other.mutable_spec()->mutable_train()->set_steps(5);
  const auto taken = manager_->CreateJob(other);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(taken.status()), "ID_TAKEN");

  v1::CreateJobRequest first = MakeCreateRequest("a");
  first.set_request_id("r");
  ASSERT_TRUE(manager_->CreateJob(first).ok());
  v1::CreateJobRequest second = MakeCreateRequest("b");
  second.set_request_id("r");
  EXPECT_EQ(ReasonOf(manager_->CreateJob(second).status()), "ID_TAKEN");
}

TEST_F(JobManagerTest, GeneratedIdsComeFromTheName) {
  v1::CreateJobRequest request = MakeCreateRequest("");
  request.mutable_spec()->set_name("Shakespeare's  Plays!");
  const auto job = manager_->CreateJob(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name().substr(0, 25), "jobs/shakespeare-s-plays-");
}

TEST_F(JobManagerTest, ValidateOnlyChecksAndCreatesNothing) {
  v1::CreateJobRequest request = MakeCreateRequest("plays");
  request.set_validate_only(true);
  const auto job = manager_->CreateJob(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec().tokenizer(), "byte");
  EXPECT_TRUE(job->plan().fits());
  EXPECT_EQ(manager_->ListJobs({})->jobs_size(), 0);

  validator_.set_error(MakeFieldError(ErrorReason::kModelInvalid, {{"spec.model", "is odd"}}));
  EXPECT_EQ(ReasonOf(manager_->CreateJob(request).status()), "MODEL_INVALID");
}

TEST_F(JobManagerTest, MalformedRequestsNameTheField) {
  const auto bad_id = manager_->CreateJob(MakeCreateRequest("Not_An_Id"));
  ASSERT_EQ(FieldViolationsOf(bad_id.status()).size(), 1);
  EXPECT_EQ(FieldViolationsOf(bad_id.status())[0].field, "job_id");

  v1::CreateJobRequest no_spec;
  EXPECT_EQ(FieldViolationsOf(manager_->CreateJob(no_spec).status())[0].field, "spec");

  v1::ListJobsRequest list;
  list.set_page_size(-1);
  EXPECT_EQ(FieldViolationsOf(manager_->ListJobs(list).status())[0].field, "page_size");
}

TEST_F(JobManagerTest, ListsNewestFirstInPagesThatNeitherRepeatNorSkip) {
  for (const char* id : {"a", "b", "c", "d", "e"}) CreateJob(id);
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::string names;
  int pages = 0;
  do {
    const auto response = manager_->ListJobs(request);
    ASSERT_TRUE(response.ok()) << response.status();
    for (const Job& job : response->jobs()) absl::StrAppend(&names, job.name().substr(5));
    request.set_page_token(response->next_page_token());
    // What comes between does not disturb pages that follow.
    if (++pages == 1) CreateJob("f");
  } while (!request.page_token().empty());
  EXPECT_EQ(names, "edcba");
  EXPECT_EQ(pages, 3);
}

TEST_F(JobManagerTest, PagesOfLargeJobsStayBelowTheLimitOfAMessage) {
  for (const char* id : {"a", "b", "c"}) {
    v1::CreateJobRequest request = MakeCreateRequest(id);
    request.mutable_spec()->mutable_sample()->add_prompts(std::string(2 << 20, 'x'));
    ASSERT_TRUE(manager_->CreateJob(request).ok());
  }
  v1::ListJobsRequest request;
  std::string names;
  do {
    const auto response = manager_->ListJobs(request);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_LT(response->ByteSizeLong(), 4u << 20);
    for (const Job& job : response->jobs()) absl::StrAppend(&names, job.name().substr(5));
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(names, "cba");
}

TEST_F(JobManagerTest, PageTokenOfAnotherFilterIsRefused) {
  for (const char* id : {"a", "b", "c"}) CreateJob(id);
  v1::ListJobsRequest request;
  request.set_page_size(1);
  const auto first = manager_->ListJobs(request);
  ASSERT_TRUE(first.ok());
  request.set_page_token(first->next_page_token());
  request.add_states(Job::QUEUED);
  EXPECT_EQ(ReasonOf(manager_->ListJobs(request).status()), "REQUEST_INVALID");
  request.set_page_token("nonsense");
  EXPECT_EQ(ReasonOf(manager_->ListJobs(request).status()), "REQUEST_INVALID");
}

TEST_F(JobManagerTest, TheSameStatesInAnotherOrderAreTheSameFilter) {
  for (const char* id : {"a", "b", "c"}) CreateJob(id);
  v1::ListJobsRequest request;
  request.set_page_size(1);
  for (const Job::State state : {Job::QUEUED, Job::PREPARING}) request.add_states(state);
  const auto first = manager_->ListJobs(request);
  ASSERT_TRUE(first.ok());
  request.set_page_token(first->next_page_token());
  request.clear_states();
  for (const Job::State state : {Job::PREPARING, Job::QUEUED, Job::PREPARING}) {
    request.add_states(state);
  }
  EXPECT_TRUE(manager_->ListJobs(request).ok());
}

TEST_F(JobManagerTest, ListsOnlyTheStatesAskedFor) {
  CreateRunningJob("a");
  CreateJob("b");
  v1::ListJobsRequest request;
  request.add_states(Job::QUEUED);
  const auto response = manager_->ListJobs(request);
  ASSERT_TRUE(response.ok());
  ASSERT_EQ(response->jobs_size(), 1);
  EXPECT_EQ(response->jobs(0).name(), "jobs/b");
}

TEST_F(JobManagerTest, QueueIsFirstInFirstOutOneAtATime) {
  CreateRunningJob("a");
  CreateJob("b");
  CreateJob("c");
  EXPECT_EQ(Get("b").queue_position(), 1);
  EXPECT_EQ(Get("c").queue_position(), 2);
  ASSERT_TRUE(Report("a", 1, {EndedReport(3, v1::WorkerReport::Ended::SUCCEEDED)}).ok());
  // Not before the process is gone.
  EXPECT_EQ(StateOf("a"), Job::RUNNING);
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::SUCCEEDED);
  ASSERT_TRUE(launcher_->WaitForStart("b", 1));
  EXPECT_EQ(Get("c").queue_position(), 1);
  EXPECT_EQ(launcher_->starts().size(), 2);
}

TEST_F(JobManagerTest, CancelOfAWaitingJobEndsItAtOnceAndOfARunningOneWhenItsWorkerIsGone) {
  CreateRunningJob("a");
  CreateJob("b");
  EXPECT_EQ(manager_->CancelJob("b")->state(), Job::CANCELLED);
  EXPECT_EQ(manager_->CancelJob("a")->state(), Job::CANCELLING);
  EXPECT_TRUE(launcher_->WaitForCancel("a"));
  EXPECT_EQ(manager_->CancelJob("a")->state(), Job::CANCELLING);
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::CANCELLED);
  EXPECT_EQ(manager_->CancelJob("a")->state(), Job::CANCELLED);
  EXPECT_EQ(StatesSoFar("b"), "QUEUED CANCELLING CANCELLED");
}

TEST_F(JobManagerTest, PausedJobGivesUpItsPlaceAndRunsAgainOnceResumed) {
  CreateRunningJob("a");
  CreateJob("b");
  EXPECT_EQ(manager_->PauseJob("a")->state(), Job::PAUSING);
  EXPECT_TRUE(launcher_->WaitForStop("a", "PAUSE"));
  ASSERT_TRUE(Report("a", 1, {EndedReport(3, v1::WorkerReport::Ended::STOPPED)}).ok());
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::PAUSED);
  ASSERT_TRUE(launcher_->WaitForStart("b", 1));

  EXPECT_EQ(manager_->ResumeJob("a")->state(), Job::QUEUED);
  ASSERT_TRUE(manager_->CancelJob("b").ok());
  Exit("b", 1);
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
}

TEST_F(JobManagerTest, PauseOfAWaitingJobTakesItOutOfTheQueue) {
  CreateRunningJob("a");
  CreateJob("b");
  EXPECT_EQ(manager_->PauseJob("b")->state(), Job::PAUSED);
  EXPECT_EQ(manager_->PauseJob("b")->state(), Job::PAUSED);
}

TEST_F(JobManagerTest, FailedJobCanBeResumedAndASucceededOneCannot) {
  CreateRunningJob("a");
  ASSERT_TRUE(Report("a", 1,
                     {EndedReport(3, v1::WorkerReport::Ended::FAILED, v1::REASON_NON_FINITE_LOSS,
                                  "the loss of step 2 is NaN")})
                  .ok());
  Exit("a", 1);
  Job job = Get("a");
  EXPECT_EQ(job.state(), Job::FAILED);
  EXPECT_EQ(job.reason(), v1::REASON_NON_FINITE_LOSS);
  EXPECT_EQ(job.message(), "the loss of step 2 is NaN");
  EXPECT_TRUE(job.has_end_time());
  ASSERT_TRUE(manager_->ResumeJob("a").ok());
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  EXPECT_FALSE(Get("a").has_end_time());

  ASSERT_TRUE(Report("a", 2, {EndedReport(1, v1::WorkerReport::Ended::SUCCEEDED)}).ok());
  Exit("a", 2);
  for (const auto& refused :
       {manager_->ResumeJob("a"), manager_->PauseJob("a"), manager_->CancelJob("a")}) {
    EXPECT_EQ(ReasonOf(refused.status()), "ILLEGAL_STATE") << refused.status();
  }
}

TEST_F(JobManagerTest, DeleteRemovesAnEndedJobWithItsFolderAndNoOther) {
  CreateRunningJob("a");
  const std::string folder = options_.paths.Job("a");
  std::filesystem::create_directories(folder + "/checkpoints/5");
  std::ofstream(folder + "/checkpoints/5/weights") << "w";
  EXPECT_EQ(ReasonOf(manager_->DeleteJob("a")), "ILLEGAL_STATE");
  ASSERT_TRUE(manager_->CancelJob("a").ok());
  Exit("a", 1);
  ASSERT_TRUE(manager_->DeleteJob("a").ok());
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_TRUE(std::filesystem::is_empty(options_.paths.Trash()));
  EXPECT_EQ(ReasonOf(manager_->GetJob("a").status()), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(manager_->DeleteJob("a")), "JOB_NOT_FOUND");
  // The id is free again, with a history of its own.
  CreateJob("a");
  EXPECT_EQ(Events("a")[0].sequence(), 1);
}

TEST_F(JobManagerTest, TellsWhichJobsNeedADataset) {
  CreateRunningJob("a");
  CreateJob("b");
  EXPECT_EQ(*manager_->JobsThatNeed("datasets/plays"),
            (std::vector<std::string>{"jobs/a", "jobs/b"}));
  ASSERT_TRUE(manager_->CancelJob("b").ok());
  EXPECT_EQ(*manager_->JobsThatNeed("datasets/plays"), (std::vector<std::string>{"jobs/a"}));
  EXPECT_TRUE(manager_->JobsThatNeed("datasets/other")->empty());
}

TEST_F(JobManagerTest, TellsWhichJobsNeedAModelOrATokenizer) {
  v1::CreateJobRequest request;
  request.set_job_id("tuned");
  request.mutable_spec()->mutable_data()->set_train("datasets/plays");
  request.mutable_spec()->mutable_model()->set_from("models/smol");
  request.mutable_spec()->set_tokenizer("tokenizers/words");
  ASSERT_TRUE(manager_->CreateJob(request).ok());
  const std::vector<std::string> tuned = {"jobs/tuned"};
  EXPECT_EQ(*manager_->JobsThatNeed("models/smol"), tuned);
  EXPECT_EQ(*manager_->JobsThatNeed("tokenizers/words"), tuned);
  EXPECT_EQ(*manager_->JobsThatNeed("datasets/plays"), tuned);
  EXPECT_TRUE(manager_->JobsThatNeed("models/smo")->empty());
  EXPECT_TRUE(manager_->JobsThatNeed("byte")->empty());
}

TEST_F(JobManagerTest, AJobWhoseCheckpointAnotherBeginsWithStays) {
  CreateRunningJob("a");
  ASSERT_TRUE(manager_->CancelJob("a").ok());
  Exit("a", 1);
  v1::CreateJobRequest request;
  request.set_job_id("b");
  request.mutable_spec()->mutable_model()->set_from("jobs/a/checkpoints/5");
  ASSERT_TRUE(manager_->CreateJob(request).ok());
  EXPECT_EQ(ReasonOf(manager_->DeleteJob("a")), "IN_USE");
  ASSERT_TRUE(manager_->CancelJob("b").ok());
  EXPECT_TRUE(launcher_->WaitForStart("b", 1));
  Exit("b", 1);
  EXPECT_TRUE(manager_->DeleteJob("a").ok());
}

TEST_F(JobManagerTest, WorkerThatCannotBeStartedFailsTheJobWithTheCause) {
  launcher_->set_start_error(absl::NotFoundError("/nowhere/millrace-worker: no such file"));
  CreateJob("a");
  ASSERT_TRUE(WaitForState("a", Job::FAILED));
  EXPECT_EQ(Get("a").message(),
            "the worker could not be started: /nowhere/millrace-worker: no such file");
  launcher_->set_start_error(absl::OkStatus());
  // The place is free again.
  CreateJob("b");
  EXPECT_TRUE(launcher_->WaitForStart("b", 1));
}

TEST_F(JobManagerTest, JobWhoseWorkerCannotBeStartedForNowWaitsAndLetsOthersGoFirst) {
  options_.start_retry_delay = absl::InfiniteDuration();
  StopManager();
  StartManager();
  launcher_->set_start_error(absl::UnavailableError("jobs/a is in use by process 7"));
  CreateJob("a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  ASSERT_TRUE(WaitForState("a", Job::QUEUED));
  launcher_->set_start_error(absl::OkStatus());
  CreateJob("b");
  EXPECT_TRUE(launcher_->WaitForStart("b", 1));
}

TEST_F(JobManagerTest, JobWhoseWorkerCannotBeStartedForNowIsTriedAgain) {
  options_.start_retry_delay = absl::Milliseconds(10);
  StopManager();
  StartManager();
  launcher_->set_start_error(absl::UnavailableError("jobs/a is in use by process 7"));
  CreateJob("a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  launcher_->set_start_error(absl::OkStatus());
  EXPECT_TRUE(WaitForState("a", Job::PREPARING));
  EXPECT_EQ(Get("a").restarts(), 0);
}

TEST_F(JobManagerTest, NewJobInheritsNothingThatLiesInItsFolder) {
  std::filesystem::create_directories(options_.paths.Checkpoints("a") + "/5");
  CreateJob("a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  EXPECT_FALSE(std::filesystem::exists(options_.paths.Checkpoints("a")));
}

TEST_F(JobManagerTest, StartsNothingOnceSchedulingIsStopped) {
  manager_->StopScheduling();
  CreateJob("a");
  EXPECT_EQ(StateOf("a"), Job::QUEUED);
  EXPECT_TRUE(launcher_->starts().empty());
}

class SmallQueueTest : public JobManagerTest {
 protected:
  void SetUp() override {
    options_.max_queued_jobs = 2;
    JobManagerTest::SetUp();
  }
};

TEST_F(SmallQueueTest, RefusesMoreJobsThanTheQueueHolds) {
  CreateRunningJob("a");
  CreateJob("b");
  CreateJob("c");
  const auto full = manager_->CreateJob(MakeCreateRequest("d"));
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(full.status()), "QUEUE_FULL");
  ASSERT_TRUE(manager_->CancelJob("b").ok());
  EXPECT_TRUE(manager_->CreateJob(MakeCreateRequest("d")).ok());
}

TEST_F(JobManagerTest, PreparedDataGoesWithTheEndOfItsJobAndNotBefore) {
  namespace fs = std::filesystem;
  CreateRunningJob("a");
  CreateJob("b");
  for (const char* id : {"a", "b"}) fs::create_directories(options_.paths.Prepared(id) + "/x");
  ASSERT_TRUE(Report("a", 1, {EndedReport(3, v1::WorkerReport::Ended::SUCCEEDED)}).ok());
  Exit("a", 1);
  const absl::Time deadline = absl::Now() + kPatience;
  while (fs::exists(options_.paths.Prepared("a")) && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(fs::exists(options_.paths.Prepared("a")));
  EXPECT_TRUE(fs::exists(options_.paths.Job("a")));
  EXPECT_TRUE(fs::exists(options_.paths.Prepared("b")));
}

}  // namespace
}  // namespace millrace
