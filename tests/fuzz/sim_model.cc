// Layer tables of models: any text gives an error or a valid model.
#include <cstdint>
#include <numeric>
#include <set>

#include "base/check.h"
#include "sim/workload/model.h"

namespace thalweg::sim {
namespace {

void check_model(const Result<ModelTable>& result) {
  if (!result.ok()) {
    CHECK(result.error().message().starts_with("fuzz.yaml: "), "{}", result.error().message());
    return;
  }
  const ModelTable& table = *result;
  CHECK(!table.layers.empty() && table.batch > 0 && !table.name.empty());
  CHECK(table.forward_time() >= Duration() && table.backward_time() >= Duration());
  CHECK(table.forward_time() + table.backward_time() <= kMaxComputeTime);
  std::set<std::string> names;
  for (const ModelLayer& layer : table.layers) {
    CHECK(names.insert(layer.name).second, "{}", layer.name);
    CHECK(layer.parameters > 0 && layer.forward >= Duration() && layer.backward >= Duration());
    CHECK(std::accumulate(layer.tensors.begin(), layer.tensors.end(), std::int64_t{0}) ==
          layer.parameters);
  }
  const Result<ModelTable> same = slowed_down(table, 1);
  CHECK(same.ok(), "{}", same.error().message());
  CHECK(*same == table);
}

}  // namespace
}  // namespace thalweg::sim

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  thalweg::sim::check_model(thalweg::sim::model_from_yaml(text, "fuzz.yaml"));
  return 0;
}
