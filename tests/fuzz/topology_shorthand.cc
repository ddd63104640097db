// Shorthand strings.
#include "topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::check_topology(thalweg::topology_from_shorthand(thalweg::as_text(data, size)));
  return 0;
}
