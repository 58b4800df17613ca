#include "engine/schedule/plan_search.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/plan_memory.h"

namespace millrace {
namespace {

// Plans whose times differ by less are told apart by their memory.
constexpr double kTie = 0.001;
// Slots beyond this many only help plans that two do not serve already.
constexpr int64_t kMostSlots = 4;

// The largest value in [0, most] whose excess is not positive, where the excess rises with the
// value, nearly evenly; -1 when not even that of 0 is.
int64_t Largest(int64_t most, const std::function<double(int64_t)>& excess) {
  double low_excess = excess(0);
  if (low_excess > 0) return -1;
  double high_excess = excess(most);
  if (high_excess <= 0) return most;
  int64_t low = 0, high = most;
  for (bool halve = false; high - low > 1; halve = !halve) {
    const double share = halve ? 0.5 : low_excess / (low_excess - high_excess);
    const int64_t guess = std::clamp(
        low + static_cast<int64_t>(share * static_cast<double>(high - low)), low + 1, high - 1);
    const double at = excess(guess);
    if (at <= 0) {
      low = guess;
      low_excess = at;
      // Most often the guess is right.
      if (guess + 1 < high) {
        const double next = excess(guess + 1);
        if (next > 0) return guess;
        low = guess + 1;
        low_excess = next;
      }
    } else {
      high = guess;
      high_excess = at;
    }
  }
  return low;
}

}  // namespace

int64_t PlanSearch::Passes(Order order) const {
  return model_.num_blocks() * (order == Order::kLayerMajor ? shape_.micro_batches : 1);
}

Plan PlanSearch::Bare(const Candidate& candidate) const {
  Plan plan;
  plan.shape = shape_;
  plan.unified = request_.unified;
  plan.order = candidate.order;
  plan.weight_slots = static_cast<int>(candidate.weight_slots);
  plan.resident_units = static_cast<int>(candidate.resident_units);
  plan.kept_passes = 0;
  plan.selective_passes = 0;
  plan.offloaded_passes = candidate.inputs == LayerInputs::kHost ? Passes(candidate.order) : 0;
  plan.head = candidate.head;
  plan.update_time = shape_.clip ? UpdateTime::kBeforeNextUpload : UpdateTime::kAsGradientLands;
  return plan;
}

double PlanSearch::Excess(const Plan& plan) const {
  const Schedule buffers = BuffersOf(model_, plan);
  const double device = static_cast<double>(buffers.device_bytes);
  const double host = static_cast<double>(buffers.host_bytes);
  return std::max({device - static_cast<double>(request_.device_budget_bytes),
                   host - static_cast<double>(request_.host_budget_bytes),
                   device + host - static_cast<double>(request_.total_budget_bytes)});
}

std::optional<Plan> PlanSearch::Fill(const Candidate& candidate) const {
  Plan plan = Bare(candidate);
  const int64_t passes = Passes(candidate.order);
  const std::optional<Activations>& fixed = request_.choices.activations;
  if (fixed == Activations::kKeep) plan.kept_passes = passes;
  if (fixed == Activations::kSelective) plan.selective_passes = passes;
  if (candidate.inputs == LayerInputs::kAsNeeded) {
    // As few as make the device's side fit: counted from all of them down.
    const int64_t spared = Largest(passes, [&](int64_t kept_here) {
      plan.offloaded_passes = passes - kept_here;
      return static_cast<double>(BuffersOf(model_, plan).device_bytes) -
             static_cast<double>(request_.device_budget_bytes);
    });
    if (spared < 0) return std::nullopt;
    plan.offloaded_passes = passes - spared;
  }
  if (Excess(plan) > 0) return std::nullopt;
  if (fixed.has_value() || candidate.activations == Activations::kRecompute) return plan;
  if (candidate.activations == Activations::kSelective) {
    plan.selective_passes = Largest(passes, [&](int64_t selective) {
      Plan more = plan;
      more.selective_passes = selective;
      return Excess(more);
    });
    if (plan.selective_passes < passes) return plan;
  }
  const int64_t selective = plan.selective_passes;
  plan.kept_passes = Largest(passes, [&](int64_t kept) {
    Plan more = plan;
    more.kept_passes = kept;
    more.selective_passes = std::min(selective, passes - kept);
    return Excess(more);
  });
  plan.selective_passes = std::min(selective, passes - plan.kept_passes);
  return plan;
}

const std::optional<PlanSearch::Evaluation>& PlanSearch::Evaluate(const Candidate& candidate) {
  const auto [entry, is_new] = evaluated_.try_emplace(candidate);
  if (!is_new) return entry->second;
  const std::optional<Plan> plan = Fill(candidate);
  if (!plan) return entry->second;
  const Schedule schedule = BuildStepSchedule(model_, *plan, /*pending_update=*/true);
  const CostModel cost(model_, *plan, *request_.profile, request_.update);
  entry->second = Evaluation{.plan = *plan,
                             .seconds = Simulate(schedule, cost, plan->unified).seconds,
                             .bytes = schedule.device_bytes + schedule.host_bytes};
  return entry->second;
}

// `least` are the fewest seconds seen: a row of ties must not lead away from them, nor in a circle.
bool PlanSearch::Better(const Evaluation& a, const Evaluation& b, double least) const {
  if (a.seconds < b.seconds * (1 - kTie)) return true;
  return a.seconds <= least * (1 + kTie) && a.bytes < b.bytes;
}

bool PlanSearch::Fixed(const std::string& choice) const {
  const PlanChoices& choices = request_.choices;
  if (choice == "order") return choices.order.has_value();
  if (choice == "head") return choices.head.has_value();
  if (choice == "weight_slots") return choices.weight_slots.has_value();
  if (choice == "resident_units") return choices.resident_units.has_value();
  if (choice == "activations") return choices.activations.has_value();
  return choices.inputs_on_host.has_value();
}

// From what is fastest where memory is plenty to what needs the least.
std::vector<Candidate> PlanSearch::Starts() const {
  const PlanChoices& choices = request_.choices;
  std::vector<Candidate> starts;
  const bool tiles = shape_.vocab_tile > 0;
  for (Order order : {Order::kLayerMajor, Order::kBatchMajor}) {
    if (choices.order && *choices.order != order) continue;
    if (!choices.order && order == Order::kBatchMajor && shape_.micro_batches == 1) continue;
    for (HeadPlacement head : {HeadPlacement::kWhole, HeadPlacement::kTiled}) {
      if (choices.head && *choices.head != head) continue;
      if (head == HeadPlacement::kTiled && (!tiles || order == Order::kBatchMajor)) continue;
      for (LayerInputs inputs :
           {LayerInputs::kDevice, LayerInputs::kAsNeeded, LayerInputs::kHost}) {
        if (inputs != LayerInputs::kDevice && request_.unified) continue;
        if (choices.inputs_on_host &&
            (inputs == LayerInputs::kHost) != (*choices.inputs_on_host && !request_.unified)) {
          continue;
        }
        if (choices.inputs_on_host && inputs == LayerInputs::kAsNeeded) continue;
        starts.push_back({.order = order,
                          .head = head,
                          .weight_slots = choices.weight_slots.value_or(2),
                          .resident_units = choices.resident_units.value_or(0),
                          .activations = choices.activations.value_or(Activations::kKeep),
                          .inputs = inputs});
      }
    }
  }
  return starts;
}

int64_t PlanSearch::MostResident(Candidate candidate) {
  candidate.resident_units = 0;
  candidate.activations = Activations::kRecompute;
  if (candidate.inputs == LayerInputs::kAsNeeded) candidate.inputs = LayerInputs::kHost;
  const auto [entry, is_new] = most_resident_.try_emplace(candidate);
  if (is_new) {
    entry->second = Largest(model_.num_blocks(), [&](int64_t count) {
      candidate.resident_units = count;
      return Excess(Bare(candidate));
    });
  }
  return entry->second;
}

std::vector<PlanSearch::Variation> PlanSearch::VariationsOf(const Candidate& candidate) {
  std::vector<Variation> variations;
  const auto vary = [&](const std::string& choice, auto Candidate::*member, const auto& values) {
    if (Fixed(choice)) return;
    Variation variation{.choice = choice, .candidates = {}};
    for (const auto& value : values) {
      Candidate other = candidate;
      other.*member = value;
      if (other != candidate) variation.candidates.push_back(other);
    }
    variations.push_back(std::move(variation));
  };
  vary("activations", &Candidate::activations,
       std::vector{Activations::kKeep, Activations::kSelective, Activations::kRecompute});
  if (!request_.unified) {
    vary("layer_inputs", &Candidate::inputs,
         std::vector{LayerInputs::kDevice, LayerInputs::kAsNeeded, LayerInputs::kHost});
    std::vector<int64_t> residents = {0};
    const int64_t fitting = MostResident(candidate);
    if (fitting > 0) residents.insert(residents.end(), {fitting, fitting / 2, fitting / 4});
    vary("resident_units", &Candidate::resident_units, residents);
    std::vector<int64_t> slots;
    for (int64_t s = 2; s <= std::max<int64_t>(2, std::min(kMostSlots, model_.num_blocks())); ++s) {
      slots.push_back(s);
    }
    vary("weight_slots", &Candidate::weight_slots, slots);
  }
  if (candidate.order == Order::kLayerMajor && shape_.vocab_tile > 0) {
    vary("head", &Candidate::head, std::vector{HeadPlacement::kWhole, HeadPlacement::kTiled});
  }
  if (candidate.head == HeadPlacement::kWhole && shape_.micro_batches > 1) {
    vary("order", &Candidate::order, std::vector{Order::kLayerMajor, Order::kBatchMajor});
  }
  return variations;
}

std::string PlanSearch::Value(const std::string& choice, const Evaluation& evaluation) const {
  const Plan& plan = evaluation.plan;
  const int64_t passes = Passes(plan.order);
  if (choice == "order") return plan.order == Order::kLayerMajor ? "layer-major" : "batch-major";
  if (choice == "head") return plan.head == HeadPlacement::kWhole ? "whole" : "in tiles";
  if (choice == "weight_slots") return absl::StrCat(plan.weight_slots);
  if (choice == "resident_units") return absl::StrCat(plan.resident_units);
  if (choice == "activations") {
    if (plan.kept_passes == passes) return "keep";
    if (plan.selective_passes == passes) return "selective";
    if (plan.kept_passes + plan.selective_passes == 0) return "recompute";
    std::string text;
    if (plan.kept_passes > 0) absl::StrAppend(&text, "keep ", plan.kept_passes);
    if (plan.selective_passes > 0) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", "selective ", plan.selective_passes);
    }
    const int64_t again = passes - plan.kept_passes - plan.selective_passes;
    if (again > 0) absl::StrAppend(&text, ", recompute ", again);
    return absl::StrCat(text, " of ", passes, " passes");
  }
  if (plan.offloaded_passes == 0) return "device";
  if (plan.offloaded_passes >= passes) return "host";
  return absl::StrCat(plan.offloaded_passes, " of ", passes, " on the host");
}

