// Two processes with a link between them, for benchmarks: each in a network namespace of its own,
// joined by a pair of virtual Ethernet devices, where the user may make such (root); otherwise both
// on loopback.
//
// The namespaces have no names. They end with the processes, and the processes with this one,
// however it ends: nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <thalweg/result.h>

#include "net/fd.h"

namespace thalweg {

// One of the two processes, as the function that runs in it sees it.
class PairProcess {
 public:
  PairProcess(bool sender, bool own_network, Fd channel)
      : sender_(sender), own_network_(own_network), channel_(std::move(channel)) {}

  [[nodiscard]] bool sender() const { return sender_; }
  // False: both are on loopback.
  [[nodiscard]] bool own_network() const { return own_network_; }
  // Where the receiver can be reached, without a port.
  [[nodiscard]] const char* receiver_host() const {
    return own_network_ ? "10.77.0.2" : "127.0.0.1";
  }

  // To the other process, and from it. Small values; both fail when it has ended.
  void tell(std::uint64_t value) const;
  [[nodiscard]] std::uint64_t hear() const;
  // Returns when both have called it.
  void meet() const;

  // The device of this end: its rate to `gbps` (0: as fast as it goes), and what arrives at it lost
  // with the probability `per_mille` in a thousand. Requires own_network().
  void shape(double gbps) const;
  void lose(int per_mille) const;

 private:
  bool sender_;
  bool own_network_;
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

// True if this user may make network namespaces, and the tools for it are here; else why not.
[[nodiscard]] Result<bool> can_make_networks();

}  // namespace thalweg
