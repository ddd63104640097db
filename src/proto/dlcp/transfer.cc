#include "proto/dlcp/transfer.h"

#include "base/check.h"

namespace thalweg::proto {

SegmentTag TagSource::tag(SegmentIndex index) const {
  if (has_each_) return each_[index.index()];
  return function_ ? function_(index) : same_;
}

bool TagSource::fits(std::int32_t segments) const {
  return !has_each_ || each_.size() == static_cast<std::size_t>(segments);
}

wire::DataHeader DataBatch::header(std::uint32_t i) const {
  CHECK(i < count);
  wire::DataHeader header;
  header.sequence = first_sequence + i;
  header.transfer = transfer;
  header.segment = segments[i];
  header.sent_us = sent_us;
  header.length =
      static_cast<std::uint16_t>((i + 1 == count ? last_length : segment_length).count());
  header.tag = tag;
  header.retransmission = retransmission;
  return header;
}

Bytes DataBatch::offset(std::uint32_t i) const {
  CHECK(i < count);
  return first_offset + segment_length * (segments[i] - segments[0]);
}

}  // namespace thalweg::proto
