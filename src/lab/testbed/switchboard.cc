#include "lab/testbed/switchboard.h"

#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "lab/testbed/frame.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

// Frames read from one device before others get their turn.
constexpr int kFramesPerTurn = 64;

std::int64_t nanoseconds_since_1970() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Switchboard::Switchboard(const topology::Topology& topology, const TestbedSettings& settings,
                         std::vector<TestbedHost> hosts, std::unique_ptr<net::EventLoop> loop,
                         net::Fd listener, net::Fd ends,
                         std::vector<std::unique_ptr<Restartable>> aggregators)
    : topology_(topology),
      settings_(settings),
      hosts_(std::move(hosts)),
      loop_(std::move(loop)),
      ends_(std::move(ends)),
      server_(*loop_, std::move(listener), {}, *this),
      network_(topology, settings.network, settings.mtu),
      aggregators_(std::move(aggregators)),
      paused_(hosts_.size()),
      scratch_(settings.mtu + 2 * kEthernetHeader),
      epoch_ns_(nanoseconds_since_1970() - net::monotonic_now().since_start().ps() / 1000),
      now_(net::monotonic_now()),
      started_(now_) {
  for (const topology::Link& link : topology.links()) rates_.push_back(link.spec.rate);
}

Switchboard::~Switchboard() {
  for (const TestbedHost& host : hosts_) loop_->remove(host.device.get());
  loop_->remove(ends_.get());
}

Result<std::unique_ptr<Switchboard>> Switchboard::make(
    const topology::Topology& topology, const TestbedSettings& settings,
    std::vector<TestbedHost> hosts, net::Fd listener, net::Fd ends,
    std::vector<std::unique_ptr<Restartable>> aggregators) {
  CHECK(static_cast<int>(hosts.size()) == topology.host_count());
  THALWEG_TRY(std::unique_ptr<net::EventLoop> loop, net::EventLoop::make());
  std::unique_ptr<Switchboard> board(new Switchboard(topology, settings, std::move(hosts),
                                                     std::move(loop), std::move(listener),
                                                     std::move(ends), std::move(aggregators)));
  THALWEG_TRY_STATUS(board->loop_->add(board->ends_.get(), EPOLLIN, *board));
  THALWEG_TRY_STATUS(board->server_.start());
  for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
    const auto fd = static_cast<std::size_t>(board->hosts_[rank.index()].device.get());
    if (board->host_of_fd_.size() <= fd) board->host_of_fd_.resize(fd + 1);
    board->host_of_fd_[fd] = rank;
    THALWEG_TRY_STATUS(board->loop_->add(static_cast<int>(fd), EPOLLIN, *board));
  }
  return board;
}

void Switchboard::run() {
  loop_->run([this]() -> std::optional<Time> {
    now_ = net::monotonic_now();
    network_.run(now_, *this);
    do_stalls();
    const std::optional<Time> next = network_.next_event();
    if (!stalls_) return next;
    return next ? std::min(*next, stalls_->next()) : stalls_->next();
  });
}

void Switchboard::do_stalls() {
  while (stalls_) {
    const auto change = stalls_->poll(now_);
    if (!change) return;
    hold_or_release(change->host);
  }
}

void Switchboard::hold_or_release(Rank host) {
  const bool stalled = stalls_ && stalls_->stalled() == host;
  network_.fabric().set_host_paused(host, stalled || paused_[host.index()]);
}

void Switchboard::on_ready(int fd, std::uint32_t) {
  if (fd == ends_.get()) {
    loop_->stop();
    return;
  }
  read_device(host_of_fd_[static_cast<std::size_t>(fd)]);
}

void Switchboard::read_device(Rank host) {
  const int device = hosts_[host.index()].device.get();
  now_ = net::monotonic_now();
  network_.run(now_, *this);
  for (int i = 0; i < kFramesPerTurn; ++i) {
    const ssize_t got = read(device, scratch_.data(), scratch_.size());
    if (got <= 0) return;
    const std::span<const std::uint8_t> frame(scratch_.data(), static_cast<std::size_t>(got));
    if (const auto answer = answer_arp(frame, topology_.host_count())) {
      deliver(host, *answer);
    } else {
      network_.send(now_, host, frame);
    }
  }
}

void Switchboard::deliver(Rank host, std::span<const std::uint8_t> frame) {
  const ssize_t written = write(hosts_[host.index()].device.get(), frame.data(), frame.size());
  if (written < 0) ++undelivered_;
}

void Switchboard::crossed(Time when, topology::ArcId arc, std::span<const std::uint8_t> frame) {
  for (Capture& capture : captures_) {
    if (!capture.arcs[arc.index()] || (capture.most > 0 && capture.frames == capture.most)) {
      continue;
    }
    ++capture.frames;
    capture.file.add(epoch_ns_ + when.since_start().ps() / 1000, frame);
  }
}

}  // namespace thalweg::lab
