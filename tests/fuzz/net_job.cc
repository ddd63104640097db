// A line to a switch's control socket, and an answer from it: whatever is accepted reads the same
// after it is written again.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "net/atp/job_message.h"
#include "net/io/control_connection.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::net;
  const auto fields = parse_control_line({reinterpret_cast<const char*>(data), size});
  if (!fields.ok()) return 0;
  if (const auto request = job_request_from(*fields); request.ok()) {
    const nlohmann::json written = to_json(*request);
    const auto again = job_request_from(written);
    CHECK(again.ok() && *again == *request);
  }
  if (const auto job = atp_job_from(*fields); job.ok()) {
    const auto again = atp_job_from(to_json(*job));
    CHECK(again.ok() && *again == *job);
  }
  return 0;
}
