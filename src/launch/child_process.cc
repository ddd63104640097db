// The child's input, output and errors are anonymous files in memory, not pipes: no one has to move
// bytes while it runs, and nothing can block or raise SIGPIPE.
#include "launch/child_process.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "launch/memory_file.h"
#include "launch/spawn.h"

namespace thalweg::launch {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{5};

// Waits until the child has ended. At the limit kills it and returns false.
bool wait_for(pid_t child, std::chrono::milliseconds limit, int& status) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended == 0 && std::chrono::steady_clock::now() >= deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

Result<ChildOutcome> run_child(const ChildRequest& request) {
  const auto failed = [&](const std::string& reason) {
    return Error(fmt::format("cannot run {}: {}", request.command.front(), reason));
  };
  MemoryFile in("input");
  MemoryFile out("output");
  MemoryFile err("errors");
  if (in.descriptor() < 0 || out.descriptor() < 0 || err.descriptor() < 0 ||
      !in.fill(request.input)) {
    return failed(std::strerror(errno));
  }
  THALWEG_TRY(const pid_t child, spawn({.command = request.command,
                                        .environment = request.environment,
                                        .in = in.descriptor(),
                                        .out = out.descriptor(),
                                        .err = err.descriptor()}));
  int status = 0;
  if (!wait_for(child, request.limit, status)) {
    return failed(fmt::format("it took more than {} s", request.limit.count() / 1000));
  }
  return ChildOutcome{.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                      .output = out.content(),
                      .errors = err.content()};
}

}  // namespace thalweg::launch
