#include "client/cli/loss_curve.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

constexpr size_t kMaxRanges = 1024;
constexpr int kRows = 7;
constexpr int kMaxColumns = 60;
constexpr int kLabelColumns = 10;

// A column's part of one row, in eighths from below.
const char* Block(int eighths, bool unicode) {
  static const char* const kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char* const kAscii[] = {" ", ".", ".", ":", ":", "+", "+", "#", "#"};
  eighths = std::clamp(eighths, 0, 8);
  return unicode ? kBlocks[eighths] : kAscii[eighths];
}

}  // namespace

void LossCurve::Add(int64_t step, double loss) {
  if (!std::isfinite(loss) || step < 1) return;
  if (step <= last_step_) {
    // What a range holds of steps before this one is forgotten with it; a curve can bear that.
    ranges_.resize(std::min(ranges_.size(), static_cast<size_t>((step - 1) / steps_per_range_)));
  }
  if (ranges_.empty()) first_ = loss;
  while ((step - 1) / steps_per_range_ >= static_cast<int64_t>(kMaxRanges)) {
    for (size_t i = 0; i < ranges_.size(); i += 2) {
      Range merged = ranges_[i];
      if (i + 1 < ranges_.size()) {
        merged.sum += ranges_[i + 1].sum;
        merged.count += ranges_[i + 1].count;
      }
      ranges_[i / 2] = merged;
    }
    ranges_.resize((ranges_.size() + 1) / 2);
    steps_per_range_ *= 2;
  }
  size_t index = static_cast<size_t>((step - 1) / steps_per_range_);
  if (ranges_.size() <= index) ranges_.resize(index + 1);
  ranges_[index].sum += loss;
  ranges_[index].count += 1;
  last_step_ = step;
  last_ = loss;
}

std::vector<double> LossCurve::Means(size_t columns) const {
  columns = std::min(columns, ranges_.size());
  std::vector<double> means;
  double previous = first_;
  for (size_t c = 0; c < columns; ++c) {
    Range sum;
    size_t begin = c * ranges_.size() / columns;
    size_t end = (c + 1) * ranges_.size() / columns;
    for (size_t i = begin; i < end; ++i) {
      sum.sum += ranges_[i].sum;
      sum.count += ranges_[i].count;
    }
    if (sum.count > 0) previous = sum.sum / static_cast<double>(sum.count);
    means.push_back(previous);
  }
  return means;
}

std::string LossCurve::Plot(const Terminal& terminal) const {
  int columns = std::min(kMaxColumns, terminal.columns - kLabelColumns - 2);
  if (ranges_.size() < 2 || columns < 2) return "";
  std::vector<double> means = Means(static_cast<size_t>(columns));
  double lowest = *std::min_element(means.begin(), means.end());
  double highest = *std::max_element(means.begin(), means.end());
  double span = std::max(highest - lowest, 1e-12);
  const char* wall = terminal.unicode ? "│" : "|";
  std::string text;
  for (int row = kRows - 1; row >= 0; --row) {
    std::string label = row == kRows - 1 ? absl::StrFormat("loss %5.3f", highest)
                        : row == 0       ? absl::StrFormat("%10.3f", lowest)
                                         : std::string(kLabelColumns, ' ');
    absl::StrAppend(&text, label, " ", wall);
    for (double mean : means) {
      // The lowest is still one eighth high, so that it is seen.
      int height = 1 + static_cast<int>(std::lround((mean - lowest) / span * (kRows * 8 - 1)));
      absl::StrAppend(&text, Block(height - row * 8, terminal.unicode));
    }
    text += "\n";
  }
  std::string last = absl::StrCat(last_step_);
  int gap = std::max(1, static_cast<int>(means.size()) - 6 - static_cast<int>(last.size()));
  absl::StrAppend(&text, std::string(kLabelColumns, ' '), "  step 1", std::string(gap, ' '), last,
                  "\n");
  return text;
}

}  // namespace millrace
