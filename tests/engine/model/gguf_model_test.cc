// Models in GGUF files, from the file to the slabs and back.
#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/model/families.h"
#include "engine/model/gguf_export.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/initializer.h"
#include "engine/model/model_directory.h"
#include "engine/ops/rotary_table.h"
#include "engine/state/host_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
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

// Files have no padding.
void ClearPadding(const ModelSpec& spec, Slabs& slabs) {
  for (const SlabLayout& layout : MakeSlabLayouts(spec)) {
    std::vector<float> kept(layout.count);
    for (const TensorLayout& tensor : layout.tensors) {
      std::copy_n(slabs[layout.index].begin() + tensor.offset, tensor.count(),
                  kept.begin() + tensor.offset);
    }
    slabs[layout.index] = std::move(kept);
  }
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

std::vector<float> RotaryTable(const ModelSpec& spec, int64_t length) {
  std::vector<float> table(length * spec.rotary_width);
  FillRotaryTable(spec.rotary, spec.rotary_width, length, length, table.data());
  return table;
}

// Files of tests/golden/gguf made from the models of the same names, whose matrices they hold in
// F16.
class GgufGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GgufGoldenTest, IsTheModelOfTheDirectory) {
  const std::string folder = "tests/golden/" + GetParam();
  const std::string path = "tests/golden/gguf/" + GetParam() + ".gguf";
  const absl::StatusOr<ModelSpec> spec = ReadModelDirectoryConfig(folder);
  ASSERT_TRUE(spec.ok()) << spec.status();
  absl::StatusOr<ModelSpec> read = ReadModelDirectoryConfig(path);
  ASSERT_TRUE(read.ok()) << read.status();
  for (const int64_t length : {8, 100}) {
    EXPECT_THAT(RotaryTable(*read, length),
                Pointwise(FloatNear(1e-5f), RotaryTable(*spec, length)));
  }
  // What such files do not say.
  read->rotary = spec->rotary;
  if (GetParam() == "mistral") {
    EXPECT_EQ(read->model_type, "llama");
    read->model_type = "mistral";
    read->window = spec->window;
    read->windowed = spec->windowed;
  }
  if (spec->norm_plus_one) read->attention_scale = spec->attention_scale;
  read->initializer_range = spec->initializer_range;
  EXPECT_EQ(WriteModelConfig(*read), WriteModelConfig(*spec));
  EXPECT_TRUE(*read == *spec);

  Slabs slabs, expected;
  absl::Status status = Read(*spec, folder, expected);
  ASSERT_TRUE(status.ok()) << status;
  status = Read(*spec, path, slabs);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < slabs.size(); ++i) {
    EXPECT_THAT(slabs[i], Pointwise(FloatNear(5e-4f), expected[i])) << "slab " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GgufGoldenTest,
                         testing::Values("llama_llama3", "mistral", "qwen2", "qwen3", "gemma2",
                                         "gemma3_text", "phi3_longrope_long"),
                         [](const auto& info) { return info.param; });

// A model of each family, and of each way to stretch rotary embeddings, as a config.json after the
// numbers that all have.
struct Family {
  const char* name;
  const char* keys;
  bool is_exact = true;  // norms of gemma lose bits to the one that files add to them
};

