#include "client/cli/run.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/checkpoint_commands.h"
#include "client/cli/dataset_commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/generation_commands.h"
#include "client/cli/job_commands.h"
#include "client/cli/model_commands.h"
#include "client/cli/node_command.h"
#include "client/cli/tokenizer_commands.h"
#include "proto/job_file/scalars.h"

namespace millrace {
namespace {

using Action = std::function<absl::StatusOr<int>(const Session&)>;

// Where CLI11 puts what it parsed, and which command was chosen.
struct Arguments {
  std::string server = kDefaultAddress;
  Action action;

  SubmitArgs submit;
  PlanArgs plan;
  ListJobsArgs list;
  bool all = false;
  WatchArgs watch;
  LogsArgs logs;
  TraceArgs trace;
  GenerateArgs generate;
  EvaluateArgs evaluate;
  bool wait = false;
  // A job, a dataset, a model or a tokenizer.
  std::string name;
  std::string path;
  std::string step = "latest";
  std::string directory;
  ExportArgs exported;
  TrainTokenizerArgs train;
};

CLI::App* AddCommand(CLI::App* parent, const std::string& name, const std::string& what,
                     Arguments* a, Action action) {
  CLI::App* command = parent->add_subcommand(name, what);
  command->callback([a, action = std::move(action)] { a->action = action; });
  return command;
}

CLI::App* AddGroup(CLI::App* parent, const std::string& name, const std::string& what) {
  CLI::App* group = parent->add_subcommand(name, what);
  group->require_subcommand(1);
  return group;
}

void AddJobCommands(CLI::App* app, Arguments* a) {
  CLI::App* submit = AddCommand(app, "submit", "Queue a job", a,
                                [a](const Session& s) { return Submit(s, a->submit); });
  submit->add_option("FILE", a->submit.file, "Job file (YAML); - is standard input")->required();
  submit->add_option("--id", a->submit.id, "Id of the job: [a-z0-9-]; the daemon chooses one else");
  submit->add_flag("--watch,-w", a->submit.watch, "Watch the job to its end; exit as it ends");
  submit->add_flag("--dry-run", a->submit.dry_run, "Only check; -o yaml shows all defaults");

  CLI::App* plan =
      AddCommand(app, "plan", "Tell how a job would run, here or on a card that is not there", a,
                 [a](const Session& s) { return PlanJob(s, a->plan); });
  plan->add_option("FILE", a->plan.file, "Job file (YAML); - is standard input")->required();
  CLI::Option* device = plan->add_option(
      "--device", a->plan.device, "A device profile, such as rtx-3080-10gb; the daemon's box else");
  plan->add_option("--host-memory", "Memory of the imagined host, such as 64GiB; the daemon's else")
      ->type_name("SIZE")
      ->needs(device)
      ->each([a](const std::string& text) {
        absl::StatusOr<int64_t> bytes = ParseByteSize(text);
        if (!bytes.ok() || *bytes <= 0) {
          throw CLI::ValidationError("--host-memory",
                                     absl::StrCat("\"", text, "\" is not a size such as 64GiB"));
        }
        a->plan.host_memory_bytes = *bytes;
      });
  plan->add_option("--trace", a->plan.trace_file,
                   "Write the predicted step there, as Perfetto reads it")
      ->type_name("OUT");

  CLI::App* jobs = AddCommand(app, "jobs", "List jobs, newest first", a, [a](const Session& s) {
    if (a->all) a->list.limit = 0;
    return ListJobs(s, a->list);
  });
  jobs->add_option("--state", a->list.states, "Only jobs in this state (may be repeated)");
  jobs->add_option("--limit,-n", a->list.limit, "At most this many")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  jobs->add_flag("--all", a->all, "All of them");

  auto job_command = [&](const std::string& name, const std::string& what, Action action) {
    CLI::App* command = AddCommand(app, name, what, a, std::move(action));
    command->add_option("JOB", a->name, "Id of the job")->required();
    return command;
  };
  job_command("show", "Show one job; -o yaml is its job file with all defaults",
              [a](const Session& s) { return ShowJob(s, a->name); });
  CLI::App* watch =
      AddCommand(app, "watch", "Follow a job to its end; Ctrl-C leaves the job running", a,
                 [a](const Session& s) { return Watch(s, a->watch); });
  watch->add_option("JOB", a->watch.job, "Id of the job")->required();
  watch->add_option("--after", a->watch.after_sequence, "Only events after this sequence number")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()));

