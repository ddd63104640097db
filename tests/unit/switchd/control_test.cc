// The control socket of a switch: requests that it accepts, and requests that it refuses.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/messages.h"
#include "net/descriptors.h"
#include "net/io/control_connection.h"
#include "net/ranks.h"
#include "switchd/controller.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {
namespace {

using nlohmann::json;

Result<json> ask(const SwitchDaemon& daemon, const json& request) {
  THALWEG_TRY(net::SwitchClient client,
              net::SwitchClient::connect(daemon.control_address(), switch_secrets(), soon()));
  return client.ask(request, soon());
}

// The answer to a request for a job with these workers and servers.
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

TEST(Control, room__says_whether_one_more_job_may_come) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.max_jobs = 2;
  config.max_jobs_per_host = 1;
  const auto daemon = SwitchDaemon::start(config);
  ASSERT_TRUE(daemon.ok()) << daemon.error().message();
  const auto room = [&] { return ask(**daemon, {{"op", "room"}})->at("room"); };
  EXPECT_EQ(room(), true);
  const json good = {"127.0.0.1:1"};
  const Result<json> job = ask(**daemon, {{"op", "create"}, {"workers", good}, {"servers", good}});
  ASSERT_TRUE(job.ok()) << job.error().message();
  EXPECT_EQ(room(), false);
  ASSERT_TRUE(ask(**daemon, {{"op", "remove"}, {"job", job->at("job")}}).ok());
  EXPECT_EQ(room(), true);
}

TEST(Control, create__the_switch_itself_is_refused_as_a_member) {
  const auto daemon = start_switch(16, 2);
  const json good = {"127.0.0.1:1"};
  for (const std::string& own : daemon->data_addresses()) {  // of both shards
    const std::string error = refusal(*daemon, {own}, good);
    EXPECT_NE(error.find(fmt::format("workers: '{}' is a data address of this switch", own)),
              std::string::npos)
        << error;
    EXPECT_NE(refusal(*daemon, good, {own}).find("servers: '"), std::string::npos) << own;
  }
}

TEST(Control, create__any_address_of_a_switch_at_all_addresses_is_refused_as_a_member) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.data = "0.0.0.0:0";
  config.advertise = "127.0.0.1";
  const auto daemon = SwitchDaemon::start(config);
  ASSERT_TRUE(daemon.ok()) << daemon.error().message();
  const std::uint16_t port = net::HostPort::parse((*daemon)->data_addresses().at(0)).value().port;
  std::vector<std::string> hosts = {"127.0.0.1", "127.9.9.9"};
  for (const net::SocketAddress& address : net::interface_addresses()) {
    if (address.family() == AF_INET) hosts.push_back(address.host());
  }
  for (const std::string& host : hosts) {
    const std::string own = fmt::format("{}:{}", host, port);
    const std::string error = refusal(**daemon, {own}, {"127.0.0.1:1"});
    EXPECT_NE(error.find(fmt::format("'{}' is a data address of this switch", own)),
              std::string::npos)
        << error;
    // Another port of the same host is another program's.
    const std::string other = fmt::format("{}:{}", host, port ^ 1);
    EXPECT_EQ(refusal(**daemon, {other}, {"127.0.0.1:1"}), "no error");
  }
}

TEST(Control, create__the_control_and_the_advertised_address_are_refused_as_members) {
  SwitchConfig config;
  config.control = net::free_address();
  config.advertise = "192.0.2.1";  // translated to the data address, somewhere on the way
  const auto daemon = SwitchDaemon::start(config);
  ASSERT_TRUE(daemon.ok()) << daemon.error().message();
  const json good = {"127.0.0.1:1"};
  const std::string control = (*daemon)->control_address();
  const std::string refused = refusal(**daemon, {control}, good);
  EXPECT_NE(refused.find(fmt::format("'{}' is the control address of this switch", control)),
            std::string::npos)
      << refused;
  const std::string told = (*daemon)->data_addresses().at(0);
  EXPECT_NE(refusal(**daemon, good, {told}).find("is a data address of this switch"),
            std::string::npos);
}

