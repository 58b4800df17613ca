#include "proto/job_file/job_file.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace millrace {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Parse(const std::string& text) {
  absl::StatusOr<v1::JobSpec> spec = ParseJobFile(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : v1::JobSpec();
}

std::string Problems(const std::string& text) {
  absl::StatusOr<v1::JobSpec> spec = ParseJobFile(text);
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << spec.status();
  return std::string(spec.status().message());
}

constexpr char kComplete[] = R"(# A comment.
name: shakespeare-small
model: {config: {model_type: llama, hidden_size: 256, rope_theta: 1e4, tie: true, extra: null,
                 list: [1, two, {three: 3}], quoted: "12", yes: no}}
tokenizer: byte
data: {train: datasets/plays, eval_fraction: 0.02, sequence_length: 512}
train:
  steps: 2000
  tokens_per_step: 16384
  seed: 7
  clip_norm: 1
  optimizer: {name: adamw, learning_rate: 3.0e-4, betas: [0.9, 0.95], weight_decay: 0.1}
  schedule: {name: cosine, warmup_steps: 100, final_ratio: 0.1}
precision: {recipe: full, compute: bf16}
memory: {device_budget: 2GiB, host_budget: 1.5 GB}
checkpoint: {every_steps: 200, keep_last: 2, keep_best: 1}
sample: {every_steps: 500, prompts: ["Once", "true", " \"x\"\n\t", "ünï", 12], max_tokens: 64}
)";

