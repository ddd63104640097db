#include "net/group/straggler/straggler_engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/io/system.h"
#include "tensor/reduce.h"

namespace thalweg::net {
namespace {

using proto::RankSet;
using proto::StragglerEvent;

// How often the thread checks deadlines and whether the communicator is broken.
constexpr Duration kStragglerLook = Duration::milliseconds(50);
// How long a rank that leaves stays for ranks that are behind.
constexpr auto kStragglerStay = std::chrono::seconds(10);
constexpr Duration kForever = Duration::milliseconds(604'800'000);

}  // namespace

StragglerEngine::StragglerEngine(StragglerEngineOptions options)
    : options_(std::move(options)),
      group_(options_.rank, options_.size),
      letters_(static_cast<std::size_t>(options_.size),
               std::vector<std::byte>(proto::straggler_message_bytes(options_.size))) {
  thread_ = std::thread([this] { run(); });
}

void StragglerEngine::start(const StragglerStart& start, const std::function<void()>& compare) {
  const std::lock_guard order(order_);
  const auto record = std::make_shared<Record>();
  record->start = start;
  const Op& op = *start.op;
  record->layout = proto::StragglerLayout::of(op.elements, size_of(op.type), options_.size);
  record->deadline = monotonic_now() + op.limit;
  const std::size_t bytes = bytes_of(*record, op.elements);
  record->contribution = std::make_unique_for_overwrite<std::byte[]>(bytes);
  tensor::reduce(op.type, ReduceOp::kSum, record->contribution.get(), op.tensor, start.residual,
                 static_cast<std::size_t>(op.elements));
  compare();
  {
    const std::lock_guard lock(mutex_);
    ++unsettled_;
  }
  const std::lock_guard lock(inbox_->mutex);
  inbox_->happenings.push_back({.what = What::kStart, .record = record, .op = {}});
  inbox_->changed.notify_all();
}

Status StragglerEngine::wait(Op& op) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return op.result.has_value(); });
  return *op.result;
}

bool StragglerEngine::over(const Op& op) {
  const std::lock_guard lock(mutex_);
  return op.result.has_value();
}

proto::StragglerCounts StragglerEngine::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void StragglerEngine::leave() {
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(left_, true)) return;
    changed_.wait_for(lock, kStragglerStay, [&] { return unsettled_ == 0; });
  }
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->stopping = true;
    inbox_->changed.notify_all();
  }
  thread_.join();
}

void StragglerEngine::run() {
  while (true) {
    std::deque<Happening> happenings;
    {
      std::unique_lock lock(inbox_->mutex);
      const auto due = [&] { return inbox_->stopping || !inbox_->happenings.empty(); };
      if (records_.empty()) {
        inbox_->changed.wait(lock, due);
      } else {
        const Time now = monotonic_now();
        const Time next =
            std::min(group_.next_timeout().value_or(now + kStragglerLook), now + kStragglerLook);
        const std::chrono::nanoseconds pause(std::max<std::int64_t>(0, (next - now).ps() / 1000));
        inbox_->changed.wait_for(lock, pause, due);
      }
      if (inbox_->stopping) break;
      happenings = std::exchange(inbox_->happenings, {});
    }
    for (const Happening& happening : happenings) {
      handle(happening);
      poll();
    }
    group_.on_timeout(monotonic_now());
    poll();
    look_at_deadlines();
    drop_settled();
  }
  fail_all(has_left());
  const std::lock_guard lock(inbox_->mutex);
  for (const Happening& happening : inbox_->happenings) {
    if (happening.what == What::kStart) end(*happening.record, has_left());
  }
  inbox_->happenings.clear();
}

void StragglerEngine::handle(const Happening& happening) {
  if (happening.what == What::kStart) {
    begin(happening.record);
    return;
  }
  if (happening.what == What::kMessage) {
    on_message(happening);
    return;
  }
  --happening.record->pending;
  // A message that was refused or withdrawn is over too; a lost rank shows by its messages.
  const int owner = happening.what == What::kResult ? happening.peer : options_.rank;
  const std::int64_t whole = happening.record->layout.count(owner, happening.segment);
  if (!happening.op->result->ok() || happening.op->elements != whole) return;
  const std::uint64_t call = happening.record->number;
  if (happening.what == What::kContribution) {
    group_.on_contribution(monotonic_now(), call, happening.peer, happening.segment);
  } else if (happening.what == What::kResult) {
    group_.on_result(monotonic_now(), call, happening.peer, happening.segment);
  }
}

