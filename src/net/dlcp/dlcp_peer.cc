#include "net/dlcp/dlcp_peer.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "net/dlcp/peer_options.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "tensor/tags.h"

namespace thalweg::net {
namespace {

// Limits of one turn, so that data does not delay signals. One receive call returns one packet, or
// up to 64 KB of packets.
constexpr int kReceivesPerTurn = 64;
constexpr std::size_t kReceivedPerTurn = std::size_t{1} << 20;
constexpr int kBatchesPerTurn = 16;
// After receiving kFastBytes at once, more is about to come: the loop then polls for kFastWait
// instead of sleeping, which saves the sender's core the cost of waking this one. At 10 Gb/s and
// less the loop always sleeps between two such runs.
constexpr std::size_t kFastBytes = std::size_t{48} << 10;
constexpr Duration kFastWait = Duration::microseconds(30);
}  // namespace

DlcpPeer::DlcpPeer(std::shared_ptr<EventLoop> loop, Parts parts, const EndpointOptions& options,
                   LosePacket lose, const std::shared_ptr<HostGrants>& grants)
    : loop_(std::move(loop)),
      name_(parts.name),
      payload_(parts.payload),
      job_(options.job_token),
      dscp_(options.dscp),
      checksum_(options.checksum),
      lose_packet_(std::move(lose)),
      grants_(grants),
      number_(grants ? grants->next_number() : 0),
      dlcp_(dlcp_options(parts, options), grants ? &grants->scheduler() : nullptr, number_),
      batch_limit_(dlcp_.options().burst_segments) {
  guard_ = std::move(parts.guard);
  stream_.emplace(std::move(parts.stream), options.job_token, guard_.get());
  set_dscp(stream_->fd(), tensor::dscp_of(kControlPriority, dscp_));
  udp_ = std::move(parts.udp);
}

void DlcpPeer::open() {
  std::vector<int> sockets{stream_->fd()};
  for (const UdpSocket& udp : udp_) sockets.push_back(udp.fd());
  for (const int fd : sockets) {
    if (const Status added = loop_->add(fd, EPOLLIN, *this); !added.ok()) {
      lose(added.error());
      return;
    }
  }
  if (udp_.size() > 1) dlcp_.set_paths(static_cast<std::uint32_t>(udp_.size()), monotonic_now());
}

void DlcpPeer::start(const std::shared_ptr<Transfer::State>& transfer) {
  if (shut_) {
    transfer->finish(shut_->within(fmt::format("the connection to {} is closed", name_)));
    return;
  }
  proto::TransferSpec spec = transfer->spec;
  spec.cookie = reinterpret_cast<std::uint64_t>(transfer.get());
  const Time now = monotonic_now();
  active_.emplace(transfer.get(), transfer);
  const Result<proto::TransferHandle> handle = transfer->direction == proto::Direction::kSend
                                                   ? dlcp_.start_send(spec, transfer->tags, now)
                                                   : dlcp_.start_recv(spec, now);
  if (handle.ok()) {
    transfer->handle = *handle;
    return;
  }
  active_.erase(transfer.get());
  transfer->finish(handle.error());
}

void DlcpPeer::offer(Transfer::State& transfer) {
  std::vector<Bitmap::Run> offers;
  {
    const std::lock_guard lock(transfer.mutex);
    offers.swap(transfer.offers);
  }
  if (!active_.contains(&transfer)) return;
  const Time now = monotonic_now();
  for (const Bitmap::Run& run : offers) dlcp_.offer(transfer.handle, run, now);
}

void DlcpPeer::cancel(const Transfer::State& transfer) {
  if (active_.contains(&transfer)) {
    dlcp_.cancel(transfer.handle, "by the caller", monotonic_now());
  }
}

void DlcpPeer::shut(const std::string& cause) {
  if (lost() || shut_) return;
  shut_ = Error(ErrorCode::kCancelled, cause);
  const Time now = monotonic_now();
  for (const auto& [key, transfer] : active_) dlcp_.cancel(transfer->handle, cause, now);
}

void DlcpPeer::lose(const Error& cause) {
  if (lost()) return;
  if (!shut_) shut_ = cause;
  {
    const std::lock_guard lock(mutex_);
    last_counters_ = counters();
  }
  connected_ = false;
  loop_->remove(stream_->fd());
  for (const UdpSocket& udp : udp_) loop_->remove(udp.fd());
  stream_.reset();
  udp_.clear();
  dlcp_.connection_lost(cause.message(), monotonic_now(), cause.code());
  deliver_events();
  dlcp_.end_record();
}

std::optional<Time> DlcpPeer::turn() {
  if (lost()) return std::nullopt;
  dlcp_.on_timeout(monotonic_now());
  // Signals go first: behind data they would wait in the interface's queue, and the peer for them.
  copy_signals();
  send_data();
  if (!lost()) send_signals();
  deliver_events();
  if (const std::uint64_t requests = dlcp_.counters().requests; requests != requests_seen_) {
    requests_seen_ = requests;
    data_vanishes_ = dlcp_.data_vanishes();
  }
  if (close_when_settled_ && !lost() && settled()) lose(*shut_);
  if (lost()) return std::nullopt;
  watch_writable();
  if (awake_until_ > Time() && monotonic_now() < awake_until_) return Time();
  return busy_ ? dlcp_.next_timer() : dlcp_.next_timeout();
}

void DlcpPeer::on_ready(int fd, std::uint32_t events) {
  if (lost()) return;
  const bool data = fd != stream_->fd();
  if (data && (events & EPOLLOUT) != 0) busy_ = false;
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) == 0) return;
  // Data is received first even if a signal woke us, because signals may refer to it.
  for (std::uint32_t path = 0; path < udp_.size(); ++path) {
    if (!data || fd == udp_[path].fd()) receive_data(path);
  }
  tell_arrivals();
  if (!data || stream_->early()) receive_signals();
}