TEST(JobFile, ReadsEveryKindOfField) {
  v1::JobSpec spec = Parse(kComplete);
  EXPECT_EQ(spec.name(), "shakespeare-small");
  EXPECT_EQ(spec.data().sequence_length(), 512);
  EXPECT_EQ(spec.train().steps(), 2000);
  EXPECT_EQ(spec.train().clip_norm(), 1.0);
  EXPECT_EQ(spec.train().optimizer().learning_rate(), 3e-4);
  EXPECT_THAT(spec.train().optimizer().betas(), ElementsAre(0.9, 0.95));
  EXPECT_EQ(spec.memory().device_budget_bytes(), int64_t{2} << 30);
  EXPECT_EQ(spec.memory().host_budget_bytes(), 1'500'000'000);
  EXPECT_THAT(spec.sample().prompts(), ElementsAre("Once", "true", " \"x\"\n\t", "ünï", "12"));
  const auto& config = spec.model().config().fields();
  EXPECT_EQ(config.at("model_type").string_value(), "llama");
  EXPECT_EQ(config.at("hidden_size").number_value(), 256);
  EXPECT_EQ(config.at("rope_theta").number_value(), 1e4);
  EXPECT_TRUE(config.at("tie").bool_value());
  EXPECT_TRUE(config.at("extra").has_null_value());
  EXPECT_EQ(config.at("quoted").string_value(), "12");
  EXPECT_EQ(config.at("yes").string_value(), "no");
  EXPECT_EQ(
      config.at("list").list_value().values(2).struct_value().fields().at("three").number_value(),
      3);
  EXPECT_FALSE(spec.has_evaluation());
}

TEST(JobFile, WritesWhatItReads) {
  v1::JobSpec spec = Parse(kComplete);
  std::string text = FormatJobFile(spec);
  EXPECT_TRUE(MessageDifferencer::Equals(Parse(text), spec)) << text;
  EXPECT_THAT(text, HasSubstr("device_budget: 2GiB"));
  EXPECT_THAT(text, HasSubstr("betas: [0.9, 0.95]"));
}

TEST(JobFile, WritesZerosThatWereGivenAndEmptyMessages) {
  v1::JobSpec spec = Parse("train: {clip_norm: 0, seed: 0}\nmodel: {config: {}}\nmemory: {}\n");
  EXPECT_TRUE(spec.train().has_clip_norm());
  std::string text = FormatJobFile(spec);
  EXPECT_TRUE(MessageDifferencer::Equals(Parse(text), spec)) << text;
}

TEST(JobFile, WritesHardNumbersAndStringsExactly) {
  v1::JobSpec spec;
  spec.set_name("null");
  spec.mutable_train()->set_steps(std::numeric_limits<int64_t>::max());
  spec.mutable_train()->set_seed(std::numeric_limits<int64_t>::min());
  spec.mutable_train()->set_clip_norm(0.1 + 0.2);
  spec.mutable_train()->mutable_optimizer()->set_epsilon(5e-324);
  spec.mutable_memory()->set_device_budget_bytes((int64_t{3} << 30) + 1);
  for (const char* prompt :
       {"", " ", "- a", "a: b", "#", "'", "\\", "~", "1e3", "*x", "line\r\n"}) {
    spec.mutable_sample()->add_prompts(prompt);
  }
  auto& fields = *spec.mutable_model()->mutable_config()->mutable_fields();
  fields["12"].set_string_value("true");
  fields["a b"].set_number_value(-1e-7);
  fields["nested"].mutable_list_value()->add_values()->mutable_struct_value();
  std::string text = FormatJobFile(spec);
  EXPECT_TRUE(MessageDifferencer::Equals(Parse(text), spec)) << text;
}

TEST(JobFile, NamesUnknownKeysWithPathLineAndTheNearOne) {
  EXPECT_EQ(Problems("name: x\ntrain:\n  stpes: 3\n"),
            "line 3: train.stpes: unknown key; did you mean train.steps?");
  EXPECT_EQ(Problems("nmae: x\n"), "line 1: nmae: unknown key; did you mean name?");
  EXPECT_EQ(Problems("learning_rate: 1\n"),
            "line 1: learning_rate: unknown key; did you mean train.optimizer.learning_rate?");
  EXPECT_EQ(Problems("memory: {zzz: 1}\n"),
            "line 1: memory.zzz: unknown key; expected one of device_budget, host_budget, device, "
            "link_gbps, plan");
  EXPECT_EQ(Problems("memory: {device_budget_bytes: 1}\n"),
            "line 1: memory.device_budget_bytes: unknown key; did you mean memory.device_budget?");
  EXPECT_EQ(Problems("train: {<<: {steps: 1}}\n").substr(0, 32),
            "line 1: train.<<: unknown key; e");
}

TEST(JobFile, NamesWrongTypesWithValueAndWhatIsExpected) {
  EXPECT_EQ(Problems("train: {steps: many}\n"),
            "line 1: train.steps: \"many\" is not a whole number");
  EXPECT_EQ(Problems("train: {steps: 1.5}\n"),
            "line 1: train.steps: \"1.5\" is not a whole number");
  EXPECT_EQ(Problems("train: {steps: \"10\"}\n"),
            "line 1: train.steps: \"10\" is text; expected a whole number without quotes");
  EXPECT_EQ(Problems("train: {steps: [1]}\n"),
            "line 1: train.steps: is a list; expected a whole number");
  EXPECT_EQ(Problems("train: {clip_norm: high}\n"),
            "line 1: train.clip_norm: \"high\" is not a number");
  EXPECT_EQ(Problems("train: 5\n"),
            "line 1: train: \"5\" is a single value; expected a mapping (`key: value`)");
  EXPECT_EQ(Problems("train: {optimizer: {betas: 0.9}}\n"),
            "line 1: train.optimizer.betas: \"0.9\" is a single value; expected a list (`[a, b]`)");
  EXPECT_EQ(Problems("train: {optimizer: {betas: [0.9, x]}}\n"),
            "line 1: train.optimizer.betas[1]: \"x\" is not a number");
  EXPECT_EQ(
      Problems("memory: {device_budget: 2 pints}\n"),
      "line 1: memory.device_budget: \"2 pints\" is not a size; expected a number with a unit, "
      "such as 512MiB or 2GiB");
  EXPECT_EQ(Problems("name: {a: b}\n"), "line 1: name: is a mapping; expected text");
  EXPECT_EQ(Problems("model: {config: [1]}\n"),
            "line 1: model.config: is a list; expected a mapping (`key: value`)");
  EXPECT_EQ(Problems("train:\n"),
            "line 1: train: is empty; expected a mapping (`key: value`) (or drop the line)");
}

TEST(JobFile, RefusesNumbersOutOfRange) {
  EXPECT_EQ(Problems("data: {sequence_length: 3000000000}\n"),
            "line 1: data.sequence_length: \"3000000000\" is out of range; expected -2147483648 to "
            "2147483647");
  EXPECT_THAT(Problems("train: {steps: 9223372036854775808}\n"), HasSubstr("is out of range"));
  EXPECT_THAT(Problems("train: {steps: 1e30}\n"), HasSubstr("is out of range"));
  EXPECT_THAT(Problems("train: {clip_norm: .inf}\n"), HasSubstr("is not finite"));
  EXPECT_THAT(Problems("train: {clip_norm: 1e999}\n"), HasSubstr("is too large"));
  EXPECT_THAT(Problems("train: {clip_norm: nan}\n"), HasSubstr("is not a number"));
  EXPECT_THAT(Problems("model: {config: {x: .nan}}\n"), HasSubstr("model.config.x"));
  EXPECT_THAT(Problems("model: {config: {x: 9007199254740993}}\n"), HasSubstr("2^53"));
  EXPECT_THAT(Problems("memory: {device_budget: -1}\n"), HasSubstr("is not a size"));
  EXPECT_THAT(Problems("memory: {device_budget: 9000000TiB}\n"), HasSubstr("too large"));
}

TEST(JobFile, TakesWholeNumbersInExponentForm) {
  EXPECT_EQ(Parse("train: {steps: 1e3}\n").train().steps(), 1000);
  EXPECT_EQ(Parse("train: {steps: 2.5e1}\n").train().steps(), 25);
  EXPECT_EQ(Parse("train: {clip_norm: 1}\n").train().clip_norm(), 1.0);
}

TEST(JobFile, TakesSizesInEveryUnit) {
  auto bytes = [](const std::string& size) {
    return Parse(absl::StrCat("memory: {device_budget: ", size, "}\n"))
        .memory()
        .device_budget_bytes();
  };
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("3KiB"), 3072);
  EXPECT_EQ(bytes("3 kb"), 3000);
  EXPECT_EQ(bytes("0.5MiB"), 512 << 10);
  EXPECT_EQ(bytes("\"1GiB\""), 1 << 30);
  EXPECT_EQ(bytes("7 B"), 7);
}

