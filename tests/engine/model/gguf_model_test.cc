// Models in GGUF files, from the file to the slabs and back.
#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/model/families.h"
#include "engine/model/gguf_export.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/initializer.h"
#include "engine/model/model_directory.h"
#include "engine/state/host_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Slabs = std::vector<std::vector<float>>;

absl::Status Read(const ModelSpec& spec, const std::string& path, Slabs& slabs) {
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(spec);
  slabs.clear();
  for (const SlabLayout& layout : layouts) slabs.emplace_back(layout.count);
  return ReadModelDirectory(spec, layouts, path,
                            [&](int64_t unit, int64_t offset, absl::Span<const float> values) {
                              std::copy(values.begin(), values.end(), slabs[unit].begin() + offset);
                              return absl::OkStatus();
                            });
}

absl::StatusOr<WrittenFile> Write(const ModelSpec& spec, const Slabs& slabs,
                                  const std::string& path, const GgufExportOptions& options) {
  return WriteGguf(
      spec, MakeSlabLayouts(spec),
      [&](int64_t unit, int64_t offset, absl::Span<float> out) {
        std::copy_n(slabs[unit].begin() + offset, out.size(), out.begin());
        return absl::OkStatus();
      },
      path, options);
}

ModelSpec SpecOf(const std::string& config) {
  absl::StatusOr<ModelSpec> spec = ParseModelConfig(nlohmann::json::parse(config), 67);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

Slabs RandomSlabs(const ModelSpec& spec) {
  ThreadPool threads(2);
  Slabs slabs;
  for (const SlabLayout& layout : MakeSlabLayouts(spec)) {
    slabs.emplace_back(layout.count);
    InitializeSlab(spec, layout, 7, threads, absl::MakeSpan(slabs.back()));
  }
  return slabs;
}

void Round(const ModelSpec& spec, Slabs& slabs) {
  for (const SlabLayout& layout : MakeSlabLayouts(spec)) {
    for (float& value : slabs[layout.index]) value = BFloat16::FromFloat(value).ToFloat();
  }
}

std::vector<uint32_t> BitsOf(const Slabs& slabs) {
  std::vector<uint32_t> bits;
  for (const std::vector<float>& slab : slabs) {
    for (float value : slab) bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

std::string PathOf(const std::string& name) { return ::testing::TempDir() + "/" + name; }

constexpr char kTied[] = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "tie_word_embeddings": true, "rms_norm_eps": 1e-5, "rope_theta": 500000.0})";
constexpr char kBiases[] = R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 100,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 10,
    "attention_bias": true, "mlp_bias": true})";

TEST(GgufModel, WhatAnotherWriterWroteIsTheModelOfTheDirectory) {
  for (const std::string name : {"llama", "gpt2"}) {
    SCOPED_TRACE(name);
    const std::string path = "tests/golden/gguf/" + name + ".gguf";
    const absl::StatusOr<ModelSpec> spec = ReadModelDirectoryConfig(path);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->model_type, name);
    EXPECT_EQ(spec->vocab_size, 19);
    EXPECT_EQ(spec->tied_embeddings, name == "gpt2");
    Slabs slabs, expected;
    const absl::Status status = Read(*spec, path, slabs);
    ASSERT_TRUE(status.ok()) << status;

    const std::string folder = PathOf(name);
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file("tests/golden/gguf/" + name + ".safetensors",
                               folder + "/model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    const absl::Status read = Read(*spec, folder, expected);
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_EQ(BitsOf(slabs), BitsOf(expected));
  }
}

TEST(GgufModel, ReadsIntoTheHostsState) {
  const std::string path = "tests/golden/gguf/llama.gguf";
  const absl::StatusOr<ModelSpec> spec = ReadModelDirectoryConfig(path);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->head_dim, 6);
  EXPECT_EQ(spec->num_kv_heads, 2);
  EXPECT_EQ(spec->norm_epsilon, 1e-5);
  EXPECT_EQ(spec->rotary.theta, 500000.0);
  ThreadPool threads(2);
  const auto state =
      HostState::Create(MakeSlabLayouts(*spec), Recipe::kFull, DType::kBF16, threads);
  ASSERT_TRUE(state.ok()) << state.status();
  const absl::Status status =
      ReadModelDirectory(*spec, (*state)->layouts(), path,
                         [&](int64_t unit, int64_t offset, absl::Span<const float> values) {
                           (*state)->WriteMaster(static_cast<int>(unit), offset, values);
                           return absl::OkStatus();
                         });
  ASSERT_TRUE(status.ok()) << status;
  Slabs slabs;
  ASSERT_TRUE(Read(*spec, path, slabs).ok());
  for (const SlabLayout& layout : (*state)->layouts()) {
    for (const TensorLayout& tensor : layout.tensors) {
      std::vector<float> values(tensor.count());
      (*state)->ReadMaster(static_cast<int>(layout.index), tensor.offset, absl::MakeSpan(values));
      EXPECT_TRUE(
          std::equal(values.begin(), values.end(), slabs[layout.index].begin() + tensor.offset));
    }
  }
}

