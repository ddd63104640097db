// Two ATP workers and a server. Their packets are delivered in any order, merged as a switch may
// merge them, lost and duplicated, with forged ones among them. Every tensor must end once, no
// block may be placed twice or outside its tensor, and while nothing is forged every sum must be
// exact.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "input.h"
#include "proto/atp/server.h"
#include "proto/atp/worker.h"

namespace thalweg::proto {
namespace {

constexpr std::uint32_t kJob = 1;
constexpr std::uint32_t kElements = 4;
constexpr std::size_t kWorkers = 2;

AtpWorkerOptions worker_options(std::uint8_t index) {
  AtpWorkerOptions options;
  options.job = kJob;
  options.index = index;
  options.fan_in = kWorkers;
  options.elements = kElements;
  options.window = 4;
  options.most_tensors = 4;
  options.congestion.initial_packets = 2;
  return options;
}

AtpServerOptions server_options() {
  AtpServerOptions options;
  options.job = kJob;
  options.groups = {kWorkers};
  options.elements = kElements;
  options.window = 4;
  options.deadline = Duration::milliseconds(200);
  options.repetitions = true;
  return options;
}

// The exponent that a worker's block needs.
std::int8_t need(std::size_t worker, std::uint64_t sequence) {
  const std::uint64_t bits = mix_bits(sequence * 2 + worker);
  if (bits % 8 == 0) return tensor::kNoExponent;
  if (bits % 16 == 1) return tensor::kNotFinite;
  return static_cast<std::int8_t>(-static_cast<int>(bits / 16 % 8));
}

class Game {
 public:
  explicit Game(Input input) : input_(input), server_(server_options()) {
    for (std::uint8_t w = 0; w < kWorkers; ++w) workers_[w] = Side(w);
    slots_.resize(server_.slots());
  }

  void play() {
    while (!input_.empty()) {
      operate();
      drive();
    }
    finish();
  }

 private:
  struct Started {
    std::int64_t elements = 0;
    std::set<std::int64_t> placed;
    bool ended = false;
  };
  struct Side {
    explicit Side(std::uint8_t index = 0) : worker(worker_options(index)) {}
    AtpWorker worker;
    std::map<AtpTensorHandle, Started> started;
  };
  struct Flight {
    wire::AtpHeader header;
    std::uint64_t value = 0;  // how often it includes each worker's contribution, 16 bits each
  };

  void operate() {
    const std::uint8_t code = input_.byte();
    Side& side = workers_[code >> 7];
    switch (code & 7) {
      case 0: {
        AtpTensorSpec spec;
        spec.elements = input_.byte() % 32;
        spec.deadline = Duration::milliseconds(std::int64_t{1} << (input_.byte() % 12));
        // The worker chooses the exponents of some tensors. A kind has tensors of one size.
        if (spec.elements % 3 != 0) {
          spec.scaling = {
              .kind = static_cast<std::uint64_t>(spec.elements) + 1, .headroom = 1, .slack = 2};
        }
        const auto handle = side.worker.start(spec, now_);
        if (handle.ok()) side.started[*handle].elements = spec.elements;
        return;
      }
      case 1:
      case 2:
        return deliver(up_, (code & 8) != 0, [&](const Flight& f) { at_server(f); });
      case 3:
        return deliver(down_, (code & 8) != 0, [&](const Flight& f) { at_worker(side, f); });
      case 4:
        return merge();
      case 5:
        now_ += Duration::microseconds(std::int64_t{1} << (input_.byte() % 20));
        for (Side& each : workers_) each.worker.on_timeout(now_);
        return server_.on_timeout(now_);
      case 6:
        return forge(side);
      default:
        if (code >> 3 == 9) return side.worker.fail(Error("a test"), now_);
        // A sum arrives changed.
        return deliver(down_, (code & 8) != 0,
                       [&](const Flight& f) { side.worker.on_corrupt(f.header, "a test", now_); });
    }
  }

  template <class To>
  void deliver(std::vector<Flight>& flight, bool keep, To to) {
    if (flight.empty()) return;
    const std::size_t i = input_.byte() % flight.size();
    const Flight each = flight[i];
    if (!keep) flight.erase(flight.begin() + static_cast<std::ptrdiff_t>(i));
    to(each);
  }

  // Makes one sum of two packets, as a switch would.
  void merge() {
    if (up_.size() < 2) return;
    const std::size_t a = input_.byte() % up_.size();
    const std::size_t b = input_.byte() % up_.size();
    if (up_[a].header.sequence != up_[b].header.sequence) return;
    if (up_[a].header.elements != up_[b].header.elements) return;
    if (up_[a].header.exponent != up_[b].header.exponent) return;
    if (up_[a].header.groups != 0 || up_[b].header.groups != 0) return;
    if ((up_[a].header.workers & up_[b].header.workers) != 0) return;
    Flight sum = up_[a];
    sum.header.workers = 0;
    sum.header.groups = 1;
    sum.header.level = wire::kAtpSecondLevel;
    sum.header.needed_exponent =
        std::max(sum.header.needed_exponent, up_[b].header.needed_exponent);
    sum.header.next_exponent = std::max(sum.header.next_exponent, up_[b].header.next_exponent);
    sum.value += up_[b].value;
    sum.header.check += up_[b].header.check;
    up_.push_back(sum);
  }

