// NCCL's topology XML.
#include "topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::check_topology(
      thalweg::topology_from_nccl_xml(thalweg::as_text(data, size), "fuzz.xml"));
  return 0;
}