void DlcpPeer::receive_data(std::uint32_t path) {
  UdpSocket::Arrival arrival;
  std::size_t bytes = 0;
  for (int calls = 0; calls < kReceivesPerTurn && bytes < kReceivedPerTurn; ++calls) {
    if (udp_[path].receive(arrival) == UdpSocket::Received::kNothing) return;
    const Time now = monotonic_now();
    bytes += arrival.bytes.size();
    if (bytes >= kFastBytes) awake_until_ = now + kFastWait;
    for (std::span<const std::byte> left = arrival.bytes; !left.empty();) {
      const std::size_t size = std::min(arrival.packet_size, left.size());
      receive_packet(left.first(size), path, arrival.marked, now);
      left = left.subspan(size);
    }
  }
}

void DlcpPeer::receive_packet(std::span<const std::byte> packet, std::uint32_t path, bool marked,
                              Time now) {
  wire::DataHeader header;
  const wire::WireError error = wire::decode_data_header(packet, header);
  if (error == wire::WireError::kKind || error == wire::WireError::kShort) {
    const auto on_message = [&](const wire::ControlMessage& m) { dlcp_.on_control(m, now); };
    const ControlStream::CopyRead copy = stream_->receive_copy(packet, on_message);
    if (!copy.good) ++bad_packets_;
    if (copy.data_end) {
      dlcp_.on_data_end(copy.data_end->sequence, copy.data_end->queue, now, path);
    }
    return;
  }
  if (error != wire::WireError::kNone || header.job != job_ ||
      header.keyed != (guard_ != nullptr)) {
    ++bad_packets_;
    return;
  }
  if (guard_ && !guard_->accept_data(packet, header)) return;
  if (!guard_ && !wire::data_is_intact(packet)) {
    ++corrupt_packets_;
    return;
  }
  const proto::Placement placement = dlcp_.on_data(header, marked, now, path);
  if (placement.verdict != proto::Placement::Verdict::kPlace) return;
  auto* transfer = reinterpret_cast<Transfer::State*>(placement.cookie);
  const std::span<const std::byte> payload = wire::data_payload(packet, header);
  std::memcpy(transfer->target + placement.offset.count(), payload.data(), payload.size());
  if (!transfer->on_arrival) return;
  if (transfer->news.empty()) with_news_.push_back(transfer);
  transfer->note_arrival(placement.offset, payload.size());
}

// Transfers end in deliver_events(), which is called after this.
void DlcpPeer::tell_arrivals() {
  for (Transfer::State* transfer : with_news_) transfer->tell_arrivals();
  with_news_.clear();
}

void DlcpPeer::receive_signals() {
  const Time now = monotonic_now();
  const std::string wrong = stream_->receive(
      [&](const wire::ControlMessage& message) { dlcp_.on_control(message, now); });
  if (!wrong.empty()) lose({ErrorCode::kPeerLost, wrong});
}

void DlcpPeer::send_data() {
  for (int batches = 0; batches < kBatchesPerTurn && !busy_; ++batches) {
    if (packet_count_ == 0) {
      if (!dlcp_.poll_data(monotonic_now(), batch_limit_, batch_)) return;
      const auto& transfer = *reinterpret_cast<const Transfer::State*>(batch_.cookie);
      for (std::uint32_t i = 0; i < batch_.count; ++i) {
        wire::DataHeader header = batch_.header(i);
        header.job = job_;
        if (lose_packet_ && lose_packet_(header.sequence)) continue;
        const std::span<std::byte, wire::data_overhead(true)> head = headers_[packet_count_];
        const std::span<const std::byte> payload(transfer.source + batch_.offset(i).count(),
                                                 std::size_t{header.length});
        if (guard_) {
          guard_->seal_data(header, head, payload);
        } else {
          wire::encode_data_header(header, head);
          const auto whole = head.first(wire::data_overhead(false));
          std::ranges::fill(whole.last(wire::kChecksumSize), std::byte{0});
          if (checksum_) wire::put_checksum(whole, payload);
        }
        packets_[packet_count_] = {head.first(wire::data_overhead(guard_ != nullptr)), payload};
        ++packet_count_;
      }
      traffic_class_ = tensor::traffic_class_of(batch_.tag, dscp_);
      if (packet_count_ == 0) continue;
    }
    UdpSocket& udp = udp_[batch_.path];
    switch (udp.send(std::span(packets_).first(packet_count_), traffic_class_)) {
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
            Error(fmt::format("packets of {} bytes do not fit the path, whose MTU is now {}: set a "
                              "smaller packet payload",
                              packets_[0].size() + udp.header_bytes(), udp.mtu())));
        return;
    }
    packet_count_ = 0;
  }
}

