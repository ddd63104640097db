// Two processes with a link between them, for benchmarks: each on a host of an EmulatedNetwork,
// where the user may make such (root); otherwise both on loopback. The processes end with this one,
// however it ends: nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <thalweg/result.h>

#include "cli/emulated_network.h"
#include "net/fd.h"

namespace thalweg {

// One of the two processes, as the function that runs in it sees it.
class PairProcess {
 public:
  // `network`: none if both are on loopback.
  PairProcess(bool sender, const EmulatedNetwork* network, Fd channel)
      : sender_(sender), network_(network), channel_(std::move(channel)) {}

  [[nodiscard]] bool sender() const { return sender_; }
  // False: both are on loopback.
  [[nodiscard]] bool own_network() const { return network_ != nullptr; }
  // Where each can be reached, without a port.
  [[nodiscard]] std::string sender_host() const { return address(0); }
  [[nodiscard]] std::string receiver_host() const { return address(1); }

  // To the other process, and from it. Small values; both fail when it has ended.
  void tell(std::uint64_t value) const;
  [[nodiscard]] std::uint64_t hear() const;
  // Returns when both have called it.
  void meet() const;

  // As EmulatedNetwork's, of this end. Requires own_network().
  void shape(double gbps) const;
  void lose(double probability) const;

 private:
  [[nodiscard]] int host() const { return sender_ ? 0 : 1; }
  [[nodiscard]] std::string address(int host) const {
    return network_ == nullptr ? "127.0.0.1" : EmulatedNetwork::address(host);
  }

  bool sender_;
  const EmulatedNetwork* network_;
  Fd channel_;
};

// What both processes may write, and who started them reads.
class SharedMemory {
 public:
  static Result<SharedMemory> make(std::size_t size);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  SharedMemory(void* data, std::size_t size) : data_(data), size_(size) {}
  void* data_;
  std::size_t size_;
};

// Runs `body` in two processes and waits for both. It reports by shared memory; an error is the
// text of what either printed of itself through fail().
[[nodiscard]] Status run_network_pair(bool own_network,
                                      const std::function<void(PairProcess&)>& body);

// Ends a process of the pair, with a text for the user.
[[noreturn]] void fail_pair(const std::string& text);

}  // namespace thalweg
