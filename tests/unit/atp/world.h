// World: the jobs, switches and servers of ATP as one value, with the payload that their drivers
// move. It holds the production objects, and decides only where a packet goes next. The caller
// decides what the network does to packets: explore.h tries everything that can happen, and
// random_test.cc draws it at random.
//
// Traits define the payload:
//   Payload                                                   copyable, comparable
//   contribution(job, worker, sequence, elements) -> Payload  what a worker adds, always the same
//   add(Payload& sum, const Payload&)
//   check(const Payload&) -> std::uint64_t                    a check word; adds up as payloads do
//   change(Payload&)                                          a fault, which changes the check word
//   encode(const Payload&, std::string& out)                  equal texts mean equal payloads
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atp/shapes.h"
#include "base/check.h"
#include "proto/atp/server.h"
#include "proto/atp/worker.h"
#include "switch/aggregation/aggregate.h"

namespace thalweg::proto::atp_test {

template <class Traits>
class World {
 public:
  using Payload = typename Traits::Payload;

  struct Packet {
    Node to;
    wire::AtpHeader header;
    Payload payload = {};
  };

  explicit World(const Shape& shape) : shape_(shape) {
    for (std::size_t i = 0; i < shape.switches; ++i) {
      tables.emplace_back(shape.table);
      slots_.emplace_back(shape.table.slots);
    }
    for (const JobShape& job : shape.jobs) add_job(job);
  }

  // Every worker of every job starts a tensor of this many elements.
  void start_all(std::int64_t elements, Time now) {
    for (std::size_t j = 0; j < workers.size(); ++j) {
      const JobShape& job = shape_.jobs[j];
      for (std::size_t w = 0; w < workers[j].size(); ++w) {
        AtpTensorSpec spec;
        spec.elements = elements;
        spec.deadline = job.deadline;
        if (job.need != nullptr) {
          spec.scaling = job.scaling;
          spec.scaling.kind = static_cast<std::uint64_t>(elements);
        }
        if (w == 1) spec.scaling.headroom += job.odd_headroom;
        CHECK(workers[j][w].start(spec, now).ok());
      }
    }
  }

  // Takes all packets that a worker wants to send, and calls emit(Packet) for each.
  template <class Emit>
  void poll_worker(std::size_t j, std::size_t w, Time now, Emit&& emit) {
    while (poll_once(j, w, now, emit)) {
    }
  }
  template <class Emit>
  bool poll_once(std::size_t j, std::size_t w, Time now, Emit&& emit) {
    AtpTransmit transmit;
    if (!workers[j][w].poll_transmit(now, transmit)) return false;
    Packet packet;
    packet.header = transmit.header;
    packet.payload = Traits::contribution(shape_.jobs[j].id, w, transmit.header.sequence,
                                          transmit.header.elements);
    packet.header.check = Traits::check(packet.payload);
    packet.to = transmit.own ? Node{Node::Kind::kServer, j, transmit.server}
                             : from_worker(j, w, transmit.server);
    if (transmit.block.scaled()) {
      const JobShape& job = shape_.jobs[j];
      const std::uint64_t first_time = wire::atp_first_time(transmit.header.sequence);
      packet.header.needed_exponent = job.need(w, first_time);
      packet.header.next_exponent =
          transmit.ahead.elements > 0 ? job.need(w, first_time + job.window) : tensor::kNoExponent;
    }
    const bool by_switch = packet.to.kind == Node::Kind::kSwitch;
    if (!by_switch || !transmit.past_switches) send(packet, emit);
    if (by_switch && (shape_.jobs[j].direct_copies || transmit.past_switches)) {
      packet.to = {Node::Kind::kServer, j, transmit.server};
      packet.header.level = wire::kAtpServerLevel;
      packet.header.collision = !packet.header.resend;
      send(packet, emit);
    }
    return true;
  }

