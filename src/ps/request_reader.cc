#include "ps/request_reader.h"

#include <algorithm>

namespace thalweg::ps {

std::span<std::byte> RequestReader::room() {
  switch (part_) {
    case Part::kHead:
      return std::span(head_).first(head_size()).subspan(received_);
    case Part::kText:
      return std::as_writable_bytes(std::span(text_)).subspan(received_);
    case Part::kBody:
      break;
  }
  const std::size_t step = std::min(kStep, header_.body() - received_);
  const std::size_t begin = refusal_ ? 0 : received_;
  if (body_.size() < begin + step) body_.resize(begin + step);
  return std::span(body_).subspan(begin, step);
}

RequestReader::Progress RequestReader::on_received(std::size_t bytes) {
  if (checked_ && part_ != Part::kHead) sum_.add(room().first(bytes));
  received_ += bytes;
  if (part_ == Part::kHead) {
    if (received_ < head_size()) return Progress::kMore;
    if (const Progress bad = end_head(); bad != Progress::kMore) return bad;
  }
  if (part_ == Part::kText) return received_ < header_.text ? Progress::kMore : begin_body();
  return received_ < header_.body() ? Progress::kMore : end();
}

RequestReader::Progress RequestReader::end_head() {
  const std::span<const std::byte, wire::kCheckedPsHeaderSize> head(head_);
  const wire::WireError error =
      checked_ ? wire::decode_checked_ps_header(head, header_, payload_)
               : wire::decode_ps_header(head.first<wire::kPsHeaderSize>(), header_);
  if (error == wire::WireError::kChecksum) return Progress::kSpoiled;
  // A stream that began with our version goes on with it.
  if (error == wire::WireError::kVersion && checked_) {
    return first_ ? Progress::kVersion : Progress::kSpoiled;
  }
  if (error != wire::WireError::kNone) return Progress::kBad;
  part_ = Part::kText;
  received_ = 0;
  text_.resize(header_.text);
  return Progress::kMore;
}

RequestReader::Progress RequestReader::begin_body() {
  part_ = Part::kBody;
  received_ = 0;
  return header_.body() == 0 ? end() : Progress::kNamed;
}

RequestReader::Progress RequestReader::end() const {
  return checked_ && sum_.value() != payload_ ? Progress::kChanged : Progress::kComplete;
}

void RequestReader::next() {
  part_ = Part::kHead;
  received_ = 0;
  refusal_.reset();
  if (first_) checked_ = header_.checks;
  first_ = false;
  sum_ = {};
}

}  // namespace thalweg::ps
