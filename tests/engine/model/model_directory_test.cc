#include "engine/model/model_directory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/float16.h"
#include "engine/base/thread_pool.h"
#include "engine/model/families.h"
#include "engine/model/initializer.h"
#include "engine/model/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_names.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model in memory.
struct Model {
  ModelSpec spec;
  std::vector<SlabLayout> layouts;
  std::vector<std::vector<float>> slabs;

  explicit Model(const ModelSpec& model_spec)
      : spec(model_spec), layouts(MakeSlabLayouts(model_spec)) {
    for (const SlabLayout& layout : layouts) slabs.emplace_back(layout.count);
  }

  void Initialize(uint64_t seed) {
    ThreadPool threads(2);
    for (size_t i = 0; i < slabs.size(); ++i) {
      InitializeSlab(spec, layouts[i], seed, threads, absl::MakeSpan(slabs[i]));
    }
  }
  void RoundToBFloat16() {
    for (std::vector<float>& slab : slabs) {
      for (float& value : slab) value = BFloat16::FromFloat(value).ToFloat();
    }
  }

  absl::StatusOr<std::vector<WrittenFile>> Write(const std::string& folder,
                                                 const ModelDirectoryOptions& options) const {
    return WriteModelDirectory(
        spec, layouts,
        [&](int64_t unit, int64_t offset, absl::Span<float> out) {
          std::copy_n(slabs[unit].begin() + offset, out.size(), out.begin());
          return absl::OkStatus();
        },
        folder, options);
  }
  absl::Status Read(const std::string& folder) {
    return ReadModelDirectory(
        spec, layouts, folder, [&](int64_t unit, int64_t offset, absl::Span<const float> values) {
          std::copy(values.begin(), values.end(), slabs[unit].begin() + offset);
          return absl::OkStatus();
        });
  }
};

std::string EmptyFolder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string folder = ::testing::TempDir() + "/" + test->name();
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::vector<nlohmann::json> Configs() {
  using nlohmann::json;
  return {
      json::parse(R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 100,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
      json::parse(R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 100,
          "num_hidden_layers": 1, "num_attention_heads": 2, "tie_word_embeddings": true,
          "attention_bias": true, "mlp_bias": true, "head_dim": 10})"),
      json::parse(R"({"model_type": "gpt2", "n_embd": 40, "n_layer": 2, "n_head": 4,
          "n_positions": 33})"),
      json::parse(R"({"model_type": "gpt2", "n_embd": 40, "n_layer": 1, "n_head": 4,
          "n_positions": 33, "n_inner": 1, "tie_word_embeddings": false})"),
  };
}

Model ModelOf(const nlohmann::json& config) {
  absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, 67);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return Model(*spec);
}

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), std::bit_cast<uint32_t, float>);
  return bits;
}

// Raw content of all tensors in a folder's safetensors files.
std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> TensorsIn(
    const std::string& folder) {
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> tensors;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".safetensors" || file.path().stem() == "golden") continue;
    const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(file.path());
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (const auto& [name, entry] : reader->tensors()) {
      std::vector<float> values(entry.count());
      EXPECT_TRUE(reader->Read(entry, 0, absl::MakeSpan(values)).ok());
      tensors[name] = {entry.shape, std::move(values)};
    }
  }
  return tensors;
}

TEST(ModelDirectory, RoundTripIsBitwise) {
  for (const nlohmann::json& config : Configs()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Model model = ModelOf(config);
      model.Initialize(7);
      if (dtype == DType::kBF16) model.RoundToBFloat16();
      const std::string folder = EmptyFolder();
      const auto files = model.Write(folder, {.dtype = dtype});
      ASSERT_TRUE(files.ok()) << files.status();
      const absl::StatusOr<ModelSpec> spec = ReadModelDirectoryConfig(folder);
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(*spec, model.spec);
      Model again(*spec);
      const absl::Status status = again.Read(folder);
      ASSERT_TRUE(status.ok()) << status;
      for (size_t i = 0; i < model.slabs.size(); ++i) {
        EXPECT_EQ(BitsOf(model.slabs[i]), BitsOf(again.slabs[i]));
      }
    }
  }
}

