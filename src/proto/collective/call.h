// CollectiveCall: one call of a collective on one rank, as the protocol sees it. Whoever moves the
// bytes derives from it and answers what the protocol asks about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::proto {

// How calls end that this rank gives up by leaving.
inline Error has_left() { return {ErrorCode::kCancelled, "this rank has left"}; }

class CollectiveCall {
 public:
  // After waiting this long, or a quarter of its limit, a rank asks its peers.
  static constexpr Duration kAskAfter = Duration::milliseconds(1000);

  CollectiveCall() = default;
  virtual ~CollectiveCall() = default;
  CollectiveCall(const CollectiveCall&) = delete;
  CollectiveCall& operator=(const CollectiveCall&) = delete;

  // Set before the call starts, and constant while it runs.
  std::string text;             // in words: "allreduce of 100 float32, sum"
  std::uint64_t signature = 0;  // equal on two ranks if both make the same call; not 0
  int priority = 0;             // data of the lowest leaves first
  Duration limit;
  // The limit as the caller knows it, for errors. 0: it is `limit`.
  Duration stated;
  [[nodiscard]] Duration limit_in_words() const { return stated > Duration() ? stated : limit; }
  // Sets the times, counted from `now`. A call without times has no deadline yet.
  void set_times(Time now) {
    started = now;
    deadline = now + limit;
    ask_at = now + (limit / 4 < kAskAfter ? limit / 4 : kAskAfter);
    has_times = true;
    postponed = false;
  }

  // Set by the protocol.
  std::uint32_t number = 0;
  Time started;
  Time deadline;
  Time ask_at;  // when to ask the peers next
  bool has_times = false;
  bool postponed = false;     // its deadline was, because this rank came to it late
  std::optional<Error> lost;  // the first thing that it lost together with a peer (on_lost())

  // The ranks that it exchanges data with, ascending.
  [[nodiscard]] virtual const std::vector<Rank>& peers() const = 0;
  // Whether the peer may send it this many bytes more for an arrival.
  [[nodiscard]] virtual bool takes(Rank peer, std::uint32_t arrival, std::uint32_t bytes) const = 0;
  // Whether some of its bytes for the peer have not been sent over the stream.
  [[nodiscard]] virtual bool has_data_for(Rank peer) const = 0;
  // Whether it cannot end without the stream to the peer.
  [[nodiscard]] virtual bool needs(Rank peer) const = 0;
  // The first rank that it waits for: one whose data is missing, else one that does not take data.
  [[nodiscard]] virtual std::optional<Rank> waits_for() const = 0;
  // Why data that the peer sends does not get here, as far as the transport knows; no rank is to
  // blame then. Empty: nothing is known. Requires one of peers().
  [[nodiscard]] virtual std::string obstacle(Rank /*peer*/) const { return {}; }
  // Everything has arrived and left.
  [[nodiscard]] virtual bool done() const = 0;
};

}  // namespace thalweg::proto
