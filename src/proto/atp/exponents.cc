#include "proto/atp/exponents.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace thalweg::proto {

AtpScaling atp_scaling(DType type, std::int64_t elements, std::uint8_t operation) {
  CHECK(tensor::has_fixed_point(type) && elements > 0);
  constexpr AtpScaling kWide{.headroom = 2, .slack = 4};
  constexpr AtpScaling kNarrow{.headroom = 4, .slack = 10};
  AtpScaling scaling = type == DType::kFloat32 ? kWide : kNarrow;
  scaling.kind = static_cast<std::uint64_t>(elements) << 16 |
                 static_cast<std::uint64_t>(type) << 8 | operation;
  return scaling;
}

AtpFit fit_of(std::int8_t exponent, std::int8_t needed, std::int8_t slack) {
  if (needed == tensor::kNotFinite) return AtpFit::kNotFinite;
  if (needed == tensor::kNoExponent) return AtpFit::kFits;
  return needed <= exponent && exponent - needed <= slack ? AtpFit::kFits : AtpFit::kRepeat;
}

std::uint64_t AtpExponents::find(const AtpScaling& scaling) {
  if (const auto known = numbers_.find(scaling.kind); known != numbers_.end()) return known->second;
  // All workers forget at the same call. What calls in flight need stays until they have learned
  // it.
  if (numbers_.size() >= options_.most_kinds) numbers_.clear();
  while (numbers_.empty() && !kinds_.empty() && kinds_.front().open == 0) {
    kinds_.pop_front();
    ++first_kind_;
  }
  const std::uint64_t number = first_kind_ + kinds_.size();
  kinds_.push_back({.headroom = scaling.headroom});
  numbers_[scaling.kind] = number;
  return number;
}

// The number of the call that the next one learns from; its own if there is none.
std::uint64_t AtpExponents::source_of(const Kind& kind, std::uint64_t first) const {
  const std::uint64_t own = kind.next_number();
  for (std::uint64_t number = own; number-- > kind.first_number;) {
    if (first - kind.record(number).first >= options_.lag_sequences ||
        own - number >= options_.lag_calls) {
      return number;
    }
  }
  return kind.records.empty() ? own : kind.first_number;
}

AtpExponents::Call AtpExponents::start(const AtpScaling& scaling, std::uint64_t first,
                                       std::uint64_t blocks) {
  CHECK(scaling.kind != 0 && blocks > 0);
  const Call call{find(scaling), kind(find(scaling)).next_number()};
  Kind& kind = this->kind(call.kind);
  Record record{.first = first, .source = source_of(kind, first), .left = blocks};
  record.needed.assign(blocks, kUnknown);
  kind.records.push_back(std::move(record));
  ++kind.open;
  forget(kind);
  return call;
}

// Sources never go back. So the records before the source of the oldest open call are needed only
// if the next call may choose them: if no later one is far enough back.
void AtpExponents::forget(Kind& kind) const {
  const auto open = std::ranges::find_if(kind.records, [](const Record& r) { return r.left > 0; });
  const std::uint64_t needed = open == kind.records.end() ? kind.next_number() : open->source;
  const std::uint64_t next = source_of(kind, kind.records.back().first + 1);
  while (kind.first_number < std::min(needed, next)) {
    kind.records.pop_front();
    ++kind.first_number;
  }
}

std::int8_t AtpExponents::known(const Kind& kind, std::uint64_t number, std::uint64_t index) const {
  const std::uint64_t source = kind.record(number).source;
  if (source == number) return tensor::kNoExponent;
  return kind.record(source).needed[index];
}

std::optional<std::int8_t> AtpExponents::predict(const Call& call, std::uint64_t index) const {
  const Kind& kind = this->kind(call.kind);
  const std::int8_t known = this->known(kind, call.number, index);
  if (known == kUnknown) return std::nullopt;
  if (known == tensor::kNoExponent) return kFirstGuess;
  return static_cast<std::int8_t>(std::min<int>(known + kind.headroom, int{tensor::kMostExponent}));
}

void AtpExponents::learn(const Call& call, std::uint64_t index, std::int8_t needed) {
  Kind& kind = this->kind(call.kind);
  Record& record = kind.record(call.number);
  const bool tells = needed != tensor::kNoExponent && needed != tensor::kNotFinite;
  CHECK(record.left > 0 && record.needed[index] == kUnknown);
  record.needed[index] = tells ? needed : known(kind, call.number, index);
  if (--record.left == 0) --kind.open;
}

void AtpExponents::encode_state(std::string& out) const {
  out += 'e';
  for (const Kind& kind : kinds_) {
    out += fmt::format("{}/", kind.first_number);
    for (const Record& record : kind.records) {
      out += fmt::format("{},{}:", record.first, record.source);
      for (const std::int8_t needed : record.needed) out += fmt::format("{},", needed);
    }
  }
}

}  // namespace thalweg::proto