  CLI::App* logs = AddCommand(app, "logs", "Print a job's log", a,
                              [a](const Session& s) { return Logs(s, a->logs); });
  logs->add_option("JOB", a->logs.job, "Id of the job")->required();
  logs->add_flag("--follow,-f", a->logs.follow, "Go on until the job has ended");
  logs->add_option("--attempt", a->logs.attempt, "Of this start of the job; the newest else")
      ->check(CLI::PositiveNumber);
  logs->add_option("--tail", a->logs.tail_lines, "Only the last lines")->check(CLI::PositiveNumber);

  CLI::App* trace =
      job_command("trace", "Fetch what happened on each stream (the job file's trace.steps)",
                  [a](const Session& s) {
                    a->trace.job = a->name;
                    return FetchTrace(s, a->trace);
                  });
  trace->add_option("--step", a->trace.first_step, "The trace that begins there; the last one else")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()));
  trace->add_option("--out", a->trace.out, "File to write; JOB-steps-A-B.json else")
      ->type_name("FILE");
  job_command("pause", "Let a job write a checkpoint and give back its memory",
              [a](const Session& s) { return PauseJob(s, a->name, a->wait); })
      ->add_flag("--wait", a->wait, "Until it is paused");
  job_command("resume", "Queue a paused or failed job again",
              [a](const Session& s) { return ResumeJob(s, a->name); });
  job_command("cancel", "End a job for good; its checkpoints stay", [a](const Session& s) {
    return CancelJob(s, a->name, a->wait);
  })->add_flag("--wait", a->wait, "Until it has ended and its memory is free");
  job_command("delete", "Remove an ended job with its checkpoints and logs",
              [a](const Session& s) { return DeleteJob(s, a->name); });
}