std::vector<Family> Families() {
  return {
      {"llama", R"("model_type": "llama", "head_dim": 10, "attention_bias": true,
          "mlp_bias": true)"},
      {"llama_linear", R"("model_type": "llama", "rope_scaling": {"type": "linear", "factor": 3})"},
      {"llama_yarn", R"("model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 4,
          "original_max_position_embeddings": 64, "beta_fast": 16, "attention_factor": 1.5})"},
      {"llama_llama3",
       R"("model_type": "llama", "rope_theta": 500000.0, "tie_word_embeddings": true,
          "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
          "high_freq_factor": 4, "original_max_position_embeddings": 128})"},
      {"mistral", R"("model_type": "mistral", "sliding_window": 16)"},
      {"qwen2", R"("model_type": "qwen2", "tie_word_embeddings": true)"},
      {"qwen3", R"("model_type": "qwen3", "head_dim": 20)"},
      {"gemma2", R"("model_type": "gemma2", "head_dim": 12, "query_pre_attn_scalar": 12,
          "sliding_window": 16)",
       false},
      {"gemma3", R"("model_type": "gemma3_text", "head_dim": 12, "query_pre_attn_scalar": 12,
          "sliding_window": 16, "sliding_window_pattern": 2, "final_logit_softcapping": 20.0,
          "tie_word_embeddings": false, "rope_local_base_freq": 500.0,
          "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 1000000.0)",
       false},
      {"gemma3_full", R"("model_type": "gemma3_text", "head_dim": 12, "query_pre_attn_scalar": 12,
          "sliding_window_pattern": 1)",
       false},
      {"phi3", R"("model_type": "phi3", "sliding_window": 16, "partial_rotary_factor": 0.5)"},
      {"phi3_longrope", R"("model_type": "phi3", "original_max_position_embeddings": 64,
          "rope_scaling": {"type": "longrope", "short_factor": [1, 1.05, 1.1, 1.2, 1.3, 1.4],
          "long_factor": [1, 1.5, 2, 3, 4, 5]})"},
      {"gpt2", R"("model_type": "gpt2", "tie_word_embeddings": false, "n_inner": 60)"},
  };
}

ModelSpec SpecOf(const Family& family) {
  return SpecOf(absl::StrCat("{", family.keys,
                             absl::StrContains(family.keys, "gpt2")
                                 ? R"(, "n_embd": 48, "n_layer": 3, "n_head": 4})"
                                 : R"(, "hidden_size": 48, "intermediate_size": 60,
                                        "num_hidden_layers": 3, "num_attention_heads": 4,
                                        "num_key_value_heads": 2,
                                        "max_position_embeddings": 256})"));
}

// The file says so in f32.
void ExpectNear(double actual, double expected) { EXPECT_NEAR(actual / expected, 1.0, 1e-6); }

class GgufFamilyTest : public testing::TestWithParam<Family> {};

