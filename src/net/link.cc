#include "net/link.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "net/system.h"
#include "tensor/tags.h"

namespace thalweg {
namespace {

// Per turn, so that signals are not kept waiting by data. A call brings a packet, or 64 KB of them.
constexpr int kReceivesPerTurn = 64;
constexpr std::size_t kReceivedPerTurn = std::size_t{1} << 20;
constexpr int kBatchesPerTurn = 16;
// After this much at once more is about to come: for so long the loop looks again instead of
// sleeping, which spares the sender's core the waking of this one. At 10 Gb/s and less the loop
// always sleeps between two such runs.
constexpr std::size_t kFastBytes = std::size_t{48} << 10;
constexpr Duration kFastWait = Duration::microseconds(30);
// Without a rate that anybody named.
constexpr Bandwidth kUnknownRate = Bandwidth::gbps(100);
constexpr double kUnknownRateFactor = 1.5;
constexpr double kUnknownRateStep = 0.1;
constexpr Duration kBurst = Duration::microseconds(250);
constexpr std::int64_t kLeastBurst = 8;
// A report speaks of so many bursts at least. Fewer, and a receiver that was kept busy looks like a
// path that is congested; and at half the rate each burst would end in a silence, which no report
// spans, so that the rate would stay there.
constexpr int kBurstsPerReport = 4;
// Ethernet: header, checksum, preamble and gap.
constexpr std::size_t kFrameBytes = 38;

DlcpOptions dlcp_options(const Link::Parts& parts, const EndpointOptions& options) {
  DlcpOptions dlcp;
  dlcp.peer = parts.name;
  const SocketAddress local = SocketAddress::local_of(parts.udp.fd());
  const std::int64_t known = options.line_rate_gbps > 0
                                 ? static_cast<std::int64_t>(options.line_rate_gbps * 1e9)
                                 : interface_bps(local);
  dlcp.rate.line_rate = known > 0 ? Bandwidth::bits_per_second(known) : kUnknownRate;
  if (known == 0) {
    dlcp.rate.learn_capacity = true;
    dlcp.rate.congestion_factor = kUnknownRateFactor;
    dlcp.rate.increase_step = kUnknownRateStep;
  }
  const std::size_t overhead = data_overhead(parts.guard != nullptr);
  dlcp.packet_overhead =
      Bytes(static_cast<std::int64_t>(kFrameBytes + parts.udp.header_bytes() + overhead));
  const std::int64_t packet = std::int64_t{parts.payload} + dlcp.packet_overhead.count();
  const auto by_rate = static_cast<std::int64_t>(dlcp.rate.line_rate.bytes_per_second() *
                                                 kBurst.s() / static_cast<double>(packet));
  const std::int64_t most = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(UdpSocket::kMaxMessage / (parts.payload + overhead)), 1,
      static_cast<std::int64_t>(UdpSocket::kMaxPackets));
  dlcp.burst_segments =
      static_cast<std::uint32_t>(std::clamp(by_rate, std::min(kLeastBurst, most), most));
  const Duration reported =
      dlcp.rate.line_rate.transmission_time(Bytes(packet * dlcp.burst_segments * kBurstsPerReport));
  if (reported > dlcp.rate.report_period) {
    // What is added in a second stays the same, up to a quarter of the line at once.
    const double longer = reported.s() / dlcp.rate.report_period.s();
    dlcp.rate.increase_step = std::min(0.25, dlcp.rate.increase_step * longer);
    dlcp.rate.report_period = reported;
  }
  return dlcp;
}

}  // namespace

Link::Link(std::shared_ptr<EventLoop> loop, Parts parts, const EndpointOptions& options)
    : loop_(std::move(loop)),
      name_(parts.name),
      payload_(parts.payload),
      job_(options.job_token),
      dscp_(options.dscp),
      lose_packet_(options.lose),
      dlcp_(dlcp_options(parts, options)),
      batch_limit_(dlcp_.options().burst_segments) {
  guard_ = std::move(parts.guard);
  stream_.emplace(std::move(parts.stream), options.job_token, guard_.get());
  udp_.emplace(std::move(parts.udp));
}

void Link::open() {
  for (const int fd : {stream_->fd(), udp_->fd()}) {
    if (const Status added = loop_->add(fd, EPOLLIN, *this); !added.ok()) {
      lose(added.error().message());
      return;
    }
  }
}