TEST(GgufModel, RoundTripIsBitwise) {
  for (const char* config : {kTied, kBiases}) {
    for (const GgmlType type : {GgmlType::kF32, GgmlType::kBF16}) {
      const ModelSpec spec = SpecOf(config);
      Slabs slabs = RandomSlabs(spec), again;
      if (type == GgmlType::kBF16) Round(spec, slabs);
      const std::string path = PathOf("round_trip.gguf");
      const auto written = Write(spec, slabs, path, {.type = type});
      ASSERT_TRUE(written.ok()) << written.status();
      EXPECT_EQ(written->name, "round_trip.gguf");
      const absl::StatusOr<ModelSpec> read = ReadModelDirectoryConfig(path);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, spec);
      const absl::Status status = Read(spec, path, again);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(BitsOf(slabs), BitsOf(again));
    }
  }
}

TEST(GgufModel, NarrowTypesAreCloseAndVectorsAreWhole) {
  const ModelSpec spec = SpecOf(kTied);
  const Slabs slabs = RandomSlabs(spec);
  for (const auto& [type, error] : {std::pair{GgmlType::kF16, 1e-4f}, {GgmlType::kQ8_0, 1e-3f}}) {
    const std::string path = PathOf("narrow.gguf");
    ASSERT_TRUE(Write(spec, slabs, path, {.type = type}).ok());
    const auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->tensors().at("blk.0.attn_q.weight").type->type, type);
    EXPECT_EQ((*file)->tensors().at("blk.0.attn_norm.weight").type->type, GgmlType::kF32);
    Slabs again;
    ASSERT_TRUE(Read(spec, path, again).ok());
    for (size_t i = 0; i < slabs.size(); ++i) {
      for (size_t j = 0; j < slabs[i].size(); ++j) ASSERT_NEAR(slabs[i][j], again[i][j], error);
    }
  }
}

TEST(GgufModel, MatricesWithoutWholeBlocksAreHalves) {
  const ModelSpec spec = SpecOf(kBiases);
  const std::string path = PathOf("odd.gguf");
  ASSERT_TRUE(Write(spec, RandomSlabs(spec), path, {.type = GgmlType::kQ8_0}).ok());
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().at("blk.0.ffn_down.weight").type->type, GgmlType::kF16);
}

TEST(GgufModel, MetadataOfTheTokenizerIsTheCallers) {
  const ModelSpec spec = SpecOf(kTied);
  const std::string path = PathOf("metadata.gguf");
  GgufExportOptions options;
  options.name = "small";
  options.metadata = {{"tokenizer.ggml.model", GgufValue::String("gpt2")},
                      {"tokenizer.ggml.tokens", GgufValue::Strings({"a", "b"})}};
  ASSERT_TRUE(Write(spec, RandomSlabs(spec), path, options).ok());
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->FindValue("general.name")->text(), "small");
  EXPECT_EQ((*file)->FindValue("general.file_type")->whole(), 32);
  EXPECT_EQ((*file)->FindValue("tokenizer.ggml.model")->text(), "gpt2");
  EXPECT_EQ((*file)->FindValue("tokenizer.ggml.tokens")->texts()->size(), 2);
  options.metadata.emplace_back("general.name", GgufValue::String("again"));
  EXPECT_THAT(std::string(Write(spec, RandomSlabs(spec), path, options).status().message()),
              HasSubstr("\"general.name\" is there twice"));
}

TEST(GgufModel, FamiliesThatAreNotWrittenAreNamed) {
  const ModelSpec spec =
      SpecOf(R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2})");
  const auto written = Write(spec, RandomSlabs(spec), PathOf("gpt2.gguf"), {});
  EXPECT_TRUE(absl::IsUnimplemented(written.status()));
  EXPECT_THAT(std::string(written.status().message()), HasSubstr("gpt2"));
}

TEST(GgufModel, TensorsThatDoNotBelongAreNamedAsTheFileNamesThem) {
  const ModelSpec spec = SpecOf(kTied);
  const std::string path = PathOf("wrong.gguf");
  ASSERT_TRUE(Write(spec, RandomSlabs(spec), path, {}).ok());
  const auto error = [&](ModelSpec other) {
    Slabs slabs;
    const absl::Status status = Read(other, path, slabs);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  ModelSpec other = spec;
  other.num_layers = 1;
  EXPECT_THAT(error(other), HasSubstr("tensor \"blk.1."));
  other.num_layers = 3;
  EXPECT_THAT(error(other), HasSubstr("\"model.layers.2.input_layernorm.weight\""));
  other = spec;
  other.intermediate_size = 64;
  EXPECT_THAT(error(other), HasSubstr("\"blk.0.ffn_gate.weight\" has shape [96, 64]"));
}

TEST(GgufTensors, RowsOfHeadsGoThereAndBack) {
  for (const int64_t width : {2, 6, 64}) {
    for (int64_t row = 0; row < 3 * width; ++row) {
      EXPECT_EQ(DirectoryRow(InterleavedRow(row, width), width), row);
      EXPECT_EQ(InterleavedRow(row, width) / width, row / width);
    }
    EXPECT_EQ(InterleavedRow(width / 2, width), 1);
  }
}

}  // namespace
}  // namespace millrace