TEST_P(GgufFamilyTest, RoundTripIsBitwise) {
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kBF16}) {
    const ModelSpec spec = SpecOf(GetParam());
    Slabs slabs = RandomSlabs(spec), again;
    for (std::vector<float>& slab : slabs) {  // so that norms and biases are no constants
      for (size_t i = 0; i < slab.size(); ++i) slab[i] += 1e-3f * static_cast<float>(i % 7);
    }
    ClearPadding(spec, slabs);
    if (type == GgmlType::kBF16) Round(spec, slabs);
    const std::string path = PathOf(std::string("round_trip_") + GetParam().name + ".gguf");
    const auto written = Write(spec, slabs, path, {.type = type});
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(PathOf(written->name), path);
    absl::StatusOr<ModelSpec> read = ReadModelDirectoryConfig(path);
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectNear(read->rotary.attention_factor, spec.rotary.attention_factor);
    read->rotary.attention_factor = spec.rotary.attention_factor;
    EXPECT_EQ(WriteModelConfig(*read), WriteModelConfig(spec));
    EXPECT_TRUE(*read == spec);
    const absl::Status status = Read(spec, path, again);
    ASSERT_TRUE(status.ok()) << status;
    if (GetParam().is_exact) {
      EXPECT_EQ(BitsOf(slabs), BitsOf(again));
    } else {
      for (size_t i = 0; i < slabs.size(); ++i) {
        EXPECT_THAT(again[i], Pointwise(FloatNear(6e-8f), slabs[i]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GgufFamilyTest, testing::ValuesIn(Families()),
                         [](const auto& info) { return std::string(info.param.name); });

// Copies a file, with q, k and v of each block in tensors of their own.
void WriteWithoutFusion(const ModelSpec& spec, const std::string& from, const std::string& to) {
  const auto file = GgufFile::Open(from);
  ASSERT_TRUE(file.ok()) << file.status();
  const GgufMetadata metadata((*file)->metadata().begin(), (*file)->metadata().end());
  std::vector<GgufTensor> tensors;
  std::vector<float> values;
  for (const auto& [name, tensor] : (*file)->tensors()) {
    std::vector<float> own(tensor.count());
    ASSERT_TRUE((*file)->Read(tensor, 0, absl::MakeSpan(own)).ok());
    values.insert(values.end(), own.begin(), own.end());
    if (!absl::StrContains(name, "attn_qkv")) {
      tensors.push_back(tensor);
      continue;
    }
    for (const auto& [module, rows] : {std::pair{"attn_q", spec.query_size()},
                                       {"attn_k", spec.kv_size()},
                                       {"attn_v", spec.kv_size()}}) {
      GgufTensor part = tensor;
      part.name = absl::StrReplaceAll(name, {{"attn_qkv", module}});
      part.shape[0] = rows;
      tensors.push_back(part);
    }
  }
  auto writer = GgufWriter::Create(to, metadata, tensors);
  ASSERT_TRUE(writer.ok()) << writer.status();
  absl::Span<const float> rest = values;
  for (const GgufTensor& tensor : tensors) {
    ASSERT_TRUE(writer->Append(rest.first(tensor.count())).ok());
    rest.remove_prefix(tensor.count());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

TEST(GgufModel, ProjectionsThatAFileHasApartAreJoined) {
  const ModelSpec spec = SpecOf(
      R"({"model_type": "phi3", "hidden_size": 48, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 60})");
  const Slabs slabs = RandomSlabs(spec);
  ASSERT_TRUE(Write(spec, slabs, PathOf("fused.gguf"), {.type = GgmlType::kF32}).ok());
  WriteWithoutFusion(spec, PathOf("fused.gguf"), PathOf("apart.gguf"));
  Slabs again;
  const absl::Status status = Read(spec, PathOf("apart.gguf"), again);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(BitsOf(slabs), BitsOf(again));
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

// llama.cpp looks for Phi-3's special tokens in a model of that name.
TEST(GgufModel, NoOtherModelIsNamedAsPhi3) {
  const ModelSpec spec = SpecOf(kTied);
  const std::string path = PathOf("name.gguf");
  GgufExportOptions options;
  options.name = "my-Phi3-like";
  ASSERT_TRUE(Write(spec, RandomSlabs(spec), path, options).ok());
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->FindValue("general.name")->text(), "");
}

TEST(GgufModel, WhatHasNoPlaceInAFileIsNamed) {
  const std::string numbers = R"("hidden_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 60)";
  for (const auto& [keys, message] :
       {std::pair{R"("model_type": "olmo2")", "a olmo2 model cannot be written as GGUF"},
        {R"("model_type": "llama", "hidden_act": "relu")", "its activation"},
        {R"("model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2})",
         "\"dynamic\" scaling"},
        {R"("model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 1)",
         "its windows"},
        {R"("model_type": "qwen2", "rope_scaling": {"rope_type": "llama3", "factor": 2,
             "low_freq_factor": 1, "high_freq_factor": 4})",
         "\"llama3\" scaling"},
        {R"("model_type": "qwen2", "head_dim": 20)", "the width of its heads"},
        {R"("model_type": "qwen3", "attention_bias": true)", "its biases"},
        {R"("model_type": "gemma2", "query_pre_attn_scalar": 11)", "its scale of attention"},
        {R"("model_type": "gemma2", "attn_logit_softcapping": null)", "the lack of soft caps"},
        {R"("model_type": "gemma2", "tie_word_embeddings": false)", "a head of its own"},
        {R"("model_type": "gemma2", "layer_types": ["full_attention", "sliding_attention"])",
         "windows in other layers"}}) {
    const ModelSpec spec = SpecOf(absl::StrCat("{", keys, ", ", numbers, "}"));
    const auto written = Write(spec, RandomSlabs(spec), PathOf("no.gguf"), {});
    EXPECT_TRUE(absl::IsUnimplemented(written.status())) << written.status();
    EXPECT_THAT(std::string(written.status().message()), HasSubstr(message));
  }
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
