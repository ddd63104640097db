// Shorthand strings.
#include "topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::topology::check_topology(
      thalweg::topology::topology_from_shorthand(thalweg::topology::as_text(data, size)));
  return 0;
}
