// Reads any bytes as a plan: they are refused with a message, or give a plan that can be verified
// without harm, and that is the same after it is written and read again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "plan/format/json.h"
#include "plan/format/msccl.h"
#include "plan/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::plan;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto plan = plan_from_json(text, "fuzz");
  if (!plan) {
    CHECK(plan.error().message().starts_with("fuzz: "), "{}", plan.error().message());
    return 0;
  }
  const auto again = plan_from_json(plan_to_json(*plan), "again");
  CHECK(again.ok(), "{}", again.error().message());
  CHECK(*again == *plan);
  const auto proof = verify(*plan);
  if (!proof) {
    CHECK(!proof.error().message().empty());
    return 0;
  }
  const auto xml = plan_to_msccl_xml(*plan);
  if (!xml) CHECK(!xml.error().message().empty());
  return 0;
}
