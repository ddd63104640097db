// The state that the caller's Transfer handles share with the endpoint's thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <thalweg/endpoint.h>

#include "net/io/home_process.h"
#include "proto/dlcp/transfer.h"

namespace thalweg {

namespace net {
class EventLoop;
class DlcpPeer;
}  // namespace net

struct Transfer::State {
  net::HomeProcess home;
  // Set before the endpoint's thread gets the state, and constant afterwards.
  std::weak_ptr<net::DlcpPeer> peer;
  std::shared_ptr<net::EventLoop> loop;
  proto::Direction direction = proto::Direction::kSend;
  proto::TransferSpec spec;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::vector<SegmentTag> tags;  // one per segment, or one for all
  Bytes segment_size;
  [[nodiscard]] std::int64_t segment_elements() const {
    return segment_size.count() / static_cast<std::int64_t>(size_of(spec.type));
  }

  // Accessed by the endpoint's thread only.
  proto::TransferHandle handle = {};
  std::function<void(std::span<const ElementRange>)> on_arrival;  // of a receive; may be empty
  std::vector<ElementRange> news;  // elements that arrived since on_arrival was called
  // Notes that the packet at this offset arrived.
  void note_arrival(Bytes offset, std::size_t bytes);
  void tell_arrivals();

  // Ends the transfer. One of the two is called, once.
  void finish(Result<TransferReport> outcome);
  void finish(const proto::TransferOutcome& outcome);

  std::mutex mutex;  // guards all members below
  std::condition_variable over;
  std::optional<Result<TransferReport>> result;
  std::function<void(const Result<TransferReport>&)> then;
  std::vector<Bitmap::Run> offers;  // segments that the endpoint's thread will offer
};

}  // namespace thalweg