  template <class Emit>
  void poll_server(std::size_t j, std::size_t s, Emit&& emit) {
    AtpServerTransmit transmit;
    while (servers[j][s].poll_transmit(transmit)) {
      Packet packet;
      packet.header = transmit.header;
      if (transmit.header.kind == wire::AtpKind::kParameter) {
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

  // Appends the state that decides about the future, except for packets in flight.
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
    for (const auto& [block, as] : placed_as_) {
      out += fmt::format("p{},{}:{},{};", block.first, block.second, as.first, as.second);
    }
  }

  // The first rule that was broken; empty if none was.
  [[nodiscard]] const std::string& violation() const { return violation_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }

  std::vector<switches::AggregateTable> tables;
  std::vector<std::vector<AtpServer>> servers;  // by job
  std::vector<std::vector<AtpWorker>> workers;  // by job
  std::uint64_t placed = 0;
  std::uint64_t repeated = 0;  // sums of which a worker found that their exponent does not fit
  // Makes the driver add what the switch calls a duplicate, to test that the checks find it.
  bool add_duplicates = false;
  // Payloads may be changed on their way, by Traits::change, or in a switch by change_slot().
  bool changes = false;
  // Makes the drivers of servers and workers look at no check word, to test that it is needed.
  bool trusting = false;
  void change_slot(std::size_t table, std::uint32_t slot) { Traits::change(slots_[table][slot]); }

 private:
  void add_job(const JobShape& job) {
    for (std::size_t i = 0; i < shape_.switches; ++i) {
      switches::AggregateJob about;
      about.id = job.id;
      about.window = job.window;
      about.second_level = job.second_level == static_cast<int>(i);
      for (std::size_t g = 0; g < job.groups.size(); ++g) {
        if (job.first_level[g] == static_cast<int>(i)) {
          about.groups |= wire::atp_bit(static_cast<unsigned>(g));
        }
      }
      CHECK(tables[i].add_job(about).ok());
    }
    servers.emplace_back();
    server_slots_.emplace_back();
    for (std::uint32_t s = 0; s < job.servers; ++s) {
      servers.back().emplace_back(server_of(job, s));
      server_slots_.back().emplace_back(servers.back().back().slots());
    }
    workers.emplace_back();
    for (std::size_t g = 0; g < job.groups.size(); ++g) {
      for (std::uint8_t i = 0; i < job.groups[g]; ++i)
        workers.back().emplace_back(worker_of(job, g, i));
    }
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
  [[nodiscard]] bool is_for(const wire::AtpHeader& header, std::size_t j, std::size_t w) const {
    const AtpWorkerOptions& options = workers[j][w].options();
    if (header.kind == wire::AtpKind::kAbort) return true;
    if ((header.groups & wire::atp_bit(options.group)) != 0) return true;
    return header.group == options.group && (header.workers & wire::atp_bit(options.index)) != 0;
  }
  // Whether the worker's own server adds its gradients of this sequence itself.
  [[nodiscard]] bool own(std::uint64_t sequence, std::size_t j, std::size_t w) const {
    return workers[j][w].options().own(sequence);
  }
  // Whether a gradient holds the worker's contribution.
  [[nodiscard]] bool holds(const wire::AtpHeader& header, std::size_t j, std::size_t w) const {
    const bool whole = (header.groups & wire::atp_bit(workers[j][w].options().group)) != 0;
    return is_for(header, j, w) && !(whole && own(header.sequence, j, w));
  }
  // Whether switches bring a sum or an abort to the worker.
  [[nodiscard]] bool gets(const wire::AtpHeader& header, std::size_t j, std::size_t w) const {
    return is_for(header, j, w) && !own(header.sequence, j, w);
  }

  // Packets on their way -----------------------------------------------------------------------
  template <class Emit>
  void send(const Packet& packet, Emit&& emit) {
    if (packet.header.elements > 0) check(packet);
    if (wire::check_atp_header(packet.header) != wire::WireError::kNone)
      note("a header that is not allowed");
    emit(packet);
  }

  template <class Emit>
  void down_from_server(std::size_t j, Packet& packet, Emit&& emit) {
    const JobShape& job = shape_.jobs[j];
    for (std::size_t w = 0; w < workers[j].size(); ++w) {
      if (!own(packet.header.sequence, j, w) || !is_for(packet.header, j, w)) continue;
      packet.to = {Node::Kind::kWorker, j, w};
      send(packet, emit);
    }
    if (job.second_level != kNowhere) {
      packet.to = switch_node(job.second_level);
      return send(packet, emit);
    }
    down_from(j, kNowhere, packet, emit);
  }

  // Sends a packet down from the server's switch (or the server, if it has none): to the workers
  // there, and to the switches of the others.
  template <class Emit>
  void down_from(std::size_t j, int here, Packet& packet, Emit&& emit) {
    const JobShape& job = shape_.jobs[j];
    std::vector<bool> told(shape_.switches);
    for (std::size_t w = 0; w < workers[j].size(); ++w) {
      const int first = job.first_level[group_of(j, w)];
      if (!gets(packet.header, j, w)) continue;
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
    if (packet.header.kind != wire::AtpKind::kGradient) {
      if (tables[packet.to.index].on_parameter(packet.header).emit ==
          switches::AggregateAction::Emit::kNothing) {
        return;
      }
      if (here == shape_.jobs[j].second_level) return down_from(j, here, packet, emit);
      for (std::size_t w = 0; w < workers[j].size(); ++w) {
        if (shape_.jobs[j].first_level[group_of(j, w)] != here) continue;
        if (!gets(packet.header, j, w)) continue;
        packet.to = {Node::Kind::kWorker, j, w};
        send(packet, emit);
      }
      return;
    }
    const auto own_one = own_server(shape_.jobs[j], packet.header);
    if (const auto missing = tables[packet.to.index].missing_before(packet.header, own_one)) {
      for (std::size_t w = 0; w < workers[j].size(); ++w) {
        if (is_for(*missing, j, w)) send({{Node::Kind::kWorker, j, w}, *missing, {}}, emit);
      }
    }
    // A switch that is both levels of a job aggregates its own sums at once.
    const bool again =
        packet.header.level == wire::kAtpFirstLevel && here == shape_.jobs[j].second_level;
    if (!pass_table(packet, now)) return;
    if (again && packet.header.level == wire::kAtpSecondLevel && !pass_table(packet, now)) return;
    const int second = shape_.jobs[j].second_level;
    packet.to = second != kNowhere && second != here ? switch_node(second)
                                                     : server_node(j, packet.header.sequence);
    send(packet, emit);
  }

  // Does what the driver of a switch does. Returns false if the packet ends here.
  bool pass_table(Packet& packet, Time now) {
    const switches::AggregateAction action =
        tables[packet.to.index].on_gradient(packet.header, now);
    Payload& slot = slots_[packet.to.index][action.slot];
    const bool wrongly =
        add_duplicates && action.cause == switches::AggregateAction::Cause::kDuplicate;
    if (action.payload == switches::AggregateAction::Payload::kStore) slot = packet.payload;
    if (action.payload == switches::AggregateAction::Payload::kAdd || wrongly) {
      Traits::add(slot, packet.payload);
    }
    if (action.emit == switches::AggregateAction::Emit::kSum) packet.payload = slot;
    return action.emit != switches::AggregateAction::Emit::kNothing;
  }

  template <class Emit>
  void at_server(const Packet& packet, Time now, Emit&& emit) {
    const auto [kind, j, s] = packet.to;
    if (!trusting && !sound(packet)) return;
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
    if (packet.header.kind == wire::AtpKind::kAbort) {
      worker.on_abort(packet.header, now);
    } else if (packet.header.kind == wire::AtpKind::kMissing) {
      worker.on_missing(packet.header);
    } else if (!trusting && !sound(packet)) {
      worker.on_corrupt(packet.header, "a test", now);
    } else {
      const AtpPlacement placement = worker.on_parameter(packet.header, now);
      if (placement.verdict == AtpPlacement::Verdict::kRepeat) ++repeated;
      if (placement.verdict == AtpPlacement::Verdict::kPlace) {
        ++placed;
        check_sum(j, packet);
        if (placement.block.scaled()) check_exponent(j, packet.header, placement);
      }
    }
    poll_worker(j, w, now, emit);
  }

  // What must hold -----------------------------------------------------------------------------
  // A packet carries the sum of exactly the contributions that its header names, unless it was
  // changed and its check word shows it.
  void check(const Packet& packet);
  // A parameter packet carries the sum of all contributions.
  void check_sum(std::size_t j, const Packet& packet);
  // The exponent fits what all workers need, and all workers take the same sum with the same one.
  void check_exponent(std::size_t j, const wire::AtpHeader& header, const AtpPlacement& placement);
  [[nodiscard]] Payload sum_of(std::size_t j, const wire::AtpHeader& header, bool all) const;
  [[nodiscard]] static bool sound(const Packet& packet) {
    return packet.header.check == Traits::check(packet.payload);
  }
  void note(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }

  Shape shape_;
  std::vector<std::vector<Payload>> slots_;                      // by switch
  std::vector<std::vector<std::vector<Payload>>> server_slots_;  // by job and server
  // By job and block: the sequence and exponent of the sum that the first worker took.
  std::map<std::pair<std::size_t, std::uint64_t>, std::pair<std::uint64_t, std::int8_t>> placed_as_;
  std::string violation_;
};

}  // namespace thalweg::proto::atp_test

#include "atp/world_checks.h"
