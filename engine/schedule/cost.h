// What each instruction of a schedule asks of a machine.
#ifndef MILLRACE_ENGINE_SCHEDULE_COST_H_
#define MILLRACE_ENGINE_SCHEDULE_COST_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/model/slab_layout.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/profile.h"
#include "engine/schedule/schedule.h"
#include "engine/state/optimizer_kind.h"
#include "engine/state/recipe.h"

namespace millrace {

enum class Resource : uint8_t {
  kDevice,      // its multiprocessors; on a CPU the compute threads
  kToDevice,    // the link
  kToHost,      // the link
  kLink,        // both directions together
  kHostMemory,  // bandwidth
  kHostCores,
};
inline constexpr int kNumResources = 6;
absl::string_view NameOf(Resource resource);

// Work of one instruction: seconds for which it would take the whole of each resource. Alone it
// takes the latency and then as long as the resource that it needs longest.
struct Work {
  double latency = 0;
  std::array<double, kNumResources> seconds = {};
  double flops = 0;  // of matrix products and attention, those made again included

  double& operator[](Resource resource) { return seconds[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return seconds[static_cast<size_t>(resource)]; }
  double alone() const;
};

// What an optimizer's pass does to a parameter.
struct UpdateWork {
  double bytes = 0;        // read and written, gradient included
  bool quantized = false;  // 8-bit moments
};
// Everything that `recipe` keeps of a parameter is read and written once; the gradient is read.
UpdateWork UpdateWorkOf(absl::Span<const SlabLayout> layouts, Recipe recipe, DType compute,
                        OptimizerKind optimizer = OptimizerKind::kAdamW);

// The arguments outlive the model.
class CostModel {
 public:
  CostModel(const ScheduledModel& model, const Plan& plan, const DeviceProfile& profile,
            const UpdateWork& update);

  Work Of(const Instruction& instruction) const;

 private:
  // Ops one after the other on the device.
  struct DeviceOps {
    double seconds = 0, bytes = 0, flops = 0;
  };

  void Product(ProductKind kind, int64_t in, int64_t out, DeviceOps& ops) const;
  void Pass(DevicePass pass, double bytes, DeviceOps& ops) const;
  void Attention(bool backward, int64_t window, DeviceOps& ops) const;
  void Softcap(double cap, double scores, DeviceOps& ops) const;
  void Norm(DeviceOps& ops) const;
  void Residual(DeviceOps& ops) const;
  void QueryKeyNorms(bool backward, DeviceOps& ops) const;
  void NormBackward(bool residual, DeviceOps& ops) const;
  void InputGradient(DeviceOps& ops) const;
  void Rotate(DeviceOps& ops) const;
  void ActivationForward(DeviceOps& ops) const;
  void LinearBackward(int64_t in, int64_t out, bool bias, bool accumulate, DeviceOps& ops) const;
  void Head(const RateGrid& rate, double flops_a_logit, int64_t classes, DeviceOps& ops) const;

  // What an instruction asks of a block with this window; 0: none.
  struct BlockWork {
    Work forward, recompute;
    std::array<Work, 2> backward;  // [1]: adds to gradients
  };
  BlockWork WorkOfBlock(int64_t window) const;
  Work BlockForward(int64_t window, bool with_output) const;
  Work BlockRemake() const;
  Work BlockBackward(int64_t window, bool accumulate) const;
  Work WholeHead(bool backward) const;
  Work HeadTile(bool backward, int64_t classes) const;
  Work HeadNormGradient() const;
  Work Convert(int64_t count, DType kept) const;
  Work OnDevice(const DeviceOps& ops) const;
  Work Copy(Resource direction, double bytes) const;
  Work HostPassOver(HostPass pass, double bytes) const;
  Work Update(int64_t count) const;

  // Elements of a unit's slab, or of the range that the instruction names.
  int64_t Count(const Instruction& instruction) const;
  double GradientBytes(const Instruction& instruction) const;
  double TokenRowBytes() const;  // of a micro-batch, as wide as the model

  const ScheduledModel& model_;
  const Plan& plan_;
  const DeviceProfile& profile_;
  const UpdateWork update_;
  const double tokens_;  // of a micro-batch
  const double size_;    // bytes of an element
  // What most instructions are, without and with a window.
  const std::array<BlockWork, 2> blocks_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_COST_H_
