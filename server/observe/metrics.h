// The registry behind /metrics.
//
//   metrics.Add(metric::kJobTransitions, {"RUNNING", "UNSPECIFIED"}, 1);
//   metrics.Set(metric::kLoss, {job_id}, 2.71);
//   metrics.Observe(metric::kStepSeconds, {}, 0.8);
//   metrics.RemoveSeriesOfJob(job_id);
//
// Label values stand in the order of the definition's labels. Thread-safe.
#ifndef MILLRACE_SERVER_OBSERVE_METRICS_H_
#define MILLRACE_SERVER_OBSERVE_METRICS_H_

#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/observe/metric_definitions.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace millrace {

class Metrics {
 public:
  using LabelValues = std::vector<std::string>;

  Metrics();

  // Counters.
  void Add(const MetricDefinition& definition, const LabelValues& labels, double amount);
  // Gauges.
  void Set(const MetricDefinition& definition, const LabelValues& labels, double value);
  // Histograms.
  void Observe(const MetricDefinition& definition, const LabelValues& labels, double value);

  // Ends every series with the label job_id of that value.
  void RemoveSeriesOfJob(const std::string& job_id);

  // `collect` runs before each scrape and sets what is only read, never counted.
  void AddCollector(std::function<void()> collect);

  // The exposition format of Prometheus, text version 0.0.4.
  std::string Serialize();

 private:
  struct Family {
    prometheus::Family<prometheus::Counter>* counters = nullptr;
    prometheus::Family<prometheus::Gauge>* gauges = nullptr;
    prometheus::Family<prometheus::Histogram>* histograms = nullptr;
    std::vector<std::string> label_names;
  };

  // Remembers how to end a series that has the label job_id.
  template <typename Metric>
  Metric& Find(prometheus::Family<Metric>* family, const Family& names, const LabelValues& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  prometheus::Registry registry_;
  // By name; fixed once constructed.
  std::map<std::string, Family> families_;

  absl::Mutex mutex_;
  // What to call to end each series of a job, by series.
  std::map<std::string, std::map<const void*, std::function<void()>>> series_of_job_
      ABSL_GUARDED_BY(mutex_);

  absl::Mutex collectors_mutex_;
  std::vector<std::function<void()>> collectors_ ABSL_GUARDED_BY(collectors_mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_OBSERVE_METRICS_H_
