// Check words of ATP: they show whether a sum is what the workers sent, wherever on its way it was
// changed, also in the memory of a switch (docs/protocol-atp.md, "Check words").
//
// A contribution's check word is the sum, modulo 2^64, of
// - the weighted sum of its elements (tensor/weighted_sum.h),
// - a number of its worker,
// - a number of its job, sequence, exponent and size,
// - 1 if its elements need a larger exponent than they have.
// Whoever adds elements adds the check words too, so that of a sum is known from its elements and
// the contributions that it must hold. One that lacks a contribution, holds one twice or holds one
// of another sequence has the wrong word. The last term counts the workers whose elements did not
// fit; nobody can take such a sum for one that fits.
//
// Elements that saturated break the rule. Such a sum is marked, and no worker takes it as a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/atp/options.h"
#include "wire/atp_packet.h"

namespace thalweg::proto {

class AtpChecker {
 public:
  // `groups`: the number of workers in each group. `weigh`: off, the elements do not count, which
  // all members of the job must agree on. `seats`: AtpWorkerOptions::seats.
  explicit AtpChecker(std::span<const std::uint8_t> groups, bool weigh = true,
                      std::vector<std::optional<AtpSeat>> seats = {});

  // The check word of one contribution. Requires a gradient's header with this worker's exponents.
  [[nodiscard]] std::uint64_t word_of(const wire::AtpHeader& header,
                                      std::span<const std::byte> elements) const;
  // Whether the elements of a gradient are the sum of the contributions that its header names, or
  // those of a parameter the sum of all. Always true if they saturated. Requires a header of this
  // job's shape.
  [[nodiscard]] bool holds(const wire::AtpHeader& header,
                           std::span<const std::byte> elements) const;

 private:
  struct Expected {
    std::uint64_t word = 0;           // without the elements
    std::uint64_t contributions = 0;  // how many
  };
  [[nodiscard]] Expected expected_of(const wire::AtpHeader& header) const;
  [[nodiscard]] std::uint64_t weighed(std::span<const std::byte> elements) const;

  std::vector<Expected> groups_;  // the sums of all workers of each group
  std::vector<std::optional<AtpSeat>> seats_;
  Expected everyone_;
  bool weigh_;
};

}  // namespace thalweg::proto