TEST(ModelDirectory, RoundsToTheNearestBFloat16) {
  Model model = ModelOf(Configs()[2]);
  model.Initialize(7);
  const std::string folder = EmptyFolder();
  ASSERT_TRUE(model.Write(folder, {.dtype = DType::kBF16}).ok());
  Model again(model.spec);
  ASSERT_TRUE(again.Read(folder).ok());
  model.RoundToBFloat16();
  EXPECT_EQ(model.slabs, again.slabs);
}

TEST(ModelDirectory, FilesAreListedWithSizesAndHashes) {
  Model model = ModelOf(Configs()[0]);
  const std::string folder = EmptyFolder();
  const auto files = model.Write(folder, {.dtype = DType::kF32, .end_of_document = 256});
  ASSERT_TRUE(files.ok());
  std::vector<std::string> names;
  for (const WrittenFile& file : *files) {
    names.push_back(file.name);
    EXPECT_EQ(file.size_bytes, fs::file_size(folder + "/" + file.name));
    EXPECT_EQ(file.sha256, *Sha256OfFile(folder + "/" + file.name));
  }
  EXPECT_THAT(names, ElementsAre("model.safetensors", "config.json"));
  EXPECT_THAT(*ReadFile(folder + "/config.json"), HasSubstr("\"eos_token_id\": 256"));
}

TEST(ModelDirectory, LargeModelsAreDividedIntoFilesWithAnIndex) {
  Model model = ModelOf(Configs()[2]);
  model.Initialize(7);
  const std::string folder = EmptyFolder();
  constexpr int64_t kLimit = 20'000;
  const auto files = model.Write(folder, {.dtype = DType::kF32, .max_file_bytes = kLimit});
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_GT(files->size(), 5);
  const std::string count = std::to_string(files->size() - 2);
  EXPECT_EQ((*files)[0].name,
            "model-00001-of-" + std::string(5 - count.size(), '0') + count + ".safetensors");
  EXPECT_EQ((*files)[files->size() - 2].name, "model.safetensors.index.json");

  const nlohmann::json index =
      nlohmann::json::parse(*ReadFile(folder + "/model.safetensors.index.json"));
  int64_t parameters = 0;
  for (const SlabLayout& layout : model.layouts) parameters += layout.parameters();
  EXPECT_EQ(index["metadata"]["total_size"], 4 * parameters);
  EXPECT_EQ(index["weight_map"].size(), TensorsIn(folder).size());
  for (const auto& [name, file] : index["weight_map"].items()) {
    const absl::StatusOr<SafetensorsReader> reader =
        SafetensorsReader::Open(folder + "/" + file.get<std::string>());
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(reader->tensors().count(name), 1);
    if (reader->tensors().size() > 1) {
      EXPECT_LE(fs::file_size(reader->path()), kLimit + 1000);
    }
  }

  Model again(model.spec);
  ASSERT_TRUE(again.Read(folder).ok());
  EXPECT_EQ(model.slabs, again.slabs);
  fs::remove(folder + "/" + (*files)[1].name);
  EXPECT_TRUE(absl::IsNotFound(again.Read(folder)));
}

