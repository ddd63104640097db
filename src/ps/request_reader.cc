#include "ps/request_reader.h"

#include <algorithm>

namespace thalweg::ps {

std::span<std::byte> RequestReader::room() {
  switch (part_) {
    case Part::kHead:
      return std::span(head_).subspan(received_);
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
  received_ += bytes;
  if (part_ == Part::kHead) {
    if (received_ < wire::kPsHeaderSize) return Progress::kMore;
    if (wire::decode_ps_header(head_, header_) != wire::WireError::kNone) return Progress::kBad;
    part_ = Part::kText;
    received_ = 0;
    text_.resize(header_.text);
  }
  if (part_ == Part::kText) return received_ < header_.text ? Progress::kMore : begin_body();
  return received_ < header_.body() ? Progress::kMore : Progress::kComplete;
}

RequestReader::Progress RequestReader::begin_body() {
  part_ = Part::kBody;
  received_ = 0;
  return header_.body() == 0 ? Progress::kComplete : Progress::kNamed;
}

void RequestReader::next() {
  part_ = Part::kHead;
  received_ = 0;
  refusal_.reset();
}

}  // namespace thalweg::ps
