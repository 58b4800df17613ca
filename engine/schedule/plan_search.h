// The search for the fastest plan: one choice at a time, from a plan that fits, until none
// improves.
//
// A Candidate has a value of every choice; the memory that it leaves free is filled with what the
// choice of activations says. Comparing the last candidate with those that differ in one choice
// tells what every choice is worth.
#ifndef MILLRACE_ENGINE_SCHEDULE_PLAN_SEARCH_H_
#define MILLRACE_ENGINE_SCHEDULE_PLAN_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/schedule/planner.h"

namespace millrace {

enum class LayerInputs : uint8_t { kDevice, kAsNeeded, kHost };

struct Candidate {
  Order order = Order::kLayerMajor;
  HeadPlacement head = HeadPlacement::kWhole;
  int64_t weight_slots = 2;
  int64_t resident_units = 0;
  Activations activations = Activations::kKeep;
  LayerInputs inputs = LayerInputs::kDevice;

  auto operator<=>(const Candidate&) const = default;
};

class PlanSearch {
 public:
  // The arguments outlive the search.
  PlanSearch(const ScheduledModel& model, const StepShape& shape, const PlanRequest& request)
      : model_(model), shape_(shape), request_(request) {}

  // nullopt when nothing fits.
  std::optional<PlannedStep> Run();
  bool AnyFits() const;
  LeastMemory Least() const;

 private:
  struct Evaluation {
    Plan plan;
    double seconds = 0;
    size_t bytes = 0;  // device and host
  };
  // Candidates that differ from another in one choice, by the choice's name.
  struct Variation {
    std::string choice;
    std::vector<Candidate> candidates;
  };

  int64_t Passes(Order order) const;
  Plan Bare(const Candidate& candidate) const;
  // Bytes by which the plan passes the budget that it passes most; not positive when it fits.
  double Excess(const Plan& plan) const;
  std::optional<Plan> Fill(const Candidate& candidate) const;
  const std::optional<Evaluation>& Evaluate(const Candidate& candidate);
  bool Better(const Evaluation& a, const Evaluation& b, double least) const;

  std::vector<Candidate> Starts() const;
  // Blocks that can stay on the device when nothing else is kept there; -1: not even none.
  int64_t MostResident(Candidate candidate);
  std::vector<Variation> VariationsOf(const Candidate& candidate);
  std::string Value(const std::string& choice, const Evaluation& evaluation) const;
  bool Fixed(const std::string& choice) const;

  const ScheduledModel& model_;
  const StepShape& shape_;
  const PlanRequest& request_;
  std::map<Candidate, std::optional<Evaluation>> evaluated_;
  std::map<Candidate, int64_t> most_resident_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_PLAN_SEARCH_H_
