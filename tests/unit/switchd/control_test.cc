// The control socket of a switch: what it takes, and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/messages.h"
#include "net/descriptors.h"
#include "switchd/loopback_job.h"

namespace thalweg {
namespace {

using nlohmann::json;

Result<json> ask(const SwitchDaemon& daemon, const json& request) {
  THALWEG_TRY(SwitchClient client, SwitchClient::connect(daemon.control_address(), "", soon()));
  return client.ask(request, soon());
}

TEST(ControlDeathTest, open_files__a_client_too_many_is_closed_and_others_are_served) {
  if (kNeedsDescriptors) GTEST_SKIP();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // In a process of its own, which keeps the limit.
  EXPECT_EXIT(
      {
        const auto daemon = start_switch(16);
        const std::string refused = with_the_last_descriptor(
            false, [&] { return message_of(ask(*daemon, {{"op", "list"}})); });
        fmt::print(stderr, "{}\n", refused);
        std::_Exit(ask(*daemon, {{"op", "list"}}).ok() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "closed the connection|cannot hear|cannot ask");
}

}  // namespace
}  // namespace thalweg
