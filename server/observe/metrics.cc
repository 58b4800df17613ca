#include "server/observe/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/text_serializer.h>

#include <type_traits>
#include <utility>

#include "absl/strings/str_split.h"

namespace millrace {
namespace {

// 1 ms to about 2 minutes, each twice the one before: right for calls, commits and steps alike.
const prometheus::Histogram::BucketBoundaries& SecondsBuckets() {
  static const auto* buckets = [] {
    auto* bounds = new prometheus::Histogram::BucketBoundaries();
    for (double bound = 0.001; bound < 150; bound *= 2) bounds->push_back(bound);
    return bounds;
  }();
  return *buckets;
}

template <typename Builder>
auto* Register(Builder builder, const MetricDefinition& definition,
               prometheus::Registry& registry) {
  return &builder.Name(definition.name).Help(definition.help).Register(registry);
}

}  // namespace

Metrics::Metrics() {
  for (const MetricDefinition* definition : kAllMetrics) {
    Family& family = families_[definition->name];
    family.label_names = absl::StrSplit(definition->labels, ',', absl::SkipEmpty());
    switch (definition->kind) {
      case MetricKind::kCounter:
        family.counters = Register(prometheus::BuildCounter(), *definition, registry_);
        break;
      case MetricKind::kGauge:
        family.gauges = Register(prometheus::BuildGauge(), *definition, registry_);
        break;
      case MetricKind::kHistogram:
        family.histograms = Register(prometheus::BuildHistogram(), *definition, registry_);
        break;
    }
  }
}

template <typename Metric>
Metric& Metrics::Find(prometheus::Family<Metric>* family, const Family& names,
                      const LabelValues& values) {
  prometheus::Labels labels;
  for (size_t i = 0; i < names.label_names.size(); ++i) labels[names.label_names[i]] = values.at(i);
  Metric* metric;
  if constexpr (std::is_same_v<Metric, prometheus::Histogram>) {
    metric = &family->Add(labels, SecondsBuckets());
  } else {
    metric = &family->Add(labels);
  }
  if (const auto job_id = labels.find("job_id"); job_id != labels.end()) {
    series_of_job_[job_id->second][metric] = [family, metric] { family->Remove(metric); };
  }
  return *metric;
}

void Metrics::Add(const MetricDefinition& definition, const LabelValues& labels, double amount) {
  const Family& family = families_.at(definition.name);
  absl::MutexLock lock(&mutex_);
  Find(family.counters, family, labels).Increment(amount);
}

void Metrics::Set(const MetricDefinition& definition, const LabelValues& labels, double value) {
  const Family& family = families_.at(definition.name);
  absl::MutexLock lock(&mutex_);
  Find(family.gauges, family, labels).Set(value);
}

void Metrics::Observe(const MetricDefinition& definition, const LabelValues& labels, double value) {
  const Family& family = families_.at(definition.name);
  absl::MutexLock lock(&mutex_);
  Find(family.histograms, family, labels).Observe(value);
}

void Metrics::RemoveSeriesOfJob(const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  const auto found = series_of_job_.find(job_id);
  if (found == series_of_job_.end()) return;
  for (const auto& [metric, remove] : found->second) remove();
  series_of_job_.erase(found);
}

void Metrics::AddCollector(std::function<void()> collect) {
  absl::MutexLock lock(&collectors_mutex_);
  collectors_.push_back(std::move(collect));
}

std::string Metrics::Serialize() {
  absl::MutexLock lock(&collectors_mutex_);
  for (const auto& collect : collectors_) collect();
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace millrace
