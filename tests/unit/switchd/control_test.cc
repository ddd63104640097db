// The control socket of a switch: what it takes, and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

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

// What creating a job with these ends is answered.
std::string refusal(const SwitchDaemon& daemon, const json& workers, const json& servers) {
  return message_of(ask(daemon, {{"op", "create"}, {"workers", workers}, {"servers", servers}}));
}

TEST(Control, create__ends_that_no_packet_can_reach_are_refused) {
  const auto daemon = start_switch(16);
  const json good = {"127.0.0.1:1"};
  EXPECT_EQ(refusal(*daemon, good, good), "no error");
  for (const char* bad : {"127.0.0.1:0", "0.0.0.0:1", "[::1]:1", "localhost:1"}) {
    const std::string of_workers = refusal(*daemon, {bad}, good);
    EXPECT_NE(of_workers.find("workers: '"), std::string::npos) << of_workers;
    EXPECT_NE(of_workers.find("allowed"), std::string::npos) << of_workers;
    EXPECT_NE(refusal(*daemon, good, {bad}).find("servers: '"), std::string::npos) << bad;
  }
  const std::string twice = refusal(*daemon, {"127.0.0.1:1", "127.0.0.1:1"}, good);
  EXPECT_NE(twice.find("workers: '127.0.0.1:1' is there twice"), std::string::npos) << twice;
}

TEST(Control, list__a_job_as_it_was_asked_for) {
  const auto daemon = start_switch(16);
  JobRequest request;
  request.workers = {"127.0.0.1:1", "127.0.0.1:2"};
  request.servers = {"127.0.0.1:3"};
  request.window = 8;
  request.groups = 0;
  request.second_level = true;
  json fields = to_json(request);
  fields["op"] = "create";
  ASSERT_TRUE(ask(*daemon, fields).ok());
  const Result<json> listed = ask(*daemon, {{"op", "list"}});
  ASSERT_TRUE(listed.ok());
  EXPECT_FALSE(listed->contains("ok"));
  request.id = 1;
  EXPECT_EQ(listed->at("jobs").at(0), to_json(request));
  fields["job"] = 1U;
  EXPECT_NE(message_of(ask(*daemon, fields)).find("job: 1; that number was given before"),
            std::string::npos);
  // Numbers that jobs ask for take none from those that do not.
  for (const std::uint32_t number : {2U, kMaxJobId}) {
    fields["job"] = number;
    EXPECT_EQ(ask(*daemon, fields)->at("job"), number);
  }
  fields.erase("job");
  EXPECT_EQ(ask(*daemon, fields)->at("job"), 3U);
}

TEST(Control, stats__an_empty_datagram_is_one_from_a_stranger) {
  const auto daemon = start_switch(16);
  const SocketAddress data = SocketAddress::numeric(daemon->data_addresses().at(0)).value();
  const Fd stranger(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(sendto(stranger.get(), nullptr, 0, 0, data.get(), data.size()), 0);
  const Time until = soon();
  std::uint64_t strangers = 0;
  while (strangers == 0 && monotonic_now() < until) {
    strangers = ask(*daemon, {{"op", "stats"}})->at("switch").at("strangers").get<std::uint64_t>();
  }
  EXPECT_EQ(strangers, 1U);
}

std::string start_error(const std::string& data, const std::string& advertise) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.data = data;
  config.advertise = advertise;
  return message_of(SwitchDaemon::start(config));
}

TEST(SwitchDaemon, start__tells_jobs_an_address_that_is_one) {
  EXPECT_EQ(start_error("0.0.0.0:0", "127.0.0.1"), "no error");
  EXPECT_EQ(start_error("0.0.0.0:0", ""),
            "data: '0.0.0.0:0' without 'advertise'; jobs must be told one address");
  for (const char* bad : {"::1", "0.0.0.0"}) {
    EXPECT_EQ(start_error("0.0.0.0:0", bad),
              fmt::format("advertise: '{}'; one address of the family of data '0.0.0.0:0' is "
                          "allowed",
                          bad));
  }
  EXPECT_NE(start_error("0.0.0.0:0", "no such host").find("advertise: "), std::string::npos);
  SwitchConfig config;
  config.data = "0.0.0.0:0";
  config.advertise = "127.0.0.1";
  config.xdp = {"lo"};
  EXPECT_EQ(message_of(SwitchDaemon::start(config)),
            "data: '0.0.0.0:0' with xdp; the address of a device is allowed");
}

TEST(SwitchConfig, parse__packets_of_jobs_count_as_memory) {
  EXPECT_EQ(message_of(SwitchConfig::parse("max_jobs: 2048\n", "f")), "no error");
  const std::string error = message_of(SwitchConfig::parse("max_jobs: 4096\nshards: 64\n", "f"));
  EXPECT_NE(error.find("for packets of 'max_jobs' in 'shards'"), std::string::npos) << error;
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