std::size_t StragglerEngine::bytes_of(const Record& record, std::int64_t elements) const {
  return static_cast<std::size_t>(elements) * size_of(record.start.op->type);
}

std::byte* StragglerEngine::place(const Record& record, std::byte* base, int owner,
                                  int segment) const {
  return base + bytes_of(record, record.layout.first(owner, segment));
}

void StragglerEngine::post(const std::shared_ptr<Record>& record, const Happening& happening,
                           std::uint32_t tag, bool sends, std::byte* data, std::int64_t elements) {
  const auto op = std::make_shared<Op>();
  op->host = box_;
  op->type = record ? record->start.op->type : DType::kInt8;
  op->elements = elements;
  op->tensor = data;
  op->sends = sends;
  op->peer = happening.peer;
  op->tag = tag;
  op->limit = record ? record->start.op->limit : kForever;
  op->text = record ? record->start.op->text : "allreduce with a straggler bound";
  Happening told = happening;
  told.record = record;
  told.op = op;
  op->on_over = [inbox = inbox_, told = std::move(told)] {
    const std::lock_guard lock(inbox->mutex);
    inbox->happenings.push_back(told);
    inbox->changed.notify_all();
  };
  if (record) {
    ++record->pending;
    if (happening.what == What::kContribution) {
      record->contributions[{happening.peer, happening.segment}] = {op, tag};
    } else if (happening.what == What::kResult) {
      record->results[{happening.peer, happening.segment}] = {op, tag};
    }
  }
  if (sends) {
    box_->send(op);
  } else {
    box_->receive(op);
  }
}

void StragglerEngine::listen(int peer) {
  std::vector<std::byte>& letter = letters_[static_cast<std::size_t>(peer)];
  post({}, {.what = What::kMessage, .record = {}, .op = {}, .peer = peer},
       straggler_tag(StragglerTag::kMessage, 0, 0), false, letter.data(), std::ssize(letter));
}

void StragglerEngine::on_message(const Happening& happening) {
  const Time now = monotonic_now();
  const int peer = happening.peer;
  proto::StragglerMessage message;
  if (!happening.op->result->ok()) {
    lost_.emplace(peer, happening.op->result->error());
    group_.on_lost(now, peer);
    return;
  }
  if (proto::decode(letters_[static_cast<std::size_t>(peer)], options_.size, message)) {
    group_.on_message(now, peer, message);
  }
  listen(peer);
}

void StragglerEngine::send_data(const std::shared_ptr<Record>& record, int peer, int segment,
                                std::uint32_t tag, std::byte* data, std::int64_t elements) {
  post(record, {.what = What::kSent, .record = {}, .op = {}, .peer = peer, .segment = segment}, tag,
       true, data, elements);
}

void StragglerEngine::begin(const std::shared_ptr<Record>& record) {
  if (!box_) {
    Result<std::shared_ptr<Mailbox>> box = options_.mailbox();
    if (!box.ok()) failed_ = box.error();
    if (box.ok()) box_ = std::move(*box);
    for (int r = 0; box_ && r < options_.size; ++r) {
      if (r != options_.rank) listen(r);
    }
  }
  if (failed_) {
    end(*record, failed_->within(record->start.op->text));
    const std::lock_guard lock(mutex_);
    --unsettled_;
    changed_.notify_all();
    return;
  }
  const proto::StragglerLayout& layout = record->layout;
  const std::size_t bytes = bytes_of(*record, layout.elements);
  const std::size_t shard = bytes_of(*record, layout.rest(options_.rank, 0));
  record->result = std::make_unique_for_overwrite<std::byte[]>(bytes);
  record->arrived =
      std::make_unique_for_overwrite<std::byte[]>(shard * static_cast<std::size_t>(options_.size));
  const std::uint64_t call = group_.start(
      monotonic_now(),
      {.layout = layout, .bound = record->start.bound, .window = record->start.window});
  record->number = call;
  records_[call] = record;
  const int self = options_.rank;
  for (int s = 0; s < layout.segments; ++s) {
    for (int i = 1; i < options_.size; ++i) {
      const int peer = (self + i) % options_.size;
      std::byte* const mine = record->arrived.get() + shard * static_cast<std::size_t>(peer);
      const std::int64_t offset = layout.first(self, s) - layout.first(self, 0);
      post(record,
           {.what = What::kContribution, .record = {}, .op = {}, .peer = peer, .segment = s},
           straggler_tag(StragglerTag::kContribution, call, s), false,
           mine + bytes_of(*record, offset), layout.count(self, s));
      post(record, {.what = What::kResult, .record = {}, .op = {}, .peer = peer, .segment = s},
           straggler_tag(StragglerTag::kResult, call, s), false,
           place(*record, record->result.get(), peer, s), layout.count(peer, s));
    }
  }
  for (int s = 0; s < layout.segments; ++s) {
    for (int i = 1; i < options_.size; ++i) {
      const int owner = (self + i) % options_.size;
      const RankSet set = group_.set_of_result(call, owner, s);
      const bool late = set != 0 && (set >> self & 1U) == 0;
      send_data(record, owner, s, straggler_tag(StragglerTag::kContribution, call, s),
                place(*record, record->contribution.get(), owner, s),
                late ? 0 : layout.count(owner, s));
    }
  }
}

