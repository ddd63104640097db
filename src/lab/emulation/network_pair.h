// Two processes with a link between them, for benchmarks. Each runs on a host of an EmulatedNetwork
// if the user may make one (root); otherwise both run on loopback. The processes end with this one,
// however it ends, so nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <thalweg/result.h>

#include "lab/emulation/emulated_network.h"
#include "net/io/fd.h"

namespace thalweg::lab {

// One of the two processes, for the function that runs in it.
class PairProcess {
 public:
  // `network`: null if both processes are on loopback. `other`: a socket to the other process.
  PairProcess(bool sender, const EmulatedNetwork* network, net::Fd other)
      : sender_(sender), network_(network), other_(std::move(other)) {}

  [[nodiscard]] bool sender() const { return sender_; }
  // False if both processes are on loopback.
  [[nodiscard]] bool own_network() const { return network_ != nullptr; }
  // The IP address of each process.
  [[nodiscard]] std::string sender_host() const { return address(0); }
  [[nodiscard]] std::string receiver_host() const { return address(1); }

  // Sends a number to the other process, and receives one from it. If the other process has ended,
  // this one ends too.
  void tell(std::uint64_t value) const;
  [[nodiscard]] std::uint64_t hear() const;
  // Returns when both have called it.
  void meet() const;

  // As EmulatedNetwork::shape() and lose(), for the host of this process. Requires own_network().
  void shape(double gbps) const;
  void lose(double probability) const;

 private:
  [[nodiscard]] int host() const { return sender_ ? 0 : 1; }
  [[nodiscard]] std::string address(int host) const {
    return network_ == nullptr ? "127.0.0.1" : EmulatedNetwork::address(host);
  }

  bool sender_;
  const EmulatedNetwork* network_;
  net::Fd other_;
};

// Memory that both processes write and that the process which started them reads.
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

// Runs `body` in two child processes and waits for both. `body` reports through SharedMemory. If a
// process fails, the error is the text that it gave to fail_pair().
[[nodiscard]] Status run_network_pair(bool own_network,
                                      const std::function<void(PairProcess&)>& body);

// Ends the calling process of the pair; the text is for the user.
[[noreturn]] void fail_pair(const std::string& text);

}  // namespace thalweg::lab
