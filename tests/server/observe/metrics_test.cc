#include "server/observe/metrics.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "server/observe/host_reader.h"
#include "server/observe/job_metrics.h"

namespace millrace {
namespace {

using v1::Job;

TEST(MetricDefinitionsTest, FollowTheNamingRules) {
  std::set<std::string> names;
  for (const MetricDefinition* metric : kAllMetrics) {
    const std::string name = metric->name;
    EXPECT_TRUE(std::regex_match(name, std::regex("(millrace|grpc|process)_[a-z0-9_]+"))) << name;
    EXPECT_TRUE(names.insert(name).second) << name << " is defined twice";
    EXPECT_EQ(absl::EndsWith(name, "_total"), metric->kind == MetricKind::kCounter) << name;
    EXPECT_STRNE(metric->help, "") << name;
    for (const absl::string_view label : absl::StrSplit(metric->labels, ',')) {
      EXPECT_NE(label, "job") << name << ": Prometheus gives this label to every target";
    }
  }
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// Every line is a comment or `name{labels} number`, and every sample has a HELP and a TYPE.
void ExpectWellFormed(const std::string& text) {
  const std::regex sample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-z_]+="[^"\\]*",?)*\})? (-?[0-9.eE+-]+|NaN|[+-]Inf))re");
  std::set<std::string> typed;
  for (const std::string& line : Lines(text)) {
    if (absl::StartsWith(line, "# TYPE ")) {
      typed.insert(line.substr(7, line.find(' ', 7) - 7));
      continue;
    }
    if (absl::StartsWith(line, "# HELP ")) continue;
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    const std::string name = match[1];
    const std::string base = std::regex_replace(name, std::regex("_(bucket|sum|count)$"), "");
    EXPECT_TRUE(typed.count(name) + typed.count(base) > 0) << line;
  }
}

TEST(MetricsTest, SerializesInTheExpositionFormat) {
  Metrics metrics;
  metrics.Add(metric::kJobTransitions, {"RUNNING", "UNSPECIFIED"}, 2);
  metrics.Set(metric::kStorageFree, {}, 1e12);
  metrics.Observe(metric::kStoreCommit, {}, 0.002);
  metrics.AddCollector([&] { metrics.Set(metric::kWatchSubscribers, {}, 3); });
  const std::string text = metrics.Serialize();
  ExpectWellFormed(text);
  EXPECT_TRUE(absl::StrContains(
      text, "millrace_job_transitions_total{reason=\"UNSPECIFIED\",to=\"RUNNING\"} 2"));
  EXPECT_TRUE(absl::StrContains(text, "millrace_store_commit_seconds_count 1"));
  EXPECT_TRUE(absl::StrContains(text, "millrace_watch_subscribers 3"));
}

v1::JobEvent StateChange(Job* job, Job::State to, v1::Reason reason = v1::REASON_UNSPECIFIED) {
  v1::JobEvent event;
  event.mutable_time()->set_seconds(1000 + to);
  event.mutable_state_change()->set_from(job->state());
  event.mutable_state_change()->set_to(to);
  event.mutable_state_change()->set_reason(reason);
  job->set_state(to);
  return event;
}

TEST(JobMetricsTest, FollowAJobAndEndWithIt) {
  Metrics metrics;
  JobMetrics observer(&metrics);
  Job job;
  job.set_name("jobs/plays");
  job.mutable_progress()->set_total_steps(10);
  v1::JobEvent event = StateChange(&job, Job::QUEUED);
  observer.OnJobEvent(job, &event);
  EXPECT_TRUE(
      absl::StrContains(metrics.Serialize(), "millrace_queue_oldest_timestamp_seconds 1001"));
  for (const Job::State state : {Job::PREPARING, Job::RUNNING}) {
    event = StateChange(&job, state);
    observer.OnJobEvent(job, &event);
  }
  event.Clear();
  event.mutable_step()->set_step(5);
  event.mutable_step()->set_loss(2.5);
  event.mutable_step()->set_tokens(4096);
  event.mutable_step()->set_step_seconds(0.25);
  event.mutable_step()->mutable_stalls()->set_weights_seconds(0.125);
  job.mutable_plan()->set_step_seconds(0.5);
  observer.OnJobEvent(job, &event);
  event.Clear();
  event.mutable_memory()->add_pools()->set_purpose("weights");
  observer.OnJobEvent(job, &event);

  std::string text = metrics.Serialize();
  ExpectWellFormed(text);
  for (const char* expected :
       {"millrace_train_steps_total{job_id=\"plays\"} 1",
        "millrace_train_tokens_total{job_id=\"plays\"} 4096",
        "millrace_train_loss{job_id=\"plays\"} 2.5",
        "millrace_train_progress_ratio{job_id=\"plays\"} 0.5",
        "millrace_memory_used_bytes{job_id=\"plays\",pool=\"weights\"} 0",
        "millrace_stream_stall_seconds_total{cause=\"weights\",job_id=\"plays\"} 0.125",
        "millrace_stream_stall_seconds_total{cause=\"data\",job_id=\"plays\"} 0",
        "millrace_train_predicted_step_seconds{job_id=\"plays\"} 0.5",
        "millrace_train_step_seconds_count 1", "millrace_queue_wait_seconds_count 1",
        "millrace_queue_oldest_timestamp_seconds 0"}) {
    EXPECT_TRUE(absl::StrContains(text, expected)) << expected << "\n" << text;
  }

  event = StateChange(&job, Job::SUCCEEDED);
  observer.OnJobEvent(job, &event);
  text = metrics.Serialize();
  EXPECT_FALSE(absl::StrContains(text, "job_id=")) << text;
  EXPECT_TRUE(absl::StrContains(text, "millrace_train_step_seconds_count 1"));
}

TEST(JobMetricsTest, CountsRestartsByReason) {
  Metrics metrics;
  JobMetrics observer(&metrics);
  Job job;
  job.set_name("jobs/plays");
  job.set_state(Job::RUNNING);
  v1::JobEvent event = StateChange(&job, Job::QUEUED, v1::REASON_CRASH);
  observer.OnJobEvent(job, &event);
  EXPECT_TRUE(
      absl::StrContains(metrics.Serialize(), "millrace_job_restarts_total{reason=\"CRASH\"} 1"));
}

TEST(HostReaderTest, ReadsThisBox) {
  const HostDescription host = ReadHostDescription();
  EXPECT_GE(host.cores, 1);
  EXPECT_FALSE(host.hostname.empty());
  const auto memory = ReadHostMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GT(memory->total_bytes, memory->available_bytes);
  EXPECT_GT(ReadStorageSpace("/")->total_bytes, 0);
  EXPECT_FALSE(ReadStorageSpace("/nowhere/at/all").ok());
  EXPECT_GT(ReadResidentBytes(), 1 << 20);
}

}  // namespace
}  // namespace millrace