TEST(ModelDirectory, ReadsAndWritesTheDirectoriesOfTransformersUnchanged) {
  const std::string root = EmptyFolder();
  for (const std::string& name : GoldenNames()) {
    const std::string golden = kGoldenRoot + name;
    const absl::StatusOr<ModelSpec> spec = ReadModelDirectoryConfig(golden);
    ASSERT_TRUE(spec.ok()) << spec.status();
    Model model(*spec);
    const absl::Status status = model.Read(golden);
    ASSERT_TRUE(status.ok()) << status;
    for (const int64_t limit : {1'000'000, 6'000}) {
      const std::string folder = absl::StrCat(root, "/", name, ".", limit);
      fs::create_directories(folder);
      ASSERT_TRUE(model.Write(folder, {.dtype = DType::kF32, .max_file_bytes = limit}).ok());
      EXPECT_EQ(TensorsIn(golden), TensorsIn(folder)) << name;
    }
  }
}

TEST(ModelDirectory, RowsOfFusedTensorsAreThePartsInOrder) {
  const std::string golden = "tests/golden/llama_gqa";
  Model model(*ReadModelDirectoryConfig(golden));
  ASSERT_TRUE(model.Read(golden).ok());
  const auto tensors = TensorsIn(golden);
  const TensorLayout* qkv = model.layouts[2].Find(TensorRole::kQkv);
  const float* fused = model.slabs[2].data() + qkv->offset;
  int64_t element = 0;
  for (const char* part : {"q", "k", "v"}) {
    const auto& values =
        tensors.at(std::string("model.layers.1.self_attn.") + part + "_proj.weight").second;
    for (float value : values) EXPECT_EQ(fused[element++], value);
  }
  EXPECT_EQ(element, qkv->count());
}

// Replaces the q, k and v of each block by one tensor with the rows of q, k and v of each head.
void FuseHeads(Model& model, bool transposed) {
  const ModelSpec& spec = model.spec;
  for (SlabLayout& slab : model.layouts) {
    for (TensorLayout& tensor : slab.tensors) {
      if (tensor.role != TensorRole::kQkv && tensor.role != TensorRole::kQkvBias) continue;
      const bool bias = tensor.role == TensorRole::kQkvBias;
      const std::string name =
          absl::StrCat("layers.", slab.index - 1, ".qkv.", bias ? "bias" : "weight");
      tensor.parts.clear();
      for (int64_t i = 0; i < 3 * spec.num_heads; ++i) {
        const int64_t kind = i / spec.num_heads, head = i % spec.num_heads;
        tensor.parts.push_back({name, i * spec.head_dim, spec.head_dim, transposed && !bias,
                                (head * 3 + kind) * spec.head_dim, tensor.rows});
      }
    }
  }
}

TEST(ModelDirectory, RowsOfAFusedTensorMayBeInterleavedInTheFile) {
  for (const bool transposed : {false, true}) {
    Model model = ModelOf(Configs()[1]);
    model.Initialize(7);
    FuseHeads(model, transposed);
    const std::string folder = EmptyFolder();
    const auto files = model.Write(folder, {.dtype = DType::kF32});
    ASSERT_TRUE(files.ok()) << files.status();

    const int64_t rows = 3 * model.spec.query_size(), columns = model.spec.hidden_size;
    const auto tensors = TensorsIn(folder);
    EXPECT_EQ(tensors.at("layers.0.qkv.bias").first, std::vector<int64_t>{rows});
    const auto& [shape, values] = tensors.at("layers.0.qkv.weight");
    EXPECT_EQ(shape, transposed ? std::vector<int64_t>({columns, rows})
                                : std::vector<int64_t>({rows, columns}));
    const float* slab = model.slabs[1].data() + model.layouts[1].Find(TensorRole::kQkv)->offset;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t width = model.spec.head_dim;
      const int64_t head = row / (3 * width), kind = row / width % 3;
      const int64_t in_slab = (kind * model.spec.num_heads + head) * width + row % width;
      for (int64_t column = 0; column < columns; ++column) {
        EXPECT_EQ(values[transposed ? column * rows + row : row * columns + column],
                  slab[in_slab * columns + column]);
      }
    }
    Model again(model.spec);
    again.layouts = model.layouts;
    const absl::Status status = again.Read(folder);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(model.slabs, again.slabs);
  }
}