// A switch whose clients may have two jobs for each address.
std::unique_ptr<SwitchDaemon> start_with_two_jobs_a_host(std::uint32_t idle_seconds = 3600) {
  SwitchConfig config;
  config.control = "0.0.0.0:0";
  config.max_jobs_per_host = 2;
  config.idle_seconds = idle_seconds;
  Result<std::unique_ptr<SwitchDaemon>> daemon = SwitchDaemon::start(config);
  EXPECT_TRUE(daemon.ok()) << daemon.error().message();
  return std::move(*daemon);
}

// Asks from a certain address of this host.
Result<json> ask_from(const char* host, const SwitchDaemon& daemon, const json& request) {
  const std::uint16_t port = net::HostPort::parse(daemon.control_address())->port;
  const auto local = net::SocketAddress::numeric(fmt::format("{}:0", host)).value();
  const auto remote = net::SocketAddress::numeric(fmt::format("{}:{}", host, port)).value();
  net::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(fd.get(), local.get(), local.size()), 0);
  EXPECT_EQ(connect(fd.get(), remote.get(), remote.size()), 0);
  return net::ControlConnection(std::move(fd), "the switch").ask(request, soon());
}

json job_of(int port) {
  const json end = {fmt::format("127.0.0.1:{}", port)};
  return {{"op", "create"}, {"workers", end}, {"servers", end}};
}

TEST(Control, create__one_host_cannot_take_all_jobs) {
  const auto daemon = start_with_two_jobs_a_host();
  const char* const greedy = "127.0.0.2";
  EXPECT_TRUE(ask_from(greedy, *daemon, job_of(1)).ok());
  EXPECT_TRUE(ask_from(greedy, *daemon, job_of(2)).ok());
  const Result<json> third = ask_from(greedy, *daemon, job_of(3));
  EXPECT_NE(message_of(third).find("127.0.0.2 has 2 jobs at the switch, as many as one host may"),
            std::string::npos)
      << message_of(third);
  EXPECT_EQ(kind_of(third), "no resource");
  EXPECT_TRUE(ask_from("127.0.0.3", *daemon, job_of(3)).ok());
  EXPECT_TRUE(ask_from(greedy, *daemon, {{"op", "remove"}, {"job", 1U}}).ok());
  EXPECT_TRUE(ask_from(greedy, *daemon, job_of(3)).ok());
}

TEST(Control, create__a_job_without_a_lease_ends_when_no_packets_come) {
  const auto daemon = start_with_two_jobs_a_host(1);
  ASSERT_TRUE(ask_from("127.0.0.1", *daemon, job_of(1)).ok());
  ASSERT_EQ(ask_from("127.0.0.1", *daemon, {{"op", "list"}})->at("jobs").size(), 1U);
  const Time until = soon();
  std::size_t jobs = 1;
  while (jobs > 0 && net::monotonic_now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    jobs = ask_from("127.0.0.1", *daemon, {{"op", "list"}})->at("jobs").size();
  }
  EXPECT_EQ(jobs, 0U);
}

// The data plane of a switch whose jobs have seen as many packets as a test says.
class CountingPlane final : public SwitchPlane {
 public:
  std::vector<std::string> data_addresses() const override { return {"192.0.2.1:1"}; }
  std::vector<std::uint16_t> source_ports() const override { return {}; }
  int family() const override { return AF_INET; }
  bool own(const net::SocketAddress& /*address*/) const override { return false; }
  bool control(const net::SocketAddress& /*address*/) const override { return false; }
  Status install(const AdmittedJob& /*job*/) override { return ok_status(); }
  void remove(std::uint32_t id) override { removed.push_back(id); }
  JobStatistics statistics(std::uint32_t /*id*/) override {
    return {{{"added", added}, {"foreign", foreign}}, {}};
  }
  Counters counters() override { return {}; }

  std::uint64_t added = 0;
  std::uint64_t foreign = 0;
  std::vector<std::uint32_t> removed;
};