void DlcpPeer::send_grants(std::span<const proto::GrantScheduler::Grant> grants) {
  if (lost()) return;
  for (const proto::GrantScheduler::Grant& grant : grants) {
    stream_->push(wire::GrantMessage{grant.transfer, grant.segments});
  }
  grants_sent_ += grants.size();
  send_copy();
  if (const std::string wrong = stream_->flush(); !wrong.empty()) {
    lose({ErrorCode::kPeerLost, wrong});
  }
}

Duration DlcpPeer::round_trip() const {
  return lost() ? Duration() : shortest_round_trip(stream_->fd());
}

void DlcpPeer::copy_signals() {
  wire::ControlMessage message;
  while (dlcp_.poll_control(message)) {
    // A copy ends with a stop or brings none. Several stops share a copy if the last vouches for
    // the data of all: each is of the same queue as the one before it, or of a less urgent one.
    const auto* stop = std::get_if<wire::StopMessage>(&message);
    const std::optional<std::uint8_t> last = stream_->stop_queue();
    if (stop == nullptr ? last.has_value() : !last || stop->queue < *last) send_copy();
    stream_->push(message);
  }
  send_copy();
}

void DlcpPeer::send_copy() {
  // Signals must not overtake data that waits for the socket.
  if (packet_count_ > 0 || !stream_->copy_due()) return;
  // A stop takes the queue of its data; other signals that of control messages. If the copy is not
  // sent, the stream still carries its messages.
  const SegmentTag tag{.priority = stream_->stop_queue().value_or(kControlPriority)};
  const UdpPacket packet{stream_->take_copy(), {}};
  if (packet.size() == 0) return;
  static_cast<void>(udp_[path_of_copy()].send({&packet, 1}, tensor::traffic_class_of(tag, dscp_)));
}

std::uint32_t DlcpPeer::path_of_copy() {
  if (stream_->stop_queue()) return batch_.path;
  next_copy_ = (next_copy_ + 1) % static_cast<std::uint32_t>(udp_.size());
  return next_copy_;
}

void DlcpPeer::send_signals() {
  copy_signals();
  if (const std::string wrong = stream_->flush(); !wrong.empty()) {
    lose({ErrorCode::kPeerLost, wrong});
  }
}

void DlcpPeer::deliver_events() {
  proto::TransferOutcome outcome;
  while (dlcp_.poll_event(outcome)) {
    const auto found = active_.find(reinterpret_cast<const Transfer::State*>(outcome.cookie));
    CHECK(found != active_.end());
    const std::shared_ptr<Transfer::State> transfer = std::move(found->second);
    active_.erase(found);
    // Packets that wait for the socket point into the tensor, which is now the caller's again.
    if (packet_count_ > 0 && batch_.cookie == outcome.cookie) {
      packet_count_ = 0;
      if (!udp_.empty()) udp_[batch_.path].abandon();
    }
    transfer->finish(outcome);
  }
}

void DlcpPeer::watch_writable() {
  const auto watch = [&](int fd, bool wanted) {
    loop_->change(fd, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
  };
  const auto wanted = busy_ ? std::optional(batch_.path) : std::nullopt;
  if (wanted != watched_) {
    if (watched_) watch(udp_[*watched_].fd(), false);
    if (wanted) watch(udp_[*wanted].fd(), true);
    watched_ = wanted;
  }
  if (stream_->blocked() == watching_signals_) return;
  watching_signals_ = stream_->blocked();
  watch(stream_->fd(), watching_signals_);
}

NetCounters DlcpPeer::counters() const {
  const proto::DlcpCounters& dlcp = dlcp_.counters();
  NetCounters counters;
  counters.packets_sent = dlcp.segments_sent;
  counters.packets_retransmitted = dlcp.segments_retransmitted;
  counters.packets_received = dlcp.segments_placed;
  counters.packets_marked = dlcp.marks;
  counters.packets_unused = dlcp.duplicate + dlcp.late + dlcp.stale;
  counters.packets_bad = bad_packets_ + dlcp.bad_segment + dlcp.bad_length;
  counters.packets_corrupt = corrupt_packets_;
  counters.messages_bad = dlcp.bad_messages;
  counters.grants_sent = grants_sent_;
  counters.grants_received = dlcp.grants_received;
  if (guard_) guard_->count(counters);
  counters.send_errors = send_errors_;
  for (const UdpSocket& udp : udp_) {
    counters.send_calls += udp.send_calls();
    counters.receive_calls += udp.receive_calls();
  }
  return counters;
}

NetCounters DlcpPeer::counters_after_end() const {
  const std::lock_guard lock(mutex_);
  return last_counters_;
}

}  // namespace thalweg::net
