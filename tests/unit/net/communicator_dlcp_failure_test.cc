// Ranks that die or leave while an allreduce over DLCP starts.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>

#include "net/ranks.h"

namespace thalweg::net {
namespace {

// There are no streams yet. Some ranks are refused by the dead one, some wait for it to connect,
// and some wait for those.
TEST(CommunicatorDlcpFailure, rank_dies_while_ranks_connect__is_named_by_all_soon) {
  constexpr int kVictim = 1;
  constexpr auto kPause = std::chrono::milliseconds(400);
  CommunicatorOptions options = over_dlcp();
  options.scheme = "ring";
  options.size = 5;
  options.store = free_address();
  std::vector<pid_t> processes;
  const auto begin = std::chrono::steady_clock::now();
  for (options.rank = 0; *options.rank < *options.size; ++*options.rank) {
    processes.push_back(fork_rank(options, [&](Communicator& all) {
      std::vector<float> values(1000, 1.0F);
      const auto call = [&] { return all.allreduce(TensorSpan::of(values), {}); };
      if (all.rank() == kVictim) {
        const std::thread caller([&] { static_cast<void>(call()); });
        std::this_thread::sleep_for(kPause);
        raise(SIGKILL);
      }
      std::this_thread::sleep_for(kPause * 2);
      const Status status = call();
      if (!status.ok() && status.error().rank() == kVictim) return true;
      fmt::print(stderr, "rank {}: {}\n", all.rank(), status.ok() ? "" : status.error().message());
      return false;
    }));
  }
  for (int rank = 0; rank < *options.size; ++rank) {
    EXPECT_EQ(exit_code(processes[static_cast<std::size_t>(rank)]),
              rank == kVictim ? 128 + SIGKILL : 0);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// Another thread leaves while the call starts. The tensor is the caller's again as soon as the
// operation is over, even if the call that starts it has not returned.
TEST(CommunicatorDlcpFailure, leaving__while_a_call_starts_keeps_off_its_tensor) {
  CommunicatorOptions options = over_dlcp();
  options.size = 2;
  options.channel_bytes = std::size_t{1} << 30;  // so that the tensor is not divided
  options.store = free_address();
  std::vector<pid_t> processes;
  for (options.rank = 0; *options.rank < 2; ++*options.rank) {
    processes.push_back(fork_rank(options, [](Communicator& all) {
      std::vector<float> small(100);
      if (!all.allreduce(TensorSpan::of(small), {}).ok()) return false;
      constexpr std::size_t kBytes = std::size_t{64} << 20;
      void* const tensor =
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (tensor == MAP_FAILED) return false;
      std::memset(tensor, 0, kBytes);
      std::thread other([&all] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        all.leave();
      });
      const auto operation =
          all.allreduce_async({tensor, kBytes / sizeof(float), DType::kFloat32},
                              {.op = ReduceOp::kMean, .loss_bound = 0.1, .on_over = [tensor] {
                                 mprotect(tensor, kBytes, PROT_NONE);
                               }});
      other.join();
      const bool failed = operation.ok() && !operation->wait().ok();
      const Communicator gone = std::move(all);  // its threads end before the process does
      return failed;
    }));
  }
  for (const pid_t process : processes) EXPECT_EQ(exit_code(process), 0);
}

}  // namespace
}  // namespace thalweg::net
