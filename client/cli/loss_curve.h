// The loss over a whole run, small enough for a terminal.
#ifndef MILLRACE_CLIENT_CLI_LOSS_CURVE_H_
#define MILLRACE_CLIENT_CLI_LOSS_CURVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/terminal.h"

namespace millrace {

// Keeps means over equal ranges of steps, however long the run.
class LossCurve {
 public:
  // Steps come in order; a step that came before (the job went back to a checkpoint) replaces what
  // followed it. Losses that are not finite are left out.
  void Add(int64_t step, double loss);

  // The loss of the first and the last step.
  double first() const { return first_; }
  double last() const { return last_; }
  int64_t steps() const { return last_step_; }

  // A plot with the highest and the lowest mean at its side and the steps below, each line ending
  // in a newline; empty for fewer than two steps.
  std::string Plot(const Terminal& terminal) const;

 private:
  struct Range {
    double sum = 0;
    int64_t count = 0;
  };
  // `columns` means, left to right.
  std::vector<double> Means(size_t columns) const;

  std::vector<Range> ranges_;
  int64_t steps_per_range_ = 1;
  int64_t last_step_ = 0;
  double first_ = 0;
  double last_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_LOSS_CURVE_H_
