#include "engine/train/checkpoint_export.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_export.h"
#include "engine/model/slab_layout.h"
#include "engine/model/weight_source.h"
#include "engine/train/model_tokenizer.h"

namespace millrace {

absl::StatusOr<WrittenFile> ExportGguf(const std::string& folder, const std::string& path,
                                       const GgufCheckpointOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const ModelSpec model, ReadModelDirectoryConfig(folder));
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(model);
  absl::StatusOr<GgufMetadata> tokenizer = TokenizerMetadata(folder, model.vocab_size);
  if (absl::IsInvalidArgument(tokenizer.status())) {
    return absl::UnimplementedError(
        absl::StrCat("the tokenizer has no form in a GGUF file: ", tokenizer.status().message()));
  }
  MILLRACE_RETURN_IF_ERROR(tokenizer.status());
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> weights,
                            WeightSource::Open(layouts, folder));
  const GgmlTypeInfo& type = InfoOf(options.type);
  const auto bytes_of = [&type](int64_t elements) {
    return elements / type.block_elements * type.block_bytes;
  };
  int64_t elements = 0, done = 0;
  for (const SlabLayout& layout : layouts) elements += layout.count;
  return WriteGguf(model, layouts,
                   [&](int64_t unit, int64_t offset, absl::Span<float> out) -> absl::Status {
                     MILLRACE_RETURN_IF_ERROR(weights->Read(unit, offset, out));
                     done += static_cast<int64_t>(out.size());
                     if (options.on_progress)
                       options.on_progress(bytes_of(done), bytes_of(elements));
                     return absl::OkStatus();
                   },
                   path,
                   {.type = options.type, .name = options.name, .metadata = *std::move(tokenizer)});
}

}  // namespace millrace