TEST(ModelDirectory, TransposedTensorsAreOutByInInTheSlab) {
  const std::string golden = "tests/golden/gpt2";
  Model model(*ReadModelDirectoryConfig(golden));
  ASSERT_TRUE(model.Read(golden).ok());
  const auto tensors = TensorsIn(golden);
  const auto& [shape, values] = tensors.at("transformer.h.0.attn.c_attn.weight");
  const int64_t hidden = model.spec.hidden_size, rows = 3 * hidden;
  ASSERT_THAT(shape, ElementsAre(hidden, rows));
  const float* slab = model.slabs[1].data() + model.layouts[1].Find(TensorRole::kQkv)->offset;
  for (int64_t in = 0; in < hidden; ++in) {
    for (int64_t out = 0; out < rows; ++out) {
      EXPECT_EQ(slab[out * hidden + in], values[in * rows + out]);
    }
  }
}

// Writes a file of these tensors, all zeros.
void WriteZeros(const std::string& folder, const std::vector<SafetensorsEntry>& entries) {
  absl::StatusOr<SafetensorsWriter> writer =
      SafetensorsWriter::Create(folder + "/model.safetensors", entries);
  ASSERT_TRUE(writer.ok());
  for (const SafetensorsEntry& entry : entries) {
    ASSERT_TRUE(writer->Append(std::string(entry.count() * 4, '\0')).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

std::vector<SafetensorsEntry> EntriesOf(const Model& model) {
  const std::string folder = EmptyFolder();
  EXPECT_TRUE(model.Write(folder, {.dtype = DType::kF32}).ok());
  const absl::StatusOr<SafetensorsReader> reader =
      SafetensorsReader::Open(folder + "/model.safetensors");
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, entry] : reader->tensors()) entries.push_back(entry);
  return entries;
}

TEST(ModelDirectory, TensorsThatDoNotBelongAreNamed) {
  Model model = ModelOf(Configs()[2]);
  const std::vector<SafetensorsEntry> entries = EntriesOf(model);
  const std::string folder = EmptyFolder();
  const auto error = [&](const std::vector<SafetensorsEntry>& changed) {
    WriteZeros(folder, changed);
    const absl::Status status = model.Read(folder);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };

  std::vector<SafetensorsEntry> changed = entries;
  changed.pop_back();
  EXPECT_THAT(error(changed), HasSubstr("has no tensor \"" + entries.back().name + "\""));
  changed = entries;
  changed.push_back({"transformer.h.2.ln_1.weight", FileDType::kF32, {40}});
  EXPECT_THAT(error(changed),
              HasSubstr("tensor \"transformer.h.2.ln_1.weight\" is none of a gpt2 model"));
  changed = entries;
  for (SafetensorsEntry& entry : changed) {
    if (entry.name == "transformer.h.1.mlp.c_fc.weight") entry.shape = {160, 40};
  }
  EXPECT_THAT(error(changed), HasSubstr("tensor \"transformer.h.1.mlp.c_fc.weight\" has shape "
                                        "[160, 40], but config.json makes it [40, 160]"));
}

TEST(ModelDirectory, ConstantsOfOldVersionsAndNamesWithoutPrefixAreTaken) {
  Model model = ModelOf(Configs()[2]);
  std::vector<SafetensorsEntry> entries = EntriesOf(model);
  for (SafetensorsEntry& entry : entries) {
    entry.name = entry.name.substr(std::string("transformer.").size());
  }
  entries.push_back({"h.0.attn.bias", FileDType::kF32, {1, 1, 33, 33}});
  entries.push_back({"lm_head.weight", FileDType::kF32, {67, 40}});
  const std::string folder = EmptyFolder();
  WriteZeros(folder, entries);
  const absl::Status status = model.Read(folder);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ModelDirectory, TheHeadOfTiedEmbeddingsIsTheEmbeddingOrRefused) {
  Model model = ModelOf(Configs()[1]);
  model.Initialize(7);
  const std::string folder = EmptyFolder();
  ASSERT_TRUE(model.Write(folder, {.dtype = DType::kF32}).ok());
  auto tensors = TensorsIn(folder);
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  const auto write = [&] {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, FileDType::kF32, tensor.first});
    }
    auto writer = SafetensorsWriter::Create(folder + "/model.safetensors", entries);
    for (const auto& [name, tensor] : tensors) {
      ASSERT_TRUE(writer
                      ->Append({reinterpret_cast<const char*>(tensor.second.data()),
                                tensor.second.size() * sizeof(float)})
                      .ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  };
  write();
  Model again(model.spec);
  absl::Status status = again.Read(folder);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(again.slabs, model.slabs);

  tensors["lm_head.weight"].second.back() += 1;
  write();
  status = again.Read(folder);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.safetensors: tensor \"lm_head.weight\" is not the embedding"));

  tensors["lm_head.weight"] = {{1, 48}, std::vector<float>(48)};
  write();
  EXPECT_THAT(std::string(again.Read(folder).message()),
              HasSubstr("tensor \"lm_head.weight\" has shape [1, 48]"));
}

