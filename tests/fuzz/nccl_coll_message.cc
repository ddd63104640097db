// A line between ranks of a CollNet communicator: whatever is accepted reads the same after it is
// written again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "nccl/coll_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::nccl;
  const Result<CollMessage> message =
      coll_message_from({reinterpret_cast<const char*>(data), size});
  if (!message.ok()) return 0;
  std::string line = coll_line_of(*message);
  CHECK(line.back() == '\n');
  line.pop_back();
  const Result<CollMessage> again = coll_message_from(line);
  CHECK(again.ok() && *again == *message);
  return 0;
}