void AddCheckpointCommands(CLI::App* app, Arguments* a) {
  CLI::App* group = AddGroup(app, "checkpoints", "List, download and export checkpoints");
  CLI::App* list = AddCommand(group, "list", "List a job's checkpoints", a,
                              [a](const Session& s) { return ListCheckpoints(s, a->name); });
  CLI::App* show =
      AddCommand(group, "show", "Show one checkpoint and its files", a,
                 [a](const Session& s) { return ShowCheckpoint(s, a->name, a->step); });
  CLI::App* download =
      AddCommand(group, "download", "Fetch a checkpoint: a Hugging Face model folder", a,
                 [a](const Session& s) {
                   return DownloadCheckpointCommand(s, a->name, a->step, a->directory);
                 });
  for (CLI::App* command : {list, show, download}) {
    command->add_option("JOB", a->name, "Id of the job")->required();
  }
  for (CLI::App* command : {show, download}) {
    command->add_option("STEP", a->step, "A step, latest or best")->capture_default_str();
  }
  download->add_option("-d,--directory", a->directory, "New folder to make; JOB-STEP else");

  CLI::App* exported =
      AddCommand(group, "export", "Fetch a checkpoint as a file of another format", a,
                 [a](const Session& s) { return ExportCheckpointCommand(s, a->exported); });
  exported->add_option("JOB", a->exported.job, "Id of the job")->required();
  exported->add_option("STEP", a->exported.step, "A step, latest or best")->capture_default_str();
  exported->add_option("--format", a->exported.format, "gguf, as llama.cpp reads it, or hf")
      ->check(CLI::IsMember({"gguf", "hf"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  exported
      ->add_option("--type", a->exported.weight_type,
                   "Of matrices in gguf: F32, F16, BF16 or Q8_0; BF16 else")
      ->type_name("TYPE");
  exported->add_option("--out", a->exported.out, "File to write (of hf, folder to make)")
      ->type_name("FILE");
}

void AddDatasetCommands(CLI::App* app, Arguments* a) {
  CLI::App* group = AddGroup(app, "datasets", "Upload, list and delete texts to train on");
  CLI::App* upload =
      AddCommand(group, "upload", "Send a file or folder; goes on where an earlier try ended", a,
                 [a](const Session& s) { return UploadDatasetCommand(s, a->name, a->path); });
  CLI::App* show = AddCommand(group, "show", "Show one dataset and its files", a,
                              [a](const Session& s) { return ShowDataset(s, a->name); });
  CLI::App* remove = AddCommand(group, "delete", "Delete a dataset that no job needs", a,
                                [a](const Session& s) { return DeleteDataset(s, a->name); });
  for (CLI::App* command : {upload, show, remove}) {
    command->add_option("ID", a->name, "Id of the dataset")->required();
  }
  upload->add_option("PATH", a->path, "Text or JSONL file, or a folder of them")->required();
  AddCommand(group, "list", "List datasets", a, [](const Session& s) { return ListDatasets(s); });
}

void AddGenerationCommands(CLI::App* app, Arguments* a) {
  CLI::App* generate =
      AddCommand(app, "generate", "Let a model, or a job's checkpoint, go on from a prompt", a,
                 [a](const Session& s) { return Generate(s, a->generate); });
  v1::GenerateTextRequest& request = a->generate.request;
  generate
      ->add_option("MODEL", a->generate.model,
                   "A model or a job, or jobs/JOB/checkpoints/STEP, latest and best too")
      ->required();
  CLI::Option* prompt =
      generate->add_option("--prompt,-p", a->generate.prompts,
                           "Text to go on from (may be repeated); - is standard input");
  prompt->take_all()->allow_extra_args(false);
  CLI::Option* file =
      generate->add_option("--prompts", a->generate.prompts_file,
                           "File of one prompt a line, or of JSON objects with \"prompt\"");
  file->type_name("FILE");
  const auto number = [generate](const char* name, auto set, const char* help) {
    generate->add_option_function<double>(name, set, help);
  };
  v1::SamplingOptions& sampling = *request.mutable_sampling();
  generate
      ->add_option_function<int32_t>(
          "--max-tokens,-n", [&request](int32_t value) { request.set_max_tokens(value); },
          "Tokens of each text at most [128]")
      ->check(CLI::PositiveNumber);
  number(
      "--temperature", [&sampling](double value) { sampling.set_temperature(value); },
      "0 is greedy [0.8]");
  generate->add_option_function<int32_t>(
      "--top-k", [&sampling](int32_t value) { sampling.set_top_k(value); },
      "Only the so many most likely tokens; 0 is all [40]");
  number(
      "--top-p", [&sampling](double value) { sampling.set_top_p(value); },
      "Only the most likely tokens that together reach this [1]");
  number(
      "--min-p", [&sampling](double value) { sampling.set_min_p(value); },
      "Only tokens at least this share as likely as the most likely one [0]");
  number(
      "--repetition-penalty", [&sampling](double value) { sampling.set_repetition_penalty(value); },
      "Above 1 makes tokens of the text so far less likely [1]");
  generate->add_option_function<int64_t>(
      "--seed", [&sampling](int64_t value) { sampling.set_seed(value); },
      "Gives the same text again; drawn and told else");
  generate
      ->add_option_function<std::vector<std::string>>(
          "--stop",
          [&request](const std::vector<std::string>& values) {
            for (const std::string& value : values) request.add_stop(value);
          },
          "The text ends before this (may be repeated)")
      ->take_all()
      ->allow_extra_args(false);
  generate->add_flag_callback(
      "--ignore-end", [&request] { request.set_ignore_end(true); },
      "Go on past tokens that end a text");
  generate->parse_complete_callback([prompt, file] {
    if (prompt->empty() && file->empty()) throw CLI::RequiredError("--prompt or --prompts");
  });

  CLI::App* evaluate =
      AddCommand(app, "evaluate", "Tell a model's loss and perplexity on a dataset", a,
                 [a](const Session& s) { return Evaluate(s, a->evaluate); });
  v1::EvaluateTextRequest& asked = a->evaluate.request;
  evaluate->add_option("MODEL", a->evaluate.model, "As for generate")->required();
  evaluate->add_option("DATASET", a->evaluate.dataset, "Id of the dataset")->required();
  evaluate
      ->add_option_function<int32_t>(
          "--sequence-length", [&asked](int32_t value) { asked.set_sequence_length(value); },
          "Tokens that are seen at once [the model's context, at most 2048]")
      ->check(CLI::PositiveNumber);
  evaluate
      ->add_option_function<int64_t>(
          "--max-sequences", [&asked](int64_t value) { asked.set_max_sequences(value); },
          "Only so many, from the beginning")
      ->check(CLI::PositiveNumber);
  for (CLI::App* command : {generate, evaluate}) {
    command
        ->add_option_function<std::string>(
            "--compute",
            [&request, &asked](const std::string& value) {
              request.set_compute(value);
              asked.set_compute(value);
            },
            "bf16 or f32 [bf16 where the node's processor has it]")
        ->check(CLI::IsMember({"bf16", "f32"}));
  }
}

void AddModelCommands(CLI::App* app, Arguments* a) {
  CLI::App* group = app->add_subcommand("models", "Upload, list and delete models to begin with");
  // Alone it lists.
  group->require_subcommand(0, 1);
  group->callback([group, a] {
    if (group->get_subcommands().empty())
      a->action = [](const Session& s) { return ListModels(s); };
  });
  AddCommand(group, "list", "List models", a, [](const Session& s) { return ListModels(s); });
  CLI::App* upload =
      AddCommand(group, "upload", "Send a Hugging Face model folder or a .gguf file; goes on", a,
                 [a](const Session& s) { return UploadModelCommand(s, a->name, a->path); });
  upload->add_option("PATH", a->path, "The folder or file")->required();
  upload->add_option("--id", a->name, "Id of the model: [a-z0-9-]; made of PATH else");
  CLI::App* add =
      AddCommand(group, "register", "Use a model that lies on the daemon's box", a,
                 [a](const Session& s) { return RegisterModelCommand(s, a->name, a->path); });
  CLI::App* show = AddCommand(group, "show", "Show one model and its files", a,
                              [a](const Session& s) { return ShowModel(s, a->name); });
  CLI::App* remove = AddCommand(group, "delete", "Delete a model that no job needs", a,
                                [a](const Session& s) { return DeleteModel(s, a->name); });
  for (CLI::App* command : {add, show, remove}) {
    command->add_option("ID", a->name, "Id of the model")->required();
  }
  add->add_option("PATH", a->path, "Folder or .gguf file there, below the daemon's model_dirs")
      ->required();
}

void AddTokenizerCommands(CLI::App* app, Arguments* a) {
  CLI::App* train = AddCommand(AddGroup(app, "tokenizer", "Train a tokenizer"), "train",
                               "Train a byte-level BPE on a dataset", a, [a](const Session& s) {
                                 return TrainTokenizerCommand(s, a->train);
                               });
  train->add_option("DATASET", a->train.dataset, "Id of the dataset")->required();
  train->add_option("--vocab-size", a->train.vocab_size, "Tokens in all")
      ->required()
      ->check(CLI::PositiveNumber);
  train->add_option("--id", a->train.id, "Id of the tokenizer; DATASET-SIZE else");
  train->add_option("--min-frequency", a->train.min_frequency, "Rarer pairs are not merged; 2 else")
      ->check(CLI::PositiveNumber);
  train
      ->add_option("--special-token", a->train.special_tokens,
                   "May be repeated; the first ends a document; <|endoftext|> else")
      ->take_all()
      ->allow_extra_args(false);
  train->add_option("--split", a->train.split, "How text is cut before merging; gpt2 else")
      ->check(CLI::IsMember({"gpt2", "llama3"}))
      ->type_name("NAME");

  CLI::App* group = app->add_subcommand("tokenizers", "List, fetch and delete trained tokenizers");
  // Alone it lists.
  group->require_subcommand(0, 1);
  group->callback([group, a] {
    if (group->get_subcommands().empty()) {
      a->action = [](const Session& s) { return ListTokenizers(s); };
    }
  });
  AddCommand(group, "list", "List tokenizers", a,
             [](const Session& s) { return ListTokenizers(s); });
  CLI::App* show = AddCommand(group, "show", "Show one tokenizer", a,
                              [a](const Session& s) { return ShowTokenizer(s, a->name); });
  CLI::App* download =
      AddCommand(group, "download", "Fetch a tokenizer.json, as Hugging Face reads it", a,
                 [a](const Session& s) { return DownloadTokenizerCommand(s, a->name, a->path); });
  CLI::App* remove = AddCommand(group, "delete", "Delete a tokenizer that no job needs", a,
                                [a](const Session& s) { return DeleteTokenizer(s, a->name); });
  for (CLI::App* command : {show, download, remove}) {
    command->add_option("ID", a->name, "Id of the tokenizer")->required();
  }
  download->add_option("--out", a->path, "File to write; ID.json else")->type_name("FILE");
}

// CLI11 takes a mistyped command for a missing one. Empty when the command is known.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-o" || argument == "--output" || argument == "--server") {
      ++i;
    } else if (argument.empty() || argument[0] != '-') {
      std::vector<std::string> names;
      for (const CLI::App* command : app.get_subcommands(nullptr)) {
        names.push_back(command->get_name());
      }
      if (std::find(names.begin(), names.end(), argument) != names.end()) return "";
      std::string near = NearestName(argument, names);
      return absl::StrCat(
          "error: ", Sanitize(argument, false), " is not a command; ",
          near.empty() ? "see millrace --help" : absl::StrCat("did you mean ", near, "?"));
    }
  }
  return "";
}

