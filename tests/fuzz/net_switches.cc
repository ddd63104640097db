// Lists of switches: whatever is accepted is the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "net/atp/switch_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::net;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto list = parse_switch_list(text);
  if (!list.ok()) return 0;
  CHECK(list->size() <= kMaxListedSwitches);
  std::string again;
  for (const ListedSwitch& entry : *list) again += entry.text() + "\n";
  const auto read = parse_switch_list(again);
  CHECK(read.ok() && *read == *list);
  return 0;
}
