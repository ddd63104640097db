#include "lab/emulation/network_pair.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "launch/pipe.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

constexpr int kFailed = 3;

// The pipe to which a process of the pair writes why it failed.
int failure_pipe = -1;

void must(const Status& status) {
  if (!status.ok()) fail_pair(status.error().message());
}

// Binds each process to a core of its own if there are two. Both on one core would measure the
// scheduler.
void take_core(bool sender) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  std::size_t core = 0;
  for (int skip = sender ? 0 : 1;; ++core) {
    if (CPU_ISSET(core, &allowed) && skip-- == 0) break;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  sched_setaffinity(0, sizeof(own), &own);
}

[[noreturn]] void run_process(bool sender, const EmulatedNetwork* network, net::Fd other,
                              const std::function<void(PairProcess&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == 1) _exit(kFailed);
  if (network != nullptr) must(network->enter(sender ? 0 : 1));
  take_core(sender);
  PairProcess process(sender, network, std::move(other));
  body(process);
  process.meet();
  _exit(0);
}

}  // namespace

void fail_pair(const std::string& text) {
  if (failure_pipe >= 0) {
    [[maybe_unused]] const ssize_t written = write(failure_pipe, text.data(), text.size());
  }
  _exit(kFailed);
}

void PairProcess::tell(std::uint64_t value) const {
  if (send(other_.get(), &value, sizeof(value), MSG_NOSIGNAL) != sizeof(value)) {
    fail_pair("");
  }
}

std::uint64_t PairProcess::hear() const {
  std::uint64_t value = 0;
  if (recv(other_.get(), &value, sizeof(value), 0) != sizeof(value)) fail_pair("");
  return value;
}

void PairProcess::meet() const {
  tell(0);
  [[maybe_unused]] const std::uint64_t other = hear();
}

void PairProcess::shape(double gbps) const { must(network_->shape(host(), gbps)); }
void PairProcess::lose(double probability) const { must(network_->lose(host(), probability)); }

Result<SharedMemory> SharedMemory::make(std::size_t size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return net::system_error("no shared memory", errno);
  return SharedMemory(data, size);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

Status run_network_pair(bool own_network, const std::function<void(PairProcess&)>& body) {
  std::optional<EmulatedNetwork> network;
  if (own_network) {
    THALWEG_TRY(network, EmulatedNetwork::make(2));
  }
  std::array<int, 2> sockets{};
  std::array<int, 2> failure{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0 ||
      pipe2(failure.data(), O_CLOEXEC) != 0) {
    return net::system_error("cannot connect two processes by a socket", errno);
  }
  std::array<net::Fd, 2> ends = {net::Fd(sockets[0]), net::Fd(sockets[1])};
  net::Fd failure_in(failure[0]);
  net::Fd failure_out(failure[1]);
  std::array<pid_t, 2> children{};
  for (std::size_t i = 0; i < 2; ++i) {
    children[i] = fork();
    if (children[i] == 0) {
      failure_pipe = failure_out.get();
      ends[1 - i].reset();
      run_process(i == 0, network ? &*network : nullptr, std::move(ends[i]), body);
    }
    if (children[i] < 0) fail_pair("cannot fork");
  }
  for (net::Fd& end : ends) end.reset();
  failure_out.reset();
  // Returns when both processes have ended, because each holds the other end of the pipe.
  const std::string text = launch::read_all(failure_in.get());
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  if (good) return ok_status();
  return Error(text.empty() ? "a process of the benchmark ended early" : text);
}

}  // namespace thalweg::lab
