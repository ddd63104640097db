// One rank of a communicator among peers that send any frames: nothing breaks, every call ends once
// and by its deadline (kReadTime later if the rank itself comes late), and frames that are accepted
// survive the wire.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "proto/collective/collective.h"

namespace thalweg {
namespace {

constexpr int kRanks = 4;

class FuzzedCall final : public proto::CollectiveCall {
 public:
  explicit FuzzedCall(int waits) : waits_(waits) {
    text = "call";
    signature = 7;
    limit = Duration::milliseconds(4'000);
  }
  [[nodiscard]] const std::vector<Rank>& peers() const override { return peers_; }
  [[nodiscard]] bool takes(Rank, std::uint32_t arrival, std::uint32_t) const override {
    return arrival < 8;
  }
  [[nodiscard]] bool has_data_for(Rank peer) const override { return peer.value() == waits_; }
  [[nodiscard]] bool needs(Rank peer) const override { return peer.value() == waits_; }
  [[nodiscard]] std::optional<Rank> waits_for() const override { return Rank(waits_); }
  [[nodiscard]] bool done() const override { return false; }

 private:
  int waits_;
  std::vector<Rank> peers_ = {Rank(1), Rank(2), Rank(3)};
};

wire::Frame frame_from(Input& input) {
  return {.kind = static_cast<wire::FrameKind>(input.byte() % wire::kFrameKindCount),
          .operation = input.byte() % 8U,
          .index = input.byte(),
          .length = 0,
          .signature = input.byte() % 2 == 0 ? 7U : input.byte(),
          .started = input.byte() % 8U,
          .rank = input.byte() % 8 == 0 ? wire::kNoFrameRank : input.byte() % 5U};
}

}  // namespace
}  // namespace thalweg

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  Input input(data, size);
  proto::Collective core(Rank(0), kRanks);
  std::vector<std::unique_ptr<FuzzedCall>> calls;
  std::set<proto::CollectiveCall*> over;
  Time now;
  while (!input.empty()) {
    const Rank peer(1 + input.byte() % (kRanks - 1));
    switch (input.byte() % 6) {
      case 0:
        if (core.broken()) break;
        calls.push_back(std::make_unique<FuzzedCall>(peer.value()));
        calls.back()->set_times(now);
        core.start(*calls.back());
        core.add_ready(*calls.back(), 0, peer);
        break;
      case 1:
        core.on_connected(peer);
        break;
      case 2: {
        wire::Frame frame = frame_from(input);
        frame.length = 8;
        proto::CollectiveCall* call = nullptr;
        if (core.on_data(peer, proto::data_frame(frame), call) == proto::DataVerdict::kStall) {
          core.on_stall(peer, frame.operation, now);
        }
        break;
      }
      case 3: {
        const wire::Frame frame = frame_from(input);
        const auto control = proto::control_frame(frame, "text", kRanks);
        if (!control) break;
        std::string text;
        const wire::Frame again = proto::wire_frame(*control, frame.started, text);
        CHECK(proto::control_frame(again, text, kRanks) == control);
        const std::string why = core.on_control(peer, frame.started, *control);
        if (!why.empty()) core.on_closed(peer, why);
        break;
      }
      case 4:
        now += Duration::milliseconds(input.byte() * 8);
        core.on_timer(now);
        break;
      default:
        static_cast<void>(
            core.next_data(peer, [](const proto::CollectiveCall&, std::uint32_t) { return true; }));
        if (input.byte() % 16 == 0) core.on_closed(peer, "closed");
        break;
    }
    Rank to{0};
    proto::ControlFrame frame;
    while (core.poll_control(to, frame)) CHECK(to != Rank(0));
    proto::CollectiveCall* ended = nullptr;
    Status status = ok_status();
    while (core.poll_over(ended, status)) CHECK(over.insert(ended).second && !status.ok());
  }
  now += Duration::milliseconds(10'000);
  core.on_timer(now);  // comes late to every deadline
  now += proto::Collective::kReadTime;
  core.on_timer(now);
  proto::CollectiveCall* ended = nullptr;
  Status status = ok_status();
  while (core.poll_over(ended, status)) CHECK(over.insert(ended).second);
  CHECK(over.size() == calls.size());
  return 0;
}
