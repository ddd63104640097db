// SimAI's topology text.
#include "topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::check_topology(thalweg::topology_from_simai(thalweg::as_text(data, size), "fuzz.simai"));
  return 0;
}
