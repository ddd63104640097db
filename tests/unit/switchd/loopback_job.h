// A switch and the ranks of jobs in one process, over UDP on loopback.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "net/atp/node.h"
#include "net/atp/switch_client.h"
#include "net/io/system.h"
#include "switchd/daemon.h"

namespace thalweg::switchd {

inline Time soon() { return net::monotonic_now() + Duration::milliseconds(10'000); }

// What the environment says: with a ScopedJobKey, that key.
inline net::SwitchSecrets switch_secrets() {
  return net::switch_secrets_from(net::process_environment()).value();
}

// With a ScopedJobKey the switch holds that key.
inline std::unique_ptr<SwitchDaemon> start_switch(std::uint32_t aggregators, int shards = 1,
                                                  int paths = 1) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.aggregators = aggregators;
  config.shards = shards;
  config.paths = paths;
  config.key = switch_secrets().key;
  Result<std::unique_ptr<SwitchDaemon>> daemon = SwitchDaemon::start(config);
  EXPECT_TRUE(daemon.ok()) << daemon.error().message();
  return std::move(*daemon);
}

// A job key for the communicators that are made while this lives.
class ScopedJobKey {
 public:
  ScopedJobKey()
      : file_(std::filesystem::temp_directory_path() /
              ("thalweg-atp-key-" + std::to_string(net::random_number()))) {
    std::ofstream(file_) << std::string(32, 'd') << "\n";
    setenv("THALWEG_KEY_FILE", file_.c_str(), 1);
  }
  ~ScopedJobKey() {
    unsetenv("THALWEG_KEY_FILE");
    std::filesystem::remove(file_);
  }
  ScopedJobKey(const ScopedJobKey&) = delete;
  ScopedJobKey& operator=(const ScopedJobKey&) = delete;

 private:
  std::filesystem::path file_;
};

using Tensors = std::vector<std::vector<std::int32_t>>;

class LoopbackJob {
 public:
  struct Options {
    int workers = 3;
    int servers = 1;
    bool keyed = false;
    bool own_sums = false;  // AtpNodeOptions::own_sums
    std::uint32_t elements = 64;
    // For two levels: the ranks of each group, and the switch of each group. `daemon` is then the
    // servers' switch.
    std::vector<std::uint8_t> groups = {};
    std::vector<SwitchDaemon*> edges = {};
  };

  // `daemon`: null for a job without a switch.
  LoopbackJob(SwitchDaemon* daemon, const Options& options) : options_(options) {
    net::AtpNodeOptions node;
    net::JobRequest request;
    for (int w = 0; w < options.workers; ++w) {
      nodes_.push_back(
          std::move(*net::AtpNode::bind(net::SocketAddress::resolve("127.0.0.1:0").value())));
      node.members.push_back(nodes_.back()->address());
      request.workers.push_back(node.members.back().to_string());
      if (w < options.servers) request.servers.push_back(request.workers.back());
    }
    request.keyed = options.keyed;
    request.own_sums = node.own_sums = options.own_sums;
    request.window = node.window;
    node.job = 77;
    node.servers = options.servers;
    node.elements = options.elements;
    if (daemon != nullptr && options.groups.empty()) create(*daemon, request, node);
    if (!options.groups.empty()) {
      join_racks(*daemon, request, node);
      return;
    }
    for (auto& member : nodes_) {
      node.rank = static_cast<int>(&member - nodes_.data());
      const Status joined = member->join(node);
      EXPECT_TRUE(joined.ok()) << joined.error().message();
    }
  }

  // Starts a reduction on every rank; the tensors hold the result once all futures are ok.
  std::vector<std::future<Status>> start(Tensors& tensors) {
    std::vector<std::future<Status>> ends;
    for (std::size_t w = 0; w < nodes_.size(); ++w) {
      auto promise = std::make_shared<std::promise<Status>>();
      ends.push_back(promise->get_future());
      nodes_[w]->reduce({.type = DType::kInt32,
                         .data = reinterpret_cast<std::byte*>(tensors[w].data()),
                         .elements = static_cast<std::int64_t>(tensors[w].size()),
                         .deadline = Duration::milliseconds(20'000),
                         .done = [promise](Status status) { promise->set_value(status); }});
    }
    return ends;
  }
  static void expect_all_well(std::vector<std::future<Status>>& ends) {
    for (auto& end : ends) {
      const Status status = end.get();
      EXPECT_TRUE(status.ok()) << status.error().message();
    }
  }
  // Reduces random tensors, and compares their sum with the serial one.
  void expect_exact(std::size_t elements, std::uint64_t seed,
                    const std::function<void()>& meanwhile = {}) {
    std::vector<std::int32_t> wanted;
    Tensors tensors = random(elements, seed, wanted);
    auto ends = start(tensors);
    if (meanwhile) meanwhile();
    expect_all_well(ends);
    for (const auto& tensor : tensors) EXPECT_EQ(tensor, wanted);
  }

  net::AtpNode& node(std::size_t rank) { return *nodes_[rank]; }
  net::SwitchClient& client() { return *client_; }
  [[nodiscard]] std::uint32_t id() const { return id_; }
  // A counter of this job at the switch.
  std::uint64_t counter(const char* name) {
    const auto answer = client_->ask({{"op", "stats"}, {"job", id_}}, soon());
    EXPECT_TRUE(answer.ok());
    return answer->at("jobs").at(0).at("counters").at(name).get<std::uint64_t>();
  }

 private:
  // Sets up two levels: the servers' switch adds what the switches of the groups send.
  void join_racks(SwitchDaemon& top, const net::JobRequest& all, net::AtpNodeOptions& node) {
    net::JobRequest request = all;
    request.workers.clear();
    for (SwitchDaemon* edge : options_.edges) {
      request.workers.push_back(edge->data_addresses().at(0));
    }
    request.groups = 0;
    request.second_level = true;
    create(top, request, node);
    node.groups = options_.groups;
    node.server_shards = node.shards;
    request.id = id_;
    request.servers = top.data_addresses();
    request.second_level = false;
    for (std::size_t g = 0; g < options_.groups.size(); ++g) {
      const auto first = all.workers.begin() + node.rank;
      request.workers.assign(first, first + options_.groups[g]);
      request.groups = 1U << g;
      net::SwitchClient edge = std::move(*net::SwitchClient::connect(
          options_.edges[g]->control_address(), switch_secrets(), soon()));
      const Result<net::JobGrant> grant = edge.create(request, soon());
      ASSERT_TRUE(grant.ok()) << grant.error().message();
      EXPECT_EQ(grant->id, id_);
      node.shards = net::numeric_addresses(grant->data).value();
      for (int i = 0; i < options_.groups[g]; ++i, ++node.rank) {
        ASSERT_TRUE(nodes_[static_cast<std::size_t>(node.rank)]->join(node).ok());
      }
    }
  }
  void create(SwitchDaemon& daemon, const net::JobRequest& request, net::AtpNodeOptions& node) {
    client_ = std::make_unique<net::SwitchClient>(
        std::move(*net::SwitchClient::connect(daemon.control_address(), switch_secrets(), soon())));
    const Result<net::JobGrant> grant = client_->create(request, soon());
    ASSERT_TRUE(grant.ok()) << grant.error().message();
    id_ = node.job = grant->id;
    if (!grant->key.empty()) node.key = wire::JobKey::from_hex(grant->key).value();
    node.shards = net::numeric_addresses(grant->data).value();
  }
  Tensors random(std::size_t elements, std::uint64_t seed, std::vector<std::int32_t>& sum) const {
    Prng prng(seed);
    sum.assign(elements, 0);
    Tensors tensors(nodes_.size(), std::vector<std::int32_t>(elements));
    for (auto& tensor : tensors) {
      for (std::size_t i = 0; i < elements; ++i) {
        tensor[i] = static_cast<std::int32_t>(prng.next()) >> 6;
        sum[i] += tensor[i];
      }
    }
    return tensors;
  }

  Options options_;
  std::vector<std::unique_ptr<net::AtpNode>> nodes_;
  std::unique_ptr<net::SwitchClient> client_;
  std::uint32_t id_ = 0;
};

}  // namespace thalweg::switchd
