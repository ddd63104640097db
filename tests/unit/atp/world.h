// Jobs, switches and servers of ATP as one value, with the payload that their drivers move: the
// production objects, and between them only the question where a packet goes next. What the network
// does to packets is the caller's: tests/unit/atp has one that explores everything that can happen
// and one that draws it at random.
//
// Traits say what a payload is:
//   Payload                                                   copyable, comparable
//   contribution(job, worker, sequence, elements) -> Payload  what a worker adds, always the same
//   add(Payload& sum, const Payload&)
//   encode(const Payload&, std::string& out)                  equal texts, equal payloads
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "proto/atp/server.h"
#include "proto/atp/worker.h"
#include "switch/aggregate.h"

namespace thalweg::atp_test {

inline constexpr int kNowhere = -1;

struct JobShape {
  std::uint32_t id = 1;
  std::vector<std::uint8_t> groups = {2};  // workers of each
  // The switch of each group's first level, or kNowhere; its workers then start at the second level
  // if each is a group of its own, and otherwise are never aggregated.
  std::vector<int> first_level = {0};
  int second_level = kNowhere;
  std::uint32_t servers = 1;
  std::uint32_t window = 1;
  std::uint32_t elements = 1;  // of a packet
  Duration deadline = Duration::milliseconds(1'000'000'000);
  Duration server_deadline = Duration::milliseconds(1'000'000'000);
  AtpCongestionOptions congestion = {};
  AtpRecoveryOptions recovery = {};

  [[nodiscard]] std::uint32_t workers() const {
    std::uint32_t count = 0;
    for (const std::uint8_t size : groups) count += size;
    return count;
  }
};

struct Shape {
  std::vector<JobShape> jobs;
  std::size_t switches = 1;
  AggregateOptions table;
};

struct Node {
  enum class Kind : std::uint8_t { kSwitch, kServer, kWorker };
  Kind kind = Kind::kSwitch;
  std::size_t job = 0;  // place in Shape::jobs; 0 of a switch
  std::size_t index = 0;
  auto operator<=>(const Node&) const = default;
};

template <class Traits>
class World {
 public:
  using Payload = typename Traits::Payload;

  struct Packet {
    Node to;
    AtpHeader header;
    Payload payload = {};
  };

  explicit World(const Shape& shape) : shape_(shape) {
    for (std::size_t i = 0; i < shape.switches; ++i) {
      tables.emplace_back(shape.table);
      slots_.emplace_back(shape.table.slots);
    }
    for (const JobShape& job : shape.jobs) add_job(job);
  }

  // Every worker of every job starts a tensor of so many elements.
  void start_all(std::int64_t elements, Time now) {
    for (std::size_t j = 0; j < workers.size(); ++j) {
      for (AtpWorker& worker : workers[j]) {
        AtpTensorSpec spec;
        spec.elements = elements;
        spec.deadline = shape_.jobs[j].deadline;
        CHECK(worker.start(spec, now).ok());
      }
    }
  }

  // Takes what a worker wants to send. `emit(Packet)` is told of every packet that leaves.
  template <class Emit>
  void poll_worker(std::size_t j, std::size_t w, Time now, Emit&& emit) {
    AtpTransmit transmit;
    while (workers[j][w].poll_transmit(now, transmit)) {
      Packet packet;
      packet.header = transmit.header;
      packet.payload = Traits::contribution(shape_.jobs[j].id, w, transmit.header.sequence,
                                            transmit.header.elements);
      packet.to = from_worker(j, w, transmit.server);
      send(packet, emit);
    }
  }

  template <class Emit>
  void poll_server(std::size_t j, std::size_t s, Emit&& emit) {
    AtpServerTransmit transmit;
    while (servers[j][s].poll_transmit(transmit)) {
      Packet packet;
      packet.header = transmit.header;
      if (transmit.header.kind == AtpKind::kParameter) {
        packet.payload = server_slots_[j][s][transmit.slot];
      }
      down_from_server(j, packet, emit);
    }
  }

  template <class Emit>
  void deliver(const Packet& packet, Time now, Emit&& emit) {
    switch (packet.to.kind) {
      case Node::Kind::kSwitch:
        return at_switch(packet, now, emit);
      case Node::Kind::kServer:
        return at_server(packet, now, emit);
      case Node::Kind::kWorker:
        return at_worker(packet, now, emit);
    }
  }

  [[nodiscard]] bool all_idle() const {
    for (const auto& job : workers) {
      for (const AtpWorker& worker : job) {
        if (!worker.idle()) return false;
      }
    }
    return true;
  }

  // Everything that decides about the future, but for what is on its way.
  void encode_state(std::string& out) const {
    for (std::size_t i = 0; i < tables.size(); ++i) {
      tables[i].encode_state(out);
      for (std::uint32_t slot = 0; slot < slots_[i].size(); ++slot) {
        if (tables[i].in_use(slot)) Traits::encode(slots_[i][slot], out);
      }
    }
    for (std::size_t j = 0; j < servers.size(); ++j) {
      for (std::size_t s = 0; s < servers[j].size(); ++s) {
        servers[j][s].encode_state(out);
        for (const Payload& slot : server_slots_[j][s]) Traits::encode(slot, out);
      }
      for (const AtpWorker& worker : workers[j]) worker.encode_state(out);
    }
  }

  // The first thing that was not as it must be; empty: none.
  [[nodiscard]] const std::string& violation() const { return violation_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }

  std::vector<AggregateTable> tables;
  std::vector<std::vector<AtpServer>> servers;  // of each job
  std::vector<std::vector<AtpWorker>> workers;  // of each job
  std::uint64_t placed = 0;
  // For the test of the tests: a driver that adds what the switch says is a duplicate.
  bool add_duplicates = false;

 private:
  void add_job(const JobShape& job) {
    for (std::size_t i = 0; i < shape_.switches; ++i) {
      AggregateJob about;
      about.id = job.id;
      about.window = job.window;
      about.second_level = job.second_level == static_cast<int>(i);
      for (std::size_t g = 0; g < job.groups.size(); ++g) {
        if (job.first_level[g] == static_cast<int>(i)) {
          about.groups |= atp_bit(static_cast<unsigned>(g));
        }
      }
      CHECK(tables[i].add_job(about).ok());
    }
    servers.emplace_back();
    server_slots_.emplace_back();
    for (std::uint32_t s = 0; s < job.servers; ++s) {
      AtpServerOptions options;
      options.job = job.id;
      options.groups = job.groups;
      options.servers = job.servers;
      options.index = s;
      options.elements = job.elements;
      options.window = job.window;
      options.deadline = job.server_deadline;
      servers.back().emplace_back(options);
      server_slots_.back().emplace_back(servers.back().back().slots());
    }
    workers.emplace_back();
    for (std::size_t g = 0; g < job.groups.size(); ++g) {
      for (std::uint8_t i = 0; i < job.groups[g]; ++i)
        workers.back().emplace_back(worker_of(job, g, i));
    }
  }

  static AtpWorkerOptions worker_of(const JobShape& job, std::size_t g, std::uint8_t i) {
    AtpWorkerOptions options;
    options.job = job.id;
    options.group = static_cast<std::uint8_t>(g);
    options.index = i;
    options.fan_in = job.groups[g];
    options.group_count = static_cast<std::uint8_t>(job.groups.size());
    const bool second = job.second_level != kNowhere && job.groups[g] == 1;
    options.level = job.first_level[g] != kNowhere ? kAtpFirstLevel
                    : second                       ? kAtpSecondLevel
                                                   : kAtpServerLevel;
    options.servers = job.servers;
    options.elements = job.elements;
    options.window = job.window;
    options.congestion = job.congestion;
    options.recovery = job.recovery;
    return options;
  }

  // Where things are ---------------------------------------------------------------------------
  [[nodiscard]] Node server_node(std::size_t j, std::uint64_t sequence) const {
    return {Node::Kind::kServer, j, static_cast<std::size_t>(sequence % shape_.jobs[j].servers)};
  }
  static Node switch_node(int index) {
    return {Node::Kind::kSwitch, 0, static_cast<std::size_t>(index)};
  }
  [[nodiscard]] std::size_t group_of(std::size_t j, std::size_t w) const {
    return workers[j][w].options().group;
  }
  [[nodiscard]] std::size_t place_of(std::uint32_t job) const {
    for (std::size_t j = 0; j < shape_.jobs.size(); ++j) {
      if (shape_.jobs[j].id == job) return j;
    }
    CHECK(false, "job {}", job);
  }
  [[nodiscard]] Node from_worker(std::size_t j, std::size_t w, std::uint32_t server) const {
    const JobShape& job = shape_.jobs[j];
    const int first = job.first_level[group_of(j, w)];
    if (first != kNowhere) return switch_node(first);
    if (job.second_level != kNowhere) return switch_node(job.second_level);
    return {Node::Kind::kServer, j, server};
  }
  [[nodiscard]] bool is_for(const AtpHeader& header, std::size_t j, std::size_t w) const {
    const AtpWorkerOptions& options = workers[j][w].options();
    if (header.kind == AtpKind::kAbort) return true;
    if ((header.groups & atp_bit(options.group)) != 0) return true;
    return header.group == options.group && (header.workers & atp_bit(options.index)) != 0;
  }

  // Packets on their way -----------------------------------------------------------------------
  template <class Emit>
  void send(const Packet& packet, Emit&& emit) {
    if (packet.header.elements > 0) check(packet);
    if (check_atp_header(packet.header) != WireError::kNone) note("a header that is not allowed");
    emit(packet);
  }

  template <class Emit>
  void down_from_server(std::size_t j, Packet& packet, Emit&& emit) {
    const JobShape& job = shape_.jobs[j];
    if (job.second_level != kNowhere) {
      packet.to = switch_node(job.second_level);
      return send(packet, emit);
    }
    down_from(j, kNowhere, packet, emit);
  }

  // From the server's switch (or the server, if it has none): to the workers there, and to the
  // switches of the others.
  template <class Emit>
  void down_from(std::size_t j, int here, Packet& packet, Emit&& emit) {
    const JobShape& job = shape_.jobs[j];
    std::vector<bool> told(shape_.switches);
    for (std::size_t w = 0; w < workers[j].size(); ++w) {
      const int first = job.first_level[group_of(j, w)];
      if (!is_for(packet.header, j, w)) continue;
      if (first == kNowhere || first == here) {
        packet.to = {Node::Kind::kWorker, j, w};
        send(packet, emit);
      } else if (!told[static_cast<std::size_t>(first)]) {
        told[static_cast<std::size_t>(first)] = true;
        packet.to = switch_node(first);
        send(packet, emit);
      }
    }
  }

  template <class Emit>
  void at_switch(Packet packet, Time now, Emit&& emit) {
    const std::size_t j = place_of(packet.header.job);
    const int here = static_cast<int>(packet.to.index);
    if (packet.header.kind != AtpKind::kGradient) {
      if (tables[packet.to.index].on_parameter(packet.header).emit ==
          AggregateAction::Emit::kNothing) {
        return;
      }
      if (here == shape_.jobs[j].second_level) return down_from(j, here, packet, emit);
      for (std::size_t w = 0; w < workers[j].size(); ++w) {
        if (shape_.jobs[j].first_level[group_of(j, w)] != here) continue;
        if (!is_for(packet.header, j, w)) continue;
        packet.to = {Node::Kind::kWorker, j, w};
        send(packet, emit);
      }
      return;
    }
    // A switch that is both levels of a job takes its own sums in at once.
    const bool again = packet.header.level == kAtpFirstLevel && here == shape_.jobs[j].second_level;
    if (!pass_table(packet, now)) return;
    if (again && packet.header.level == kAtpSecondLevel && !pass_table(packet, now)) return;
    const int second = shape_.jobs[j].second_level;
    packet.to = second != kNowhere && second != here ? switch_node(second)
                                                     : server_node(j, packet.header.sequence);
    send(packet, emit);
  }

  // What the driver of a switch does. False: the packet ends here.
  bool pass_table(Packet& packet, Time now) {
    const AggregateAction action = tables[packet.to.index].on_gradient(packet.header, now);
    Payload& slot = slots_[packet.to.index][action.slot];
    const bool wrongly = add_duplicates && action.cause == AggregateAction::Cause::kDuplicate;
    if (action.payload == AggregateAction::Payload::kStore) slot = packet.payload;
    if (action.payload == AggregateAction::Payload::kAdd || wrongly) {
      Traits::add(slot, packet.payload);
    }
    if (action.emit == AggregateAction::Emit::kSum) packet.payload = slot;
    return action.emit != AggregateAction::Emit::kNothing;
  }

  template <class Emit>
  void at_server(const Packet& packet, Time now, Emit&& emit) {
    const auto [kind, j, s] = packet.to;
    const AtpServerAction action = servers[j][s].on_gradient(packet.header, now);
    Payload& slot = server_slots_[j][s][action.slot];
    if (action.payload == AtpServerAction::Payload::kStore) slot = packet.payload;
    if (action.payload == AtpServerAction::Payload::kAdd) Traits::add(slot, packet.payload);
    poll_server(j, s, emit);
  }

  template <class Emit>
  void at_worker(const Packet& packet, Time now, Emit&& emit) {
    const auto [kind, j, w] = packet.to;
    AtpWorker& worker = workers[j][w];
    if (packet.header.kind == AtpKind::kAbort) {
      worker.on_abort(packet.header, now);
    } else if (worker.on_parameter(packet.header, now).verdict == AtpPlacement::Verdict::kPlace) {
      ++placed;
      check_sum(j, packet);
    }
    poll_worker(j, w, now, emit);
  }

  // What must hold -----------------------------------------------------------------------------
  // Whatever travels is the sum of exactly the contributions that its header names.
  void check(const Packet& packet) {
    const std::size_t j = place_of(packet.header.job);
    if (packet.header.kind == AtpKind::kParameter) return check_sum(j, packet);
    if (sum_of(j, packet.header, false) == packet.payload) return;
    note(fmt::format("job {} sequence {}: a packet does not hold what its header names",
                     packet.header.job, packet.header.sequence));
  }
  // And what comes down is the sum of all.
  void check_sum(std::size_t j, const Packet& packet) {
    if (sum_of(j, packet.header, true) == packet.payload) return;
    note(fmt::format("job {} sequence {}: a wrong sum", packet.header.job, packet.header.sequence));
  }
  [[nodiscard]] Payload sum_of(std::size_t j, const AtpHeader& header, bool all) const {
    Payload sum = {};
    bool first = true;
    for (std::size_t w = 0; w < workers[j].size(); ++w) {
      if (!all && !is_for(header, j, w)) continue;
      const Payload one = Traits::contribution(header.job, w, header.sequence, header.elements);
      if (first) sum = one;
      if (!first) Traits::add(sum, one);
      first = false;
    }
    return sum;
  }
  void note(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }

  Shape shape_;
  std::vector<std::vector<Payload>> slots_;                      // of each switch
  std::vector<std::vector<std::vector<Payload>>> server_slots_;  // of each job's servers
  std::string violation_;
};

}  // namespace thalweg::atp_test
