// Runs tokens of several texts through a model and keeps their keys and values, so that a text that
// goes on costs its new tokens alone.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(spec, &state, &device, &ops, &pool,
//                                                           {.sequences = 2, …}));
//   MILLRACE_ASSIGN_OR_RETURN(int64_t a, decoder->Begin(/*capacity=*/200));
//   MILLRACE_RETURN_IF_ERROR(decoder->Run({{a, prompt}}, logits));       // the whole prompt
//   MILLRACE_RETURN_IF_ERROR(decoder->Run({{a, {&token, 1}}}, logits));  // what follows
//   decoder->End(a);
//
// Texts of any lengths are fed at the same time; their tokens pass through the model side by side,
// a bounded number at once, in the blocks that training runs. Where the device has memory of its
// own, units come through two slots, the next while one computes; the head in tiles of classes.
//
// Rotary embeddings that go by a sequence's length go by that of the text so far, all that is fed
// at once included. As in transformers, keys stay as they were turned when a text grows
// (RotaryScaling::kDynamic), but are made anew when kLongRope changes its factors.
//
// Threads: one at a time.
#ifndef MILLRACE_ENGINE_EXEC_DECODER_H_
#define MILLRACE_ENGINE_EXEC_DECODER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/model/model_spec.h"
#include "engine/ops/ops.h"
#include "engine/schedule/plan.h"
#include "engine/state/host_state.h"

namespace millrace {

struct DecoderLimits {
  int64_t sequences = 1;         // at a time
  int64_t cache_tokens = 0;      // of all of them together
  int64_t longest_sequence = 0;  // at most the model's max_positions
  int64_t pass_tokens = 512;     // that are in the model at once
};

// What the ops of a decoder must be ready for.
OpsLimits MakeOpsLimits(const ModelSpec& spec, const DecoderLimits& limits);

// Device memory that a decoder takes, by purpose: "cache", "activations", "workspace", and "slots"
// unless host memory is device memory. `ops_workspace_bytes` is that of its ops for MakeOpsLimits.
std::vector<MemoryItem> DecoderMemory(const ModelSpec& spec, absl::Span<const SlabLayout> layouts,
                                      DType compute_dtype, bool unified,
                                      const DecoderLimits& limits, size_t ops_workspace_bytes);

class Decoder {
 public:
  // What the pointers point to outlives the decoder; the weights stay as they are while it runs.
  // `host_pool` gathers embeddings. RESOURCE_EXHAUSTED when the device has less memory than
  // DecoderMemory.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelSpec& spec,
                                                         const HostState* state, Device* device,
                                                         Ops* ops, ThreadPool* host_pool,
                                                         const DecoderLimits& limits);
  virtual ~Decoder() = default;

  // A new text of at most `capacity` tokens. RESOURCE_EXHAUSTED when there is no place for it now,
  // INVALID_ARGUMENT when there never is.
  virtual absl::StatusOr<int64_t> Begin(int64_t capacity) = 0;
  virtual void End(int64_t sequence) = 0;

  struct Feed {
    int64_t sequence;
    absl::Span<const int32_t> tokens;  // not empty; what follows those that were fed before
  };
  // logits[feeds, vocab], in host memory: what follows each feed's last token. No sequence is fed
  // twice. CANCELLED, within one pass through one unit, when the flag is set (may be nullptr).
  // After an error the decoder is good for nothing.
  virtual absl::Status Run(absl::Span<const Feed> feeds, absl::Span<float> logits,
                           const std::atomic<bool>* cancelled) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_EXEC_DECODER_H_