TEST(JobFile, RefusesKeysGivenTwice) {
  EXPECT_EQ(Problems("train: {seed: 1}\nname: a\ntrain: {seed: 2}\n"),
            "line 3: train: is given twice; keep one");
  EXPECT_EQ(Problems("model:\n  config:\n    a: 1\n    a: 2\n"),
            "line 4: model.config.a: is given twice; keep one");
}

TEST(JobFile, CollectsAllProblemsInTheOrderOfTheFile) {
  EXPECT_EQ(Problems("nmae: x\ntrain:\n  steps: a\n  seed: b\ndata: 4\n"),
            "line 1: nmae: unknown key; did you mean name?\n"
            "line 3: train.steps: \"a\" is not a whole number\n"
            "line 4: train.seed: \"b\" is not a whole number\n"
            "line 5: data: \"4\" is a single value; expected a mapping (`key: value`)");
}

TEST(JobFile, StopsAtTwentyProblems) {
  std::string text;
  for (int i = 0; i < 50; ++i) absl::StrAppend(&text, "qqqqq", i, ": 1\n");
  std::vector<std::string> lines = absl::StrSplit(Problems(text), '\n');
  ASSERT_EQ(lines.size(), 21);
  EXPECT_EQ(lines.back(), "and 30 more");
}