TEST(Controller, on_timeout__packets_of_members_keep_a_job_and_those_of_others_do_not) {
  SwitchConfig config;
  config.idle_seconds = 10;
  CountingPlane plane;
  Controller controller(config, plane);
  const auto at = [](double s) { return Time() + Duration::seconds(s); };
  EXPECT_EQ(controller.on_timeout(at(1)), std::nullopt);
  ASSERT_TRUE(controller.on_request({.client = 1, .host = "a", .now = at(1)}, job_of(1)).ok());
  json leased = job_of(2);
  leased["lease"] = true;
  ASSERT_TRUE(controller.on_request({.client = 2, .host = "a", .now = at(1)}, leased).ok());
  EXPECT_EQ(controller.on_timeout(at(2)), at(11));
  plane.added = 5;
  EXPECT_EQ(controller.on_timeout(at(11)), at(21));
  EXPECT_TRUE(plane.removed.empty());
  plane.foreign = 7;
  EXPECT_EQ(controller.on_timeout(at(21)), std::nullopt);
  EXPECT_EQ(plane.removed, std::vector<std::uint32_t>{1});
  controller.on_closed(2);
  EXPECT_EQ(plane.removed, (std::vector<std::uint32_t>{1, 2}));
}

TEST(ControlConnection, ask__a_refusal_cannot_command_a_terminal) {
  const Error error = net::refusal_in({{"error", "no\x1b]0;owned\x07\nroom"}});
  EXPECT_EQ(error.message(), "no\\x1b]0;owned\\x07\\x0aroom");
}

TEST(Control, create__addresses_of_many_hosts_are_refused_as_members) {
  const auto daemon = start_switch(16);
  EXPECT_NE(refusal(*daemon, {"255.255.255.255:1"}, {"127.0.0.1:1"})
                .find("workers: '255.255.255.255:1' is a broadcast address"),
            std::string::npos);
  EXPECT_NE(refusal(*daemon, {"127.0.0.1:1"}, {"239.1.2.3:1"})
                .find("servers: '239.1.2.3:1' is a multicast address"),
            std::string::npos);
}

TEST(Control, list__a_job_as_it_was_asked_for) {
  const auto daemon = start_switch(16);
  net::JobRequest request;
  request.workers = {"127.0.0.1:1", "127.0.0.1:2"};
  request.servers = {"127.0.0.1:3"};
  request.window = 8;
  request.groups = 0;
  request.second_level = true;
  json fields = net::to_json(request);
  fields["op"] = "create";
  ASSERT_TRUE(ask(*daemon, fields).ok());
  const Result<json> listed = ask(*daemon, {{"op", "list"}});
  ASSERT_TRUE(listed.ok());
  EXPECT_FALSE(listed->contains("ok"));
  request.id = 1;
  EXPECT_EQ(listed->at("jobs").at(0), net::to_json(request));
  fields["job"] = 1U;
  EXPECT_NE(message_of(ask(*daemon, fields)).find("job: 1; that number was given before"),
            std::string::npos);
  // Numbers that jobs ask for do not use up those that the switch chooses.
  for (const std::uint32_t number : {2U, net::kMaxJobId}) {
    fields["job"] = number;
    EXPECT_EQ(ask(*daemon, fields)->at("job"), number);
  }
  fields.erase("job");
  EXPECT_EQ(ask(*daemon, fields)->at("job"), 3U);
}

TEST(Control, create__further_ports_of_other_switches) {
  const auto daemon = start_switch(16, 1, 3);
  const json own = ask(*daemon, {{"op", "list"}})->at("sources");
  ASSERT_EQ(own.size(), 2U);
  json fields = job_of(1);
  const auto worker = fields.at("workers").at(0).get<std::string>();
  const auto with = [&](const json& sources) {
    fields["sources"] = sources;
    return message_of(ask(*daemon, fields));
  };
  EXPECT_NE(with({{"127.0.0.1:9", {10}}}).find("one of 'workers' or 'servers' is allowed"),
            std::string::npos);
  EXPECT_NE(with({{worker, {0}}}).find("ports from 1 to 65535"), std::string::npos);
  EXPECT_NE(with({{worker, {50, 50}}}).find("each port once"), std::string::npos);
  EXPECT_NE(with({{worker, json::array()}}).find("one port or more"), std::string::npos);
  EXPECT_NE(with({{worker, {50, 51, 52}}}).find("this switch has 2 beside its first"),
            std::string::npos);
  EXPECT_NE(with({{worker, {net::HostPort::parse(worker)->port}}}).find("is there twice"),
            std::string::npos);
  EXPECT_NE(with({{worker, {own.at(0)}}}).find("is a data address of this switch"),
            std::string::npos);
  EXPECT_NE(with("all").find("an object with a list of ports"), std::string::npos);
  EXPECT_EQ(with({{worker, {50, 51}}}), "no error");
  EXPECT_EQ(ask(*daemon, {{"op", "list"}})->at("jobs").at(0).at("sources"),
            (json{{worker, {50, 51}}}));
}