void PrintError(const Environment& environment, OutputFormat format, const absl::Status& status) {
  if (format == OutputFormat::kJson) {
    *environment.error << ErrorJsonLine(status) << std::flush;
    return;
  }
  std::string text = Sanitize(status.message(), /*keep_lines=*/true);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    *environment.error << Styled(environment.error_terminal, Style::kRed, "error:") << " " << line
                       << "\n";
  }
  environment.error->flush();
}

}  // namespace

int RunCommand(const std::vector<std::string>& arguments, const Environment& environment) {
  Arguments a;
  CLI::App app("Submit training jobs to a millraced, watch them, and fetch what they made.",
               "millrace");
  app.fallthrough();
  app.require_subcommand(1);
  app.get_formatter()->column_width(26);
  app.add_option("--server", a.server, "Address of the daemon, HOST:PORT")
      ->envname("MILLRACE_SERVER")
      ->capture_default_str();
  std::string format = "table";
  app.add_option("-o,--output", format, "table, json (one object a line) or yaml")
      ->check(CLI::IsMember({"table", "json", "yaml"}))
      ->type_name("FORMAT");
  AddJobCommands(&app, &a);
  AddCheckpointCommands(&app, &a);
  AddDatasetCommands(&app, &a);
  AddGenerationCommands(&app, &a);
  AddModelCommands(&app, &a);
  AddTokenizerCommands(&app, &a);
  AddCommand(&app, "info", "Show the daemon's box: cores, memory, devices", &a,
             [](const Session& s) { return ShowNode(s); });
  // Last, so that the commands do not inherit it.
  app.footer(absl::StrCat("\n", ExitCodeTable()));
  if (std::string unknown = UnknownCommand(app, arguments); !unknown.empty()) {
    *environment.error << unknown << "\n";
    return kExitUsage;
  }
  try {
    // CLI11 takes them from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e, *environment.out, *environment.error);
    *environment.error << "error: " << Sanitize(e.what(), false) << "; see millrace --help\n";
    return kExitUsage;
  }

  Session session;
  session.environment = environment;
  session.format = format == "json"   ? OutputFormat::kJson
                   : format == "yaml" ? OutputFormat::kYaml
                                      : OutputFormat::kTable;
  Connection::Options options;
  options.address = a.server;
  options.stop = environment.stop;
  absl::StatusOr<std::unique_ptr<Connection>> connection = Connection::Open(options);
  absl::Status status = connection.status();
  if (status.ok()) {
    session.connection = *std::move(connection);
    absl::StatusOr<int> code = a.action(session);
    if (code.ok()) return *code;
    status = code.status();
  }
  PrintError(environment, session.format, status);
  return ExitCodeFor(status);
}

}  // namespace millrace
