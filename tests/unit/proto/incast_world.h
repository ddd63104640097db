// IncastWorld: several senders and one receiver in virtual time, whose host gives grants. Data goes
// through one link with a short buffer, and grants may be lost, doubled and late.
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {

struct IncastOptions {
  int senders = 4;
  int transfers = 3;  // of each sender
  std::int64_t most_segments = 300;
  double bound = 0;
  bool mixed_bounds = false;  // each transfer draws 0, `bound` or half of it
  Bandwidth rate = Bandwidth::gbps(10);
  Duration delay = Duration::microseconds(20);
  Duration jitter;
  std::int64_t buffer = 100'000;  // bytes before the receiver's link
  double loss = 0;                // of data, beside what overflows
  double duplication = 0;
  double grant_loss = 0;
  double grant_duplication = 0;
  Duration grant_jitter;  // grants overtake one another
  GrantOptions grants;
  TransferOrder order;
  bool all_senders_grant = true;  // senders belong to hosts with schedulers, so they may be busy
  bool receiver_grants = true;
  // The driver looks for silent transfers by the timer of the scheduler.
  bool watches_silence = false;
  std::uint64_t seed = 1;
};

class IncastWorld {
 public:
  explicit IncastWorld(const IncastOptions& options);

  // Runs until all is over. Returns the first broken rule, or an empty text:
  // 1. every transfer succeeds at both ends, within its bound, and no segment is placed twice;
  // 2. no sender sends more of a first round than it was told it may;
  // 3. what the scheduler has in flight is at most its limit and the first bursts;
  // 4. in the end the scheduler and all endpoints keep nothing and want no more time.
  std::string run();

  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  [[nodiscard]] std::uint64_t retransmitted() const { return retransmitted_; }
  [[nodiscard]] std::uint64_t busy_wants() const { return busy_wants_; }
  // Everything that happened, as a number.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  struct Happening {
    Time at;
    std::uint64_t order = 0;
    enum class Kind : std::uint8_t { kStart, kData, kControl } kind = Kind::kStart;
    int sender = 0;
    bool to_receiver = false;
    wire::DataHeader header;
    std::shared_ptr<wire::ControlMessage> message;
    TransferSpec spec;
    bool operator>(const Happening& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  struct Pair {
    std::unique_ptr<GrantScheduler> grants;  // of the sender's host
    std::unique_ptr<DlcpEndpoint> sender;
    std::unique_ptr<DlcpEndpoint> receiver;
    Time letters_to_sender;
    Time letters_to_receiver;
  };
  // What is known of a transfer, by its sender and its number at the receiver.
  struct Track {
    std::uint32_t told = 0;
    std::uint32_t left = 0;
    std::uint32_t first = 0;
    std::set<std::int64_t> offsets;
  };

  void push(Happening happening);
  void plan_transfers();
  void happen(const Happening& happening);
  void drive_all();
  void drive(int sender);
  void send(int sender, const DataBatch& batch);
  void post(int sender, bool to_receiver, const wire::ControlMessage& message);
  void post_grant(const GrantScheduler::Grant& grant);
  void take_outcomes(DlcpEndpoint& endpoint);
  void check_flight();
  void check_end();
  void fail(const std::string& text);
  Track& track(int sender, std::uint32_t transfer);
  [[nodiscard]] Duration draw(Duration most);

  IncastOptions options_;
  Prng prng_;
  Time now_;
  std::unique_ptr<GrantScheduler> grants_;
  std::vector<Pair> pairs_;
  std::vector<std::vector<Track>> tracks_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> happenings_;
  Time link_free_;
  std::uint64_t next_order_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t retransmitted_ = 0;
  std::uint64_t busy_wants_ = 0;
  std::uint64_t digest_ = 0;
  std::string broken_;
};

}  // namespace thalweg::proto