// Rewrites a folder's F32 weights, each tensor in the type that `choose` gives its number.
template <typename Choose>
void Retype(const std::string& folder, Choose choose) {
  const auto tensors = TensorsIn(folder);
  std::vector<SafetensorsEntry> entries;
  int64_t number = 0;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, choose(number++), tensor.first});
  }
  auto writer = SafetensorsWriter::Create(folder + "/model.safetensors", entries);
  ASSERT_TRUE(writer.ok());
  for (const SafetensorsEntry& entry : entries) {
    for (const float value : tensors.at(entry.name).second) {
      const uint16_t half = entry.dtype == FileDType::kBF16 ? BFloat16::FromFloat(value).bits
                                                            : Float16::FromFloat(value).bits;
      const char* bytes = entry.dtype == FileDType::kF32 ? reinterpret_cast<const char*>(&value)
                                                         : reinterpret_cast<const char*>(&half);
      ASSERT_TRUE(
          writer->Append({bytes, entry.dtype == FileDType::kF32 ? size_t{4} : size_t{2}}).ok());
    }
  }
  ASSERT_TRUE(writer->Finish().ok());
}

TEST(ModelDirectory, TypesMayBeMixedAndThreadsAndSinksChangeNothing) {
  for (const nlohmann::json& config : Configs()) {
    Model model = ModelOf(config);
    model.Initialize(7);
    // Values that all three types have.
    for (std::vector<float>& slab : model.slabs) {
      for (float& value : slab) value = std::round(value * 1000) / 128;
    }
    const std::string folder = EmptyFolder();
    ASSERT_TRUE(model.Write(folder, {.dtype = DType::kF32}).ok());
    constexpr FileDType kTypes[] = {FileDType::kF32, FileDType::kBF16, FileDType::kF16};
    Retype(folder, [&](int64_t number) { return kTypes[number % 3]; });
    Model one(model.spec), many(model.spec);
    const absl::Status status = one.Read(folder);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(one.slabs, model.slabs);

    ThreadPool threads(3);
    std::atomic<int64_t> halves = 0;
    const auto write = [&](int64_t unit, int64_t offset, absl::Span<const float> values) {
      std::copy(values.begin(), values.end(), many.slabs[unit].begin() + offset);
      return absl::OkStatus();
    };
    std::vector<std::vector<BFloat16>> half_slabs;
    for (const std::vector<float>& slab : model.slabs) half_slabs.emplace_back(slab.size());
    const auto place = [&](int64_t unit, int64_t offset, int64_t count) {
      halves += count;
      return absl::MakeSpan(half_slabs[unit].data() + offset, count);
    };
    const absl::Status read =
        ReadModelDirectory(many.spec, many.layouts, folder, write,
                           {.threads = &threads, .bf16 = BFloat16Place(place)});
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_GT(halves, 0);
    // Each element went one of both ways.
    for (size_t unit = 0; unit < half_slabs.size(); ++unit) {
      for (size_t i = 0; i < half_slabs[unit].size(); ++i) {
        many.slabs[unit][i] += half_slabs[unit][i].ToFloat();
      }
    }
    EXPECT_EQ(many.slabs, model.slabs);
  }
}

