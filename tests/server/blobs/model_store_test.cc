#include "server/blobs/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "server/base/errors.h"
#include "server/blobs/model_path.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string NewFolder() {
  std::string pattern = absl::StrCat(std::getenv("TEST_TMPDIR"), "/models-XXXXXX");
  return mkdtemp(pattern.data());
}

std::string Golden(const std::string& path) { return absl::StrCat("tests/golden/", path); }

class ModelStoreTest : public ::testing::Test {
 protected:
  ModelStoreTest() : paths_(NewFolder()), allowed_(NewFolder()) { Reopen(); }

  void Reopen() {
    store_.reset();
    ModelStore::Options options;
    options.blobs.folder = paths_.Models();
    options.blobs.jobs_using = [this](const std::string&) { return jobs_; };
    options.model_dirs = {allowed_};
    auto store = ModelStore::Open(std::move(options));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  // Sends files, each given by its name and where it is.
  absl::StatusOr<StoredBlob> Upload(const std::string& id,
                                    const std::vector<std::pair<std::string, std::string>>& files) {
    std::vector<BlobFile> declared;
    for (const auto& [name, path] : files) {
      const auto content = ReadFile(path);
      EXPECT_TRUE(content.ok()) << content.status();
      declared.push_back({name, static_cast<int64_t>(content->size()), *Sha256OfFile(path)});
    }
    const auto created = store_->Create(id, declared);
    if (!created.ok()) return created.status();
    for (const auto& [name, path] : files) {
      const auto upload = store_->blobs().OpenUpload(id, name, 0);
      if (!upload.ok()) return upload.status();
      EXPECT_TRUE((*upload)->Append(*ReadFile(path)).ok());
      EXPECT_TRUE((*upload)->Finish().ok());
    }
    return store_->blobs().Finalize(id);
  }

  absl::StatusOr<StoredBlob> UploadLlama(const std::string& id) {
    return Upload(id, {{"config.json", Golden("llama_gqa/config.json")},
                       {"model.safetensors", Golden("llama_gqa/model.safetensors")}});
  }

  // A copy of the llama in `folder`.
  std::string CopyLlama(const std::string& folder) {
    const std::string path = folder + "/llama";
    fs::create_directories(path);
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(Golden(absl::StrCat("llama_gqa/", name)), absl::StrCat(path, "/", name));
    }
    return path;
  }

  const DataPaths paths_;
  const std::string allowed_;
  std::vector<std::string> jobs_;
  std::unique_ptr<ModelStore> store_;
};

TEST_F(ModelStoreTest, KnowsWhatAnUploadedFolderIs) {
  const auto model = UploadLlama("llama");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->ready);
  EXPECT_EQ(TextFact(*model, model_fact::kFormat), model_fact::kSafetensors);
  EXPECT_EQ(TextFact(*model, model_fact::kFamily), "llama");
  EXPECT_EQ(TextFact(*model, model_fact::kWeightType), "F32");
  EXPECT_EQ(TextFact(*model, model_fact::kTokenizer), "");
  EXPECT_EQ(NumberFact(*model, model_fact::kVocab), 37);
  EXPECT_EQ(NumberFact(*model, model_fact::kContext), 48);
  EXPECT_EQ(NumberFact(*model, model_fact::kLayers), 2);
  EXPECT_EQ(NumberFact(*model, model_fact::kHidden), 12);
  // Embedding, two blocks, the last norm and the head.
  const int64_t block = 12 * (24 + 2 * 12) + 24 * 12 + 3 * 12 * 14 + 2 * 12;
  EXPECT_EQ(NumberFact(*model, model_fact::kParameters), 37 * 12 + 2 * block + 12 + 37 * 12);

  Reopen();
  const auto again = store_->blobs().Get("llama");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->facts, model->facts);
  const auto found = FindModel(paths_, "model.from", "models/llama");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->path, paths_.Model("llama") + "/files");
}

TEST_F(ModelStoreTest, AGgufFileIsAWholeModel) {
  const auto model = Upload("llama", {{"llama.gguf", Golden("gguf/llama.gguf")}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(TextFact(*model, model_fact::kFormat), model_fact::kGguf);
  EXPECT_EQ(TextFact(*model, model_fact::kFamily), "llama");
  const auto found = FindModel(paths_, "model.from", "models/llama");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->path, paths_.Model("llama") + "/files/llama.gguf");
}

TEST_F(ModelStoreTest, RefusesFilesThatNoModelHas) {
  const BlobFile config = {"config.json", 10, std::string(64, 'a')};
  const BlobFile weights = {"model.safetensors", 10, std::string(64, 'a')};
  const auto refusal = [&](std::vector<BlobFile> files) {
    const absl::Status status = store_->Create("m", std::move(files)).status();
    EXPECT_EQ(ReasonOf(status), "MODEL_INVALID") << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({config, weights, {"pytorch_model.bin", 10, std::string(64, 'a')}}),
              HasSubstr("model.files[2].path: `pytorch_model.bin`"));
  EXPECT_THAT(refusal({config, weights, {"onnx/config.json", 10, std::string(64, 'a')}}),
              HasSubstr("onnx/config.json"));
  EXPECT_THAT(refusal({config, {"m.gguf", 10, std::string(64, 'a')}}), HasSubstr("alone"));
  EXPECT_THAT(refusal({{"sub/m.gguf", 10, std::string(64, 'a')}}), HasSubstr("sub/m.gguf"));
  EXPECT_THAT(refusal({config}), HasSubstr("*.safetensors"));
  EXPECT_THAT(refusal({weights}), HasSubstr("config.json"));
  EXPECT_THAT(refusal({}), HasSubstr("at least one file"));
}

TEST_F(ModelStoreTest, AModelThatIsNoneIsNotKept) {
  const std::string folder = NewFolder();
  auto config = ReadFile(Golden("llama_gqa/config.json"));
  ASSERT_TRUE(config.ok());
  config->replace(config->find("\"llama\""), 7, "\"lama\"");
  ASSERT_TRUE(WriteFileAtomically(folder + "/unknown.json", *config).ok());
  absl::Status status = Upload("m", {{"config.json", folder + "/unknown.json"},
                                     {"model.safetensors", Golden("llama_gqa/model.safetensors")}})
                            .status();
  EXPECT_EQ(ReasonOf(status), "MODEL_UNSUPPORTED") << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("`lama`"), HasSubstr("llama")));
  EXPECT_EQ(ReasonOf(store_->blobs().Get("m").status()), "MODEL_NOT_FOUND");

  status = Upload("m", {{"config.json", Golden("llama_gqa/config.json")},
                        {"model.safetensors", Golden("llama_tied/model.safetensors")}})
               .status();
  EXPECT_EQ(ReasonOf(status), "MODEL_INVALID") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor"));
}

