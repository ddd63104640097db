#include "net/group/streams/lanes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace thalweg::net {

void Loans::sent(std::uint32_t stream, std::size_t bytes, const Said& said) {
  const auto mine = std::ranges::find_if(
      loans_, [&](const Loan& loan) { return loan.stream == stream && loan.left > 0; });
  CHECK(mine != loans_.end() && mine->left >= bytes);
  mine->left -= bytes;
  mine->untold += bytes;
  Op* const op = mine->op;
  const std::uint32_t send = mine->send;
  // Later loans of the same send may have waited for this one.
  for (auto loan = loans_.begin(); loan != loans_.end();) {
    if (loan->op != op || loan->send != send) {
      ++loan;
      continue;
    }
    if (loan->untold > 0) op->executor->sent(send, std::exchange(loan->untold, 0));
    if (loan->left > 0) break;
    loan = loans_.erase(loan);
  }
  said(*op);
}

std::size_t Loans::of(const Op* op, std::uint32_t send) const {
  std::size_t sum = 0;
  for (const Loan& loan : loans_) {
    if (loan.op == op && loan.send == send) sum += loan.left + loan.untold;
  }
  return sum;
}

}  // namespace thalweg::net
