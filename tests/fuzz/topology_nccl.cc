// NCCL's topology XML.
#include "topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::topology::check_topology(thalweg::topology::topology_from_nccl_xml(
      thalweg::topology::as_text(data, size), "fuzz.xml"));
  return 0;
}
