#include "proto/atp/check.h"

#include <bit>
#include <utility>

#include "base/prng.h"
#include "tensor/weighted_sum.h"

namespace thalweg::proto {
namespace {

std::uint64_t number_of_worker(std::size_t group, unsigned index) {
  constexpr std::uint64_t kFirst = 0x6174'7063'6865'636b;
  return mix_bits(kFirst + group * wire::kAtpMostWorkersPerGroup + index);
}

std::uint64_t number_of_block(const wire::AtpHeader& header) {
  const std::uint64_t about = std::uint64_t{header.job} << 32 |
                              std::uint64_t{header.elements} << 8 |
                              static_cast<std::uint8_t>(header.exponent);
  return mix_bits(mix_bits(about) + header.sequence);
}

// Exponents above all others stand for what is not finite, those below all others for zeros.
bool exceeds(const wire::AtpHeader& header) { return header.needed_exponent > header.exponent; }

}  // namespace

AtpChecker::AtpChecker(std::span<const std::uint8_t> groups, bool weigh,
                       std::vector<std::optional<AtpSeat>> seats)
    : seats_(std::move(seats)), weigh_(weigh) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Expected& all = groups_.emplace_back();
    all.contributions = groups[g];
    for (unsigned i = 0; i < groups[g]; ++i) all.word += number_of_worker(g, i);
    everyone_.word += all.word;
    everyone_.contributions += all.contributions;
  }
}

AtpChecker::Expected AtpChecker::expected_of(const wire::AtpHeader& header) const {
  Expected sum;
  if (header.kind == wire::AtpKind::kParameter) {
    sum = everyone_;
  } else {
    // A server that adds its own worker's gradient itself gets its group's sum without it.
    const std::optional<AtpSeat> seat =
        seats_.empty() ? std::nullopt : seats_[header.sequence % seats_.size()];
    for (std::uint32_t rest = header.groups; rest != 0; rest &= rest - 1) {
      const auto g = static_cast<std::size_t>(std::countr_zero(rest));
      if (g >= groups_.size()) break;
      sum.word += groups_[g].word;
      sum.contributions += groups_[g].contributions;
      if (seat && seat->group == g) {
        sum.word -= number_of_worker(g, seat->index);
        --sum.contributions;
      }
    }
    for (std::uint32_t rest = header.workers; rest != 0; rest &= rest - 1) {
      sum.word += number_of_worker(header.group, static_cast<unsigned>(std::countr_zero(rest)));
      ++sum.contributions;
    }
  }
  sum.word += sum.contributions * number_of_block(header);
  return sum;
}

std::uint64_t AtpChecker::weighed(std::span<const std::byte> elements) const {
  return weigh_ ? tensor::weighted_sum(elements.data(), elements.size() / sizeof(std::int32_t)) : 0;
}

std::uint64_t AtpChecker::word_of(const wire::AtpHeader& header,
                                  std::span<const std::byte> elements) const {
  return expected_of(header).word + weighed(elements) + (exceeds(header) ? 1 : 0);
}

bool AtpChecker::holds(const wire::AtpHeader& header, std::span<const std::byte> elements) const {
  if (header.saturated) return true;
  const Expected expected = expected_of(header);
  const std::uint64_t exceeding = header.check - expected.word - weighed(elements);
  return exceeding <= expected.contributions && (exceeding > 0) == exceeds(header);
}

}  // namespace thalweg::proto
