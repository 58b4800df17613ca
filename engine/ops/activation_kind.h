#ifndef MILLRACE_ENGINE_OPS_ACTIVATION_KIND_H_
#define MILLRACE_ENGINE_OPS_ACTIVATION_KIND_H_

#include <cstdint>

namespace millrace {

enum class ActivationKind : uint8_t {
  kSilu,      // x · σ(x)
  kGelu,      // x · Φ(x), exact (Hendrycks & Gimpel 2016)
  kGeluTanh,  // its tanh form
  kRelu,
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_ACTIVATION_KIND_H_
