#include "server/daemon_inference.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/train/inference_model.h"
#include "engine/train/system_memory.h"
#include "server/base/resource_names.h"
#include "server/blobs/model_path.h"

namespace millrace {
namespace {

// `jobs/{id}` is its latest checkpoint.
absl::StatusOr<ResolvedModel> Resolve(const DaemonInference::Options& options,
                                      const std::string& name) {
  std::string whole = name;
  if (absl::StartsWith(name, "jobs/")) {
    if (std::count(name.begin(), name.end(), '/') == 1)
      absl::StrAppend(&whole, "/checkpoints/latest");
    MILLRACE_ASSIGN_OR_RETURN(const CheckpointName checkpoint, ParseCheckpointName("model", whole));
    MILLRACE_RETURN_IF_ERROR(options.check_job(checkpoint.job_id));
  }
  MILLRACE_ASSIGN_OR_RETURN(NamedModel model, FindModel(options.paths, "model", whole));
  return ResolvedModel{std::move(model.name), std::move(model.path)};
}

DType ComputeOf(const std::string& compute) {
  const bool bf16 = compute.empty() ? CpuHasBf16() : compute == NameOf(DType::kBF16);
  return bf16 ? DType::kBF16 : DType::kF32;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonInference>> DaemonInference::Start(Options options) {
  InferencePool::Options pool_options;
  pool_options.folder = options.paths.Inference();
  pool_options.worker_program = options.worker_program;
  pool_options.max_loaded_models = options.max_loaded_models;
  pool_options.free_bytes = [] { return FreeMemoryBytes(); };
  pool_options.weight_bytes = [](const std::string& path, const std::string& compute) {
    return InferenceWeightBytes(path, ComputeOf(compute));
  };
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<InferencePool> pool,
                            InferencePool::Start(std::move(pool_options)));
  Metrics* const metrics = options.metrics;
  metrics->AddCollector([metrics, pool = pool.get()] {
    metrics->Set(metric::kLoadedModels, {}, pool->loaded_models());
  });
  GenerationServiceImpl::Options service{.pool = pool.get(), .metrics = metrics};
  service.dataset_path = [options](const std::string& id) -> absl::StatusOr<std::string> {
    MILLRACE_RETURN_IF_ERROR(options.check_dataset(id));
    return absl::StrCat(options.paths.Dataset(id), "/files");
  };
  service.find_model = [options = std::move(options)](const std::string& name) {
    return Resolve(options, name);
  };
  return std::unique_ptr<DaemonInference>(new DaemonInference(std::move(pool), std::move(service)));
}

}  // namespace millrace