TEST(ModelDirectory, TensorsLargerThanAPieceArriveWhole) {
  for (const bool gpt2 : {false, true}) {
    // Projections of more than 2^18 elements, in rows that do not divide it.
    Model model = ModelOf(gpt2 ? nlohmann::json::parse(R"({"model_type": "gpt2", "n_embd": 360,
                                     "n_layer": 1, "n_head": 4, "n_positions": 9})")
                               : nlohmann::json::parse(R"({"model_type": "llama",
                                     "hidden_size": 360, "intermediate_size": 1100,
                                     "num_hidden_layers": 1, "num_attention_heads": 4})"));
    model.Initialize(7);
    const std::string folder = EmptyFolder();
    ASSERT_TRUE(model.Write(folder, {.dtype = DType::kF32}).ok());
    Model again(model.spec);
    ASSERT_TRUE(again.Read(folder).ok());
    EXPECT_TRUE(again.slabs == model.slabs);
  }
}

TEST(ModelDirectory, TypesThatAreNotReadAreNamedBeforeAnythingIsRead) {
  Model model = ModelOf(Configs()[2]);
  const std::string folder = EmptyFolder();
  ASSERT_TRUE(model.Write(folder, {.dtype = DType::kF32}).ok());
  std::string bytes = *ReadFile(folder + "/model.safetensors");
  const std::string old = R"("transformer.wpe.weight":{"dtype":"F32")";
  ASSERT_NE(bytes.find(old), std::string::npos);
  bytes.replace(bytes.find(old), old.size(), R"("transformer.wpe.weight":{"dtype":"I32")");
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << bytes;
  const absl::Status status = ReadModelDirectory(
      model.spec, model.layouts, folder,
      [](int64_t, int64_t, absl::Span<const float>) { return absl::AbortedError("was read"); });
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor \"transformer.wpe.weight\" has a type that is none of"));
}

TEST(ModelDirectory, WeightsThatWouldRunCodeAreRefusedWithTheWayOut) {
  Model model = ModelOf(Configs()[0]);
  const std::string folder = EmptyFolder();
  std::ofstream(folder + "/pytorch_model.bin") << "x";
  const absl::Status status = model.Read(folder);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("pytorch_model.bin"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("save_pretrained"));
}

