// Chakra traces: any bytes give an error or a valid model, and what is read can be written.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "sim/workload/chakra_model.h"

namespace thalweg::sim {
namespace {

void check_chakra(std::string_view content) {
  const Result<trace::ChakraTrace> trace = trace::chakra_from(content, "fuzz.et");
  const Result<ModelTable> model = model_from_chakra(content, "fuzz.et");
  if (!trace.ok()) {
    CHECK(trace.error().message().starts_with("fuzz.et: "), "{}", trace.error().message());
    CHECK(!model.ok());
    return;
  }
  const std::string written = to_chakra(*trace);
  const Result<trace::ChakraTrace> again = trace::chakra_from(written, "again");
  CHECK(again.ok(), "{}", again.error().message());
  CHECK(to_chakra(*again) == written);
  if (!model.ok()) {
    CHECK(model.error().message().starts_with("fuzz.et: "), "{}", model.error().message());
    return;
  }
  CHECK(!model->layers.empty() && model->batch > 0 && !model->name.empty() && model->as_sent);
  CHECK(model->forward_time() + model->backward_time() <= kMaxComputeTime);
  for (const ModelLayer& layer : model->layers) {
    CHECK(layer.parameters > 0 && layer.forward >= Duration() && layer.backward >= Duration());
  }
  Result<ModelTable> same =
      model_from_chakra(to_chakra(chakra_of(*model, ChakraWait::kOwnLayer)), "same");
  CHECK(same.ok(), "{}", same.error().message());
  same->device = model->device;  // which says how many steps the first trace had
  CHECK(*same == *model);
}

}  // namespace
}  // namespace thalweg::sim

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::sim::check_chakra({reinterpret_cast<const char*>(data), size});
  return 0;
}