void Link::start(const std::shared_ptr<Transfer::State>& transfer) {
  if (!shut_.empty()) {
    transfer->finish(Error(fmt::format("the connection to {} is closed: {}", name_, shut_)));
    return;
  }
  TransferSpec spec = transfer->spec;
  spec.cookie = reinterpret_cast<std::uint64_t>(transfer.get());
  const Time now = monotonic_now();
  active_.emplace(transfer.get(), transfer);
  const Result<TransferHandle> handle = transfer->direction == Direction::kSend
                                            ? dlcp_.start_send(spec, transfer->tags, now)
                                            : dlcp_.start_recv(spec, now);
  if (handle.ok()) {
    transfer->handle = *handle;
    return;
  }
  active_.erase(transfer.get());
  transfer->finish(handle.error());
}

void Link::cancel(const Transfer::State& transfer) {
  if (active_.contains(&transfer)) {
    dlcp_.cancel(transfer.handle, "by the caller", monotonic_now());
  }
}

void Link::shut(const std::string& cause) {
  if (lost() || !shut_.empty()) return;
  shut_ = cause;
  const Time now = monotonic_now();
  for (const auto& [key, transfer] : active_) dlcp_.cancel(transfer->handle, cause, now);
}

void Link::lose(const std::string& cause) {
  if (lost()) return;
  if (shut_.empty()) shut_ = cause;
  {
    const std::lock_guard lock(mutex_);
    last_counters_ = counters();
  }
  connected_ = false;
  loop_->remove(stream_->fd());
  loop_->remove(udp_->fd());
  stream_.reset();
  udp_.reset();
  dlcp_.connection_lost(cause, monotonic_now());
  deliver_events();
  dlcp_.end_record();
}

std::optional<Time> Link::turn() {
  if (lost()) return std::nullopt;
  dlcp_.on_timeout(monotonic_now());
  // Behind data they would wait for it in the line's queue, and the peer for them.
  copy_signals();
  send_data();
  if (!lost()) send_signals();
  deliver_events();
  if (close_when_settled_ && !lost() && settled()) lose(shut_);
  if (lost()) return std::nullopt;
  watch_writable();
  if (awake_until_ > Time() && monotonic_now() < awake_until_) return Time();
  return busy_ ? dlcp_.next_timer() : dlcp_.next_timeout();
}

void Link::on_ready(int fd, std::uint32_t events) {
  if (lost()) return;
  const bool data = fd == udp_->fd();
  if (data && (events & EPOLLOUT) != 0) busy_ = false;
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) == 0) return;
  // Before signals too, which may speak of it.
  receive_data();
  if (!data || stream_->early()) receive_signals();
}

void Link::receive_data() {
  UdpSocket::Arrival arrival;
  std::size_t bytes = 0;
  for (int calls = 0; calls < kReceivesPerTurn && bytes < kReceivedPerTurn; ++calls) {
    if (udp_->receive(arrival) == UdpSocket::Received::kNothing) return;
    const Time now = monotonic_now();
    bytes += arrival.bytes.size();
    if (bytes >= kFastBytes) awake_until_ = now + kFastWait;
    for (std::span<const std::byte> left = arrival.bytes; !left.empty();) {
      const std::size_t size = std::min(arrival.packet_size, left.size());
      receive_packet(left.first(size), arrival.marked, now);
      left = left.subspan(size);
    }
  }
}

void Link::receive_packet(std::span<const std::byte> packet, bool marked, Time now) {
  DataHeader header;
  const WireError error = decode_data_header(packet, header);
  if (error == WireError::kKind || error == WireError::kShort) {
    const auto on_message = [&](const ControlMessage& m) { dlcp_.on_control(m, now); };
    const ControlStream::CopyRead copy = stream_->receive_copy(packet, on_message);
    if (!copy.good) ++bad_packets_;
    if (copy.data_end) dlcp_.on_data_end(*copy.data_end, now);
    return;
  }
  if (error != WireError::kNone || header.job != job_ || header.keyed != (guard_ != nullptr)) {
    ++bad_packets_;
    return;
  }
  if (guard_ && !guard_->accept_data(packet, header)) return;
  const Placement placement = dlcp_.on_data(header, marked, now);
  if (placement.verdict != Placement::Verdict::kPlace) return;
  const auto* transfer = reinterpret_cast<const Transfer::State*>(placement.cookie);
  const std::span<const std::byte> payload = data_payload(packet, header);
  std::memcpy(transfer->target + placement.offset.count(), payload.data(), payload.size());
}

void Link::receive_signals() {
  const Time now = monotonic_now();
  const std::string wrong =
      stream_->receive([&](const ControlMessage& message) { dlcp_.on_control(message, now); });
  if (!wrong.empty()) lose(wrong);
}

