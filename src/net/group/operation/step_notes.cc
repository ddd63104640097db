#include "net/group/operation/step_notes.h"

#include <utility>

namespace thalweg::net {
namespace {

template <class Note>
void keep(std::vector<Note>& notes, const Note& note, std::size_t& left_out) {
  if (notes.size() < StepNotes::kMostNotes) {
    notes.push_back(note);
  } else {
    ++left_out;
  }
}

}  // namespace

void StepNotes::begin(const exec::RankPlan& plan) {
  plan_ = &plan;
  sent_.assign(plan.sends().size(), 0);
  arrived_.assign(plan.arrivals().size(), 0);
}

void StepNotes::on_send(std::uint32_t send, Time now) {
  if (std::exchange(sent_[send], 1) == 0) open_.push_back({send, true, now});
}

void StepNotes::on_arrival(std::uint32_t arrival, Time now) {
  if (std::exchange(arrived_[arrival], 1) == 0) open_.push_back({arrival, false, now});
}

void StepNotes::look(const exec::StreamExecutor& executor, Time now) {
  std::erase_if(open_, [&](const Open& open) {
    const bool over =
        open.sends ? executor.sent_all(open.index) : executor.outstanding(open.index) == 0;
    if (over) end(open, now);
    return over;
  });
}

void StepNotes::add_transfer(bool sends, std::uint32_t index, const TransferReport& report,
                             Time now) {
  end({index, sends, now - Duration::nanoseconds(report.time.count())}, now);
  const Rank peer = sends ? plan_->sends()[index].target : plan_->arrivals()[index].source;
  if (sends && report.retransmissions > 0) {
    add_loss({.at = now,
              .peer = peer,
              .sends = true,
              .again = true,
              .count = static_cast<std::int64_t>(report.retransmissions)});
  }
  std::int64_t missing = 0;
  for (const ElementRange& range : report.missing) missing += range.end - range.begin;
  if (missing > 0) add_loss({.at = now, .peer = peer, .count = missing});
}

void StepNotes::add_loss(const Loss& loss) { keep(losses_, loss, left_out_); }

void StepNotes::add_stall(const Stall& stall) { keep(stalls_, stall, left_out_); }

void StepNotes::close(Time now) {
  for (const Open& open : std::exchange(open_, {})) end(open, now);
}

void StepNotes::end(const Open& open, Time now) {
  const std::uint32_t number =
      open.sends ? plan_->sends()[open.index].buffer : plan_->arrivals()[open.index].buffer;
  const exec::RankPlan::Buffer& buffer = plan_->buffers()[number];
  keep(steps_,
       {.start = open.start,
        .end = now,
        .peer =
            open.sends ? plan_->sends()[open.index].target : plan_->arrivals()[open.index].source,
        .sends = open.sends,
        .chunk = buffer.chunk,
        .bytes = buffer.bytes},
       left_out_);
}

}  // namespace thalweg::net