void StragglerEngine::poll() {
  StragglerEvent event;
  while (group_.poll_event(event)) {
    const auto found = records_.find(event.call);
    if (found == records_.end()) continue;
    const std::shared_ptr<Record> record = found->second;
    if (event.kind == StragglerEvent::Kind::kSum) on_sum(record, event.segment, event.set);
    if (event.kind == StragglerEvent::Kind::kDecided) on_decided(record);
    if (event.kind == StragglerEvent::Kind::kOver) on_over(*record);
    if (event.kind == StragglerEvent::Kind::kFailed) {
      const auto lost = lost_.find(event.rank);
      fail(*record, lost != lost_.end()
                        ? lost->second
                        : Error(ErrorCode::kPeerLost, fmt::format("rank {} is lost", event.rank),
                                event.rank));
    }
  }
  proto::StragglerGroup::Outgoing out;
  std::vector<std::byte> bytes(proto::straggler_message_bytes(options_.size));
  while (!failed_ && group_.poll_transmit(out)) {
    proto::encode(out.message, options_.size, bytes);
    // Small enough to be over when this returns, unless very many wait at the receiver.
    const auto copy = std::make_shared<std::vector<std::byte>>(bytes);
    const auto op = std::make_shared<Op>();
    op->host = box_;
    op->type = DType::kInt8;
    op->elements = std::ssize(*copy);
    op->tensor = copy->data();
    op->sends = true;
    op->peer = out.to;
    op->tag = straggler_tag(StragglerTag::kMessage, 0, 0);
    op->limit = kForever;
    op->text = "allreduce with a straggler bound";
    op->on_over = [copy] {};
    box_->send(op);
  }
}

void StragglerEngine::end(Record& record, const Status& status) {
  if (std::exchange(record.over, true)) return;
  const std::lock_guard lock(mutex_);
  counts_ = group_.counts();
  record.start.op->end(status);
  changed_.notify_all();
}

// The comparison knows better whom to blame, if it has failed.
void StragglerEngine::fail(Record& record, const Error& why) {
  if (record.over) return;
  Error cause = why;
  Op& comparison = *record.start.comparison;
  if (comparison.host->over(comparison)) {
    const Status compared = comparison.host->wait(comparison);
    if (!compared.ok()) cause = compared.error();
  } else if (const std::optional<Error> broken = options_.broken()) {
    cause = *broken;
  }
  failed_ = cause;
  options_.abandon(cause);
  fail_all(cause);
}

void StragglerEngine::fail_all(const Error& why) {
  if (!failed_) failed_ = why;
  for (const auto& [number, record] : records_) {
    end(*record, why.within(record->start.op->text));
  }
}

void StragglerEngine::look_at_deadlines() {
  if (failed_ || records_.empty()) return;
  if (const std::optional<Error> broken = options_.broken()) {
    fail_all(*broken);
    return;
  }
  const Time now = monotonic_now();
  for (const auto& [number, record] : records_) {
    if (record->over || now < record->deadline) continue;
    const std::optional<int> late = group_.waits_for(number);
    const std::string who = late ? fmt::format("rank {}", *late) : "the others";
    fail(*record, Error(ErrorCode::kTimeout,
                        fmt::format("{} did not send what is needed within {}", who,
                                    to_human(record->start.op->limit)),
                        late));
    return;
  }
}

void StragglerEngine::drop_settled() {
  int dropped = 0;
  for (auto each = records_.begin(); each != records_.end();) {
    const Record& record = *each->second;
    if (!record.over || (record.pending > 0 && !failed_)) {
      ++each;
      continue;
    }
    group_.on_settled(each->first);
    each = records_.erase(each);
    ++dropped;
  }
  if (dropped == 0) return;
  const std::lock_guard lock(mutex_);
  unsettled_ -= dropped;
  changed_.notify_all();
}

}  // namespace thalweg::net
