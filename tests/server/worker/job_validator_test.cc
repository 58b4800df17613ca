#include "server/worker/job_validator.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/file.h"
#include "proto/job_file/job_file.h"
#include "server/base/errors.h"
#include "server/blobs/dataset_store.h"
#include "server/blobs/model_store.h"
#include "tests/server/worker/temp_folder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
name: tiny
model: {config: {model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
                 intermediate_size: 128, max_position_embeddings: 128}}
data: {train: datasets/plays, sequence_length: 64}
train: {steps: 10, tokens_per_step: 256}
)";

class JobValidatorTest : public ::testing::Test {
 protected:
  JobValidatorTest() {
    store_ = *OpenDatasets({.folder = MakeTempFolder()});
    AddDataset("plays", std::string(10'000, 'a'), true);
    AddDataset("short", std::string(100, 'a'), true);
    AddDataset("half", std::string(10'000, 'a'), false);
  }

  void AddDataset(const std::string& id, const std::string& content, bool finalize) {
    Sha256 hash;
    hash.Update(content);
    ASSERT_TRUE(
        store_->Create(id, {{"a.txt", static_cast<int64_t>(content.size()), hash.Finish()}}).ok());
    auto upload = store_->OpenUpload(id, "a.txt", 0);
    ASSERT_TRUE(upload.ok());
    ASSERT_TRUE((*upload)->Append(content).ok());
    ASSERT_TRUE((*upload)->Finish().ok());
    if (finalize) {
      ASSERT_TRUE(store_->Finalize(id).ok());
    }
  }

  // The job with `from` replaced by `to` in its file.
  absl::StatusOr<v1::JobSpec> Judge(const std::string& from = "", const std::string& to = "") {
    const std::string text =
        from.empty() ? std::string(kJob) : absl::StrReplaceAll(kJob, {{from, to}});
    EXPECT_TRUE(from.empty() || absl::StrContains(kJob, from));
    auto spec = ParseJobFile(text);
    EXPECT_TRUE(spec.ok()) << spec.status();
    JobValidator validator({.datasets = store_.get(), .cores = 2, .memory_bytes = memory_bytes_});
    absl::StatusOr<ValidatedSpec> validated = validator.ResolveAndValidate(*spec);
    if (!validated.ok()) return validated.status();
    return validated->spec;
  }

  void ExpectRefused(const absl::StatusOr<v1::JobSpec>& result, const std::string& reason,
                     const std::string& field, const std::string& words) {
    EXPECT_EQ(ReasonOf(result.status()), reason) << result.status();
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(words));
    if (field.empty()) return;
    bool found = false;
    for (const FieldViolation& violation : FieldViolationsOf(result.status())) {
      found = found || violation.field == field;
    }
    EXPECT_TRUE(found) << field << " is not to blame in " << result.status();
  }

  int64_t memory_bytes_ = int64_t{4} << 30;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(JobValidatorTest, FillsInAllThatFixesTheNumbers) {
  auto spec = Judge();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train().threads(), 2);
  EXPECT_EQ(spec->train().tokens_per_micro_batch(), 256);
  EXPECT_FALSE(spec->precision().compute().empty());
  JobValidator validator({.datasets = store_.get(), .cores = 8, .memory_bytes = memory_bytes_});
  auto again = validator.ResolveAndValidate(*spec);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*spec, again->spec));
}

TEST_F(JobValidatorTest, RefusesValuesThatCannotBe) {
  ExpectRefused(Judge("steps: 10", "steps: 0"), "CONFIG_INVALID", "spec.train.steps", "0");
  ExpectRefused(Judge("tokens_per_step: 256", "tokens_per_step: 100"), "CONFIG_INVALID",
                "spec.train.tokens_per_step", "100 is not a multiple of data.sequence_length (64)");
  ExpectRefused(Judge("steps: 10", "steps: 10, threads: 1000"), "CONFIG_INVALID",
                "spec.train.threads", "use at most 512");
  ExpectRefused(Judge("steps: 10", "steps: 10, schedule: {name: step}"), "CONFIG_INVALID",
                "spec.train.schedule.name", "`step` is unknown");
  ExpectRefused(Judge("datasets/plays", "/etc/passwd"), "CONFIG_INVALID", "spec.data.train",
                "is no dataset");
}

TEST_F(JobValidatorTest, NamesAllThatIsWrongAtOnce) {
  const absl::Status status =
      Judge("steps: 10, tokens_per_step: 256", "steps: -1, tokens_per_step: 0, clip_norm: -2")
          .status();
  EXPECT_GE(FieldViolationsOf(status).size(), 3) << status;
}

TEST_F(JobValidatorTest, RefusesAModelThatCannotBeBuilt) {
  ExpectRefused(Judge("num_attention_heads: 4", "num_attention_heads: 5"), "MODEL_INVALID", "",
                "spec.model.config.");
  ExpectRefused(Judge("model_type: llama", "model_type: mamba"), "MODEL_UNSUPPORTED",
                "spec.model.config.model_type", "mamba");
  ExpectRefused(Judge("sequence_length: 64}", "sequence_length: 256}"), "MODEL_INVALID",
                "spec.data.sequence_length", "max_position_embeddings (128)");
}

TEST_F(JobValidatorTest, RefusesADatasetThatCannotBeUsed) {
  ExpectRefused(Judge("datasets/plays", "datasets/poems"), "DATASET_NOT_FOUND", "",
                "datasets/poems");
  ExpectRefused(Judge("datasets/plays", "datasets/half"), "DATASET_INVALID", "spec.data.train",
                "still being uploaded");
  ExpectRefused(Judge("datasets/plays", "datasets/short"), "DATASET_INVALID",
                "spec.data.sequence_length", "101 tokens");
}

TEST_F(JobValidatorTest, RefusesWhatDoesNotFitInMemory) {
  ExpectRefused(Judge("train: {", "memory: {host_budget: 1MiB}\ntrain: {"),
                "HOST_MEMORY_INSUFFICIENT", "", "memory.host_budget: the host lacks");
  ExpectRefused(Judge("train: {", "memory: {device_budget: 1000}\ntrain: {"),
                "DEVICE_MEMORY_INSUFFICIENT", "", "memory.device_budget: the device lacks");
  memory_bytes_ = 100 << 20;
  ExpectRefused(Judge(), "HOST_MEMORY_INSUFFICIENT", "", "the host lacks");
}

TEST_F(JobValidatorTest, PlansForThisNodeAndForACardThatIsNotThere) {
  auto spec = ParseJobFile(kJob);
  ASSERT_TRUE(spec.ok());
  JobValidator validator({.datasets = store_.get(), .cores = 2, .memory_bytes = memory_bytes_});
  const auto validated = validator.ResolveAndValidate(*spec);
  ASSERT_TRUE(validated.ok());
  EXPECT_TRUE(validated->plan.fits());
  EXPECT_EQ(validated->plan.device(), "cpu");
  EXPECT_EQ(validated->plan.tokens_per_step(), 256);
  EXPECT_EQ(validated->plan.tokens_per_micro_batch(),
            validated->spec.train().tokens_per_micro_batch());

  v1::PlanJobRequest request;
  *request.mutable_spec() = *spec;
  // No dataset is needed for a plan.
  request.mutable_spec()->mutable_data()->set_train("./plays");
  request.set_device("rtx-3080-10gb");
  request.set_host_memory_bytes(int64_t{64} << 30);
  request.set_trace(true);
  const auto answer = validator.Plan(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->plan().fits());
  EXPECT_EQ(answer->plan().device(), "rtx-3080-10gb");
  EXPECT_GT(answer->plan().tokens_per_second(), 0);
  EXPECT_GT(answer->plan().device_memory_size(), 0);
  EXPECT_EQ(answer->trace().substr(0, 1), "{");

  request.mutable_spec()->mutable_memory()->set_device_budget_bytes(1000);
  const auto too_small = validator.Plan(request);
  ASSERT_TRUE(too_small.ok()) << too_small.status();
  EXPECT_FALSE(too_small->plan().fits());
  EXPECT_NE(too_small->plan().shortfall(), "");
}

TEST_F(JobValidatorTest, RefusesBudgetsThatTheNodeCannotGiveTogether) {
  ExpectRefused(Judge("train: {", "memory: {host_budget: 3GiB, device_budget: 2GiB}\ntrain: {"),
                "CONFIG_INVALID", "spec.memory.device_budget", "together more than this node has");
  EXPECT_TRUE(Judge("train: {", "memory: {host_budget: 2GiB, device_budget: 2GiB}\ntrain: {").ok());
}

TEST_F(JobValidatorTest, RefusesPlansThatContradictTheRequest) {
  JobValidator validator({.datasets = store_.get(), .cores = 2, .memory_bytes = memory_bytes_});
  v1::PlanJobRequest request;
  *request.mutable_spec() = *ParseJobFile(kJob);
  const auto expect_refused = [&](const std::string& reason, const std::string& field) {
    const absl::Status status = validator.Plan(request).status();
    EXPECT_EQ(ReasonOf(status), reason) << status;
    ASSERT_EQ(FieldViolationsOf(status).size(), 1) << status;
    EXPECT_EQ(FieldViolationsOf(status)[0].field, field);
  };
  request.set_device("rtx-3080");
  expect_refused("PROFILE_UNKNOWN", "device");
  request.set_host_memory_bytes(-1);
  expect_refused("REQUEST_INVALID", "host_memory_bytes");
  request.clear_device();
  request.set_host_memory_bytes(1 << 30);
  expect_refused("REQUEST_INVALID", "host_memory_bytes");
  request.clear_host_memory_bytes();
  request.mutable_spec()->mutable_memory()->mutable_plan()->set_resident_units(3);
  expect_refused("CONFIG_INVALID", "spec.memory.plan.resident_units");
}

TEST_F(JobValidatorTest, RefusesAStepThatNoMachineCanMake) {
  ExpectRefused(Judge("tokens_per_step: 256", "tokens_per_step: 64000000000"), "CONFIG_INVALID",
                "spec.train.tokens_per_step", "too many for one step");
  ExpectRefused(Judge("tokens_per_step: 256",
                      "tokens_per_step: 4611686018427387904, tokens_per_micro_batch: 64"),
                "CONFIG_INVALID", "spec.train.tokens_per_step", "is too large; use at most");
}

// Jobs that begin with a model of the node.
class PretrainedJobTest : public JobValidatorTest {
 protected:
  PretrainedJobTest() {
    ModelStore::Options options;
    options.blobs.folder = paths_.Models();
    options.model_dirs = {paths_.root()};
    models_ = *ModelStore::Open(std::move(options));
    const std::string folder = paths_.root() + "/llama";
    std::filesystem::create_directories(folder);
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(absl::StrCat("tests/golden/llama_gqa/", name),
                                 absl::StrCat(folder, "/", name));
    }
    EXPECT_TRUE(models_->Register("llama", folder).ok());
  }

