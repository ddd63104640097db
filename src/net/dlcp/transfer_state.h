// The state that the caller's Transfer handles share with the endpoint's thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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

  // Accessed by the endpoint's thread only.
  proto::TransferHandle handle = {};

  // Ends the transfer. One of the two is called, once.
  void finish(Result<TransferReport> outcome);
  void finish(const proto::TransferOutcome& outcome);

  std::mutex mutex;  // guards all members below
  std::condition_variable over;
  std::optional<Result<TransferReport>> result;
  std::function<void(const Result<TransferReport>&)> then;
};

}  // namespace thalweg
