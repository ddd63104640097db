// A switch and the ranks of jobs in one process, over UDP on loopback.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
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
#include "net/system.h"
#include "switchd/daemon.h"

namespace thalweg {

inline Time soon() { return monotonic_now() + Duration::milliseconds(10'000); }

inline std::unique_ptr<SwitchDaemon> start_switch(std::uint32_t aggregators, int shards = 1) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.aggregators = aggregators;
  config.shards = shards;
  Result<std::unique_ptr<SwitchDaemon>> daemon = SwitchDaemon::start(config);
  EXPECT_TRUE(daemon.ok()) << daemon.error().message();
  return std::move(*daemon);
}

using Tensors = std::vector<std::vector<std::int32_t>>;

class LoopbackJob {
 public:
  struct Options {
    int workers = 3;
    int servers = 1;
    bool keyed = false;
    std::uint32_t elements = 64;
    // Two levels: the ranks of each group, and the switch of each; the other is the servers'.
    std::vector<std::uint8_t> groups = {};
    std::vector<SwitchDaemon*> edges = {};
  };

  // `daemon`: null for none.
  LoopbackJob(SwitchDaemon* daemon, const Options& options) : options_(options) {
    AtpNodeOptions node;
    JobRequest request;
    for (int w = 0; w < options.workers; ++w) {
      nodes_.push_back(std::move(*AtpNode::bind(SocketAddress::resolve("127.0.0.1:0").value())));
      node.members.push_back(nodes_.back()->address());
      request.workers.push_back(node.members.back().to_string());
      if (w < options.servers) request.servers.push_back(request.workers.back());
    }
    request.keyed = options.keyed;
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

  // Starts a reduction on every rank; the result is there when all have ended well.
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
  // Random tensors, their sum compared with the serial one.
  void expect_exact(std::size_t elements, std::uint64_t seed,
                    const std::function<void()>& meanwhile = {}) {
    std::vector<std::int32_t> wanted;
    Tensors tensors = random(elements, seed, wanted);
    auto ends = start(tensors);
    if (meanwhile) meanwhile();
    expect_all_well(ends);
    for (const auto& tensor : tensors) EXPECT_EQ(tensor, wanted);
  }

  AtpNode& node(std::size_t rank) { return *nodes_[rank]; }
  SwitchClient& client() { return *client_; }
  [[nodiscard]] std::uint32_t id() const { return id_; }
  // A counter of this job at the switch.
  std::uint64_t counter(const char* name) {
    const auto answer = client_->ask({{"op", "stats"}, {"job", id_}}, soon());
    EXPECT_TRUE(answer.ok());
    return answer->at("jobs").at(0).at("counters").at(name).get<std::uint64_t>();
  }

 private:
  // The servers' switch adds up what those of the groups send.
  void join_racks(SwitchDaemon& top, const JobRequest& all, AtpNodeOptions& node) {
    JobRequest request = all;
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
      SwitchClient edge =
          std::move(*SwitchClient::connect(options_.edges[g]->control_address(), "", soon()));
      const Result<JobGrant> grant = edge.create(request, soon());
      ASSERT_TRUE(grant.ok()) << grant.error().message();
      EXPECT_EQ(grant->id, id_);
      node.shards = numeric_addresses(grant->data).value();
      for (int i = 0; i < options_.groups[g]; ++i, ++node.rank) {
        ASSERT_TRUE(nodes_[static_cast<std::size_t>(node.rank)]->join(node).ok());
      }
    }
  }
  void create(SwitchDaemon& daemon, const JobRequest& request, AtpNodeOptions& node) {
    client_ = std::make_unique<SwitchClient>(
        std::move(*SwitchClient::connect(daemon.control_address(), "", soon())));
    const Result<JobGrant> grant = client_->create(request, soon());
    ASSERT_TRUE(grant.ok()) << grant.error().message();
    id_ = node.job = grant->id;
    if (!grant->key.empty()) node.key = JobKey::from_hex(grant->key).value();
    node.shards = numeric_addresses(grant->data).value();
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
  std::vector<std::unique_ptr<AtpNode>> nodes_;
  std::unique_ptr<SwitchClient> client_;
  std::uint32_t id_ = 0;
};

}  // namespace thalweg