  absl::StatusOr<v1::JobSpec> JudgeFrom(const std::string& model, const std::string& more = "") {
    auto spec = ParseJobFile(absl::StrCat("name: tuned\nmodel: {", model,
                                          "}\ndata: {train: datasets/plays, sequence_length: 32}\n"
                                          "train: {steps: 10, tokens_per_step: 128}\n",
                                          more));
    EXPECT_TRUE(spec.ok()) << spec.status();
    JobValidator validator(
        {.datasets = store_.get(), .cores = 2, .memory_bytes = memory_bytes_, .paths = paths_});
    absl::StatusOr<ValidatedSpec> validated = validator.ResolveAndValidate(*spec);
    if (!validated.ok()) return validated.status();
    return validated->spec;
  }

  const DataPaths paths_{MakeTempFolder()};
  std::unique_ptr<ModelStore> models_;
};

TEST_F(PretrainedJobTest, NamesOfModelsAreLookedUp) {
  ExpectRefused(JudgeFrom("from: models/none"), "MODEL_NOT_FOUND", "", "models/none");
  ExpectRefused(JudgeFrom("from: llama"), "CONFIG_INVALID", "spec.model.from", "models/{id}");
  ExpectRefused(JudgeFrom("from: jobs/a/checkpoints/latest"), "CHECKPOINT_NOT_FOUND", "", "jobs/a");
  ExpectRefused(JudgeFrom("from: models/llama, config: {model_type: llama}"), "CONFIG_INVALID",
                "spec.model.from", "config of its own");
  ExpectRefused(JudgeFrom(""), "CONFIG_INVALID", "spec.model.config", "model.from");
}

TEST_F(PretrainedJobTest, ATokenizerMustFitTheModel) {
  ExpectRefused(JudgeFrom("from: models/llama"), "MODEL_INVALID", "spec.model.from",
                "name another one as tokenizer");
  // 257 tokens for a model of 37.
  ExpectRefused(JudgeFrom("from: models/llama", "tokenizer: byte\n"), "MODEL_INVALID",
                "spec.tokenizer", "37");
  ExpectRefused(JudgeFrom("from: models/llama", "tokenizer: tokenizers/none\n"),
                "TOKENIZER_NOT_FOUND", "", "tokenizers/none");
  ExpectRefused(JudgeFrom("from: models/llama", "tokenizer: words\n"), "CONFIG_INVALID",
                "spec.tokenizer", "`words`");
}

}  // namespace
}  // namespace millrace