std::optional<PlannedStep> PlanSearch::Run() {
  std::optional<Candidate> best;
  for (const Candidate& start : Starts()) {
    if (!Evaluate(start)) continue;
    best = start;
    break;
  }
  if (!best) return std::nullopt;
  // With nothing to copy and everything kept, no plan can be faster.
  const auto done = [&] {
    const Plan& plan = Evaluate(*best)->plan;
    return request_.unified && plan.kept_passes == Passes(plan.order);
  };
  double least = Evaluate(*best)->seconds;
  for (bool improved = !done(); improved;) {
    improved = false;
    for (const Variation& variation : VariationsOf(*best)) {
      for (const Candidate& other : variation.candidates) {
        if (!Evaluate(other) || !Better(*Evaluate(other), *Evaluate(*best), least)) continue;
        best = other;
        least = std::min(least, Evaluate(other)->seconds);
        improved = true;
      }
    }
  }
  const Evaluation& chosen = *Evaluate(*best);
  PlannedStep step;
  step.plan = chosen.plan;
  const std::vector<Variation> variations = VariationsOf(*best);
  std::vector<std::string> choices = {"order", "head", "activations"};
  if (!request_.unified) {
    choices.insert(choices.end(), {"layer_inputs", "weight_slots", "resident_units"});
  }
  for (const std::string& choice : choices) {
    PlanAlternative alternative;
    alternative.choice = choice;
    alternative.value = Value(choice, chosen);
    alternative.fixed = Fixed(choice);
    const Evaluation* next = nullptr;
    for (const Variation& variation : variations) {
      if (variation.choice != choice) continue;
      for (const Candidate& other : variation.candidates) {
        const std::optional<Evaluation>& evaluation = Evaluate(other);
        if (!evaluation || Value(choice, *evaluation) == alternative.value) continue;
        if (next == nullptr || evaluation->seconds < next->seconds) next = &*evaluation;
      }
    }
    if (next != nullptr) {
      alternative.next_best = Value(choice, *next);
      alternative.extra_seconds = std::max(0.0, next->seconds - chosen.seconds);
    }
    step.alternatives.push_back(std::move(alternative));
  }
  step.schedule = BuildStepSchedule(model_, step.plan, /*pending_update=*/true);
  step.simulation =
      Simulate(step.schedule, CostModel(model_, step.plan, *request_.profile, request_.update),
               step.plan.unified);
  step.plan.device_bytes = step.schedule.device_bytes;
  step.plan.host_bytes = step.schedule.host_bytes;
  step.plan.memory = MemoryByPurpose(step.schedule, MemorySpace::kDevice);
  step.plan.host_memory = MemoryByPurpose(step.schedule, MemorySpace::kHost);
  return step;
}

