// Drives two DLCP endpoints by a list of steps: honest packets in any order, some dropped and some
// duplicated, mixed with forged packets and messages, cancellation and loss of the connection.
// Every transfer must end once, no segment may land outside its tensor or twice, and a receiver
// may succeed only within its bound.
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {
namespace {

DlcpOptions small_options(const char* peer) {
  DlcpOptions options;
  options.peer = peer;
  options.max_transfers = 8;
  options.burst_segments = 4;
  return options;
}

GrantOptions small_grants() {
  GrantOptions options;
  options.round_trip = Duration::microseconds(1);
  options.overcommit = 0.5;
  options.first = 0.02;
  options.quantum = 2;
  options.stall = Duration::microseconds(200);
  return options;
}

class Game {
 public:
  explicit Game(Input input) : input_(input) {}

  void play() {
    while (!input_.empty()) {
      operate();
      drive();
    }
    finish();
  }

 private:
  struct Started {
    TransferSpec spec;
    std::set<std::int64_t> offsets;
    std::set<std::uint32_t> offered;  // segments of a gradual send
    bool ended = false;
  };
  struct Side {
    Side(const char* peer, bool grants_given)
        : endpoint(small_options(peer), grants_given ? &grants : nullptr) {
      endpoint.set_paths(3, Time());
    }
    GrantScheduler grants{small_grants()};
    DlcpEndpoint endpoint;
    std::deque<wire::ControlMessage> inbox;
    std::map<TransferHandle, Started> started;
  };

  void operate() {
    const std::uint8_t code = input_.byte();
    Side& side = sides_[code >> 7];
    switch (code & 0x0f) {
      case 0:
      case 1:
        start(side, Direction::kSend);
        break;
      case 2:
      case 3:
        start(side, Direction::kReceive);
        break;
      case 4:
      case 5:
        deliver(input_.byte(), (code & 0x10) != 0);
        break;
      case 6:
        deliver_control(side);
        break;
      case 7:
        now_ += Duration::microseconds(std::int64_t{1} << (input_.byte() % 20));
        break;
      case 8:
        side.endpoint.cancel(TransferHandle{input_.byte()}, "a test", now_);
        break;
      case 9:
        forge_data(side);
        break;
      case 10:
        side.endpoint.on_control(forged_message(), now_);
        break;
      case 11:
        if (input_.byte() == 0x77) side.endpoint.connection_lost("a test", now_);
        break;
      case 12:
        side.endpoint.on_data_end(input_.byte(), input_.byte() % kPriorityCount, now_,
                                  input_.byte());
        break;
      case 13:
        offer(side);
        break;
      default:
        for (Side& each : sides_) each.endpoint.on_timeout(now_);
    }
  }

  // A part of a gradual send, which may have ended.
  void offer(Side& side) {
    const auto found = side.started.find(TransferHandle{input_.byte()});
    if (found == side.started.end() || !found->second.spec.gradual) return;
    Started& started = found->second;
    const auto segments = static_cast<std::size_t>((started.spec.elements + 4) / 5);
    const std::size_t begin = input_.byte() % (segments + 1);
    const std::size_t end = begin + input_.byte() % (segments - begin + 1);
    for (std::size_t i = begin; i < end; ++i) started.offered.insert(static_cast<std::uint32_t>(i));
    side.endpoint.offer(found->first, {begin, end}, now_);
  }

  void start(Side& side, Direction direction) {
    TransferSpec spec;
    const std::uint8_t shape = input_.byte();
    spec.key = shape % 4;
    spec.elements = (shape >> 2) * 5;
    spec.payload = Bytes(20);
    spec.bound = LossBound::parts_per_billion(input_.byte() % 8 * 120'000'000U);
    if (spec.bound > LossBound() && shape % 2 == 0) spec.target = LossBound();
    const std::uint8_t when = input_.byte();
    spec.deadline = Duration::microseconds(std::int64_t{64} << (when % 16));
    spec.urgency = when >> 6;
    spec.gradual = direction == Direction::kSend && (when & 0x20) != 0;
    const auto priority = static_cast<std::uint8_t>(when % kPriorityCount);
    const auto handle = direction == Direction::kSend
                            ? side.endpoint.start_send(spec, SegmentTag{priority}, now_)
                            : side.endpoint.start_recv(spec, now_);
    if (handle.ok()) CHECK(side.started.emplace(*handle, Started{spec, {}, {}, false}).second);
  }

  void deliver(std::uint8_t which, bool keep) {
    if (flight_.empty()) return;
    const std::size_t i = which % flight_.size();
    const auto [to, header] = flight_[i];
    if (!keep) flight_.erase(flight_.begin() + static_cast<std::ptrdiff_t>(i));
    arrive(sides_[to], header);
  }

  void arrive(Side& side, const wire::DataHeader& header) {
    const Placement placement = side.endpoint.on_data(header, false, now_);
    if (placement.verdict != Placement::Verdict::kPlace) return;
    Started& started = side.started.at(placement.handle);
    CHECK(!started.ended);
    CHECK(placement.offset.count() + header.length <= started.spec.elements * 4);
    CHECK(started.offsets.insert(placement.offset.count()).second);
  }

  void deliver_control(Side& side) {
    if (side.inbox.empty()) return;
    const wire::ControlMessage message = side.inbox.front();
    side.inbox.pop_front();
    side.endpoint.on_control(message, now_);
  }

  void forge_data(Side& side) {
    wire::DataHeader header;
    header.transfer = input_.byte() % 16;
    header.segment = input_.byte() < 200 ? input_.byte() % 64 : input_.word() >> 1;
    header.length = input_.byte() < 200 ? 20 : static_cast<std::uint16_t>(input_.word());
    header.sequence = input_.byte() < 200 ? input_.byte() : input_.word() * 0x100000001ULL;
    header.sent_us = input_.word();
    header.tag.priority = input_.byte() % kPriorityCount;
    arrive(side, header);
  }

  wire::ControlMessage forged_message() {
    const std::uint32_t transfer = input_.byte() % 16;
    switch (input_.byte() % 9) {
      case 0: {
        wire::ReadyMessage ready{transfer, input_.byte() % 4U, input_.byte() * 20ULL, 20, 0, {}};
        if (const std::uint8_t first = input_.byte(); first < 70) ready.first = first;
        return ready;
      }
      case 1:
        return wire::StopMessage{transfer, input_.byte() % 3U, input_.word(), input_.word(),
                                 static_cast<std::uint8_t>(input_.byte() % kPriorityCount)};
      case 2: {
        wire::ResendMessage message{transfer, input_.byte() % 3U, input_.byte() % 2 == 0, {}};
        for (std::size_t i = input_.byte() % 4; i > 0; --i) {
          message.ranges.push_back({input_.byte(), 1U + input_.byte()});
        }
        return message;
      }
      case 3:
        return wire::FinishMessage{transfer, input_.byte() % 70U};
      case 4:
        return wire::ConfirmMessage{transfer};
      case 5:
        return wire::CancelMessage{transfer, input_.byte() % 2 == 0, wire::CancelReason::kCancelled,
                                   "forged"};
      case 6:
        return wire::GrantMessage{transfer, input_.byte() % 70U};
      case 7: {
        const std::uint32_t granted = input_.byte() % 70U;
        return wire::WantMessage{transfer, granted - std::min(granted, input_.byte() % 70U),
                                 granted, input_.byte() % 2 == 0};
      }
      default: {
        wire::ReportMessage report{input_.word(), input_.word(), input_.word(), input_.byte(),
                                   input_.byte(), input_.byte(), input_.word()};
        report.paths = input_.byte() % (wire::kMaxReportPaths + 1);
        for (std::size_t i = 0; i < report.paths; ++i) {
          report.path_packets[i] = input_.byte();
          report.path_delay_us[i] = static_cast<std::uint16_t>(input_.byte() * 257U);
        }
        return report;
      }
    }
  }

  void drive() {
    for (std::size_t i = 0; i < 2; ++i) {
      Side& side = sides_[i];
      DataBatch batch;
      while (side.endpoint.poll_data(now_, 4, batch)) {
        CHECK(batch.count >= 1 && batch.count <= 4);
        const Started& started = side.started.at(batch.handle);
        for (std::uint32_t s = 0; s < batch.count; ++s) {
          CHECK(!started.spec.gradual || started.offered.contains(batch.segments[s]));
          flight_.push_back({1 - i, batch.header(s)});
        }
      }
      wire::ControlMessage message;
      while (side.endpoint.poll_control(message)) sides_[1 - i].inbox.push_back(message);
      side.grants.on_timeout(now_);
      GrantScheduler::Grant grant;
      while (side.grants.poll(grant)) {
        sides_[1 - i].inbox.push_back(wire::GrantMessage{grant.transfer, grant.segments});
      }
      TransferOutcome outcome;
      while (side.endpoint.poll_event(outcome)) check(side, outcome);
    }
  }

  static void check(Side& side, const TransferOutcome& outcome) {
    Started& started = side.started.at(outcome.handle);
    CHECK(!started.ended, "ended twice");
    started.ended = true;
    if (outcome.direction == Direction::kSend) return;
    const auto placed = static_cast<std::int32_t>(started.offsets.size());
    CHECK(outcome.arrived == placed);
    if (outcome.ok()) {
      CHECK(outcome.segments - placed <= started.spec.bound.allowed_missing(outcome.segments));
    }
  }

  // Nothing arrives any more: all transfers must end at their deadlines.
  void finish() {
    for (int steps = 0;; ++steps) {
      CHECK(steps < 100'000, "no progress");
      std::optional<Time> next;
      for (Side& side : sides_) {
        const auto timeout = side.endpoint.next_timeout();
        if (timeout) next = next ? std::min(*next, *timeout) : *timeout;
      }
      if (!next) break;
      now_ = std::max(now_, *next);
      for (Side& side : sides_) side.endpoint.on_timeout(now_);
      drive();
    }
    for (Side& side : sides_) {
      for (const auto& [handle, started] : side.started) CHECK(started.ended, "did not end");
      CHECK(side.endpoint.transfers() == 0);
      side.endpoint.connection_lost("the end", now_);
      CHECK(side.endpoint.idle());
      CHECK(side.grants.transfers() == 0 && side.grants.in_flight() == Bytes(0));
      CHECK(!side.grants.busy());
    }
  }

  struct Flight {
    std::size_t to = 0;
    wire::DataHeader header;
  };
  Input input_;
  Time now_;
  // One end gives grants, the other does not.
  std::array<Side, 2> sides_{{{"b", true}, {"a", false}}};
  std::vector<Flight> flight_;
};

}  // namespace
}  // namespace thalweg::proto

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostBytes = 4096;
  thalweg::proto::Game(thalweg::Input(data, std::min(size, kMostBytes))).play();
  return 0;
}
