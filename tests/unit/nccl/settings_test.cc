// The environment, the interfaces, and the tables of every version of NCCL's interface.
#include "nccl/settings.h"

#include <gtest/gtest.h>

#include <map>

#include "nccl/fake_nccl.h"

namespace thalweg::nccl {
namespace {

net::Interface interface(const std::string& name, const std::string& address) {
  return {name, *net::SocketAddress::numeric(address)};
}

std::string names(const std::vector<net::Interface>& chosen) {
  std::string all;
  for (const net::Interface& one : chosen) all += one.name + "=" + one.address.host() + " ";
  return all;
}

TEST(nccl_settings, interfaces_by_rule) {
  const std::vector<net::Interface> all = {
      interface("lo", "127.0.0.1:0"),       interface("lo", "[::1]:0"),
      interface("eth0", "[2001:db8::1]:0"), interface("eth0", "10.0.0.1:0"),
      interface("eth10", "10.0.1.1:0"),     interface("docker0", "172.17.0.1:0")};
  EXPECT_EQ(names(interfaces_by_rule(all, "", 0)), "eth0=10.0.0.1 eth10=10.0.1.1 ");
  EXPECT_EQ(names(interfaces_by_rule(all, "lo", 0)), "lo=127.0.0.1 ");
  EXPECT_EQ(names(interfaces_by_rule(all, "eth1,docker", 0)), "eth10=10.0.1.1 docker0=172.17.0.1 ");
  EXPECT_EQ(names(interfaces_by_rule(all, "=eth0", 0)), "eth0=10.0.0.1 ");
  EXPECT_EQ(names(interfaces_by_rule(all, "^eth,lo", 0)), "docker0=172.17.0.1 ");
  EXPECT_EQ(names(interfaces_by_rule(all, "^=eth0,lo", 0)), "eth10=10.0.1.1 docker0=172.17.0.1 ");
  EXPECT_EQ(names(interfaces_by_rule(all, "", AF_INET6)), "eth0=2001:db8::1 ");
  EXPECT_EQ(names(interfaces_by_rule(all, "wlan", 0)), "");
  // Only if there is nothing better.
  EXPECT_EQ(names(interfaces_by_rule({all[0], all[5]}, "", 0)), "docker0=172.17.0.1 ");
  EXPECT_EQ(names(interfaces_by_rule({all[0]}, "", 0)), "lo=127.0.0.1 ");
}

TEST(nccl_settings, errors_name_variable_value_and_what_is_allowed) {
  const std::map<std::string, std::string> bad = {
      {"THALWEG_STREAMS=0", "from 1 to 16"},
      {"THALWEG_STREAMS=many", "from 1 to 16"},
      {"THALWEG_NCCL_THREADS=17", "from 0 to 16"},
      {"THALWEG_NCCL_INLINE=-1", "from 0 to"},
      {"THALWEG_NCCL_TIMEOUT=0", "from 1 to"},
      {"THALWEG_NCCL_PIECE=1", "from 4096 to"},
      {"LOCAL_WORLD_SIZE=x", "LOCAL_WORLD_SIZE=x"},
      {"THALWEG_INTERFACE=nope", "does not exist"},
      {"THALWEG_KEY_FILE=/nope", "/nope"},
      {"NCCL_SOCKET_IFNAME=nope", "NCCL_SOCKET_IFNAME=nope"},
      {"NCCL_SOCKET_FAMILY=IPX", "AF_INET"}};
  for (const auto& [setting, words] : bad) {
    const std::size_t equals = setting.find('=');
    const auto lookup = [&](const std::string& name) -> std::optional<std::string> {
      if (name == setting.substr(0, equals)) return setting.substr(equals + 1);
      if (name == "NCCL_SOCKET_IFNAME") return "lo";
      return std::nullopt;
    };
    const Result<Settings> settings = settings_from(lookup);
    ASSERT_FALSE(settings.ok()) << setting;
    EXPECT_NE(settings.error().message().find(words), std::string::npos)
        << settings.error().message();
  }
}

TEST(nccl_settings, bad_environment__init_fails_with_words_in_the_log) {
  take_log();
  const Initialized initialized(Variables{{"THALWEG_STREAMS", "99"}});
  EXPECT_EQ(initialized.result(), NcclResult::kInvalidUsage);
  EXPECT_EQ(take_log(),
            "WARN NET/Thalweg : THALWEG_STREAMS=99: must be a whole number from 1 to 16\n");
}

template <class Net, class Properties>
void check_version(int version) {
  const auto& net = *static_cast<const Net*>(plugin_table(version));
  EXPECT_STREQ(net.name, "Thalweg");
  int count = 0;
  ASSERT_EQ(net.devices(&count), NcclResult::kSuccess);
  EXPECT_EQ(count, 1);
  // What is behind the structure stays as it was.
  struct {
    Properties properties;
    std::uint64_t behind;
  } memory = {{}, 0x5a5a5a5a5a5a5a5a};
  ASSERT_EQ(net.properties(0, &memory.properties), NcclResult::kSuccess);
  EXPECT_EQ(memory.behind, 0x5a5a5a5a5a5a5a5aU);
  EXPECT_EQ(net.properties(1, &memory.properties), NcclResult::kInternalError);
  void* registered = &count;
  EXPECT_EQ(net.register_memory(nullptr, nullptr, 1, kNcclPointerHost, &registered),
            NcclResult::kSuccess);
  EXPECT_EQ(net.register_memory(nullptr, nullptr, 1, 2, &registered), NcclResult::kInternalError);
  EXPECT_EQ(net.deregister_memory(nullptr, registered), NcclResult::kSuccess);
  void* request = &count;
  EXPECT_EQ(net.iflush(nullptr, 0, nullptr, nullptr, nullptr, &request), NcclResult::kSuccess);
  EXPECT_EQ(request, nullptr);
  take_log();
}

TEST(nccl_settings, every_version_of_the_interface) {
  const Initialized initialized;
  check_version<NetV8, PropertiesV8>(8);
  check_version<NetV9, PropertiesV9>(9);
  check_version<NetV10, PropertiesV9>(10);
  check_version<NetV11, PropertiesV11>(11);
}

TEST(nccl_settings, properties_are_honest) {
  const Initialized initialized;
  PropertiesV11 properties;
  ASSERT_EQ(newest().properties(0, &properties), NcclResult::kSuccess);
  EXPECT_STREQ(properties.common.name, "lo");
  EXPECT_EQ(properties.common.pci_path, nullptr);
  EXPECT_EQ(properties.common.pointers, kNcclPointerHost);
  EXPECT_EQ(properties.common.max_receives, 1);
  EXPECT_EQ(properties.common.parts.count, 1);
  EXPECT_GT(properties.common.speed_mbps, 0);
}

// A connection of every old version, through its own functions.
TEST(nccl_settings, v8_moves_bytes) {
  const auto& net = *static_cast<const NetV8*>(plugin_table(8));
  const Initialized initialized;
  ASSERT_EQ(net.init(fake_logger), NcclResult::kSuccess);
  Pair pair;
  void* offload = nullptr;
  ASSERT_EQ(net.listen(0, pair.handle, &pair.listener), NcclResult::kSuccess);
  for (const Patience patience; !pair.complete() && !patience.over();) {
    if (pair.sender == nullptr) {
      ASSERT_EQ(net.connect(0, pair.handle, &pair.sender, &offload), NcclResult::kSuccess);
    }
    if (pair.receiver == nullptr) {
      ASSERT_EQ(net.accept(pair.listener, &pair.receiver, &offload), NcclResult::kSuccess);
    }
  }
  std::vector<std::byte> sent = pattern(70'000, 1);
  std::vector<std::byte> got(sent.size());
  void* data = got.data();
  int size = static_cast<int>(got.size());
  int tag = 0;
  void* receive = nullptr;
  void* send = nullptr;
  ASSERT_EQ(net.irecv(pair.receiver, 1, &data, &size, &tag, nullptr, &receive),
            NcclResult::kSuccess);
  ASSERT_EQ(net.isend(pair.sender, sent.data(), size, 0, nullptr, &send), NcclResult::kSuccess);
  EXPECT_EQ(finish({send, receive}), NcclResult::kSuccess);
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace thalweg::nccl
