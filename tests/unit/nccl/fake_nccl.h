// A driver that loads the plugin and calls it as NCCL does: by the tables that it finds by name,
// from one thread for each communicator, never waiting in a call.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "nccl/abi.h"

namespace thalweg::nccl {

// Long enough for the busiest machine; no test waits that long when all is well.
inline constexpr auto kPatience = std::chrono::seconds(120);

// The table of this version in the built library; it is loaded once.
const void* plugin_table(int version);
inline const NetV11& newest() { return *static_cast<const NetV11*>(plugin_table(11)); }

// What the plugin has logged since the last call, one line a message: "WARN …", "INFO …".
std::string take_log();
void fake_logger(int level, unsigned long flags, const char* file, int line, const char* format,
                 ...);

using Variables = std::vector<std::pair<std::string, std::string>>;

// Sets variables of the environment and calls init(); unsets them when destroyed.
class Initialized {
 public:
  explicit Initialized(Variables variables = {});
  ~Initialized();
  Initialized(const Initialized&) = delete;
  Initialized& operator=(const Initialized&) = delete;
  [[nodiscard]] NcclResult result() const { return result_; }
  [[nodiscard]] void* context() const { return context_; }

 private:
  std::vector<std::string> names_;
  NcclResult result_ = NcclResult::kSuccess;
  void* context_ = nullptr;
};

// A listener, and the two ends of a connection in this process. What is not null is closed at the
// end.
struct Pair {
  Pair() = default;
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() { close(); }
  void close();
  // Listens, then connects and accepts in turn until both ends are there or one fails.
  NcclResult open();
  NcclResult listen();
  NcclResult step();  // one call of connect() and one of accept()
  [[nodiscard]] bool complete() const { return sender != nullptr && receiver != nullptr; }

  alignas(8) std::byte handle[kNcclHandleSize] = {};
  void* listener = nullptr;
  void* sender = nullptr;
  void* receiver = nullptr;
};

// Calls until a request comes back, since the plugin may have too many in flight.
void* post_send(void* connection, void* data, std::size_t size);
void* post_receive(void* connection, void* data, std::size_t size);
// One call of test(); `size` is set when it is done.
NcclResult test_once(void* request, bool& done, int* size = nullptr);
// Tests both until both are done, or one fails.
NcclResult finish(std::vector<void*> requests);

// Bytes that depend on place and `seed`.
std::vector<std::byte> pattern(std::size_t size, std::size_t seed);

// Whether it is too late to go on waiting.
class Patience {
 public:
  [[nodiscard]] bool over() const { return std::chrono::steady_clock::now() > until_; }

 private:
  std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now() + kPatience;
};

}  // namespace thalweg::nccl