TEST(JobFile, TellsTheLineOfBadYaml) {
  EXPECT_THAT(Problems("name: x\ntrain: {steps: 1\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(Problems("name: x\ntrain:\n\tsteps: 1\n"), HasSubstr("line 3"));
  EXPECT_THAT(Problems("name: *nowhere\n"), HasSubstr("line 1"));
}

TEST(JobFile, RefusesWhatIsNotOneMapping) {
  EXPECT_EQ(Problems(""), "line 1: the file is empty");
  EXPECT_THAT(Problems("# only a comment\n"), HasSubstr("empty"));
  EXPECT_THAT(Problems("- a\n- b\n"), HasSubstr("not a mapping"));
  EXPECT_THAT(Problems("just text\n"), HasSubstr("not a mapping"));
  EXPECT_EQ(Problems("name: a\n---\nname: b\n"),
            "line 3: a second document begins; expected one (drop the line `---`)");
}

TEST(JobFile, RefusesBinaryContent) {
  EXPECT_THAT(Problems("name: a\nx: \xff\xfe\n"), HasSubstr("line 2: the file is not text"));
  EXPECT_THAT(Problems(std::string("name: a\0b\n", 10)), HasSubstr("line 1: the file is not text"));
  EXPECT_THAT(Problems(std::string(2 << 20, 'a')), HasSubstr("2097152 bytes"));
}

TEST(JobFile, ReadsAliases) {
  EXPECT_EQ(Parse("train: {steps: &n 5, tokens_per_step: *n}\n").train().tokens_per_step(), 5);
}

TEST(JobFile, BoundsWhatAliasesExpandTo) {
  std::string text = "model:\n  config:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 15; ++i) {
    std::vector<std::string> names(10, absl::StrCat("*a", i - 1));
    absl::StrAppend(&text, "    a", i, ": &a", i, " [", absl::StrJoin(names, ", "), "]\n");
  }
  EXPECT_THAT(Problems(text), HasSubstr("too large once its aliases"));
}

TEST(JobFile, BoundsDepthAndCycles) {
  EXPECT_THAT(Problems("model: {config: {a: &a [*a]}}\n"), HasSubstr("levels deep"));
  EXPECT_THAT(Problems(absl::StrCat("model: {config: {a: ", std::string(100, '['),
                                    std::string(100, ']'), "}}\n")),
              HasSubstr("levels deep"));
  EXPECT_FALSE(ParseJobFile(std::string(100000, '[')).ok());
}

TEST(JobFile, ReadsAConfigFromAJsonFileBesideIt) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  std::ofstream(folder + "/config.json") << R"({"model_type": "llama", "hidden_size": 64})";
  absl::StatusOr<v1::JobSpec> spec = ParseJobFile("model: {config: config.json}\n", folder);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto& fields = spec->model().config().fields();
  EXPECT_EQ(fields.at("model_type").string_value(), "llama");
  EXPECT_EQ(fields.at("hidden_size").number_value(), 64);
  // Written out, the content stands in its place.
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equals(Parse(FormatJobFile(*spec)), *spec));
}

TEST(JobFile, NamesAConfigFileThatIsMissingOrNoJson) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  std::ofstream(folder + "/broken.json") << "{\"model_type\": ";
  const auto problem = [&](const char* text) {
    return std::string(ParseJobFile(text, folder).status().message());
  };
  EXPECT_EQ(problem("model: {config: absent.json}\n"),
            "line 1: model.config: \"absent.json\" is no file that can be read; give a mapping "
            "(`key: value`) or the path of a JSON file");
  EXPECT_THAT(problem("model:\n  config: broken.json\n"),
              HasSubstr("line 2: model.config: \"broken.json\" holds no JSON object"));
  EXPECT_THAT(problem("model: {config: }\n"), HasSubstr("model.config"));
}

TEST(JobFile, RefusesTags) { EXPECT_THAT(Problems("name: !secret x\n"), HasSubstr("!secret")); }

}  // namespace
}  // namespace millrace