bool PlanSearch::AnyFits() const {
  for (Candidate start : Starts()) {
    start.activations = Activations::kRecompute;
    if (Fill(start)) return true;
  }
  return false;
}

LeastMemory PlanSearch::Least() const {
  LeastMemory least;
  least.device_bytes = least.host_bytes = least.total_bytes = std::numeric_limits<size_t>::max();
  const bool one_memory = request_.total_budget_bytes != std::numeric_limits<size_t>::max();
  const auto bytes_of = [&](const Candidate& start, int64_t offloaded) {
    Plan plan = Bare(start);
    const std::optional<Activations>& fixed = request_.choices.activations;
    if (fixed == Activations::kKeep) plan.kept_passes = Passes(start.order);
    if (fixed == Activations::kSelective) plan.selective_passes = Passes(start.order);
    plan.offloaded_passes = offloaded;
    return BuffersOf(model_, plan);
  };
  const std::vector<Candidate> starts = Starts();
  for (const Candidate& start : starts) {
    for (int64_t offloaded : {int64_t{0}, Passes(start.order)}) {
      if (start.inputs == LayerInputs::kDevice && offloaded > 0) continue;
      if (start.inputs == LayerInputs::kHost && offloaded == 0) continue;
      least.device_bytes = std::min(least.device_bytes, bytes_of(start, offloaded).device_bytes);
    }
  }
  const size_t budget = std::max(request_.device_budget_bytes, least.device_bytes);
  for (const Candidate& start : starts) {
    const int64_t passes = Passes(start.order);
    const int64_t fewest = start.inputs == LayerInputs::kHost ? passes : 0;
    const int64_t most = start.inputs == LayerInputs::kDevice ? 0 : passes;
    const int64_t spared = Largest(most - fewest, [&](int64_t here) {
      return static_cast<double>(bytes_of(start, most - here).device_bytes) -
             static_cast<double>(budget);
    });
    if (spared < 0) continue;
    const Schedule buffers = bytes_of(start, most - spared);
    least.host_bytes = std::min(least.host_bytes, buffers.host_bytes);
    const size_t total = buffers.device_bytes + buffers.host_bytes;
    if (one_memory ? total >= least.total_bytes : buffers.host_bytes > least.host_bytes) continue;
    least.total_bytes = total;
    least.device_memory = MemoryByPurpose(buffers, MemorySpace::kDevice);
    least.host_memory = MemoryByPurpose(buffers, MemorySpace::kHost);
  }
  return least;
}

}  // namespace millrace