TEST(ModelDirectory, WhatAnIndexNamesMayNotBeALinkOutOfTheFolderButInACacheOfTheHub) {
  Model model = ModelOf(Configs()[2]);
  model.Initialize(7);
  const std::string root = EmptyFolder();
  for (const char* folder : {"/real", "/linked", "/name/blobs", "/name/snapshots/abc", "/links"}) {
    fs::create_directories(root + folder);
  }
  const ModelDirectoryOptions options = {.dtype = DType::kF32, .max_file_bytes = 30'000};
  ASSERT_TRUE(model.Write(root + "/real", options).ok());
  ASSERT_TRUE(model.Write(root + "/name/blobs", options).ok());
  for (const auto& file : fs::directory_iterator(root + "/real")) {
    const std::string name = file.path().filename();
    if (file.path().extension() == ".json") {
      fs::copy_file(file.path(), root + "/linked/" + name);
    } else {
      fs::create_symlink(file.path(), root + "/linked/" + name);
    }
    fs::create_symlink(file.path(), root + "/links/" + name);
    fs::create_symlink("../../blobs/" + name, root + "/name/snapshots/abc/" + name);
  }
  const absl::Status linked = model.Read(root + "/linked");
  EXPECT_TRUE(absl::IsInvalidArgument(linked));
  EXPECT_THAT(std::string(linked.message()),
              HasSubstr("weight_map has tensor \"transformer.h.0.attn.c_attn.bias\" where no file "
                        "of this folder is"));
  EXPECT_THAT(std::string(linked.message()), HasSubstr("is a link that leads out of it"));
  for (const char* folder : {"/name/snapshots/abc", "/links"}) {
    Model again(model.spec);
    const absl::Status status = again.Read(root + folder);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(again.slabs, model.slabs);
  }
}

TEST(ModelDirectory, AnIndexMustSayWhereTensorsAre) {
  Model model = ModelOf(Configs()[2]);
  model.Initialize(7);
  const std::string folder = EmptyFolder(), index = folder + "/model.safetensors.index.json";
  ASSERT_TRUE(model.Write(folder, {.dtype = DType::kF32, .max_file_bytes = 30'000}).ok());
  nlohmann::json content = nlohmann::json::parse(*ReadFile(index));
  const std::string first = content["weight_map"]["transformer.wte.weight"];
  const std::string last = content["weight_map"]["transformer.ln_f.weight"];
  ASSERT_NE(first, last);
  content["weight_map"]["transformer.wte.weight"] = last;
  std::ofstream(index) << content;
  EXPECT_THAT(std::string(model.Read(folder).message()),
              HasSubstr("has tensor \"transformer.wte.weight\" in " + last));
  content["weight_map"]["transformer.wte.weight"] = "copy.safetensors";
  std::ofstream(index) << content;
  fs::copy_file(folder + "/" + first, folder + "/copy.safetensors");
  EXPECT_THAT(std::string(model.Read(folder).message()), HasSubstr("is in another file too"));
}

TEST(ModelDirectory, OneFileOfWeightsGoesBeforeAnIndex) {
  Model model = ModelOf(Configs()[0]);
  model.Initialize(7);
  const std::string folder = EmptyFolder();
  ASSERT_TRUE(model.Write(folder, {.dtype = DType::kF32}).ok());
  std::ofstream(folder + "/model.safetensors.index.json") << "what transformers does not look at";
  std::ofstream(folder + "/pytorch_model.bin") << "nor at this";
  std::ofstream(folder + "/generation_config.json") << "{";
  Model again(model.spec);
  const absl::Status status = again.Read(folder);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(again.slabs, model.slabs);
}

TEST(ModelDirectory, BadConfigsAndIndexesAreNamed) {
  const std::string folder = EmptyFolder();
  EXPECT_TRUE(absl::IsNotFound(ReadModelDirectoryConfig(folder).status()));
  std::ofstream(folder + "/config.json") << "{";
  EXPECT_THAT(std::string(ReadModelDirectoryConfig(folder).status().message()),
              HasSubstr("config.json: is not valid JSON"));
  std::ofstream(folder + "/config.json") << R"({"model_type": "bert"})";
  EXPECT_THAT(std::string(ReadModelDirectoryConfig(folder).status().message()),
              HasSubstr("config.json: model_type: \"bert\""));

  Model model = ModelOf(Configs()[0]);
  EXPECT_TRUE(absl::IsNotFound(model.Read(folder)));
  std::ofstream(folder + "/../outside.safetensors") << "x";
  for (const char* index :
       {"{}", "[]", R"({"weight_map": {}})", R"({"weight_map": {"a": 5}})",
        R"({"weight_map": {"a": ""}})", R"({"weight_map": {"a": ".."}})",
        R"({"weight_map": {"a": "../outside.safetensors"}})",
        R"({"weight_map": {"a": "/etc/passwd"}})", R"({"weight_map": {"a": "a\u0000b"}})"}) {
    std::ofstream(folder + "/model.safetensors.index.json") << index;
    const absl::Status status = model.Read(folder);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("weight_map"));
  }
}

TEST(ModelDirectory, ErrorsOfTheOwnerOfTheParametersArePassedOn) {
  Model model = ModelOf(Configs()[0]);
  const std::string folder = EmptyFolder();
  const absl::Status written =
      WriteModelDirectory(
          model.spec, model.layouts,
          [](int64_t, int64_t, absl::Span<float>) { return absl::AbortedError("source"); }, folder)
          .status();
  EXPECT_TRUE(absl::IsAborted(written));
  ASSERT_TRUE(model.Write(folder, {}).ok());
  const absl::Status read = ReadModelDirectory(
      model.spec, model.layouts, folder,
      [](int64_t, int64_t, absl::Span<const float>) { return absl::AbortedError("sink"); });
  EXPECT_TRUE(absl::IsAborted(read));
}

}  // namespace
}  // namespace millrace