TEST(Control, create__a_key_that_the_job_brings) {
  const auto daemon = start_switch(16);
  json fields = job_of(1);
  fields["job"] = 9U;
  fields["keyed"] = true;
  EXPECT_NE(message_of(ask(*daemon, fields)).find("give them all one 'key'"), std::string::npos);
  fields["key"] = std::string(32, 'e');
  EXPECT_EQ(ask(*daemon, fields)->at("key"), std::string(32, 'e'));
  EXPECT_EQ(ask(*daemon, {{"op", "list"}})->dump().find("eeee"), std::string::npos);
  for (const json& bad : {json("not hexadecimal"), json(7)}) {
    fields["key"] = bad;
    const std::string error = message_of(ask(*daemon, fields));
    EXPECT_NE(error.find("key: 32 hexadecimal digits are allowed"), std::string::npos) << error;
    EXPECT_EQ(error.find("not hex"), std::string::npos) << error;
  }
}

TEST(Control, stats__an_empty_datagram_is_one_from_a_stranger) {
  const auto daemon = start_switch(16);
  const net::SocketAddress data =
      net::SocketAddress::numeric(daemon->data_addresses().at(0)).value();
  const net::Fd stranger(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(sendto(stranger.get(), nullptr, 0, 0, data.get(), data.size()), 0);
  const Time until = soon();
  std::uint64_t strangers = 0;
  while (strangers == 0 && net::monotonic_now() < until) {
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

TEST(SwitchConfig, parse__limits_of_jobs) {
  const Result<SwitchConfig> config =
      SwitchConfig::parse("max_jobs_per_host: 3\nidle_seconds: 60\n", "f");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->max_jobs_per_host, 3U);
  EXPECT_EQ(config->idle_seconds, 60U);
  for (const char* bad : {"max_jobs_per_host: 0\n", "idle_seconds: 0\n"}) {
    EXPECT_FALSE(SwitchConfig::parse(bad, "f").ok()) << bad;
  }
}

TEST(SwitchConfig, parse__paths) {
  EXPECT_EQ(SwitchConfig::parse("shards: 2\n", "f")->paths, 1);
  EXPECT_EQ(SwitchConfig::parse("paths: 32\n", "f")->paths, 32);
  for (const char* bad : {"paths: 0\n", "paths: 33\n", "paths: many\n"}) {
    EXPECT_NE(message_of(SwitchConfig::parse(bad, "f")).find("paths"), std::string::npos) << bad;
  }
}

TEST(SwitchConfig, parse__packets_of_jobs_count_as_memory) {
  EXPECT_EQ(message_of(SwitchConfig::parse("max_jobs: 2048\n", "f")), "no error");
  const std::string error = message_of(SwitchConfig::parse("max_jobs: 4096\nshards: 64\n", "f"));
  EXPECT_NE(error.find("for packets of 'max_jobs' in 'shards'"), std::string::npos) << error;
}

TEST(ControlDeathTest, open_files__a_client_too_many_is_closed_and_others_are_served) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // Runs in a process of its own, because the limit stays.
  EXPECT_EXIT(
      {
        const auto daemon = start_switch(16);
        const std::string refused = net::with_the_last_descriptor(
            false, [&] { return message_of(ask(*daemon, {{"op", "list"}})); });
        fmt::print(stderr, "{}\n", refused);
        std::_Exit(ask(*daemon, {{"op", "list"}}).ok() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "closed the connection|cannot hear|cannot ask");
}

}  // namespace
}  // namespace thalweg::switchd
