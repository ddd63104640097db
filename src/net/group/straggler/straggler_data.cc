// What happens to the data of a call: sums, refusals of what is late, and what the caller gets.
#include <cstring>
#include <utility>

#include "net/group/straggler/straggler_engine.h"
#include "tensor/reduce.h"

namespace thalweg::net {

using proto::RankSet;

void StragglerEngine::refuse(const std::shared_ptr<Record>& record,
                             std::map<std::pair<int, int>, Receive>& receives, int peer,
                             int segment) {
  const auto found = receives.find({peer, segment});
  if (found == receives.end() || found->second.op->elements == 0) return;
  const std::uint32_t tag = found->second.tag;
  if (!box_->withdraw(found->second.op)) return;
  const What what = &receives == &record->results ? What::kResult : What::kContribution;
  post(record, {.what = what, .record = {}, .op = {}, .peer = peer, .segment = segment}, tag, false,
       record->arrived.get(), 0);
}

void StragglerEngine::on_sum(const std::shared_ptr<Record>& record, int segment, RankSet set) {
  const int self = options_.rank;
  const Op& op = *record->start.op;
  const proto::StragglerLayout& layout = record->layout;
  const auto count = static_cast<std::size_t>(layout.count(self, segment));
  const std::size_t shard = bytes_of(*record, layout.rest(self, 0));
  const std::size_t offset = bytes_of(*record, layout.first(self, segment) - layout.first(self, 0));
  std::byte* const sum = place(*record, record->result.get(), self, segment);
  bool first = true;
  for (int r = 0; r < options_.size; ++r) {
    if ((set >> r & 1U) == 0) {
      refuse(record, record->contributions, r, segment);
      continue;
    }
    const std::byte* const from =
        r == self ? place(*record, record->contribution.get(), self, segment)
                  : record->arrived.get() + shard * static_cast<std::size_t>(r) + offset;
    if (std::exchange(first, false)) {
      std::memcpy(sum, from, count * size_of(op.type));
    } else {
      tensor::reduce(op.type, ReduceOp::kSum, sum, sum, from, count);
    }
  }
  if (op.op == ReduceOp::kMean) tensor::finish_mean(op.type, sum, count, options_.size);
  for (int i = 1; i < options_.size; ++i) {
    const int peer = (self + i) % options_.size;
    send_data(record, peer, segment, straggler_tag(StragglerTag::kResult, record->number, segment),
              sum, layout.count(self, segment));
  }
}

void StragglerEngine::on_decided(const std::shared_ptr<Record>& record) {
  const proto::StragglerCut& cut = group_.cut_of(record->number);
  const int self = options_.rank;
  for (int owner = 0; owner < options_.size; ++owner) {
    for (int s = cut[static_cast<std::size_t>(owner)]; s < record->layout.segments; ++s) {
      if (owner != self) {
        refuse(record, record->results, owner, s);
        continue;
      }
      if (group_.summed(record->number, s)) continue;
      for (int r = 0; r < options_.size; ++r) {
        if (r == self) continue;
        refuse(record, record->contributions, r, s);
        send_data(record, r, s, straggler_tag(StragglerTag::kResult, record->number, s),
                  record->result.get(), 0);
      }
    }
  }
}

void StragglerEngine::on_over(Record& record) {
  const Op& op = *record.start.op;
  for (int owner = 0; owner < options_.size; ++owner) {
    for (int s = 0; s < record.layout.segments; ++s) {
      const RankSet set = group_.set_of_result(record.number, owner, s);
      const std::size_t bytes = bytes_of(record, record.layout.count(owner, s));
      std::byte* const tensor = place(record, op.tensor, owner, s);
      std::byte* const residual = place(record, record.start.residual, owner, s);
      if (set == 0) {
        std::memset(tensor, 0, bytes);
      } else {
        std::memcpy(tensor, place(record, record.result.get(), owner, s), bytes);
      }
      if ((set >> options_.rank & 1U) != 0) {
        std::memset(residual, 0, bytes);
      } else {
        std::memcpy(residual, place(record, record.contribution.get(), owner, s), bytes);
      }
    }
  }
  end(record, ok_status());
}

}  // namespace thalweg::net
