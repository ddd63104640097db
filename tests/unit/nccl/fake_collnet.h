// A driver that calls the CollNet tables of the plugin as NCCL does: each rank listens, gets the
// handles of all, connects, registers one piece of memory with slots for sending and receiving, and
// posts sums of whole slots.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nccl/coll_abi.h"
#include "nccl/fake_nccl.h"
#include "switchd/daemon.h"
#include "wire/authenticate.h"

namespace thalweg::nccl {

const void* coll_table(int version);
inline const CollNetV11& coll() { return *static_cast<const CollNetV11*>(coll_table(11)); }

std::unique_ptr<switchd::SwitchDaemon> start_switch(const std::optional<wire::JobKey>& key = {});
// A counter of the jobs that the switch has now, all together.
std::uint64_t switch_counter(const switchd::SwitchDaemon& daemon, const std::string& name,
                             const std::optional<wire::JobKey>& key = {});

// Both plugins, initialized; THALWEG_SWITCH is `switches` unless that is empty.
class CollInitialized {
 public:
  explicit CollInitialized(const std::string& switches, Variables variables = {});
  [[nodiscard]] NcclResult result() const { return result_; }
  [[nodiscard]] int devices() const { return devices_; }

 private:
  Initialized net_;
  NcclResult result_ = NcclResult::kSuccess;
  int devices_ = 0;
};

using HandleSlot = std::array<std::byte, kNcclHandleSize>;

// One rank. What is not null is closed at the end, and the memory is given back before that, as
// NCCL does.
class CollRank {
 public:
  CollRank() = default;
  ~CollRank() { close(); }
  CollRank(const CollRank&) = delete;
  CollRank& operator=(const CollRank&) = delete;

  NcclResult listen();
  // As NCCL, it closes the listener if that went well, and otherwise forgets it.
  NcclResult connect(std::vector<HandleSlot>& handles, int rank);
  // Gives the slots: as many bytes for sending as for receiving, all 0.
  void make_memory(std::size_t slot_bytes, std::size_t slots);
  void free_memory();
  void close();

  [[nodiscard]] std::byte* send_slot(std::size_t slot) {
    return memory_.data() + slot * slot_bytes_;
  }
  [[nodiscard]] std::byte* receive_slot(std::size_t slot) {
    return memory_.data() + memory_.size() / 2 + slot * slot_bytes_;
  }
  // Posts until the plugin takes it. Null: it failed, and `result` says how.
  void* post(void* send, void* receive, std::size_t count, int type, NcclResult* result = nullptr);
  [[nodiscard]] void* collective() const { return collective_; }

  HandleSlot handle = {};

 private:
  void* listener_ = nullptr;
  void* collective_ = nullptr;
  std::vector<std::byte> memory_;
  std::size_t slot_bytes_ = 0;
  void* send_memory_ = nullptr;
  void* receive_memory_ = nullptr;
};

// Tests a request until it is over, or fails.
NcclResult finish_sum(void* request);

// Makes communicators of `ranks` ranks, each in a thread, and runs `body` in all.
void run_coll_ranks(int ranks, const std::function<void(CollRank&, int rank)>& body);
// The same up to connect(), whose results are returned.
std::vector<NcclResult> connect_coll_ranks(std::vector<std::unique_ptr<CollRank>>& ranks);

// Elements of NCCL's types as numbers, to write and to read.
std::size_t element_bytes(int type);
void put_element(std::byte* at, int type, double value);
double element_at(const std::byte* at, int type);
inline constexpr std::array<int, 4> kSummedTypes = {kNcclInt32, kNcclFloat16, kNcclFloat32,
                                                    kNcclBfloat16};
// A whole number that depends on rank and place, and small enough that all sums are exact.
double value_of(int rank, std::size_t place);
void fill_values(std::byte* data, int type, std::size_t count, int rank);
// Whether the elements are the sums of those of all ranks; the first that is not, is told.
testing::AssertionResult holds_sums(const std::byte* data, int type, std::size_t count, int ranks);

}  // namespace thalweg::nccl