TEST_F(ModelStoreTest, RegistersOnlyBelowTheFoldersOfTheOperator) {
  const std::string inside = CopyLlama(allowed_), outside = CopyLlama(NewFolder());
  const auto model = store_->Register("in", inside);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(TextFact(*model, model_fact::kFamily), "llama");
  EXPECT_EQ(FindModel(paths_, "model.from", "models/in")->path, fs::canonical(inside).string());
  EXPECT_TRUE(store_->Register("in", inside).ok()) << "once more changes nothing";
  EXPECT_EQ(ReasonOf(store_->Register("in", CopyLlama(allowed_ + "/b")).status()), "ID_TAKEN");

  fs::create_directory_symlink(outside, allowed_ + "/link");
  fs::create_directories(allowed_ + "/half");
  fs::copy_file(outside + "/config.json", allowed_ + "/half/config.json");
  fs::create_symlink(outside + "/model.safetensors", allowed_ + "/half/model.safetensors");
  for (const std::string& path :
       {outside, allowed_ + "/link",
        allowed_ + "/../" + fs::path(outside).parent_path().filename().string(), allowed_ + "/half",
        allowed_, outside + "/nothing", allowed_ + "x/llama"}) {
    const absl::Status status = store_->Register("out", path).status();
    EXPECT_EQ(ReasonOf(status), "PATH_NOT_ALLOWED") << path << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("model_dirs"));
  }
  const auto refusal = [&](const std::string& path) {
    return std::string(store_->Register("out", path).status().message());
  };
  EXPECT_THAT(refusal(allowed_ + "/link"), HasSubstr("which is " + outside)) << "a link is shown";
  EXPECT_THAT(refusal(outside + "/../llama"), Not(HasSubstr("which is"))) << "nor what there is";
  const std::string piped = CopyLlama(allowed_ + "/piped");
  ASSERT_EQ(mkfifo((piped + "/more.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(refusal(piped), HasSubstr("more.safetensors"));
  EXPECT_EQ(ReasonOf(store_->Register("out", "llama").status()), "REQUEST_INVALID");
  EXPECT_EQ(ReasonOf(store_->Register("out", allowed_ + "/nothing").status()), "MODEL_INVALID");
}

TEST_F(ModelStoreTest, ARegisteredModelThatChangesOrGoesIsNoticedAtUse) {
  const std::string path = CopyLlama(allowed_);
  ASSERT_TRUE(store_->Register("llama", path).ok());
  ASSERT_TRUE(FindModel(paths_, "model.from", "models/llama").ok());
  const utimbuf other = {1, 1};
  ASSERT_EQ(utime((path + "/model.safetensors").c_str(), &other), 0);
  absl::Status status = FindModel(paths_, "model.from", "models/llama").status();
  EXPECT_EQ(ReasonOf(status), "MODEL_CHANGED") << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("has changed")));
  fs::remove_all(path);
  status = FindModel(paths_, "model.from", "models/llama").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("is gone"));
  ASSERT_TRUE(store_->blobs().Delete("llama").ok());
  EXPECT_EQ(ReasonOf(FindModel(paths_, "model.from", "models/llama").status()), "MODEL_NOT_FOUND");
}

TEST_F(ModelStoreTest, DeletingARegisteredModelLeavesItsFiles) {
  const std::string path = CopyLlama(allowed_);
  ASSERT_TRUE(store_->Register("llama", path).ok());
  jobs_ = {"jobs/a"};
  EXPECT_EQ(ReasonOf(store_->blobs().Delete("llama")), "IN_USE");
  jobs_.clear();
  ASSERT_TRUE(store_->blobs().Delete("llama").ok());
  EXPECT_TRUE(fs::exists(path + "/model.safetensors"));
}

TEST_F(ModelStoreTest, NamesOfModelsAreModelsOrCheckpoints) {
  for (const char* name : {"llama", "datasets/plays", "models/../x", "jobs/a"}) {
    EXPECT_EQ(ReasonOf(FindModel(paths_, "model.from", name).status()), "REQUEST_INVALID") << name;
  }
  EXPECT_EQ(ReasonOf(FindModel(paths_, "model.from", "models/none").status()), "MODEL_NOT_FOUND");
  EXPECT_EQ(ReasonOf(FindModel(paths_, "model.from", "jobs/a/checkpoints/latest").status()),
            "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(ReasonOf(FindTokenizer(paths_, "tokenizer", "tokenizers/none").status()),
            "TOKENIZER_NOT_FOUND");
}

}  // namespace
}  // namespace millrace
