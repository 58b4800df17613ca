// A job's spec as the API has it (JobSpec) and as the engine takes it (TrainSpec).
#ifndef MILLRACE_SERVER_WORKER_SPEC_CONVERSION_H_
#define MILLRACE_SERVER_WORKER_SPEC_CONVERSION_H_

#include <string>
#include <vector>

#include "engine/base/field_problem.h"
#include "engine/train/train_spec.h"
#include "google/protobuf/struct.pb.h"
#include "millrace/v1/job_spec.pb.h"

namespace millrace {

// JSON text of a Struct. Its numbers are doubles; whole ones are written as integers, so that
// `hidden_size: 256` is 256 again.
std::string StructToJson(const google::protobuf::Struct& value);

// The files and folders that names in a job stand for; empty where there are none.
struct JobPaths {
  std::string data;       // data.train
  std::string model;      // model.from
  std::string tokenizer;  // tokenizer; not of `byte`
};

// Of a job that runs without a daemon: its names are paths.
JobPaths PathsInJob(const v1::JobSpec& spec);

// What the engine has no word for (an unknown schedule, three betas, …) is added to `problems`; the
// values themselves are for engine/train's Validate to judge.
TrainSpec ToTrainSpec(const v1::JobSpec& spec, const JobPaths& paths,
                      std::vector<FieldProblem>* problems);

// `spec` with every field set to what `resolved`, which came of it, says; budgets and
// decay_steps only where they were set or decided. Giving the outcome in again changes nothing.
v1::JobSpec FillIn(v1::JobSpec spec, const TrainSpec& resolved);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_SPEC_CONVERSION_H_
