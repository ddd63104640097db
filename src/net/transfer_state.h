// What a Transfer handle of the caller's and the endpoint's thread share.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <thalweg/endpoint.h>

#include "proto/dlcp/transfer.h"

namespace thalweg {

class EventLoop;
class Link;

struct Transfer::State {
  // Set before the endpoint's thread sees it, and then constant.
  std::weak_ptr<Link> link;
  std::shared_ptr<EventLoop> loop;
  Direction direction = Direction::kSend;
  TransferSpec spec;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::vector<SegmentTag> tags;  // one a segment, or one for all
  Bytes segment_size;

  // The endpoint's thread only.
  TransferHandle handle = {};

  // Called once.
  void finish(Result<TransferReport> outcome);
  void finish(const TransferOutcome& outcome);

  std::mutex mutex;  // guards what follows
  std::condition_variable over;
  std::optional<Result<TransferReport>> result;
  std::function<void(const Result<TransferReport>&)> then;
};

}  // namespace thalweg