void Link::send_data() {
  for (int batches = 0; batches < kBatchesPerTurn && !busy_; ++batches) {
    if (packet_count_ == 0) {
      if (!dlcp_.poll_data(monotonic_now(), batch_limit_, batch_)) return;
      const auto& transfer = *reinterpret_cast<const Transfer::State*>(batch_.cookie);
      for (std::uint32_t i = 0; i < batch_.count; ++i) {
        DataHeader header = batch_.header(i);
        header.job = job_;
        if (lose_packet_ && lose_packet_(header.sequence)) continue;
        const std::span<std::byte, data_overhead(true)> head = headers_[packet_count_];
        const std::span<const std::byte> payload(transfer.source + batch_.offset(i).count(),
                                                 std::size_t{header.length});
        if (guard_) {
          guard_->seal_data(header, head, payload);
        } else {
          encode_data_header(header, head);
        }
        packets_[packet_count_] = {head.first(data_overhead(guard_ != nullptr)), payload};
        ++packet_count_;
      }
      traffic_class_ = traffic_class_of(batch_.tag, dscp_);
      if (packet_count_ == 0) continue;
    }
    switch (udp_->send(std::span(packets_).first(packet_count_), traffic_class_)) {
      case UdpSocket::Sent::kAll:
        break;
      case UdpSocket::Sent::kBusy:
        busy_ = true;
        return;
      case UdpSocket::Sent::kLost:
        send_errors_ += packet_count_;
        break;
      case UdpSocket::Sent::kTooBig:
        lose(
            fmt::format("packets of {} bytes do not fit the path, whose MTU is now {}: set a "
                        "smaller packet payload",
                        packets_[0].size() + udp_->header_bytes(), udp_->mtu()));
        return;
    }
    packet_count_ = 0;
  }
}

void Link::copy_signals() {
  ControlMessage message;
  while (dlcp_.poll_control(message)) stream_->push(message);
  // Not before data that was to leave before them.
  if (packet_count_ > 0) return;
  const std::span<const std::byte> copy = stream_->take_copy();
  if (copy.empty()) return;
  // A stop goes the way of its data, the others in the queue of control messages. If it does not
  // leave, the stream will do.
  const UdpPacket packet{copy, {}};
  static_cast<void>(
      udp_->send({&packet, 1}, stream_->ends_with_stop()
                                   ? traffic_class_
                                   : traffic_class_of({.priority = kControlPriority}, dscp_)));
}

void Link::send_signals() {
  copy_signals();
  if (const std::string wrong = stream_->flush(); !wrong.empty()) lose(wrong);
}

void Link::deliver_events() {
  TransferOutcome outcome;
  while (dlcp_.poll_event(outcome)) {
    const auto found = active_.find(reinterpret_cast<const Transfer::State*>(outcome.cookie));
    CHECK(found != active_.end());
    const std::shared_ptr<Transfer::State> transfer = std::move(found->second);
    active_.erase(found);
    // Packets that wait for the socket point into the tensor, which is the caller's again.
    if (packet_count_ > 0 && batch_.cookie == outcome.cookie) {
      packet_count_ = 0;
      if (udp_) udp_->abandon();
    }
    transfer->finish(outcome);
  }
}

void Link::watch_writable() {
  const auto watch = [&](int fd, bool wanted, bool& watching) {
    if (wanted == watching) return;
    watching = wanted;
    loop_->change(fd, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
  };
  watch(udp_->fd(), busy_, watching_data_);
  watch(stream_->fd(), stream_->blocked(), watching_signals_);
}

NetCounters Link::counters() const {
  const DlcpCounters& dlcp = dlcp_.counters();
  NetCounters counters;
  counters.packets_sent = dlcp.segments_sent;
  counters.packets_retransmitted = dlcp.segments_retransmitted;
  counters.packets_received = dlcp.segments_placed;
  counters.packets_marked = dlcp.marks;
  counters.packets_unused = dlcp.duplicate + dlcp.late + dlcp.stale;
  counters.packets_bad = bad_packets_ + dlcp.bad_segment + dlcp.bad_length;
  counters.messages_bad = dlcp.bad_messages;
  if (guard_) guard_->count(counters);
  counters.send_errors = send_errors_;
  counters.send_calls = udp_ ? udp_->send_calls() : 0;
  counters.receive_calls = udp_ ? udp_->receive_calls() : 0;
  return counters;
}

NetCounters Link::counters_after_end() const {
  const std::lock_guard lock(mutex_);
  return last_counters_;
}

}  // namespace thalweg
