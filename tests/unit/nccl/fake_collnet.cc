#include "nccl/fake_collnet.h"

#include <dlfcn.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "net/atp/switch_client.h"
#include "net/io/system.h"

namespace thalweg::nccl {

const void* coll_table(int version) {
  plugin_table(version);  // loads the library
  static void* const library = dlopen(THALWEG_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  const std::string name = "ncclCollNetPlugin_v" + std::to_string(version);
  const void* const table = dlsym(library, name.c_str());
  EXPECT_NE(table, nullptr) << name;
  return table;
}

std::unique_ptr<switchd::SwitchDaemon> start_switch(const std::optional<wire::JobKey>& key) {
  switchd::SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.key = key;
  auto daemon = switchd::SwitchDaemon::start(config);
  EXPECT_TRUE(daemon.ok()) << daemon.error().message();
  return std::move(*daemon);
}

std::uint64_t switch_counter(const switchd::SwitchDaemon& daemon, const std::string& name,
                             const std::optional<wire::JobKey>& key) {
  const Time until = net::monotonic_now() + Duration::milliseconds(10'000);
  auto client = net::SwitchClient::connect(daemon.control_address(), {.key = key}, until);
  EXPECT_TRUE(client.ok());
  const auto answer = client->ask({{"op", "stats"}}, until);
  EXPECT_TRUE(answer.ok());
  std::uint64_t sum = 0;
  for (const auto& job : answer->at("jobs")) {
    sum += job.at("counters").at(name).get<std::uint64_t>();
  }
  return sum;
}

namespace {

Variables with_switch(const std::string& switches, Variables variables) {
  if (!switches.empty()) variables.emplace_back("THALWEG_SWITCH", switches);
  return variables;
}

}  // namespace

CollInitialized::CollInitialized(const std::string& switches, Variables variables)
    : net_(with_switch(switches, std::move(variables))) {
  EXPECT_EQ(net_.result(), NcclResult::kSuccess) << take_log();
  void* context = nullptr;
  result_ = coll().init(&context, 1, fake_logger);
  if (result_ == NcclResult::kSuccess) {
    EXPECT_EQ(coll().devices(&devices_), NcclResult::kSuccess);
  }
}

NcclResult CollRank::listen() { return coll().listen(nullptr, 0, handle.data(), &listener_); }

NcclResult CollRank::connect(std::vector<HandleSlot>& handles, int rank) {
  std::vector<void*> pointers;
  for (HandleSlot& one : handles) pointers.push_back(one.data());
  const NcclResult result = coll().connect(pointers.data(), static_cast<int>(pointers.size()), rank,
                                           listener_, &collective_);
  if (result == NcclResult::kSuccess) coll().close_listen(std::exchange(listener_, nullptr));
  return result;
}

void CollRank::make_memory(std::size_t slot_bytes, std::size_t slots) {
  slot_bytes_ = slot_bytes;
  memory_.assign(2 * slot_bytes * slots, std::byte{0});
  for (void** const registered : {&send_memory_, &receive_memory_}) {
    EXPECT_EQ(coll().register_memory(collective_, memory_.data(), memory_.size(), kNcclPointerHost,
                                     registered),
              NcclResult::kSuccess);
    EXPECT_NE(*registered, nullptr);
  }
}

void CollRank::free_memory() {
  for (void** const registered : {&send_memory_, &receive_memory_}) {
    if (*registered == nullptr) continue;
    EXPECT_EQ(coll().deregister_memory(collective_, std::exchange(*registered, nullptr)),
              NcclResult::kSuccess);
  }
  memory_ = {};
}

void CollRank::close() {
  free_memory();
  if (collective_ != nullptr) coll().close_collective(std::exchange(collective_, nullptr));
  if (listener_ != nullptr) coll().close_listen(std::exchange(listener_, nullptr));
}

void* CollRank::post(void* send, void* receive, std::size_t count, int type, NcclResult* result) {
  void* request = nullptr;
  NcclResult posted = NcclResult::kSuccess;
  const Patience patience;
  while (request == nullptr && posted == NcclResult::kSuccess && !patience.over()) {
    posted = coll().iallreduce(collective_, send, receive, count, type, kNcclSum, send_memory_,
                               receive_memory_, &request);
  }
  EXPECT_FALSE(patience.over());
  if (result == nullptr) {
    EXPECT_EQ(posted, NcclResult::kSuccess) << take_log();
  } else {
    *result = posted;
  }
  return request;
}

NcclResult finish_sum(void* request) {
  const Patience patience;
  while (!patience.over()) {
    int done = 0;
    int size = 0;
    const NcclResult result = coll().test(request, &done, &size);
    if (result != NcclResult::kSuccess || done == 1) return result;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "the request does not end";
  return NcclResult::kInternalError;
}

std::vector<NcclResult> connect_coll_ranks(std::vector<std::unique_ptr<CollRank>>& ranks) {
  std::vector<HandleSlot> handles;
  for (auto& rank : ranks) {
    EXPECT_EQ(rank->listen(), NcclResult::kSuccess) << take_log();
    handles.push_back(rank->handle);
  }
  std::vector<NcclResult> results(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i, own = handles]() mutable {
      results[i] = ranks[i]->connect(own, static_cast<int>(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void run_coll_ranks(int ranks, const std::function<void(CollRank&, int rank)>& body) {
  std::vector<std::unique_ptr<CollRank>> all;
  for (int i = 0; i < ranks; ++i) all.push_back(std::make_unique<CollRank>());
  for (const NcclResult result : connect_coll_ranks(all)) {
    ASSERT_EQ(result, NcclResult::kSuccess) << take_log();
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] {
      CollRank& rank = *all[static_cast<std::size_t>(i)];
      body(rank, i);
      rank.close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

namespace {

constexpr int kHalfBias = 15;
constexpr int kHalfFraction = 10;  // bits

// Takes numbers that a half holds exactly, except subnormal ones.
std::uint16_t half_of(double value) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  const double fraction = std::ldexp(std::abs(value), -exponent) - 1;
  const auto bits = static_cast<unsigned>(exponent + kHalfBias) << kHalfFraction |
                    static_cast<unsigned>(std::ldexp(fraction, kHalfFraction));
  return static_cast<std::uint16_t>(bits | (value < 0 ? 0x8000U : 0U));
}

double number_of_half(std::uint16_t bits) {
  const int exponent = bits >> kHalfFraction & 0x1f;
  const int fraction = bits & 0x3ff;
  const double size = exponent == 0
                          ? std::ldexp(fraction, 1 - kHalfBias - kHalfFraction)
                          : std::ldexp(0x400 + fraction, exponent - kHalfBias - kHalfFraction);
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace

std::size_t element_bytes(int type) {
  return type == kNcclFloat16 || type == kNcclBfloat16 ? 2 : 4;
}

void put_element(std::byte* at, int type, double value) {
  if (type == kNcclInt32) {
    const auto whole = static_cast<std::int32_t>(value);
    std::memcpy(at, &whole, sizeof(whole));
  } else if (type == kNcclFloat32) {
    const auto single = static_cast<float>(value);
    std::memcpy(at, &single, sizeof(single));
  } else if (type == kNcclBfloat16) {
    const auto bits =
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
    std::memcpy(at, &bits, sizeof(bits));
  } else {
    const std::uint16_t bits = half_of(value);
    std::memcpy(at, &bits, sizeof(bits));
  }
}

double element_at(const std::byte* at, int type) {
  if (type == kNcclInt32) {
    std::int32_t whole = 0;
    std::memcpy(&whole, at, sizeof(whole));
    return whole;
  }
  if (type == kNcclFloat32) {
    float single = 0;
    std::memcpy(&single, at, sizeof(single));
    return double{single};
  }
  if (type == kNcclBfloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return double{std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16)};
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return number_of_half(bits);
}

double value_of(int rank, std::size_t place) {
  return static_cast<double>((place * 7 + static_cast<std::size_t>(rank) * 3) % 60) - 20;
}

void fill_values(std::byte* data, int type, std::size_t count, int rank) {
  for (std::size_t i = 0; i < count; ++i) {
    put_element(data + i * element_bytes(type), type, value_of(rank, i));
  }
}

testing::AssertionResult holds_sums(const std::byte* data, int type, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    double wanted = 0;
    for (int rank = 0; rank < ranks; ++rank) wanted += value_of(rank, i);
    const double got = element_at(data + i * element_bytes(type), type);
    if (got != wanted) {
      return testing::AssertionFailure() << "element " << i << " of " << count << ", type " << type
                                         << ": " << got << ", not " << wanted;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace thalweg::nccl
