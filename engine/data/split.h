// Which sequences are for training and which for evaluation.
#ifndef MILLRACE_ENGINE_DATA_SPLIT_H_
#define MILLRACE_ENGINE_DATA_SPLIT_H_

#include <cstdint>
#include <vector>

namespace millrace {

// A function of the number of sequences and the fraction alone, so that runs with different seeds
// are judged on the same sequences. Evaluation sequences are spread evenly over the stream.
class Split {
 public:
  // `eval_fraction` in [0, 0.5]; above 0, at least one sequence is kept for evaluation. At least
  // one is left for training: a single sequence is for training.
  static Split Make(int64_t sequences, double eval_fraction);

  int64_t train_sequences() const { return sequences_ - eval_sequences(); }
  int64_t eval_sequences() const { return static_cast<int64_t>(eval_.size()); }

  // Index of a sequence in the stream, from its index in its part of the split.
  int64_t Train(int64_t index) const;
  int64_t Eval(int64_t index) const { return eval_[index]; }

 private:
  int64_t sequences_ = 0;
  std::vector<int64_t> eval_;  // rising
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_SPLIT_H_