  void at_server(const Flight& flight) {
    const AtpServerAction action = server_.on_gradient(flight.header, now_);
    CHECK(action.slot < slots_.size());
    std::uint64_t& slot = slots_[action.slot];
    if (action.payload == AtpServerAction::Payload::kStore) slot = flight.value;
    if (action.payload == AtpServerAction::Payload::kAdd) slot += flight.value;
  }

  void at_worker(Side& side, const Flight& flight) {
    if (flight.header.kind == wire::AtpKind::kAbort)
      return side.worker.on_abort(flight.header, now_);
    const AtpPlacement placement = side.worker.on_parameter(flight.header, now_);
    if (placement.verdict != AtpPlacement::Verdict::kPlace) return;
    Started& started = side.started.at(placement.block.handle);
    CHECK(!started.ended, "placed after its end");
    CHECK(placement.block.first_element + placement.block.elements <= started.elements);
    CHECK(started.placed.insert(placement.block.first_element).second, "placed twice");
    CHECK(forged_ || flight.value == 0x10001, "a wrong sum");
    CHECK(forged_ || flight.header.check == flight.value, "a wrong check word");
  }

  void forge(Side& side) {
    wire::AtpHeader header;
    header.kind = input_.byte() % 2 == 0 ? wire::AtpKind::kGradient : wire::AtpKind::kParameter;
    if (input_.byte() % 8 == 0) header.kind = wire::AtpKind::kAbort;
    header.job = input_.byte() % 8 == 0 ? 2 : kJob;
    header.sequence = input_.byte() < 200 ? input_.byte() % 32 : ~std::uint64_t{input_.byte()};
    if (input_.byte() % 4 == 0) header.sequence += wire::kAtpRepetition;
    header.exponent = static_cast<std::int8_t>(input_.byte());
    header.needed_exponent = static_cast<std::int8_t>(input_.byte());
    header.next_exponent = static_cast<std::int8_t>(input_.byte());
    header.fan_in = input_.byte() % 8 == 0 ? 3 : kWorkers;
    header.workers = input_.byte() % 4;
    header.groups = header.workers == 0 ? 1 : 0;
    header.elements = static_cast<std::uint16_t>(header.kind == wire::AtpKind::kAbort ? 0
                                                 : input_.byte() < 200                ? kElements
                                                                       : input_.byte());
    header.resend = header.kind == wire::AtpKind::kGradient && input_.byte() % 2 != 0;
    if (header.kind == wire::AtpKind::kGradient && header.groups != 0)
      header.level = wire::kAtpServerLevel;
    if (check_atp_header(header) != wire::WireError::kNone) return;
    forged_ = true;
    if (header.kind == wire::AtpKind::kGradient) return at_server({header, 0});
    at_worker(side, {header, 0});
  }

  void drive() {
    for (std::size_t w = 0; w < kWorkers; ++w) {
      Side& side = workers_[w];
      AtpTransmit transmit;
      while (side.worker.poll_transmit(now_, transmit)) {
        CHECK(check_atp_header(transmit.header) == wire::WireError::kNone);
        if (transmit.block.scaled()) {
          const std::uint64_t sequence = wire::atp_first_time(transmit.header.sequence);
          transmit.header.needed_exponent = need(w, sequence);
          transmit.header.next_exponent = transmit.ahead.elements > 0
                                              ? need(w, sequence + side.worker.options().window)
                                              : tensor::kNoExponent;
        }
        transmit.header.check = std::uint64_t{1} << (16 * w);
        up_.push_back({transmit.header, transmit.header.check});
      }
      AtpOutcome outcome;
      while (side.worker.poll_event(outcome)) {
        Started& started = side.started.at(outcome.handle);
        CHECK(!started.ended, "ended twice");
        started.ended = true;
        CHECK(!outcome.ok() || started.placed.size() == outcome.blocks);
      }
    }
    AtpServerTransmit transmit;
    while (server_.poll_transmit(transmit)) {
      CHECK(check_atp_header(transmit.header) == wire::WireError::kNone);
      const bool sum = transmit.header.kind == wire::AtpKind::kParameter;
      down_.push_back({transmit.header, sum ? slots_[transmit.slot] : 0});
    }
    AtpServerFailure failure;
    while (server_.poll_event(failure)) CHECK(!failure.error.empty());
    // The oldest packets are lost, so that a long input stays fast.
    constexpr std::size_t kMostInFlight = 200;
    for (auto* flight : {&up_, &down_}) {
      if (flight->size() > kMostInFlight)
        flight->erase(flight->begin(), flight->end() - kMostInFlight);
    }
  }

  // Nothing arrives any more: all tensors must end at their deadlines.
  void finish() {
    for (Side& side : workers_) {
      for (int steps = 0; side.worker.next_timeout(); ++steps) {
        CHECK(steps < 100'000, "no progress");
        now_ = std::max(now_, *side.worker.next_timeout());
        side.worker.on_timeout(now_);
        drive();
      }
      CHECK(side.worker.idle());
      for (const auto& [handle, started] : side.started) CHECK(started.ended, "did not end");
    }
    if (const auto due = server_.next_timeout()) {
      server_.on_timeout(std::max(now_, *due));
      CHECK(!server_.next_timeout());
    }
  }

  Input input_;
  Time now_;
  std::array<Side, kWorkers> workers_;
  AtpServer server_;
  std::vector<std::uint64_t> slots_;
  std::vector<Flight> up_;
  std::vector<Flight> down_;
  bool forged_ = false;
};

}  // namespace
}  // namespace thalweg::proto

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostBytes = 4096;
  thalweg::proto::Game(thalweg::Input(data, std::min(size, kMostBytes))).play();
  return 0;
}
